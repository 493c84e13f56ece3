"""Who may use the API: whoever shows one of its keys, for what the key's scopes say."""

from __future__ import annotations

import hmac

from starlette.requests import Request

from producers.receiving import secret_name
from producers.server.body import header_values
from shared.errors import Denied, OutOfScope
from shared.platforms.api import NAME, ApiSettings, Scope, sender_of
from shared.session_key import SessionKey
from shared.value import value


@value
class Caller:
    """Somebody who showed a key: its name, which is the account of its conversations, and what quotas call them."""

    name: str
    sender: str

    def owns(self, key: SessionKey) -> bool:
        """Whether a conversation is one of this key's. To the caller, those of others do not exist."""
        return key.platform == NAME and key.account == self.name


class ApiKeys:
    """The bearer keys of the settings. Where there are none, nobody gets in."""

    def __init__(self, settings: ApiSettings) -> None:
        found = [(name, secret.get_secret_value().encode()) for name, secret in settings.secrets]
        self._secrets = [secret for _, secret in found]
        self._callers = [Caller(name, sender_of(name) if name else secret_name(secret)) for name, secret in found]
        self._named = settings.named_keys

    def check(self, request: Request, scope: Scope) -> Caller:
        """Who calls, by the one Authorization header; Denied unless it carries one of our keys, OutOfScope where that key is
        for other things. How long it takes tells nothing of a key."""
        given = header_values(request, "authorization")
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        matches = [hmac.compare_digest(token.strip().encode("latin-1"), secret) for secret in self._secrets]
        if scheme.lower() != "bearer" or not any(matches):
            raise Denied("bearer key")
        caller = self._callers[matches.index(True)]
        if caller.name and scope not in self._named[caller.name].scopes:
            raise OutOfScope(f"{caller.name} lacks {scope}")
        return caller
