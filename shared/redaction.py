"""The deployment's redaction, with its key: from the settings, or made once and kept in DATA_DIR.

All processes of a deployment must hide an id the same way, or the prompt would change with the worker. A key that is made
up serves the processes that share DATA_DIR; with PostgreSQL there may be others, so there the settings must name one.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from shared.context.redact import Redaction
from shared.errors import ConfigurationError
from shared.private_directory import make_private_directory
from shared.root_files import hand_over
from shared.settings import Settings

FILE = "redaction.key"
KEY_BYTES = 32


def open_redaction(settings: Settings) -> Redaction | None:
    """How ids are hidden in prompts and logs; None where the settings do not ask for it."""
    if not settings.redact_pii:
        return None
    if settings.redact_key is not None:
        return Redaction(settings.redact_key.get_secret_value().encode())
    return Redaction(_kept(settings.data_dir / FILE))


def _kept(path: Path) -> bytes:
    """The key in the file. Of several processes that find none, one makes it and all read the same."""
    if not path.exists():
        make_private_directory(path.parent)
        mine = path.with_name(f"{path.name}.{os.getpid()}")
        with os.fdopen(os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            hand_over(file.fileno(), path.parent)
            file.write(secrets.token_hex(KEY_BYTES))
        try:
            os.link(mine, path)  # all of it or nothing, and never over another's
        except FileExistsError:
            pass
        finally:
            mine.unlink()
    try:
        key = bytes.fromhex(path.read_text())
    except (OSError, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigurationError(f"{path} holds no redaction key: remove it, or set KEYTURN_REDACT_KEY")
    return key
