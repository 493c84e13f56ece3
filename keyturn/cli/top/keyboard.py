"""Keys as they are pressed: the terminal sends each at once and shows none, and is put back as it was afterwards."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from keyturn.cli.top.view import BACKSPACE, DOWN, ENTER, ESCAPE, PAGE_DOWN, PAGE_UP, UP

_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O[A-Za-z])?|.", re.DOTALL)
_NAMES = {
    "\x1b[A": UP,
    "\x1bOA": UP,
    "\x1b[B": DOWN,
    "\x1bOB": DOWN,
    "\x1b[5~": PAGE_UP,
    "\x1b[6~": PAGE_DOWN,
    "\r": ENTER,
    "\n": ENTER,
    "\x1b": ESCAPE,
    "\x7f": BACKSPACE,
    "\x08": BACKSPACE,
}


@contextmanager
def keyboard(fd: int, hear: Callable[[str], object]) -> Iterator[None]:
    """Calls `hear` for each key, from the event loop."""
    loop, decoder = asyncio.get_running_loop(), codecs.getincrementaldecoder("utf-8")("replace")

    def read() -> None:
        try:
            text = decoder.decode(os.read(fd, 1024))
        except OSError:  # the terminal is gone
            text = "q"
        for key in keys_in(text):
            hear(key)

    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    loop.add_reader(fd, read)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def keys_in(text: str) -> list[str]:
    """The keys that a terminal's text stands for; sequences of keys that have no meaning here are left out."""
    found = [_NAMES.get(part, part) for part in _SEQUENCE.findall(text)]
    return [key for key in found if not key.startswith("\x1b")]
