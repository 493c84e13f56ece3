"""What a program is started with, as the worker says it and the keeper reads it: one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field

from shared.value import value

LINE_BYTES = 4 * 2**20  # of a launch: the kernel allows less for arguments and environment


@value
class Launch:
    """A program that is to run. No shell reads `arguments`; `environment` is all that it gets."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str  # where it runs
    is_own_directory: bool = False  # the directory is this program's alone: it is removed when the program has ended
    limits: Mapping[str, int] = field(default_factory=dict)  # by the names of the module `resource`: `RLIMIT_AS`

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def read_launch(line: bytes) -> Launch:
    """The launch in a line that `Launch.line` made."""
    about = json.loads(line)
    return Launch(**{**about, "arguments": tuple(about["arguments"])})
