"""Sending without a question: to chats, to home channels, or to a file.

A text for a chat is accepted like a message of the chat: its id follows from the sender's key and the address, so a repeated
call sends nothing twice. Its turn adds it to the chat's transcript and to the outbox by one commit, in order with all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

from shared.address import Address
from shared.clock import now_ms
from shared.codec import encode_json, message_id, storable
from shared.door import accept
from shared.errors import CannotDo, MailboxFull, Malformed, Unavailable
from shared.homes import home_channels
from shared.lane_key import Destination
from shared.messages import Kind, OwnInbound, Source
from shared.output_file import save_output
from shared.pipeline import Pipeline
from shared.platforms import facts_of
from shared.routing import Sharing, agent_for
from shared.session_key import SessionKey
from shared.targets import Target, TargetKind
from shared.value import value

TEXT_LIMIT = 100_000  # characters
KEY_LIMIT = 256
NOTHING_TO_SAY = frozenset({".", "(silent)"})


@value
class Announcement:
    """What is to be said. `key` is the same on every try; the sender's name before it keeps the keys of two senders apart."""

    text: str
    sender: str
    key: str
    origin: Source | None = None  # where the chat `origin` is, if a chat asked for it
    at_ms: int = 0  # names the file, where it goes to one; 0: now


@value
class TargetOutcome:
    """What became of an announcement at one target."""

    target: str
    outcome: str  # accepted, known (accepted before), saved, filtered, refused
    id: str | None = None
    session_key: str | None = None
    state: str | None = None
    path: str | None = None
    reason: str | None = None


@value
class Place:
    """A chat that can be told something, and the conversation in which it is told."""

    source: Source
    key: SessionKey


async def announce(pipe: Pipeline, said: Announcement, targets: Sequence[Target]) -> tuple[TargetOutcome, ...]:
    """Tell every target, in order. One that cannot be told does not hold up the others. Malformed for a text or a key that
    is empty or too long; Unavailable when nothing could keep it: then call again with the same key."""
    check(said)
    if said.text.strip().lower() in NOTHING_TO_SAY:
        return tuple(TargetOutcome(str(target), "filtered", reason="there is nothing to say") for target in targets)
    told: list[TargetOutcome] = []
    for target in targets:
        try:
            place = await find_place(pipe, target, said.origin)
            told.append(await (_save(pipe, said, target) if place is None else _tell(pipe, said, target, place)))
        except Unavailable:
            raise
        except (CannotDo, Malformed) as error:
            told.append(TargetOutcome(str(target), "refused", reason=str(error)))
        except MailboxFull:
            told.append(TargetOutcome(str(target), "refused", reason="too many messages are waiting in this chat"))
        except OSError as error:
            told.append(TargetOutcome(str(target), "refused", reason=f"the file cannot be written: {error.strerror}"))
    return tuple(told)


def check(said: Announcement) -> None:
    """Malformed for what cannot be said."""
    if not said.text.strip() or len(said.text) > TEXT_LIMIT:
        raise Malformed(f"the text has 1 to {TEXT_LIMIT} characters")
    if not said.key or len(said.key) > KEY_LIMIT:
        raise Malformed(f"the key has 1 to {KEY_LIMIT} characters")


async def find_place(pipe: Pipeline, target: Target, origin: Source | None) -> Place | None:
    """Where a target is; None where it is a file. CannotDo where nothing can be sent to it."""
    settings = pipe.settings
    if target.kind is TargetKind.FILE or (target.kind is TargetKind.ORIGIN and origin is None):
        return None
    if origin is not None and target.kind is TargetKind.ORIGIN:
        return Place(origin, Sharing.of(settings).key_of(origin, agent_for(origin, settings)))
    if target.platform not in settings.connected:
        raise CannotDo(f"{target.platform} is not connected")
    if target.kind is TargetKind.CHAT:
        return await _at(pipe, Address(target.platform, target.account, target.chat, target.thread))
    home = (await home_channels(settings, pipe.store)).get(target.platform)
    if home is None:
        raise CannotDo(f"{target.platform} has no home channel: give /sethome there, or set HOME_CHANNEL")
    address = home.address
    return await _at(pipe, replace(address, account=target.account) if target.account else address)


async def _at(pipe: Pipeline, address: Address) -> Place:
    """The conversation at an address, if it has one for all. Where everybody has one of their own, or nobody has talked yet,
    that of the chat itself."""
    type_ = facts_of(address.platform).chat_type_of(address.chat)
    source = Source(address.platform, address.chat, type_, address.account, thread=address.thread)
    agent = agent_for(source, pipe.settings)
    known = await pipe.store.places.conversations(address, agent)
    if len(known) == 1:
        return Place(known[0].source, known[0])
    key = SessionKey(agent, source.platform, source.account, type_, source.chat, thread=source.thread)
    if known:
        key = replace(known[0], user=None, user_alt=None)
    return Place(key.source, key)


async def _tell(pipe: Pipeline, said: Announcement, target: Target, place: Place) -> TargetOutcome:
    address = place.source.address
    if (closed := await pipe.store.closed_chats.find(str(Destination(*address.place)))) is not None:
        raise CannotDo(f"the chat takes nothing from us since {closed.since:%Y-%m-%d %H:%M} UTC: {closed.reason}")
    where = encode_json([said.sender, said.key, address.platform, address.account, address.chat, address.thread])
    event_id = f"send_{blake2b(where, digest_size=15).hexdigest()}"
    inbound = OwnInbound(
        message_id(address.platform, address.account, event_id),
        event_id,
        place.source,
        storable(said.text),
        received_at=now_ms(),
        purpose=Kind.ANNOUNCEMENT,
    )
    accepted = await accept(pipe, inbound, place.key)
    outcome = "accepted" if accepted.fresh else "known"
    return TargetOutcome(str(target), outcome, accepted.id, accepted.session_key, accepted.state)


async def _save(pipe: Pipeline, said: Announcement, target: Target) -> TargetOutcome:
    at_ms = said.at_ms or now_ms()
    key, header = f"{said.sender} {said.key}", {"target": str(target)}
    path = await save_output(pipe.settings.data_dir, "send", at_ms, key, header, said.text)
    return TargetOutcome(str(target), "saved", path=str(path))
