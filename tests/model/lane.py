"""The lane's scripts as functions from state to state: one function per .lua file, each as atomic as its script.

Time is not counted. A lease or delay is LIVE until a step of the model lets it be PAST. A token is the number of the
worker that holds the lease; DEAD stands for the token of a lease whose worker has gone.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.model.explore import quickly_replaced

NOBODY, DEAD = -1, 9
LIVE, PAST, UNSET = 2, 1, 0


@quickly_replaced
class Mail(NamedTuple):
    seq: int
    event: int


@quickly_replaced
class State(NamedTuple):
    """The hash `kt:<lane>:lane:<key>`. A key that has one is in `due` too, unless it is parked."""

    token: int = NOBODY
    until: int = UNSET
    attempts: int = 0
    of: int = 0  # the seq that the attempts were made at
    job: int = 0  # the wake that this state names, while it is queued
    parked: bool = False  # a pause held the key when it was last looked at


@quickly_replaced
class Lane(NamedTuple):
    """One key's mailbox, its state, and its wakes: in the queue, and popped but not yet started."""

    mail: tuple[Mail, ...] = ()
    state: State | None = None
    wakes: tuple[int, ...] = ()
    popped: tuple[int, ...] = ()
    seen: tuple[int, ...] = ()  # dedupe memory, only with durability = redis
    paused: bool = False  # `kt:pauses` has a scope that holds this key


EMPTY = Lane()


def _woken(lane: Lane, state: State) -> Lane:
    job = next(id for id in range(1, 9) if id not in lane.wakes and id not in lane.popped)
    return lane._replace(state=state._replace(job=job), wakes=(*lane.wakes, job))


def put(lane: Lane, mail: Mail, *, wake: bool = True) -> Lane:
    """put.lua. Not to wake is for the mutant that asks RQ's state instead of the lane's."""
    if mail not in lane.mail:
        lane = lane._replace(mail=tuple(sorted((*lane.mail, mail))))
    return lane if lane.state is not None or not wake else _woken(lane, State())


def pop(lane: Lane) -> Lane:
    """BLMOVE: the first wake goes from the queue to the intermediate list."""
    return lane._replace(wakes=lane.wakes[1:], popped=(*lane.popped, lane.wakes[0]))


def requeue(lane: Lane, job: int) -> Lane:
    """requeue.lua: a popped wake goes back to the front of the queue."""
    return lane._replace(popped=tuple(id for id in lane.popped if id != job), wakes=(job, *lane.wakes))


def start(lane: Lane, job: int, token: int, *, counting: bool, apart: bool) -> tuple[Lane, bool]:
    """start.lua. Says whether the key is ours now. `apart`: attempts are counted for each message by itself."""
    state = lane.state
    if state is not None and state.job == job:
        state = state._replace(job=0)
    lane = lane._replace(state=state, popped=tuple(id for id in lane.popped if id != job))
    if state is not None and state.until == LIVE:
        return lane, False
    if not lane.mail:
        return lane._replace(state=None), False
    state = state or State()
    if lane.paused:
        return lane._replace(state=state._replace(token=NOBODY, until=UNSET, parked=True)), False
    state = state._replace(parked=False)
    head = lane.mail[0].seq if apart else 0
    if counting and (state.attempts == 0 or state.of != head):
        state = state._replace(attempts=1, of=head)
    return lane._replace(state=state._replace(token=token, until=LIVE)), True


def attempt(lane: Lane, token: int, of: int) -> Lane | None:
    """attempt.lua; None: the lease is another's."""
    state = lane.state
    if state is None or state.token != token:
        return None
    before = state.attempts if state.of == of else 0
    return lane._replace(state=state._replace(attempts=before + 1, of=of))


def holds(lane: Lane, token: int) -> bool:
    return lane.state is not None and lane.state.token == token


def drop(lane: Lane, seqs: tuple[int, ...], *, by_count: bool = False) -> Lane:
    """The first half of acknowledge.lua: done mail goes."""
    if by_count:
        return lane._replace(mail=lane.mail[len(seqs) :])
    return lane._replace(mail=tuple(mail for mail in lane.mail if mail.seq not in seqs))


def go_on(lane: Lane, *, counting: bool, apart: bool, hand_over: bool) -> tuple[Lane, bool]:
    """The second half, in the same script: idle, parked, handed over, or leased on. Says whether it is leased on."""
    if not lane.mail:
        return lane._replace(state=None), False
    if lane.paused:
        return lane._replace(state=State(parked=True)), False
    if hand_over:
        return _woken(lane, State()), False
    state = lane.state or State()
    if counting:
        state = state._replace(attempts=1, of=lane.mail[0].seq if apart else 0)
    return lane._replace(state=state._replace(until=LIVE)), True


def release(lane: Lane, token: int, *, delayed: bool, spent: bool, begun: bool = True) -> Lane:
    """release.lua; nothing changes when the lease is another's. A failure counts whether an attempt was begun or not."""
    state = lane.state
    if state is None or state.token != token:
        return lane
    attempts = state.attempts + (spent and not begun) - (begun and not spent)
    state = state._replace(token=NOBODY, until=UNSET, attempts=max(0, attempts))
    return lane._replace(state=state._replace(until=LIVE, job=0)) if delayed else _woken(lane, state)


def renew(lane: Lane, token: int, *, forgotten: bool) -> Lane | None:
    """renew.lua; None: the lease is someone else's or nobody's. `forgotten`: Redis lost the lease's job too."""
    if lane.state is None and forgotten:
        return lane._replace(state=State(token=token, until=LIVE, attempts=1))
    if lane.state is None or lane.state.token != token:
        return None
    return lane._replace(state=lane.state._replace(until=LIVE))


def expire(lane: Lane) -> Lane:
    """A lease or a delay has run out."""
    assert lane.state is not None
    return lane._replace(state=lane.state._replace(until=PAST))


def recover(lane: Lane, *, late: bool = False) -> Lane:
    """recover.lua. `late`: the key's queued wake was not started for long, and gets another beside it."""
    state = lane.state or State()
    if state.until == LIVE or state.parked:
        return lane
    if not lane.mail:
        return lane._replace(state=None)
    if state.token == NOBODY and state.until == UNSET and state.job and not late:
        return lane
    return _woken(lane, state._replace(token=NOBODY, until=UNSET))


def unpark(lane: Lane) -> Lane:
    """unpark.lua: a key that a pause held is woken. Whoever starts the wake looks at the pauses again."""
    if lane.state is None or not lane.state.parked:
        return lane
    return _woken(lane, lane.state._replace(parked=False))


def forget(lane: Lane, token: int) -> Lane:
    """The worker of this token has gone: its lease stays, and nobody can use it any more."""
    if not holds(lane, token):
        return lane
    assert lane.state is not None
    return lane._replace(state=lane.state._replace(token=DEAD))


def in_order(workers: tuple[tuple[object, ...], ...], held: tuple[Lane, ...]) -> bool:
    """Of the two ways to number two equal workers, one is in order."""
    if len(workers) < 2 or workers[0] < workers[1]:
        return True
    if workers[0] > workers[1]:
        return False
    tokens = [lane.state.token for lane in held if lane.state is not None and lane.state.token in (0, 1)]
    return not tokens or tokens[0] == 0


def swapped(lane: Lane) -> Lane:
    """The same lane with the tokens of workers 0 and 1 exchanged."""
    state = lane.state
    if state is None or state.token not in (0, 1):
        return lane
    return lane._replace(state=state._replace(token=1 - state.token))
