"""What `doctor` says of a primary and its replicas."""

from __future__ import annotations

import pytest

from keyturn.cli.doctor.finding import Level
from keyturn.cli.doctor.replicas import Found, server_findings
from shared.store.database.postgres.primary import ServerStanding
from shared.store.database.postgres.servers import servers_of

A, B = servers_of("postgresql://me:topsecret@a,b/db")
NEW, OLD, REPLICA, OTHER = (
    ServerStanding("1", 2),
    ServerStanding("1", 1),
    ServerStanding("1", 0),
    ServerStanding("2", 1),
)


@pytest.mark.parametrize(
    ("found", "levels", "words"),
    [
        ([(A, NEW, "*"), (B, REPLICA, "")], [Level.OK, Level.OK], "replica"),
        ([(A, NEW, ""), (B, REPLICA, "")], [Level.OK, Level.OK, Level.WARN], "asynchronous"),
        ([(A, OLD, ""), (B, NEW, "*")], [Level.FAIL, Level.OK], "old primary"),
        ([(A, NEW, "*"), (B, NEW, "*")], [Level.OK, Level.FAIL], "a second one"),
        ([(A, NEW, "*"), (B, OTHER, "")], [Level.OK, Level.FAIL], "another cluster"),
        ([(A, NEW, "*"), (B, None, "refused")], [Level.OK, Level.WARN], "refused"),
        ([(A, REPLICA, ""), (B, None, "refused")], [Level.OK, Level.WARN, Level.FAIL], "pg_promote"),
    ],
)
def test_doctor_names_each_server_and_what_is_wrong_with_it(
    found: list[Found], levels: list[Level], words: str
) -> None:
    findings = list(server_findings(found))
    assert [finding.level for finding in findings] == levels
    assert words in " ".join(f"{finding.detail} {finding.fix}" for finding in findings)
