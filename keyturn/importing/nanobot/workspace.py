"""Reads a nanobot workspace: one file of JSON lines for each session, the memory files, the use of models. It changes nothing.

The first line tells of the session, the others are its messages. A line that cannot be read is left out and counted, an
offset beyond the messages is 0, a time that is none is the file's. A file that may not be read is an error, never an
empty session.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from keyturn.importing.conversation import OldConversation, Skipped, TimedRow, Used, once_current
from keyturn.importing.memory_files import lines_of
from keyturn.importing.nanobot.layout import Layout
from keyturn.importing.nanobot.usage import used_in
from keyturn.importing.old_keys import place_of
from keyturn.importing.rows import object_of, objects, row_of, time_of
from keyturn.importing.titles import title_of
from shared.codec import encode_text, storable
from shared.context.history import replay_start
from shared.errors import Malformed
from shared.messages import Source
from shared.routing import Sharing

CHANNELS = frozenset(
    [
        "telegram",
        "discord",
        "slack",
        "mattermost",
        "matrix",
        "msteams",
        "whatsapp",
        "signal",
        "email",
        "feishu",
        "dingtalk",
        "qq",
        "napcat",
        "wecom",
        "weixin",
        "mochat",
        "websocket",
        "cli",
        "api",
    ]
)
UNIFIED = "unified:default"  # the one session of all channels
_THREADS = {  # how a channel appends a thread to the chat's id; elsewhere a colon belongs to the id
    "telegram": ":topic:",
    "discord": ":thread:",
    "matrix": ":thread:",
    "slack": ":",
    "mattermost": ":",
    "feishu": ":",
}
_AUTOMATION = frozenset({"heartbeat", "cron", "dream", "system", "subagent"})
_GROUP = "group:"  # how some channels begin a group's id


@dataclass(slots=True)
class SessionFile:
    """What a file says, as far as it can be read."""

    key: str
    written_at: int  # the file's own time
    rows: list[TimedRow] = field(default_factory=list)
    about: Mapping[str, Any] = field(default_factory=dict)
    corrupt: int = 0
    is_empty: bool = True

    @property
    def consolidated(self) -> int:
        """How many of its messages are in a summary. An offset that cannot be would hide what was said."""
        offset = self.about.get("last_archived", self.about.get("last_consolidated"))
        return offset if type(offset) is int and 0 <= offset <= len(self.rows) else 0

    @property
    def summary(self) -> str | None:
        """What was said in the consolidated messages, in short, if it was kept with the session."""
        told = self.metadata.get("_last_summary")
        text = told.get("text") if isinstance(told, dict) else None
        return storable(text) if self.consolidated and isinstance(text, str) and text.strip() else None

    @property
    def hidden(self) -> int:
        """How many messages the summary stands for. Before 0.3 the end of the conversation stayed visible all the same."""
        if self.summary is None:
            return 0
        if "last_archived" in self.about:
            return self.consolidated
        return replay_start([row.entry for row in self.rows], self.consolidated)

    @property
    def metadata(self) -> Mapping[str, Any]:
        found = self.about.get("metadata")
        return found if isinstance(found, dict) else {}

    def time(self, name: str) -> int:
        return time_of(self.about.get(name)) or self.written_at


class NanobotWorkspace:
    """The sessions of a workspace, the most recently active first."""

    gateway = "nanobot"

    def __init__(self, path: Path, sharing: Sharing, user: str = "me") -> None:
        """`user` is who sits at this machine's terminal."""
        self._layout = Layout.of(path, Path.home())
        self._files = sorted(self._layout.files(), key=lambda file: file.stat().st_mtime, reverse=True)
        if not self._files:
            raise Malformed(f"{path} is no nanobot workspace: it has no sessions")
        self._set_aside = self._layout.set_aside()
        self._sharing, self._user = sharing, user
        self.total = len(self._files) + len(self._set_aside)

    def used(self) -> Sequence[Used]:
        return used_in(self._layout.usage) if self._layout.usage is not None else ()

    def memory(self) -> Sequence[str]:
        files = (root / name for root in self._layout.workspaces for name in ("USER.md", "memory/MEMORY.md"))
        return tuple(note for file in files for note in lines_of(file))

    def __iter__(self) -> Iterator[OldConversation | Skipped]:
        yield from once_current(self._each())
        for path in self._set_aside:
            yield Skipped(path.name, "it is an older copy that nanobot set aside")

    def _each(self) -> Iterator[OldConversation | Skipped]:
        seen: set[str] = set()
        for path in self._files:
            found = read_file(path)
            if found is None:
                yield Skipped(path.name, "nothing in it can be read")
            elif found.key in seen:
                yield Skipped(path.name, f"a newer file has the same session, {found.key[:80]}", found.corrupt)
            else:
                seen.add(found.key)
                yield self._conversation(found)

    def _conversation(self, found: SessionFile) -> OldConversation | Skipped:
        try:
            source, per_user = _source(found.key, found.metadata)
            place = place_of(source, self._sharing, per_user=per_user, user=self._user)
        except Malformed as error:
            return Skipped(found.key[:256], str(error), found.corrupt)
        created = found.time("created_at")
        return OldConversation(
            self.gateway,
            found.key,
            place,
            _rows(found),
            created_at=created,
            updated_at=max(created, found.time("updated_at")),
            title=title_of(found.metadata.get("title"), by_hand=found.metadata.get("title_user_edited") is True),
            facts=_facts(found),
            corrupt=found.corrupt,
        )


