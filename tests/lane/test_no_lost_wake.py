"""No wake-up is lost and no key is run twice, in whatever order workers, receivers, housekeepers and accidents come."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from shared.lane import Claim, Lease, Put, Recovered
from shared.lane.rq_names import JOB_PREFIX
from tests.lane.workbench import INTERMEDIATE, LEASE, QUEUE, Workbench
from tests.support.servers import empty_redis

KEYS = ("a", "b")
T = TypeVar("T")
some_key = st.sampled_from(KEYS)
some_lease = st.integers(0, 10**6)
now_and_then = st.sampled_from((False, False, False, False, True))  # what would else end every story early


@dataclass
class Model:
    """What must be true of one key."""

    mail: list[int] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    awake: bool = False  # Redis knows of the key
    holder: Lease | None = None  # whose token Redis has
    delayed: bool = False
    running_out: bool = False  # the time of the lease or the delay is over

    @property
    def held(self) -> bool:
        return (self.holder is not None or self.delayed) and not self.running_out

    def rest(self, *, awake: bool) -> None:
        """Nobody has the key."""
        self.awake, self.holder, self.delayed, self.running_out = awake, None, False, False

    def taken(self, lease: Lease) -> None:
        self.awake, self.holder, self.delayed, self.running_out = True, lease, False, False


class Interleavings(RuleBasedStateMachine):
    url: str

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.keys = {key: Model() for key in KEYS}
        self.leases: list[Lease] = []  # of workers that believe to have one, rightly or not
        self.jobs: list[str] = []  # wakes that were started once
        self.numbers = 0

    def do(self, step: Coroutine[object, object, T]) -> T:
        return self.loop.run_until_complete(step)

    @initialize()
    def begin(self) -> None:
        empty_redis(self.url)

        async def open_bench() -> Workbench:
            return Workbench(self.url)

        self.bench = self.do(open_bench())

    # -- receivers

    @rule(key=some_key, taken=st.booleans())
    def put(self, key: str, taken: bool) -> None:
        model = self.keys[key]
        self.numbers += 1
        assert self.do(self.bench.put(key, self.numbers)) is (Put.WAITING if model.awake else Put.WOKEN)
        model.mail.append(self.numbers)
        model.awake = True
        if taken:
            self.start()

    @rule(key=some_key)
    def put_again(self, key: str) -> None:
        model = self.keys[key]
        if model.mail:
            assert self.do(self.bench.put(key, model.mail[0])) is Put.WAITING

    # -- workers

    @rule()
    def start(self) -> None:
        job_id = self.do(self.bench.pop())
        if job_id is None:
            return
        self.jobs.append(job_id)
        named = self.do(self.bench.client.hget(JOB_PREFIX + job_id, "lane"))
        started = self.do(self.bench.start_job(job_id))
        claim, claimed = started.claim, started.lease
        if named is None:
            assert claim is Claim.GONE
            return
        model = self.keys[named.decode()]
        if model.held:
            assert claim is Claim.HELD  # so mail is never claimed by two living leases
        elif not model.mail:
            assert claim is Claim.IDLE
            model.rest(awake=False)
        else:
            assert claim is Claim.LEASED and claimed is not None
            assert [m.seq for m in claimed.mail] == model.mail[:1]
            model.taken(claimed)
            self.leases.append(claimed)

    @precondition(lambda self: self.leases)
    @rule(which=some_lease, hand_over=st.booleans())
    def acknowledge(self, which: int, hand_over: bool) -> None:
        lease = self.leases[which % len(self.leases)]
        model, seqs = self.keys[lease.key], [m.seq for m in lease.mail]
        left = self.do(lease.acknowledge(seqs, limit=1, hand_over=hand_over))
        if model.holder is not lease:
            assert left == [] and lease.lost
        else:
            model.done += [seq for seq in seqs if seq in model.mail]
            model.mail = [seq for seq in model.mail if seq not in seqs]
            assert [m.seq for m in left] == ([] if hand_over else model.mail[:1])
            assert not lease.lost
            if left:
                model.taken(lease)
            else:
                model.rest(awake=bool(model.mail))
        if lease.ended:
            self.leases.remove(lease)

    @precondition(lambda self: self.leases)
    @rule(which=some_lease, later=st.booleans(), spent=st.booleans())
    def release(self, which: int, later: bool, spent: bool) -> None:
        lease = self.leases.pop(which % len(self.leases))
        model = self.keys[lease.key]
        self.do(lease.release(delay=LEASE / 2 if later else timedelta(0), spent=spent))
        if model.holder is lease:
            model.rest(awake=True)
            model.delayed = later

    @precondition(lambda self: self.leases)
    @rule(which=some_lease)
    def renew(self, which: int) -> None:
        lease = self.leases[which % len(self.leases)]
        model = self.keys[lease.key]
        forgotten = not model.awake and self.do(self.bench.status(lease.wake.id)) is None
        self.do(self.bench.renew(lease))
        if model.holder is lease or forgotten:
            assert not lease.lost
            model.taken(lease)
        else:
            assert lease.lost
            self.leases.remove(lease)

    @precondition(lambda self: self.leases)
    @rule(which=some_lease)
    def begin_attempt(self, which: int) -> None:
        lease = self.leases[which % len(self.leases)]
        counted = not lease.counts.ours_begun
        if self.do(lease.begin(lease.mail[0].seq)) and counted:
            assert self.keys[lease.key].holder is lease

    # -- housekeepers

    @rule(key=some_key)
    def recover(self, key: str) -> None:
        model = self.keys[key]
        held = self.do(self.bench.state(key))
        queued = "job" in held and self.do(self.bench.status(held["job"])) == "queued"
        recovered = self.do(self.bench.lane.recover(key))
        if model.held:
            assert recovered is Recovered.NOTHING
        elif not model.mail:
            assert recovered is Recovered.NOTHING
            model.rest(awake=False)
        else:
            causes = (
                [Recovered.LEASE_EXPIRED]
                if model.holder is not None
                else [Recovered.DELAY_ENDED]
                if model.delayed
                else [Recovered.NOTHING, Recovered.WAKE_LATE]  # after some looks, another wake is queued beside it
                if queued
                else [Recovered.WAKE_LOST]
            )
            assert recovered in causes
            model.rest(awake=True)

    @rule()
    def requeue_stuck(self) -> None:
        self.do(self.bench.lane.requeue(self.bench.server, "turns-0", self.do(self.bench.popped())))

    # -- accidents

    @rule(key=some_key)
    def time_passes(self, key: str) -> None:
        self.do(self.bench.expire(key))
        self.keys[key].running_out = True

    @rule(key=some_key, taken=st.booleans())
    def a_holder_is_slow(self, key: str, taken: bool) -> None:
        """It is not dead: it will come back with a lease that it lost, and that another may have taken."""
        self.time_passes(key)
        self.recover(key)
        if taken:
            self.start()

    @rule(which=st.integers(0, 10**6))
    def a_wake_is_queued_again(self, which: int) -> None:
        """By RQ's own tools, whatever became of it."""
        if self.jobs:
            self.do(self.bench.client.rpush(QUEUE, self.jobs[which % len(self.jobs)]))

    @rule()
    def a_worker_dies_with_a_popped_wake(self) -> None:
        self.do(self.bench.pop())

    @precondition(lambda self: self.leases)
    @rule(which=some_lease, really=now_and_then)
    def a_worker_dies_with_a_lease(self, which: int, really: bool) -> None:
        if not really:
            return
        self.bench.lane.renewal.let_go(self.leases.pop(which % len(self.leases)))

    @rule(really=now_and_then)
    def somebody_deletes_a_wake(self, really: bool) -> None:
        if not really:
            return
        job_id = self.do(self.bench.client.lpop(QUEUE))
        if job_id is not None:
            self.do(self.bench.client.delete(JOB_PREFIX + job_id.decode()))

    @rule(really=now_and_then)
    def scripts_are_forgotten(self, really: bool) -> None:
        if not really:
            return
        self.do(self.bench.client.script_flush())

    @rule(really=now_and_then)
    def redis_is_flushed(self, really: bool) -> None:
        if not really:
            return
        self.do(self.bench.client.flushall())
        for model in self.keys.values():
            model.mail = []  # the journal's to bring back
            model.rest(awake=False)

    # -- what always holds

    @invariant()
    def nothing_is_lost_or_forgotten(self) -> None:
        looks = self.do(self.bench.look(KEYS))
        for key, look in zip(KEYS, looks, strict=True):
            model = self.keys[key]
            assert look.mail == model.mail
            assert model.done == sorted(set(model.done)), "in order, and each once"
            assert bool(look.state) == model.awake
            assert look.state.get("token") == (model.holder.token if model.holder else None)
            assert int(look.state.get("attempts", 0)) >= 0
            # A key that is not idle has a living lease, a delay or a wake; if not, the housekeeper looks at it in time.
            assert (look.due is not None) == model.awake
            assert look.due is None or look.due <= LEASE.total_seconds() + 1

    def teardown(self) -> None:
        """Whatever happened: the mail that is left is soon done, and nothing stays behind."""
        if not hasattr(self, "bench"):
            return
        try:
            for _ in range(2 + self.numbers):
                self.requeue_stuck()
                for key in KEYS:
                    self.time_passes(key)
                    self.recover(key)
                while self.do(self.bench.client.llen(QUEUE)):
                    self.start()
                while self.leases:
                    self.acknowledge(0, False)
                if not any(model.awake for model in self.keys.values()):
                    break
            self.nothing_is_lost_or_forgotten()
            assert all(not model.mail for model in self.keys.values())
            assert self.do(self.bench.residue()) == []
            assert self.do(self.bench.client.llen(INTERMEDIATE)) == 0
        finally:
            self.do(self.bench.close())
            self.loop.close()


def test_no_interleaving_loses_a_wake_or_runs_a_key_twice(redis_url: str) -> None:
    class Here(Interleavings):
        url = redis_url

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=80,
            stateful_step_count=30,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
