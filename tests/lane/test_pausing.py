"""Pauses in Redis: which key each holds, and that a key which is held keeps everything and is woken once it may go on."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest

from shared import keys
from shared.errors import Unavailable
from shared.lane import Claim, Put
from shared.lane.freeing import free
from shared.lane.pausing import count_parked, hold, parked_keys, parked_scopes, unpark_all
from shared.lane.stopping import stop
from shared.reading.keys import KeyPhase, keys_at_work, state_of_key
from tests.lane.workbench import LEASE, Workbench

KEY = "agent:main:irc@second:group:a%3Ab:t=17:u=5"
NEIGHBOUR = "agent:main:irc:dm:42"


async def parked(bench: Workbench, key: str = KEY) -> str | None:
    """Put mail, start the wake, and say which pause held the key; None: none did."""
    await bench.put(key, 1)
    claim, lease = await bench.start()
    assert (claim is Claim.PAUSED) == (lease is None)
    return (await bench.state(key)).get("paused")


@pytest.mark.parametrize(
    "scope", ["all", "lane:turns", "platform:irc", "to:irc@second:a%3Ab", KEY], ids=lambda scope: scope.split(":")[0]
)
async def test_a_scope_holds_what_it_says(bench: Workbench, scope: str) -> None:
    await hold(bench.server, 1, [scope])
    assert await parked(bench) == scope


@pytest.mark.parametrize(
    "scope",
    ["lane:deliveries", "platform:ir", "platform:irc@second", "to:irc:a%3Ab", "to:irc@second:a", NEIGHBOUR, KEY[:-1]],
)
async def test_a_scope_holds_nothing_else(bench: Workbench, scope: str) -> None:
    await hold(bench.server, 1, [scope])
    assert await parked(bench) is None


async def test_a_held_key_keeps_its_mail_and_nobody_looks_at_it(bench: Workbench) -> None:
    await hold(bench.server, 1, ["all"])
    assert await parked(bench) == "all"
    assert await bench.put(KEY, 2) is Put.WAITING  # no wake: it would be in vain
    assert [seq for seq, _ in await bench.mail(KEY)] == [1, 2]
    assert await bench.queued() == [] and await bench.popped() == [] and await bench.due(KEY) is None
    assert await bench.lane.awake([KEY]) == [True]  # so the housekeeper does not fill its mailbox again and again


async def test_the_end_of_a_pause_wakes_what_it_held_and_nothing_else(bench: Workbench) -> None:
    await hold(bench.server, 1, [KEY, NEIGHBOUR])
    await parked(bench)
    await parked(bench, NEIGHBOUR)
    await hold(bench.server, 2, [NEIGHBOUR])
    assert await unpark_all(bench.lane, bench.server, KEY) == 1
    assert "paused" not in await bench.state(KEY)
    assert await unpark_all(bench.lane, bench.server, KEY) == 0
    due = await bench.due(KEY)
    assert due is not None and 0 < due <= LEASE.total_seconds()  # somebody looks for the wake
    lease = await bench.lease()
    assert lease.key == KEY and [mail.seq for mail in lease.mail] == [1]
    assert lease.counts.begun == 1 and lease.counts.failed == 0  # no attempt was counted meanwhile
    assert await lease.acknowledge([1], limit=1) == []
    assert await bench.queued() == [] and await parked_keys(bench.lane, bench.server, 9) == [NEIGHBOUR]


async def test_a_key_whose_server_does_not_answer_counts_as_awake(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(answer: Awaitable[object]) -> object:
        await answer
        raise Unavailable("Redis: it was lost on its way")

    assert await bench.lane.awake([KEY]) == [False]
    monkeypatch.setattr(bench.server, "asked", away)
    assert await bench.lane.awake([KEY]) == [True]  # so the housekeeper does not fill its mailbox again and again


async def test_what_others_left_among_parked_keys_is_no_key(bench: Workbench) -> None:
    await hold(bench.server, 1, ["all"])
    await parked(bench)
    await bench.client.zadd(keys.parked("turns"), {b"all \xff": 0, b"all ": 0, b"others": 0})
    assert await parked_keys(bench.lane, bench.server, 9) == [KEY]
    assert await unpark_all(bench.lane, bench.server, "all") == 1
    assert await bench.client.zrange(keys.parked("turns"), 0, -1) == [b"others"]  # it belongs to no pause


async def test_of_two_pauses_the_narrower_holds_a_key_and_then_the_other(bench: Workbench) -> None:
    await hold(bench.server, 1, ["all", KEY])
    assert await parked(bench) == KEY
    await hold(bench.server, 2, ["all"])
    await unpark_all(bench.lane, bench.server, KEY)
    assert (await bench.start())[0] is Claim.PAUSED
    assert await parked_scopes(bench.lane, bench.server) == ["all"]
    assert await count_parked([bench.lane], bench.server, ["all"]) == {("all", "turns"): 1}
    assert await count_parked([bench.lane], bench.server, [KEY]) == {(KEY, "turns"): 0}


async def test_a_turn_that_runs_is_not_cut_short_and_the_next_does_not_begin(bench: Workbench) -> None:
    for seq in (1, 2):
        await bench.put(KEY, seq)
    lease = await bench.lease()
    await stop(bench.lane, KEY, 77, 10)
    await hold(bench.server, 1, ["platform:irc"])
    assert await lease.acknowledge([1], limit=1) == [] and lease.ended and not lease.lost
    assert [seq for seq, _ in await bench.mail(KEY)] == [2]
    assert await bench.state(KEY) == {"paused": "platform:irc", "stop": "77"}
    assert await bench.due(KEY) is None


async def test_a_key_that_is_to_be_handed_over_is_parked_instead(bench: Workbench) -> None:
    for seq in (1, 2):
        await bench.put(KEY, seq)
    lease = await bench.lease()
    await hold(bench.server, 1, ["all"])
    assert await lease.acknowledge([1], limit=1, hand_over=True) == []
    assert await bench.queued() == [] and await parked_keys(bench.lane, bench.server, 9) == [KEY]


async def test_attempts_are_kept_while_a_key_is_held(bench: Workbench) -> None:
    await bench.put(KEY, 1)
    lease = await bench.lease()
    await lease.release(spent=True)
    await hold(bench.server, 1, ["all"])
    assert (await bench.start())[0] is Claim.PAUSED
    await hold(bench.server, 2, [])
    await unpark_all(bench.lane, bench.server, "all")
    lease = await bench.lease()
    assert lease.counts.begun == 1 and lease.counts.failed == 1 and not lease.counts.ours_begun


async def test_a_key_whose_mail_was_taken_out_leaves_nothing_behind(bench: Workbench) -> None:
    await hold(bench.server, 1, ["all"])
    await parked(bench)
    await bench.client.zremrangebyscore(keys.mail("turns", KEY), 1, 1)
    await free(bench.lane, KEY)
    assert (await bench.start())[0] is Claim.IDLE
    assert await bench.residue() == [keys.PAUSES, keys.PAUSES_VERSION]


async def test_older_pauses_never_replace_newer_ones(bench: Workbench) -> None:
    assert await hold(bench.server, 2, [KEY]) == 0
    assert await hold(bench.server, 1, ["all"]) == 2
    assert await bench.client.hkeys(keys.PAUSES) == [KEY.encode()]
    assert await hold(bench.server, 1, ["all"], outdated=3) == 2
    assert await hold(bench.server, 3, []) == 0
    assert await bench.residue() == [keys.PAUSES_VERSION]


async def test_pauses_that_the_database_lost_give_way_to_older_ones(bench: Workbench) -> None:
    await hold(bench.server, 5, [KEY])
    assert await hold(bench.server, 2, ["all"], outdated=5) == 0
    assert await bench.client.hkeys(keys.PAUSES) == [b"all"]
    assert await hold(bench.server, 0, [], outdated=2) == 0
    assert await bench.residue() == []


async def test_what_others_leave_under_these_names_stops_nobody(bench: Workbench) -> None:
    await bench.client.set(keys.PAUSES, "x")
    await bench.client.zadd(keys.PAUSES_VERSION, {"x": 1})
    assert await parked(bench, NEIGHBOUR) is None
    assert await hold(bench.server, 1, ["all"]) == 0
    assert await parked(bench) == "all"
    strange = [b"all \xff", b"\xff\xfe \xff", b"nothing", b" ", b"all "]
    await bench.client.zadd(keys.parked("turns"), dict.fromkeys(strange, 0))
    assert "all" in await parked_scopes(bench.lane, bench.server)
    assert await unpark_all(bench.lane, bench.server, "all") == 1
    assert await count_parked([bench.lane], bench.server, ["all"]) == {("all", "turns"): 0}


async def test_a_held_key_is_listed_as_paused(bench: Workbench) -> None:
    await hold(bench.server, 1, ["all"])
    await parked(bench)
    await bench.put("other", 1)
    assert [(state.key, state.state) for state in await keys_at_work(bench.lane, 5)] == [
        ("other", KeyPhase.AWAKE),
        (KEY, KeyPhase.PAUSED),
    ]
    assert (await state_of_key(bench.lane, KEY)).paused == "all"


async def test_a_key_that_runs_again_is_not_listed_as_paused_any_more(bench: Workbench) -> None:
    await hold(bench.server, 1, ["all"])
    await parked(bench)
    await hold(bench.server, 2, [])
    await free(bench.lane, KEY)
    lease = await bench.lease()
    assert (await state_of_key(bench.lane, KEY)).paused is None
    await lease.release(spent=False)
    assert (await state_of_key(bench.lane, KEY)).state is KeyPhase.AWAKE


async def test_scopes_that_begin_alike_are_told_apart(bench: Workbench) -> None:
    chats = ["to:irc:1", "to:irc:1!", "to:irc:12"]
    await hold(bench.server, 1, chats)
    for n in ("1", "1!", "12"):
        await parked(bench, f"agent:main:irc:dm:{n}")
    assert await parked_scopes(bench.lane, bench.server) == chats
    assert list((await count_parked([bench.lane], bench.server, chats)).values()) == [1, 1, 1]
    assert await unpark_all(bench.lane, bench.server, "to:irc:1") == 1
    assert await parked_scopes(bench.lane, bench.server) == chats[1:]
