"""The probes of deploy/kubernetes, sent to the real apps as a kubelet sends them: by GET, under the pod's address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from keyturn.dashboard import app as dashboard
from producers.server import app as receiver
from shared.pipeline import Pipeline
from tests.deploy.test_kubernetes import pods
from tests.support.servers import Databases

POD = "10.244.1.17"
APPS: dict[str, Any] = {"receiver": receiver.build_app, "dashboard": dashboard.build_app}


def probes() -> list[tuple[str, str, dict[str, Any], list[dict[str, Any]]]]:
    """Every probe by HTTP: whose it is, which one, what it asks for, and the ports of its container."""
    return [
        (name, kind, container[kind]["httpGet"], container.get("ports", []))
        for _, name, pod in pods()
        for container in pod["containers"]
        for kind in ("startupProbe", "livenessProbe", "readinessProbe")
        if "httpGet" in container.get(kind, {})
    ]


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    """Probes stand before any database: one is enough."""
    return databases.fresh_sqlite(tmp_path)


def test_every_process_that_is_asked_by_http_has_all_three_probes() -> None:
    assert sorted((name, kind) for name, kind, _, _ in probes()) == sorted(
        (name, kind) for name in APPS for kind in ("startupProbe", "livenessProbe", "readinessProbe")
    )


@pytest.mark.parametrize(("name", "kind", "asked", "ports"), probes(), ids=[f"{one[0]}-{one[1]}" for one in probes()])
async def test_a_kubelet_that_asks_by_the_pods_address_is_answered(
    pipe: Pipeline, name: str, kind: str, asked: dict[str, Any], ports: list[dict[str, Any]]
) -> None:
    [port] = [port["containerPort"] for port in ports if asked["port"] in (port["name"], port["containerPort"])]
    app = APPS[name](pipe)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://{POD}:{port}") as kubelet:
        answer = await kubelet.get(asked["path"], headers={"user-agent": "kube-probe/1.33"})
    assert 200 <= answer.status_code < 400, answer.text  # what a kubelet takes for success
