"""The environment of a program: a few harmless variables and what the settings add. Never the worker's own as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

USUAL = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")


def environment(ours: Mapping[str, str], passed: Iterable[str], added: Mapping[str, str]) -> dict[str, str]:
    """The usual variables and the `passed` ones, as far as this process has them, and the `added` ones."""
    return {name: ours[name] for name in (*USUAL, *passed) if name in ours} | dict(added)
