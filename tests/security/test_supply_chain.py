"""What we are made of: every version is pinned, the bill of materials is true and in form, and an audit never passes unasked."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distributions, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema_rs
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def a_bill(*arguments: str) -> dict[str, Any]:
    made = subprocess.run([sys.executable, "deploy/sbom.py", *arguments], cwd=ROOT, capture_output=True, check=True)
    return dict(json.loads(made.stdout))


def test_the_bill_of_materials_is_cyclonedx() -> None:
    """By the schema that CycloneDX publishes."""
    schemas = files("cyclonedx.schema") / "_res"

    def read(name: str) -> Any:
        return json.loads((schemas / f"{name}.SNAPSHOT.schema.json").read_text())

    def retrieve(uri: str) -> Any:
        return read(uri.rpartition("/")[2].partition(".SNAPSHOT")[0].removesuffix(".schema.json"))

    validator = jsonschema_rs.validator_for(read("bom-1.6"), retriever=retrieve)
    for arguments in ((), ("--all",)):
        errors = [str(error)[:300] for error in validator.iter_errors(a_bill(*arguments))]
        assert errors == []
    broken = {**a_bill(), "components": [{"name": "no type"}]}
    assert not validator.is_valid(broken)


def test_the_bill_names_everything_that_the_product_needs_with_the_version_that_is_installed() -> None:
    bill = a_bill()
    versions = {part["name"]: part["version"] for part in bill["components"]}
    for text in PROJECT["project"]["dependencies"]:
        requirement = Requirement(text)
        assert versions[canonicalize_name(requirement.name)] == version(requirement.name)
    assert "pytest" not in versions and "mypy" not in versions
    known = {part["bom-ref"] for part in [bill["metadata"]["component"], *bill["components"]]}
    assert {edge["ref"] for edge in bill["dependencies"]} == known
    assert all(set(edge["dependsOn"]) <= known for edge in bill["dependencies"])
    assert a_bill() == bill  # the same installation, the same document
    assert len(a_bill("--all")["components"]) > len(versions)


def test_every_package_that_is_installed_is_pinned_to_that_version() -> None:
    pins = {}
    for pin in PROJECT["tool"]["uv"]["constraint-dependencies"]:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[^,;*]+", pin), pin
        name, _, pinned = pin.partition("==")
        pins[canonicalize_name(name)] = pinned
    ours = ("keyturn", "pip", "setuptools", "uv")  # and what came with the environment
    installed = {canonicalize_name(found.metadata["Name"]): found.version for found in distributions()}
    assert {n: found for n, found in installed.items() if n not in ours and pins.get(n) != found} == {}


def test_an_audit_that_could_not_ask_is_not_passed(tmp_path: Path) -> None:
    """`./run audit` gives pip-audit everything that is installed, and lets it skip nothing."""
    heard = tmp_path / "heard"
    (tmp_path / "uv").write_text(
        f'#!/bin/sh\nif [ "$1" = pip ]; then echo a==1; exit 0; fi\necho "$@" >{heard}\nexit 7\n'
    )
    (tmp_path / "uv").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    run = ROOT / "run"
    ended = subprocess.run(["sh", "-c", f'cp "{run}" . && sh ./run audit'], cwd=tmp_path, env=environment)
    words = heard.read_text().split()
    assert ended.returncode == 7  # what it says is what we say
    assert "--strict" in words and "pip-audit==2.10.1" in words and "--ignore-vuln" not in words
    assert (tmp_path / ".tools" / "installed.txt").read_text() == "a==1\n"
