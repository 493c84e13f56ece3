"""Which conversation a chat completion belongs to, and the Inbound that it becomes. Pure.

Front ends send the whole history with each message. Where a request names its conversation, only the last message of the user
is mail: Keyturn knows the rest, and compares it only to see whether the user went back (workers/turn/editing.py). Where it names
none, the turn runs on what was sent, and nothing of it is kept. A conversation is never guessed from what was said: two chats
that begin with "hi" are two.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote
from uuid import uuid4

from producers.api.chat.request import ChatRequest
from producers.api.keys import Caller
from producers.message_body import NAME_LIMIT
from shared.codec import encode_text, message_id, storable
from shared.control import parse as parse_command
from shared.messages import Inbound, Media, Source, Terms
from shared.platforms.api import NAME
from shared.session_key import check_id
from shared.value import value

CONVERSATION_HEADERS = ("x-keyturn-session", "x-openwebui-chat-id", "x-conversation-id")
USER_HEADERS = ("x-openwebui-user-id",)
USER_NAME_HEADER = "x-openwebui-user-name"  # percent-encoded
NOT_KEPT = "local:"  # so begin the ids of Open WebUI's temporary chats


@value
class Asked:
    """A request, who brought it, and with which agent they want to talk; empty where rules decide that."""

    request: ChatRequest
    headers: Mapping[str, str]
    caller: Caller
    agent: str
    media: tuple[Media, ...] = ()  # of its message, none of them in the request itself
    is_task: bool = False  # it belongs to no conversation, whatever it names

    @property
    def conversation(self) -> str:
        """The caller's id of the conversation; empty: none is named."""
        found = _first(self.headers, CONVERSATION_HEADERS) or self.request.conversation
        return "" if self.is_task or found.startswith(NOT_KEPT) else found

    @property
    def user(self) -> str:
        return _first(self.headers, USER_HEADERS) or self.request.user


def inbound_of(asked: Asked, received_at: int) -> Inbound:
    """The message as mail; Malformed for an id that no store could keep. `Idempotency-Key` names the event of a conversation:
    a request that is repeated with it in the same conversation gets the same answer."""
    request, conversation, account = asked.request, asked.conversation, asked.caller.name
    repeated = asked.headers.get("idempotency-key", "") if conversation else ""
    event_id = storable(repeated) or f"evt_{uuid4().hex}"
    check_id(event_id)
    # Two conversations may use the same key, and neither may get the other's answer.
    id = message_id(NAME, account, encode_text([conversation, asked.agent, event_id]) if repeated else event_id)
    source = Source(
        platform=NAME,
        chat=conversation or id,
        account=account,
        user=asked.user or None,
        user_name=storable(unquote(asked.headers.get(USER_NAME_HEADER, "")))[:NAME_LIMIT] or None,
    )
    check_id(source.user)
    said = [words for words in request.said if parse_command(words) is None]
    history, said_before = (None, tuple(said)) if conversation else (request.history, ())
    terms = Terms(asked.agent, request.instructions, history, said_before, is_watched=True)
    return Inbound(id, event_id, source, request.text, asked.media, received_at=received_at, terms=terms)


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((storable(found) for name in names if (found := headers.get(name, "").strip())), "")
