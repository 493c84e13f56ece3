"""Who is logged in to the dashboard: login tokens that work once, and the sessions that they are exchanged for.

Both are files under DATA_DIR/dashboard that only their owner can read, named after the SHA-256 of a random secret; the secret
itself is never stored. Root gives what it makes to the owner of DATA_DIR, so that a service can use root's links. Whoever removes a token's file has used the token, so of two attempts one succeeds. Sessions outlive
the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe

import orjson

from shared.clock import now_ms
from shared.errors import ConfigurationError
from shared.private_directory import make_private_directory
from shared.root_files import hand_over, hand_over_directory
from shared.value import value

TOKEN_LIFETIME = timedelta(hours=1)
SESSION_LIFETIME = timedelta(hours=12)
SECRET_BYTES = 32
NAME_LIMIT = 64
_TOKEN, _SESSION = "token", "session"


class Role(StrEnum):
    """VIEW sees numbers and states. OPERATE also reads what was said, and repairs. ADMIN also deletes, and sees settings
    and all that is kept of a person."""

    VIEW = "view"
    OPERATE = "operate"
    ADMIN = "admin"

    def may(self, needed: Role) -> bool:
        """Whether this role includes the other."""
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(needed)


@value
class Login:
    """Somebody who is logged in. `secret` is what their cookie holds."""

    name: str
    role: Role
    secret: str

    @property
    def form_token(self) -> str:
        """What every form of this session carries. Only a page of this session can know it."""
        return sha256(f"form:{self.secret}".encode()).hexdigest()


class LoginFiles:
    """The tokens and sessions in a directory. Every process that can read the directory shares them."""

    def __init__(self, data_dir: Path) -> None:
        self._directory = data_dir / "dashboard"

    def make_token(self, name: str, role: Role) -> str:
        """A token that logs in once, within an hour."""
        return self._write(_TOKEN, name, role, TOKEN_LIFETIME)

    def exchange(self, token: str) -> Login | None:
        """A session for a token, which is used up by it. None: it was used before, is too old, or never was."""
        path = self._path(_TOKEN, token)
        found = _read(path, token)
        try:
            path.unlink()
        except OSError:  # never was, or somebody else used it just now
            return None
        if found is None:
            return None
        return Login(found.name, found.role, self._write(_SESSION, found.name, found.role, SESSION_LIFETIME))

    def find(self, secret: str) -> Login | None:
        """The session that a cookie names, if it has not ended."""
        return _read(self._path(_SESSION, secret), secret)

    def end(self, secret: str) -> None:
        """Log out."""
        self._path(_SESSION, secret).unlink(missing_ok=True)

    def _path(self, kind: str, secret: str) -> Path:
        return self._directory / f"{kind}-{sha256(secret.encode(errors='replace')).hexdigest()}"

    def _write(self, kind: str, name: str, role: Role, lifetime: timedelta) -> str:
        secret = token_urlsafe(SECRET_BYTES)
        until = now_ms() + int(lifetime.total_seconds() * 1000)
        try:
            make_private_directory(self._directory)
            self._directory.chmod(0o700)
            hand_over_directory(self._directory)
            for old in self._outdated():
                old.unlink(missing_ok=True)
            with os.fdopen(
                os.open(self._path(kind, secret), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
            ) as file:
                hand_over(file.fileno(), self._directory)
                file.write(orjson.dumps({"name": name[:NAME_LIMIT], "role": role, "until": until}))
        except OSError as error:
            raise ConfigurationError(f"{self._directory} cannot keep logins: {error.strerror}") from None
        return secret

    def _outdated(self) -> Iterator[Path]:
        """Files that are too old to be of use. One that is being written now is not."""
        for kind, lifetime in ((_TOKEN, TOKEN_LIFETIME), (_SESSION, SESSION_LIFETIME)):
            for path in self._directory.glob(f"{kind}-*"):
                with suppress(FileNotFoundError):  # somebody else removed it just now
                    if path.stat().st_mtime * 1000 < now_ms() - lifetime.total_seconds() * 1000:
                        yield path


def _read(path: Path, secret: str) -> Login | None:
    """What a file says; None for one that is not there, too old, or not whole."""
    try:
        kept = orjson.loads(path.read_bytes())
        if kept["until"] < now_ms():
            return None
        return Login(str(kept["name"]), Role(kept["role"]), secret)
    except (OSError, ValueError, KeyError, TypeError):
        return None
