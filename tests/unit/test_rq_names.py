"""RQ's names are spelled in one module, and as RQ spells them."""

from __future__ import annotations

import re
from pathlib import Path

from redis import Redis
from rq.command import PUBSUB_CHANNEL_TEMPLATE
from rq.executions import Execution, ExecutionRegistry
from rq.job import Job
from rq.queue import Queue
from rq.registry import FailedJobRegistry, FinishedJobRegistry, StartedJobRegistry
from rq.results import get_key as results_key_of
from rq.suspension import WORKERS_SUSPENDED
from rq.worker import BaseWorker
from rq.worker_registration import REDIS_WORKER_KEYS, WORKERS_BY_QUEUE_KEY

from shared.lane import rq_names

ROOT = Path(__file__).parents[2]
PACKAGES = ("shared", "producers", "workers", "keyturn")
UNUSED = Redis()  # RQ wants a connection where it only makes names


def test_only_one_module_spells_rqs_names() -> None:
    spelling = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in (".py", ".lua", ".sql") and re.search(r"\brq:|:intermediate\b", path.read_text())
    ]
    assert spelling == ["shared/lane/rq_names.py"]


def test_nothing_asks_rq_itself_for_its_names() -> None:
    """Else a name would come from two places, and the grep above would not find it."""
    asked = re.compile(r"rq\.(suspension|worker_registration|command|registry|results|executions)\b|namespace_prefix")
    found = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if asked.search(path.read_text())
    ]
    assert found == []


def test_the_names_are_rqs_own() -> None:
    queue, job = Queue("q", connection=UNUSED), Job(id="j", connection=UNUSED)
    ours_and_rqs = {
        rq_names.QUEUES: Queue.redis_queues_keys,
        rq_names.WORKERS: REDIS_WORKER_KEYS,
        rq_names.SUSPENDED: WORKERS_SUSPENDED,
        rq_names.queue_key("q"): queue.key,
        rq_names.popped_key("q"): queue.intermediate_queue_key,
        rq_names.job_key("j"): job.key,
        rq_names.results_key("j"): results_key_of("j"),  # type: ignore[no-untyped-call]
        rq_names.execution_key("j", "e"): Execution("e", "j", connection=UNUSED).key,
        rq_names.executions_key("j"): ExecutionRegistry("j", connection=UNUSED).key,
        rq_names.running_entry("j", "e"): Execution("e", "j", connection=UNUSED).composite_key,
        rq_names.running_key("q"): StartedJobRegistry("q", connection=UNUSED).key,
        rq_names.finished_key("q"): FinishedJobRegistry("q", connection=UNUSED).key,
        rq_names.failed_key("q"): FailedJobRegistry("q", connection=UNUSED).key,
        rq_names.workers_of_queue("q"): WORKERS_BY_QUEUE_KEY % "q",
        rq_names.worker_key("w"): BaseWorker.redis_worker_namespace_prefix + "w",
        rq_names.CHANNEL_PREFIX + "w": PUBSUB_CHANNEL_TEMPLATE % "w",
    }
    assert all(ours == rqs for ours, rqs in ours_and_rqs.items()), ours_and_rqs
