"""Lua scripts and SQL statements of a product that is imported already, read again after a mutant has changed their file.

Imports the product: only a process that has it in it anyway may import this.
"""

from __future__ import annotations

import sys
from pathlib import Path

from shared.redis_servers import Script
from shared.store.database.sql_file import POSTGRES, SQLITE, BadSql, blocks, text_of
from shared.store.database.statements import STATEMENTS, Statement
from tests.mutants.swapping import Change


class Scripts:
    """The Lua scripts and the SQL statements, as they are before any mutant."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._paths = {Script.load(path): path for path in root.glob("*/**/*.lua")}

    def changes(self, path: str) -> list[Change] | None:
        """What differs now that this file has its new text. None if the import would refuse it: then it shall do so."""
        return self._changed_scripts() if path.endswith(".lua") else _changed_statements((self._root / path).parent)

    def _changed_scripts(self) -> list[Change] | None:
        """In every script that includes a changed one."""
        found: list[Change] = []
        for script in _imported():
            path = self._paths.get(script)
            if path is not None and (now := Script.load(path)) != script:
                found += [(script, name, getattr(now, name)) for name in ("source", "sha", "commands")]
        return found or None


def _imported() -> list[Script]:
    modules = [getattr(module, "__dict__", {}) for module in [*sys.modules.values()]]
    return [script for names in modules for script in [*names.values()] if isinstance(script, Script)]


def _changed_statements(folder: Path) -> list[Change] | None:
    blocks.cache_clear()
    try:
        read = [
            Statement(name, text_of(path, block, SQLITE), text_of(path, block, POSTGRES), block.gives)
            for path in folder.glob("*.sql")
            for name, block in blocks(path).items()
        ]
    except BadSql:
        return None
    finally:
        blocks.cache_clear()
    found: list[Change] = []
    for now in read:
        before = STATEMENTS.get(now.name)
        if before is None or before.parameters != now.parameters:
            return None
        if (before.sqlite, before.postgres) != (now.sqlite, now.postgres):
            names = ("sqlite", "postgres", "gives", "returns", "asks")
            found += [(before, name, getattr(now, name)) for name in names]
    return found or None
