"""deploy/kubernetes: every object is valid, and every pod runs with few rights and ends its work before it goes."""

from __future__ import annotations

import shutil
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from shared.redis_roles import ROLES
from shared.settings.work import WorkSettings
from tests.deploy.documents import DEPLOY, documents

KUBERNETES = DEPLOY / "kubernetes"
VERSION = "1.33"
PLACES = sorted(path.parent for path in KUBERNETES.rglob("kustomization.yaml"))
FILES = sorted(path for path in KUBERNETES.rglob("*.yaml") if path.name != "kustomization.yaml")
# KEDA's objects, as far as ours use them: kubernetes-validate knows no custom resources.
TRIGGER = {
    "type": "object",
    "additionalProperties": False,
    "required": ["type", "metricType", "metadata", "authenticationRef"],
    "properties": {
        "type": {"const": "metrics-api"},
        "name": {"type": "string"},
        "metricType": {"enum": ["AverageValue", "Value"]},
        "metadata": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "required": ["url", "valueLocation", "targetValue", "authMode"],
        },
        "authenticationRef": {"type": "object", "required": ["name"]},
    },
}
KEDA: dict[str, dict[str, Any]] = {
    "ScaledObject": {
        "type": "object",
        "additionalProperties": False,
        "required": ["scaleTargetRef", "triggers"],
        "properties": {
            "scaleTargetRef": {"type": "object", "required": ["name"]},
            "minReplicaCount": {"type": "integer", "minimum": 1},
            "maxReplicaCount": {"type": "integer"},
            "pollingInterval": {"type": "integer"},
            "fallback": {
                "type": "object",
                "additionalProperties": False,
                "required": ["failureThreshold", "replicas"],
                "properties": {
                    "failureThreshold": {"type": "integer"},
                    "replicas": {"type": "integer"},
                    "behavior": {
                        "enum": ["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]
                    },
                },
            },
            "advanced": {"type": "object"},
            "triggers": {"type": "array", "items": TRIGGER, "minItems": 1},
        },
    },
    "TriggerAuthentication": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "secretTargetRef": {
                "type": "array",
                "items": {"type": "object", "required": ["parameter", "name", "key"]},
            }
        },
    },
}


def check(document: dict[str, Any]) -> None:
    if document["apiVersion"].startswith("keda.sh/"):
        jsonschema_rs.validate(KEDA[document["kind"]], document["spec"])
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kubernetes_validate.validate(document, VERSION, strict=True)


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(KUBERNETES)))
def test_every_object_is_valid(file: Path) -> None:
    found = documents(file.read_text())
    assert found
    for document in found:
        check(document)


@pytest.mark.parametrize("place", PLACES, ids=lambda path: str(path.relative_to(KUBERNETES)))
def test_a_kustomization_names_files_that_are_there_and_renders_to_valid_objects(place: Path) -> None:
    """Rendered by kubectl where there is one; its schema and its files are looked at everywhere."""
    [kustomization] = documents((place / "kustomization.yaml").read_text())
    for resource in [*kustomization.get("resources", ()), *kustomization.get("components", ())]:
        assert (place / resource).exists(), resource
    kubectl = shutil.which("kubectl")
    if kubectl is None or kustomization["kind"] == "Component":
        return
    rendered = subprocess.run([kubectl, "kustomize", str(place)], capture_output=True, text=True)
    assert rendered.returncode == 0, rendered.stderr
    for document in documents(rendered.stdout):
        check(document)


def pods() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for file in FILES:
        for document in documents(file.read_text()):
            if document["kind"] in ("Deployment", "StatefulSet", "Job"):
                yield document["kind"], document["metadata"]["name"], document["spec"]["template"]["spec"]


def test_every_pod_is_restricted() -> None:
    found = [*pods()]
    assert len(found) >= 7
    for _, name, pod in found:
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True and security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True, name
            assert container["securityContext"]["allowPrivilegeEscalation"] is False, name
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["limits"]["memory"], name


def test_pods_end_their_work_before_they_go_and_a_store_that_is_away_restarts_nobody() -> None:
    grace = WorkSettings().grace_seconds
    by_name = {name: pod for kind, name, pod in pods() if kind == "Deployment"}
    assert by_name["worker"]["terminationGracePeriodSeconds"] == grace + 15
    for name in ("receiver", "dashboard"):
        [container] = by_name[name]["containers"]
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    [receiver] = by_name["receiver"]["containers"]
    assert receiver["readinessProbe"]["httpGet"]["path"] == "/readyz" and receiver["lifecycle"]["preStop"]


def test_a_rollout_replaces_no_pod_by_one_that_ends_at_once() -> None:
    """A pod without a readiness probe is ready as soon as its process was started."""
    deployments = [found for file in FILES for found in documents(file.read_text()) if found["kind"] == "Deployment"]
    asked = {
        one["metadata"]["name"]
        for one in deployments
        if all("readinessProbe" in container for container in one["spec"]["template"]["spec"]["containers"])
    }
    waited = {one["metadata"]["name"] for one in deployments if one["spec"].get("minReadySeconds", 0) >= 10}
    assert asked | waited == {"receiver", "worker", "housekeeper", "listener", "dashboard"}


def test_no_disruption_budget_can_block_a_drain() -> None:
    found = [d for file in FILES for d in documents(file.read_text()) if d["kind"] == "PodDisruptionBudget"]
    assert {budget["metadata"]["name"] for budget in found} >= {"receiver", "worker", "housekeeper"}
    assert all(budget["spec"]["maxUnavailable"] == 1 and "minAvailable" not in budget["spec"] for budget in found)


def test_each_process_has_the_redis_user_of_its_role() -> None:
    roles = {role.name for role in ROLES}
    for kind, name, pod in pods():
        if kind == "Deployment" and name in roles:
            [container] = pod["containers"]
            assert {"secretRef": {"name": f"keyturn-redis-{name}"}} in container["envFrom"]


def test_workers_scale_by_work_and_the_age_only_helps() -> None:
    [scaled] = [
        d
        for d in documents((KUBERNETES / "overlays/keda/worker-scaler.yaml").read_text())
        if d["kind"] == "ScaledObject"
    ]
    work, age = scaled["spec"]["triggers"]
    assert (work["metricType"], work["metadata"]["valueLocation"]) == ("AverageValue", "work")
    assert float(work["metadata"]["targetValue"]) == 0.7 * WorkSettings().concurrency
    assert (age["metricType"], age["metadata"]["valueLocation"]) == ("Value", "ready_seconds")
    assert scaled["spec"]["fallback"]["behavior"] == "currentReplicasIfHigher"
