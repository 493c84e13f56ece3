"""TLS to Redis: whom we believe, and by which certificate the server knows us."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from shared.errors import ConfigurationError
from shared.value import value

_SCHEMES = ("rediss://", "rediss+sentinel://")


@value
class RedisTls:
    """How connections to servers with `rediss` in their URL are made. Nothing of it changes the others."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    check_hostname: bool = True

    def options(self, url: str) -> dict[str, Any]:
        """What a Redis client needs to be told for this URL."""
        if not url.startswith(_SCHEMES):
            return {}
        files = {"ssl_ca_certs": self.ca_file, "ssl_certfile": self.cert_file, "ssl_keyfile": self.key_file}
        named = {name: str(path) for name, path in files.items() if path is not None}
        return {"ssl_cert_reqs": "required", "ssl_check_hostname": self.check_hostname, **named}

    def check(self) -> None:
        """A ConfigurationError where a file cannot be used: later it would look like a server that is away."""
        if self == NO_TLS:
            return
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"REDIS_TLS__CA_FILE cannot be used: {_reason(error)}") from None
        if self.cert_file is None:
            return
        try:
            context.load_cert_chain(self.cert_file, self.key_file, password=_no_password)
        except (OSError, ssl.SSLError, ValueError) as error:
            text = f"REDIS_TLS__CERT_FILE and REDIS_TLS__KEY_FILE cannot be used: {_reason(error)}"
            raise ConfigurationError(text) from None


NO_TLS = RedisTls()


def _no_password() -> str:
    raise ValueError("the key has a password; store it without one, for its owner alone")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "not in PEM form, or not a pair"
    return error.strerror or "not readable" if isinstance(error, OSError) else str(error)
