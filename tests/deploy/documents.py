"""Reads the files of deploy/ for their tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def documents(text: str) -> list[dict[str, Any]]:
    """The YAML documents of a text."""
    return [document for document in yaml.safe_load_all(text) if document]


def tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program that came with a wheel."""
    program = Path(sys.executable).with_name(name)
    return subprocess.run([str(program), *arguments], capture_output=True, text=True, cwd=ROOT)
