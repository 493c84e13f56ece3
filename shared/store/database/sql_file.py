"""A `.sql` file: the statements of one store module, each as a block with a name and a sentence.

    -- name: accept_route
    -- Give the key its next number, unless this message was accepted before.
    INSERT INTO routes …
    RETURNING last_seq
    -- gives: numbered
    (SELECT last_seq FROM routes WHERE session_key = :session_key AND changes() > 0) AS numbered

| in a block | means |
|---|---|
| `:name` | a parameter |
| `{{each}}`, `{{now_ms}}` … | a word that the two databases spell differently: see WORDS |
| `{{rows(:turns)}}` | such a word with a parameter, which stands where WORDS has `:given` |
| `-- [sqlite]`, `-- [postgres]`, `-- [both]` | the lines that follow are for that database alone, up to the next such line |
| `-- gives: numbered` | later statements of the same transaction may select from `{{numbered}}`. PostgreSQL reads it as a \
common table expression with that name: the rows that this statement returned. SQLite reads it as the subselect that follows |
| `{{commits.ours}}` | what a statement of another file gives: here `ours` of commits.sql |
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from shared.value import value

SQLITE, POSTGRES = DIALECTS = ("sqlite", "postgres")
WORDS = {
    SQLITE: {
        "json_list": "json_group_array",
        "json_row": "json_array",
        "json_object": "json_group_object",
        "each": "json_each",  # gives the elements of a JSON list as `value`
        # The same where many fields are read from each. json_each writes `value` as text again for every field that is read
        # from it; LIMIT makes SQLite write it once and keep it (a turn's commit, on one thread: 66 → 50 µs).
        "rows": "(SELECT value FROM json_each(:given) LIMIT -1)",
        "indexed": "searched",  # column of sessions: up to which row it is indexed for search
        "now_ms": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    },
    POSTGRES: {
        "json_list": "json_agg",
        "json_row": "json_build_array",
        "json_object": "json_object_agg",
        "each": "jsonb_array_elements",
        "rows": "jsonb_array_elements(:given)",
        "indexed": "indexed",
        "now_ms": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    },
}
_NAME = re.compile(r"-- name: (\w+)")
_ONLY = re.compile(r"-- \[(sqlite|postgres|both)\]")
_GIVES = re.compile(r"-- gives: (\w+)")
_WORD = re.compile(r"\{\{([\w.]+)(?:\((:\w+)\))?\}\}")


class BadSql(Exception):
    """A `.sql` file and the module beside it do not agree. Raised when the module is imported."""


@value
class StatementBlock:
    """One statement as it stands in its file, before `{{…}}` is replaced."""

    name: str
    texts: dict[str, str]  # by dialect
    gives: str | None
    given: str  # what SQLite reads for `gives`


@cache
def blocks(path: Path) -> dict[str, StatementBlock]:
    """The statements of a file by name. Each has a sentence; no name is used twice."""
    found: dict[str, StatementBlock] = {}
    for name, lines in _cut(path):
        if name in found:
            raise BadSql(f"{path.name} has two statements named {name}")
        if not lines or not lines[0].startswith("-- "):
            raise BadSql(f"{path.name}: {name} has no sentence")
        found[name] = _block(name, lines)
    return found


def text_of(path: Path, block: StatementBlock, dialect: str) -> str:
    """The statement for one database, its parameters still written `:name`. Empty: that database has no such statement."""

    def replaced(match: re.Match[str]) -> str:
        word = match[1]
        if word in WORDS[dialect]:
            return WORDS[dialect][word].replace(":given", match[2] or ":given")
        file, _, given = word.rpartition(".")
        subselect = _given(path.with_name(f"{file}.sql") if file else path, given)
        return given if dialect == POSTGRES else subselect

    return _WORD.sub(replaced, block.texts[dialect])


def _given(path: Path, name: str) -> str:
    """What SQLite reads for `{{name}}`. Several statements may give the same: then they say it in the same words."""
    subselects = {block.given for block in blocks(path).values() if block.gives == name}
    if len(subselects) != 1:
        raise BadSql(f"{path.name}: {len(subselects) or 'no'} statements give {name}")
    return subselects.pop()


def _cut(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Each block's name and lines. What stands before the first block is about the file."""
    name, lines = "", list[str]()
    for line in path.read_text().splitlines():
        if begins := _NAME.fullmatch(line):
            if name:
                yield name, lines
            name, lines = begins[1], []
        else:
            lines.append(line)
    yield name, lines


def _block(name: str, lines: list[str]) -> StatementBlock:
    texts: dict[str, list[str]] = {dialect: [] for dialect in DIALECTS}
    given = list[str]()
    gives, meant = None, "both"
    for line in lines:
        if only := _ONLY.match(line):
            meant = only[1]
        elif begins := _GIVES.fullmatch(line):
            gives = begins[1]
        elif code := line.partition("--")[0].rstrip():
            for text in [given] if gives else [texts[d] for d in DIALECTS if meant in (d, "both")]:
                text.append(code)
    return StatementBlock(name, {dialect: "\n".join(text) for dialect, text in texts.items()}, gives, "\n".join(given))