def read_file(path: Path) -> SessionFile | None:
    """What can be read of a session; None where nothing can."""
    written_at = max(1, int(path.stat().st_mtime * 1000))
    found = SessionFile(_key_in_name(path.stem), written_at)
    understood = False
    for fields in objects(path):
        found.is_empty = False
        kind = fields.get("_type") if fields is not None else None
        if fields is not None and kind == "metadata":
            found.about, understood = fields, True
            found.key = fields["key"] if isinstance(fields.get("key"), str) and fields["key"] else found.key
        elif fields is not None and kind == "provider_state":
            understood = True  # what the model's provider remembered: of no use to another
        elif (row := _row(fields, found)) is not None:
            found.rows.append(row)
            understood = True
        else:
            found.corrupt += 1
    return found if understood or found.is_empty else None


def _row(fields: dict[str, Any] | None, found: SessionFile) -> TimedRow | None:
    if fields is None:
        return None
    last = found.rows[-1].at if found.rows else found.time("created_at")
    return row_of(_without_context(fields), otherwise_at=last)


def _without_context(fields: dict[str, Any]) -> dict[str, Any]:
    """A user's message without what the gateway added below it for the model."""
    added, content = fields.get("_runtime_context"), fields.get("content")
    if not isinstance(added, dict):
        return fields
    suffix, blocks = added.get("suffix"), added.get("blocks")
    if isinstance(content, str) and isinstance(suffix, str) and suffix and content.endswith(suffix):
        return {**fields, "content": content.removesuffix(suffix).removesuffix("\n\n")}
    if isinstance(content, list) and isinstance(blocks, list) and blocks and content[-len(blocks) :] == blocks:
        return {**fields, "content": content[: -len(blocks)]}
    return fields


def _rows(found: SessionFile) -> tuple[TimedRow, ...]:
    """Its rows. Those that a summary stands for are kept and not shown, as after /compress."""
    hidden = found.hidden
    return (*(replace(row, active=False) for row in found.rows[:hidden]), *found.rows[hidden:])


def _facts(found: SessionFile) -> dict[str, str]:
    """What the session is told beside its window: see shared/store/facts.py for the names."""
    facts: dict[str, str] = {}
    if found.summary is not None:
        facts |= {"summary": found.summary, "consolidated": str(found.hidden)}
    goal = found.metadata.get("goal_state", found.metadata.get("thread_goal"))
    goal = object_of(goal) if isinstance(goal, str) else goal
    if isinstance(goal, dict) and goal.get("status") == "active" and isinstance(goal.get("objective"), str):
        facts["goal"] = encode_text({"status": "active", "objective": storable(goal["objective"])[:4000]})
    return facts


def _source(key: str, metadata: Mapping[str, Any]) -> tuple[Source, bool]:
    """Where the session of a key is held, `channel:chat` and a thread, and whether one user of a group had it alone."""
    if key == UNIFIED:
        key = str(metadata.get("last_channel") or "")
        if not key:
            raise Malformed("it is the one session of all channels, and no chat is known to go on with it")
    channel, _, rest = key.partition(":")
    if channel not in CHANNELS:
        raise Malformed(
            f"{'no chat but automation' if channel in _AUTOMATION else 'unknown channel'}: {channel[:40]!r}"
        )
    if channel in ("cli", "api"):
        return Source(channel, rest or "direct"), False
    chat, user = _place_of_user(channel, rest)
    if user is not None:
        return Source(channel, chat, "group", user=user), True
    chat, _, thread = rest.partition(_THREADS[channel]) if channel in _THREADS else (rest, "", "")
    chat_type = "dm" if _is_direct(channel, chat) else "group"
    user = chat if channel == "telegram" and chat_type == "dm" else None  # there a person and their chat have one id
    return Source(channel, chat, chat_type, user=user, thread=thread or None), False


def _place_of_user(channel: str, rest: str) -> tuple[str, str | None]:
    """Chat and user of a key that names both: DingTalk's, where groups are kept apart by who writes."""
    chat, _, user = rest.removeprefix(_GROUP).partition(":")
    is_both = channel == "dingtalk" and rest.startswith(_GROUP) and user
    return (f"{_GROUP}{chat}", user) if is_both else (rest, None)


def _is_direct(channel: str, chat: str) -> bool:
    if channel == "telegram":
        return not chat.startswith("-")
    if channel == "whatsapp":
        return not chat.endswith("@g.us")
    if channel in ("slack", "mattermost"):
        return chat.startswith("D")
    if channel == "feishu":
        return not chat.startswith("oc_")
    return channel not in ("matrix", "discord") and not chat.startswith(_GROUP)


def _key_in_name(stem: str) -> str:
    """The session that a file is named after: in newer versions the key in base64, in older ones with `_` for `:`."""
    try:
        key = base64.urlsafe_b64decode(stem + "=" * (-len(stem) % 4)).decode()
        if base64.urlsafe_b64encode(key.encode()).decode().rstrip("=") == stem and ":" in key:
            return key
    except (binascii.Error, ValueError):
        pass
    return stem.replace("_", ":", 1)
