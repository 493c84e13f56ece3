"""Prometheus' own configurations: it can load them, and every process that an alert is about is asked for its numbers."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.metrics import MetricWrapperBase

from shared import metrics
from tests.deploy.documents import DEPLOY, ROOT, documents
from tests.support.promtool import promtool

[COMPOSE] = documents((DEPLOY / "compose.yaml").read_text())
MACHINE = DEPLOY / "prometheus/prometheus.yaml"
KUBERNETES = DEPLOY / "kubernetes"
RECEIVER = {"receiver": 8080}
# Whose process runs the code of a folder; the first that fits counts.
RUN_BY = {
    "producers/server/": {"receiver"},
    "producers/listening.py": {"listener"},
    "producers/": {"receiver", "listener"},
    "workers/upkeep/": {"housekeeper"},
    "workers/": {"worker"},
    "keyturn/dashboard/": {"dashboard"},
    "shared/lane/": {"worker"},  # leases are held by workers alone
    "shared/reading/": {"receiver"},
    "shared/": {"receiver", "listener", "worker", "housekeeper", "dashboard"},
    "keyturn/": set(),  # commands: they end before anybody asks
}


def mounted(path: str) -> Path:
    """The file or pattern of this checkout that compose's Prometheus has under a path of its container."""
    mounts: list[list[str]] = [mount.split(":")[:2] for mount in COMPOSE["services"]["prometheus"]["volumes"]]
    for here, there in sorted(mounts, key=lambda mount: -len(mount[1])):
        if here.startswith("./") and PurePosixPath(path).is_relative_to(there):
            return DEPLOY / here / PurePosixPath(path).relative_to(there)
    raise AssertionError(f"{path} is in no mount of prometheus")


def compose_configuration() -> Path:
    [named] = [
        word.partition("=")[2]
        for word in COMPOSE["services"]["prometheus"]["command"]
        if word.startswith("--config.file=")
    ]
    return mounted(named)


def rule_files(configuration: Path) -> list[list[Path]]:
    """The files that each entry of `rule_files` stands for, as files of this checkout."""
    found = []
    for entry in yaml.safe_load(configuration.read_text())["rule_files"]:
        pattern = mounted(entry) if entry.startswith("/") else configuration.parent / entry
        found.append(sorted(pattern.parent.glob(pattern.name)))
    return found


@pytest.mark.parametrize("configuration", [compose_configuration(), MACHINE], ids=["compose", "machine"])
def test_prometheus_can_load_its_configuration_and_every_rule_file(configuration: Path, tmp_path: Path) -> None:
    entries = rule_files(configuration)
    assert DEPLOY / "prometheus/alerts.yaml" in [file for entry in entries for file in entry]
    for entry in entries:
        assert entry, "an entry of rule_files stands for no file"
        for file in entry:
            assert yaml.safe_load(file.read_text()).keys() == {"groups"}, f"{file.name} is no rule file"
    here: dict[str, Any] = yaml.safe_load(configuration.read_text())
    here["rule_files"] = [str(file) for entry in entries for file in entry]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(here))
    promtool("check", "config", str(tmp_path / "prometheus.yml"))


def alerted_kinds() -> set[str]:
    """The kinds of processes that count something which an alert looks at."""
    named = set(re.findall(r"keyturn_\w+", (DEPLOY / "prometheus/alerts.yaml").read_text()))
    counted = {name for name, one in vars(metrics).items() for family in names_of(one) if family in named}
    kinds = {"receiver"}  # gives the gauges of the whole deployment
    for package in ("producers", "workers", "shared", "keyturn"):
        for file in (ROOT / package).rglob("*.py"):
            if any(re.search(rf"\bmetrics\.{name}\b", file.read_text()) for name in counted):
                path = str(file.relative_to(ROOT))
                kinds |= next(kinds for folder, kinds in RUN_BY.items() if path.startswith(folder))
    return kinds


def names_of(one: object) -> set[str]:
    """The names that queries have for a metric of shared/metrics.py, or for a table of its series."""
    first = next(iter(one.values()), None) if isinstance(one, dict) else one
    if not isinstance(first, MetricWrapperBase):
        return set()
    return {f"{first._name}{end}" for end in ("", "_total", "_bucket")}


