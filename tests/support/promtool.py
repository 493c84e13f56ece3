"""promtool, which reads Prometheus' files as Prometheus does, if this machine has it."""

from __future__ import annotations

import os
import shutil
import subprocess
import warnings

VARIABLE = "PROMTOOL_TESTS"  # `required`: it is an error that there is no promtool
LEFT_OUT = "promtool was not found, so Prometheus' own reading was left out. Debian has it in the package prometheus"


def promtool(*arguments: str) -> None:
    """Run promtool, which must find no fault. Where there is none: an error if it is required, and a warning if not."""
    program = shutil.which("promtool")
    if program is None:
        assert os.environ.get(VARIABLE) != "required", LEFT_OUT
        warnings.warn(LEFT_OUT, stacklevel=2)
        return
    ran = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
