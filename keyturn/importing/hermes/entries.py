"""The index of a hermes home: which conversation a key talks to, and where it is held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from keyturn.importing.rows import object_of, time_of
from shared.codec import storable
from shared.errors import Malformed
from shared.messages import CHAT_TYPES, Source
from shared.value import value

PLATFORMS = frozenset(
    [
        "local",
        "telegram",
        "discord",
        "whatsapp",
        "whatsapp_cloud",
        "slack",
        "signal",
        "mattermost",
        "matrix",
        "homeassistant",
        "email",
        "sms",
        "dingtalk",
        "api_server",
        "webhook",
        "msgraph_webhook",
        "feishu",
        "wecom",
        "wecom_callback",
        "weixin",
        "bluebubbles",
        "qqbot",
        "yuanbao",
        "relay",
        "irc",
        "ntfy",
        "line",
        "teams",
        "google_chat",
        "simplex",
        "raft",
        "photon",
        "buzz",
    ]
)
ONE_ID = frozenset(
    {"telegram", "whatsapp", "signal", "sms", "email"}
)  # where a person and their private chat have one id


@value
class HermesEntry:
    """A line of the index, or what the database knows of a session that has left it."""

    session_id: str
    old_key: str  # empty: not known
    source: Source | None
    created_at: int | None = None
    updated_at: int | None = None
    is_current: bool = True  # its key talks to it
    by_user: bool = False  # its chat follows from who wrote alone, so it must not be one that several shared
    fields: Mapping[str, Any] = field(default_factory=dict)  # what else the line says


def entry_of(old_key: str, fields: Any) -> HermesEntry:
    """A line of the index; Malformed where it names no session or a platform that nobody knows."""
    if not isinstance(fields, dict):
        raise Malformed("the entry cannot be read")
    session_id = text_of(fields.get("session_id"))
    if session_id is None:
        raise Malformed("the entry names no session")
    origin = fields.get("origin")
    source = source_of(origin) if isinstance(origin, dict) else None
    if source is None and (platform := (*old_key.split(":"), "", "")[2]) not in PLATFORMS:
        raise Malformed(f"unknown platform {platform[:40]!r}")
    created, updated = time_of(fields.get("created_at")), time_of(fields.get("updated_at"))
    return HermesEntry(session_id, old_key, source, created, updated, fields=fields)


def entry_of_columns(row: Mapping[str, Any]) -> HermesEntry | None:
    """What a newer database says of a session's chat; None where it says nothing."""
    old_key, origin = text_of(row.get("session_key")), object_of(row.get("origin_json"))
    if origin is None and text_of(row.get("chat_id")):
        columns = ("chat_id", "chat_type", "thread_id", "user_id")
        origin = {"platform": row.get("source"), **{name: row.get(name) for name in columns}}
    try:
        source = source_of(origin) if origin is not None else None
    except Malformed:
        return None
    if source is None and not old_key:
        return None
    return HermesEntry(str(row["id"]), old_key or "", source, is_current=False)


def source_of(origin: Mapping[str, Any]) -> Source:
    """The origin of an entry. What an older version left out has its default; ids may have been kept as numbers."""
    platform = str(origin.get("platform", "")).lower()
    if platform not in PLATFORMS:
        raise Malformed(f"unknown platform {platform[:40]!r}")
    chat_type = origin.get("chat_type") or "dm"
    user, chat = id_of(origin.get("user_id")), id_of(origin.get("chat_id"))
    if chat is None and chat_type == "dm" and platform in ONE_ID:
        chat = user
    scope = origin["scope_id"] if origin.get("scope_id") is not None else origin.get("guild_id")
    return Source(
        platform=platform,
        chat=chat or "",
        chat_type=chat_type if chat_type in CHAT_TYPES else "other",
        user=user,
        user_alt=id_of(origin.get("user_id_alt")),
        thread=id_of(origin.get("thread_id")),
        scope=id_of(scope) if platform == "slack" else None,  # where Keyturn's own receivers put one in the key
        chat_name=text_of(origin.get("chat_name")),
        user_name=text_of(origin.get("user_name")),
        topic=(text_of(origin.get("chat_topic")) or "").strip() or None,
    )


def id_of(value: Any) -> str | None:
    """An id as text. None: the value can be none."""
    return str(value) if isinstance(value, int | str) and not isinstance(value, bool) and str(value) else None


def text_of(value: Any) -> str | None:
    """Text that a database can keep. None: there is none."""
    return storable(value) if isinstance(value, str) and value else None
