"""Where a group needs a mention, one piece of an album or of a cut text carries it. The others come along.

kt:pieces:<whose>  JSON list of the pieces that came so far, by speaker and album, or by speaker alone for a text

An unaddressed piece is held here until an addressed one comes, for HELD at the longest; then it leaves without a trace. Only
pieces of people who may talk to us are held, and only messages that can be pieces. An addressed piece is accepted behind those
that were held, and leaves a mark without words, so that the pieces behind it are accepted as they come.

A crash at any point loses nothing that was addressed: the platform brings the addressed piece again, the mark keeps what was held
until it does, and the journal knows the pieces that it has. Two receivers cannot miss each other's pieces: each change is made
by compare-and-set, so whoever comes second sees the first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta

import orjson

from producers.hold import HeldValue, ShortHold
from shared import keys, log
from shared.busy import same_speaker
from shared.errors import Malformed
from shared.failpoints import reach
from shared.mail import decode_inbound, encode_mail
from shared.messages import Inbound
from shared.pieces import AT_MOST, are_near, may_be_rest, may_go_on, said_at
from shared.platforms import facts_of
from shared.redis_servers import Servers
from shared.value import value

HELD = timedelta(minutes=1)  # since the last piece; a platform whose receiver restarts brings the next one later
MARKED = timedelta(hours=1)  # the same, once one is addressed; each try to bring it again begins the hour anew
TRIES = 2 * AT_MOST  # of a change, while other processes make theirs


@value
class MessagePiece:
    """One message of several that may have been sent as one."""

    id: str
    said_at: int
    goes_on: bool  # whether more may follow
    addressed: bool
    payload: str | None = None  # the message, while it is held; None: the journal has it, or the platform brings it


Chain = tuple[MessagePiece, ...]


class Pieces:
    """The pieces that came to one platform's account. Never raises Unavailable by itself."""

    def __init__(self, servers: Servers) -> None:
        self._hold = ShortHold(servers)

    async def admit(
        self, inbound: Inbound, *, addressed: bool, may_talk: Callable[[], Awaitable[bool]]
    ) -> tuple[Inbound, ...]:
        """The messages to accept now, in this order: those that were held, then this one. None, if nothing is known to be
        addressed. An addressed one is always among them. `may_talk` is asked before an unaddressed one is held or accepted."""
        alone = (inbound,) if addressed else ()
        if not _can_be_piece(inbound):
            return alone
        name, of_album = _name(inbound), inbound.album is not None
        new = MessagePiece(inbound.id, said_at(inbound), may_go_on(inbound), addressed)
        for _ in range(TRIES):
            found = await self._hold.find(name)
            chain = chain_with(_known(found), new, of_album=of_album, may_follow=of_album or may_be_rest(inbound))
            if chain is None:
                return alone
            if not addressed and not await may_talk():
                return ()
            if not _is_addressed(chain):
                chain = _with_words(chain, inbound)
            reach("pieces.before_keep")
            if await self._hold.replace(name, found, _encoded(chain), _ttl(chain)):
                reach("pieces.after_keep")
                return (*_held(chain, inbound), inbound) if _is_addressed(chain) else alone
        log.get().warning("a piece is taken by itself: too many came at once", platform=inbound.source.platform)
        return alone

    async def forget(self, accepted: Sequence[Inbound]) -> None:
        """Keep no words of pieces that were accepted. If this fails, they expire."""
        ids = {inbound.id for inbound in accepted}
        name = _name(accepted[-1])
        for _ in range(TRIES):
            reach("pieces.before_forget")
            found = await self._hold.find(name)
            chain = _without_words(_known(found), ids)
            if await self._hold.replace(name, found, _encoded(chain), _ttl(chain)):
                return


def chain_with(known: Chain, new: MessagePiece, *, of_album: bool, may_follow: bool = True) -> Chain | None:
    """The pieces that `new` belongs to, with it. None: it is by itself. A known piece that came again changes nothing.
    `may_follow` is false for what begins something of its own, such as a command."""
    if any(piece.id == new.id for piece in known):
        return known
    goes_on = bool(known) and known[-1].goes_on and may_follow
    if goes_on and (of_album or are_near(known[-1].said_at, new.said_at)):
        has_room = len(known) < AT_MOST or (new.addressed and not _is_addressed(known))
        return (*known, new) if has_room else known
    return (new,) if new.goes_on else None


def _can_be_piece(inbound: Inbound) -> bool:
    cuts_text = facts_of(inbound.source.platform).cut_text is not None
    return may_go_on(inbound) or (cuts_text and may_be_rest(inbound))


def _name(inbound: Inbound) -> str:
    """Made of ids alone: names are on some messages of a chat and not on others."""
    source = inbound.source
    where = (source.platform, source.account, source.scope, source.chat, source.thread)
    parts = (*where, source.user, source.user_alt, inbound.album)
    return keys.pieces(keys.short_name(*(part or "" for part in parts)))


def _is_addressed(chain: Chain) -> bool:
    return any(piece.addressed for piece in chain)


def _ttl(chain: Chain) -> timedelta:
    return MARKED if _is_addressed(chain) else HELD


def _held(chain: Chain, inbound: Inbound) -> list[Inbound]:
    """What was held until `inbound` came. A turn waits for further pieces from then on, so that is when they were received."""
    held = []
    for piece in chain:
        if piece.payload is None or piece.id == inbound.id:
            continue
        try:
            before = decode_inbound(piece.payload)
        except Malformed as error:  # of another version, or nothing of ours
            log.get().warning("a piece that was held cannot be read", error=str(error))
            continue
        if same_speaker(before, inbound) and before.album == inbound.album:
            held.append(replace(before, received_at=inbound.received_at))
    return held


def _with_words(chain: Chain, inbound: Inbound) -> Chain:
    words = encode_mail(inbound).decode()
    return tuple(replace(piece, payload=words) if piece.id == inbound.id else piece for piece in chain)


def _without_words(chain: Chain, ids: Collection[str]) -> Chain:
    return tuple(replace(piece, payload=None) if piece.id in ids else piece for piece in chain)


def _known(found: HeldValue) -> Chain:
    """What Redis knows, and then what this process kept while Redis was away."""
    shared = _decoded(found.shared or b"")
    ids = {piece.id for piece in shared}
    return (*shared, *(piece for piece in _decoded(found.local) if piece.id not in ids))


def _encoded(chain: Chain) -> bytes:
    """Nothing, where a text came to its end and nobody was addressed."""
    if not chain or (not chain[-1].goes_on and not _is_addressed(chain)):
        return b""
    return orjson.dumps([[p.id, p.said_at, p.goes_on, p.addressed, p.payload] for p in chain])


def _decoded(kept: bytes) -> Chain:
    """Nothing for what is nothing of ours."""
    try:
        return tuple(_checked(*fields) for fields in orjson.loads(kept)) if kept else ()
    except (orjson.JSONDecodeError, TypeError):
        return ()


def _checked(
    id: str, said: int, goes_on: bool, addressed: bool, payload: str | None = None, *_: object
) -> MessagePiece:
    """What later versions add is ignored."""
    if not (isinstance(id, str) and isinstance(said, int) and isinstance(payload, str | None)):
        raise TypeError(id)
    return MessagePiece(id, said, bool(goes_on), bool(addressed), payload)
