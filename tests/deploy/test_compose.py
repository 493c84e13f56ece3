"""deploy/compose.yaml: valid, complete, hardened, and scaled by `--scale worker=N`."""

from __future__ import annotations

import re
from typing import Any

from shared.redis_roles import ROLES
from tests.deploy.documents import DEPLOY, documents, tool

FILE = DEPLOY / "compose.yaml"
[COMPOSE] = documents(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("keyturn:")}


def test_compose_knows_every_word_of_the_file() -> None:
    checked = tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE))
    assert checked.returncode == 0, checked.stdout


def test_every_process_and_every_store_is_there() -> None:
    stores = {"valkey", "postgres", "prometheus", "grafana"}
    assert SERVICES.keys() == {
        *stores,
        "migrate",
        "operator",
        *(r.name for r in ROLES if r.name not in ("restorer", "viewer")),
    }


def test_every_service_is_without_rights_and_cannot_change_its_image() -> None:
    for name, service in SERVICES.items():
        assert service["read_only"] is True and service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


def test_nothing_is_reached_from_other_machines() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)


def test_each_process_has_the_redis_user_of_its_role_and_waits_for_the_schema() -> None:
    for name, service in OURS.items():
        if name == "migrate":
            continue
        assert {"path": f"redis/{name}.env", "required": True} in service["env_file"], name
        assert service["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}, name


def test_workers_can_be_scaled_and_end_their_turns() -> None:
    worker = SERVICES["worker"]
    assert "container_name" not in worker and "ports" not in worker
    assert worker["stop_grace_period"] == "40s"  # GRACE_SECONDS and 15 more


def test_every_file_that_is_mounted_is_there_or_made_by_somebody_else() -> None:
    mounted = re.findall(r"- \./([\w./-]+):", FILE.read_text())
    made = {"redis/users.acl", "prometheus", "grafana"}  # by keyturn deploy acl; rules and dashboards
    assert {path for path in mounted if not (DEPLOY / path).exists()} <= made
    for path in (DEPLOY / "compose").rglob("*.y*ml"):
        assert documents(path.read_text()), path


def test_variables_that_must_be_set_are_in_the_example() -> None:
    needed = set(re.findall(r"\$\{([A-Z_]+):\?", FILE.read_text()))
    assert needed <= set(re.findall(r"^([A-Z_]+)=", (DEPLOY / "env.example").read_text(), re.M))