def test_alerts_are_about_every_kind_of_process() -> None:
    assert alerted_kinds() == {"receiver", "listener", "worker", "housekeeper", "dashboard"}


def test_compose_asks_every_process_that_an_alert_is_about() -> None:
    asked: dict[str, Any] = {}
    for job in yaml.safe_load(compose_configuration().read_text())["scrape_configs"]:
        for found in job["dns_sd_configs"]:  # names of services, so that `--scale worker=N` is found
            assert found["type"] == "A"
            asked |= dict.fromkeys(found["names"], found["port"])
    services = COMPOSE["services"]
    given = {}
    for kind in alerted_kinds() - RECEIVER.keys():
        environment = services[kind]["environment"]
        assert environment["KEYTURN_METRICS__HOST"] == "0.0.0.0", kind
        given[kind] = int(environment["KEYTURN_METRICS__PORT"])
        assert not any(port.endswith(f":{given[kind]}") for port in services[kind].get("ports", ())), kind
    assert asked == RECEIVER | given


def kubernetes_objects() -> list[dict[str, Any]]:
    files = [*(KUBERNETES / "base").glob("*.yaml"), *(KUBERNETES / "components").rglob("*.yaml")]
    return [one for file in files for one in documents(file.read_text())]


def test_kubernetes_asks_every_process_that_an_alert_is_about() -> None:
    found = kubernetes_objects()
    [settings] = [one["data"] for one in found if one["kind"] == "ConfigMap"]
    assert settings["KEYTURN_METRICS__HOST"] == "0.0.0.0"
    port = int(settings["KEYTURN_METRICS__PORT"])
    deployments = {one["metadata"]["name"]: one["spec"]["template"] for one in found if one["kind"] == "Deployment"}
    for kind in alerted_kinds():
        annotations = deployments[kind]["metadata"]["annotations"]
        wanted = RECEIVER.get(kind, port)
        assert annotations == {"prometheus.io/scrape": "true", "prometheus.io/port": str(wanted)}, kind
        [container] = deployments[kind]["spec"]["containers"]
        assert wanted in [one["containerPort"] for one in container["ports"]], kind


def test_the_network_of_kubernetes_lets_prometheus_reach_the_metrics_and_nobody_reach_more() -> None:
    found = kubernetes_objects()
    [port] = {int(one["data"]["KEYTURN_METRICS__PORT"]) for one in found if one["kind"] == "ConfigMap"}
    closed, opened = set(), set()
    for policy in [one["spec"] for one in found if one["kind"] == "NetworkPolicy"]:
        [kinds] = [
            set(one["values"])
            for one in policy["podSelector"]["matchExpressions"]
            if one["key"] == "app.kubernetes.io/component"
        ]
        if not policy["ingress"]:
            closed |= kinds
            continue
        assert policy["ingress"] == [
            {"from": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP", "port": port}]}
        ]  # pods of the cluster, and no other port
        opened |= kinds
    assert closed == {"worker", "housekeeper", "listener", "migrate"}
    assert opened == closed & alerted_kinds()


def test_on_one_machine_every_unit_has_a_port_of_its_own_that_prometheus_asks() -> None:
    jobs = yaml.safe_load(MACHINE.read_text())["scrape_configs"]
    asked = [target for job in jobs for one in job["static_configs"] for target in one["targets"]]
    ports = {"receive": "8080"}
    for unit in (DEPLOY / "systemd").glob("*.service"):
        text = unit.read_text()
        kind = unit.stem.removeprefix("keyturn-").rstrip("@")
        if kind in ("migrate", "receive"):
            continue
        [ports[kind]] = re.findall(r"^Environment=KEYTURN_METRICS__PORT=([\d%i]+)$", text, re.M)
    assert len(set(ports.values())) == 5
    workers = {ports["work"].replace("%i", str(number)) for number in range(1, 100)}
    assert all(1024 <= int(port) <= 65_535 for port in workers) and len(workers) == 99
    assert not workers & set(ports.values())
    first = {port.replace("%i", "1") for port in ports.values()}
    assert {f"127.0.0.1:{port}" for port in first} <= set(asked)
