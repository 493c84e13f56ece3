"""The settings in force, secrets hidden."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from pydantic import BaseModel, SecretStr
from starlette.responses import Response

from keyturn.dashboard.desk import Desk, Visit
from shared.platforms import PLATFORMS
from shared.settings import PREFIX, SECTIONS, Settings
from shared.value import value

HIDDEN = "•••••• (set)"


@value
class SettingLine:
    """One setting in force. `changed`: it is not the default."""

    name: str
    text: str
    changed: bool


async def show(desk: Desk, visit: Visit) -> Response:
    return desk.page("settings.html", visit, sections=sections(desk.pipe.settings))


def sections(settings: Settings) -> list[tuple[str, list[SettingLine]]]:
    """Every setting by section, without any secret: what is secret is shown as set or unset."""
    secrets = [secret for secret in settings.secret_values() if len(secret) > 3]
    found = [(kind.TITLE, list(_lines(settings, kind, "", secrets))) for kind in SECTIONS]
    for name in PLATFORMS:
        if (block := settings.platform(name)) is not None:
            found.append((PLATFORMS[name].title, list(_lines(block, type(block), f"{name.upper()}__", secrets))))
    return found


def _lines(model: BaseModel, kind: type[BaseModel], prefix: str, secrets: list[str]) -> Iterator[SettingLine]:
    for name, field in kind.model_fields.items():
        kept = getattr(model, name)
        if isinstance(kept, BaseModel):
            yield from _lines(kept, type(kept), f"{prefix}{name.upper()}__", secrets)
        else:
            changed = kept != field.get_default(call_default_factory=True)
            yield SettingLine(f"{PREFIX}{prefix}{name.upper()}", _text(kept, secrets), changed)


def _text(kept: object, secrets: list[str]) -> str:
    if kept is None or kept == ():
        return "unset"
    if isinstance(kept, SecretStr) or (isinstance(kept, tuple) and any(isinstance(one, SecretStr) for one in kept)):
        return HIDDEN
    text = ", ".join(map(str, kept)) if isinstance(kept, tuple) else str(kept)
    if "://" in text and "@" in text and urlsplit(text).password:
        return HIDDEN
    for secret in secrets:
        text = text.replace(secret, "••••••")
    return text
