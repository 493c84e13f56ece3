"""deploy/systemd: units that systemd understands, and whose processes are exposed to little."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from shared.redis_roles import ROLES
from tests.deploy.documents import DEPLOY

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
EXPOSURE = 2.0
PROGRAM = "/opt/keyturn/bin/keyturn"
ANALYZE = shutil.which("systemd-analyze")


def test_every_process_has_a_unit_with_the_redis_user_of_its_role() -> None:
    used = {name for unit in UNITS for name in re.findall(r"/etc/keyturn/redis/(\w+)\.env", unit.read_text())}
    assert used == {role.name for role in ROLES} - {"operator", "restorer", "viewer"}
    assert all(re.search(rf"^ExecStart={PROGRAM} ", unit.read_text(), re.M) for unit in UNITS)


def test_units_differ_in_nothing_but_what_they_run() -> None:
    def hardening(unit: Path) -> str:
        return unit.read_text().partition("# All units share")[2].partition("[Install]")[0].strip()

    assert len({hardening(unit) for unit in UNITS}) == 1 and hardening(UNITS[0])


def test_running_the_migration_again_stops_no_process() -> None:
    """systemd stops whatever requires a unit that is restarted; an upgrade restarts keyturn-migrate before all others."""
    of_processes = [unit.read_text() for unit in UNITS if "migrate" not in unit.name]
    assert all("Wants=keyturn-migrate.service" in text for text in of_processes)
    assert not any(re.search(r"^(Requires|BindsTo|PartOf)=.*keyturn-migrate", text, re.M) for text in of_processes)


def test_the_migration_waits_for_its_database_and_is_tried_again() -> None:
    """The other units start when it has ended, however it did, and do not start again on a schema that is not up to date."""
    text = (DEPLOY / "systemd/keyturn-migrate.service").read_text()
    for line in (f"ExecStart={PROGRAM} migrate --wait", "Restart=on-failure", "TimeoutStartSec=infinity"):
        assert f"\n{line}\n" in text
    assert "\nStartLimitIntervalSec=0\n" in text and "\nRestartPreventExitStatus=78\n" in text


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_is_understood_and_its_exposure_is_below_two(unit: Path, tmp_path: Path) -> None:
    assert ANALYZE is not None, "systemd-analyze is missing: install Debian's package systemd"
    for other in (DEPLOY / "systemd").iterdir():
        text = other.read_text().replace(PROGRAM, shutil.which("true") or "/bin/true")
        (tmp_path / other.name.replace("@.", "@1.")).write_text(text)
        (tmp_path / other.name).write_text(text)
    checked = tmp_path / unit.name.replace("@.", "@1.")
    environment = {**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"}
    verified = subprocess.run([ANALYZE, "verify", str(checked)], capture_output=True, text=True, env=environment)
    assert verified.returncode == 0 and unit.name.partition(".")[0] not in verified.stderr, verified.stderr
    threshold = f"--threshold={int(EXPOSURE * 10)}"
    rated = subprocess.run(
        [ANALYZE, "security", "--offline=true", "--no-pager", threshold, str(checked)], capture_output=True, text=True
    )
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", rated.stdout)
    assert found is not None and float(found[1]) < EXPOSURE, rated.stdout[-500:]
