"""Where in the operator's own code an agent raised: file, line and function, for the log. No word of what anybody said."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from traceback import walk_tb

from shared.errors import Transient

_ROOT = Path(__file__).parents[1]
_NOT_THEIRS = (
    *(f"{_ROOT / package}/" for package in ("keyturn", "producers", "shared", "workers")),
    *(
        f"{path}/"
        for name, path in sysconfig.get_paths().items()
        if name in ("stdlib", "platstdlib", "purelib", "platlib")
    ),
    "<",  # frozen modules
)


class RaisedElsewhere(Transient):
    """What an agent raised in a process of its own, as that process tells it: the name of its class, and where it raised. The text
    begins with the name."""

    def __init__(self, text: str, name: str, at: str | None) -> None:
        super().__init__(text)
        self.name = name
        self.at = at


def raised_at(error: BaseException) -> str | None:
    """The innermost place in a file that is neither Keyturn's nor an installed package's. None: the error passed none."""
    if isinstance(error, RaisedElsewhere):
        return error.at
    found = None
    for frame, line in walk_tb(error.__traceback__):
        code = frame.f_code
        if not code.co_filename.startswith(_NOT_THEIRS):
            found = f"{code.co_filename}:{line} in {code.co_name}"
    return found
