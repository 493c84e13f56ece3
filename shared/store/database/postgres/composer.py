"""The steps of a transaction as one statement of PostgreSQL, so that they cost one round trip and one plan.

A list of steps is composed where its first statement gives something to the others (`-- gives:` in its `.sql` file). Each
statement becomes a common table expression, named after what it gives, and the later ones select from it by that name.
PostgreSQL runs all of them on one snapshot: none sees the rows that another wrote, except through such a name. Nothing is
composed where the first statement gives nothing: then each statement is sent by itself.

Worked example, an accepted message (journal.sql, shortened). The steps are

    accept_route(id="in_1", session_key="k", …)      INSERT INTO routes … VALUES (:session_key, …) … RETURNING last_seq
                                                     -- gives: numbered
    accept_inbox(id="in_1", session_key="k", …)      INSERT INTO inbox … SELECT :id, …, numbered.last_seq FROM {{numbered}}
                                                     RETURNING seq AS id

and what is sent is

    WITH numbered AS (
    INSERT INTO routes … VALUES ($1, …) … RETURNING last_seq
    ), step1 AS (
    INSERT INTO inbox … SELECT $4, …, numbered.last_seq FROM numbered RETURNING seq AS id
    )
    SELECT 0 AS step, to_jsonb(numbered) AS row FROM numbered UNION ALL SELECT 1 AS step, to_jsonb(step1) AS row FROM step1

with the values of $1, $4 … from the steps: `$1` is `session_key` wherever it occurs, because it is the same for all steps
(SAME_FOR_ALL), while `:id` of the first and `:id` of the second step would be two parameters. The answer
`[{"step": 0, "row": {"last_seq": 7}}, {"step": 1, "row": {"id": 7}}]` becomes `[[{"last_seq": 7}], [{"id": 7}]]`, the rows
of each step. Where the last step is a query, that query takes the place of the last line, and its rows are the answer.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from shared.store.database import Row, Step
from shared.store.database.statements import PARAMETER, Statement
from shared.value import value

# Parameters that have the same value in all steps of a composed list: each is sent once.
SAME_FOR_ALL = {"session_id", "session_key", "turn_id", "now", "turns"}

Query = tuple[bytes, list[Any]]  # text with $1, $2 …, and their values


@value
class _Text:
    """Text for PostgreSQL, and for each of its parameters the step and the name of its value."""

    text: bytes
    places: tuple[tuple[int, str], ...]

    def query(self, steps: tuple[Step, ...]) -> Query:
        return self.text, [steps[n].values[name] for n, name in self.places]


def one_by_one(steps: tuple[Step, ...]) -> list[Query]:
    """What is sent for steps that have nothing to do with each other."""
    return [_composed((step.statement,)).query((step,)) for step in steps]


def together(steps: tuple[Step, ...]) -> list[Query]:
    """What is sent for a transaction: one statement where the first gives something to the others, else one for each."""
    if len(steps) == 1 or steps[0].statement.gives is not None:
        return [_composed(tuple([step.statement for step in steps])).query(steps)]
    return one_by_one(steps)


def rows_of_steps(steps: tuple[Step, ...], answers: list[list[Row]]) -> list[list[Row]]:
    """The rows that each step returned, from the answers to what was sent."""
    if len(answers) == len(steps):
        return answers
    rows: list[list[Row]] = [[] for _ in steps]
    if steps[-1].statement.asks:
        return [*rows[:-1], answers[0]]
    for row in answers[0]:
        rows[row["step"]].append(row["row"])
    return rows


@lru_cache(maxsize=256)
def _composed(statements: tuple[Statement, ...]) -> _Text:
    places: list[tuple[int, str]] = []
    known: dict[tuple[int, str] | str, int] = {}

    def numbered(n: int) -> str:
        def place(match: re.Match[str]) -> str:
            name = match[1]
            at = name if name in SAME_FOR_ALL else (n, name)
            if at not in known:
                places.append((n, name))
                known[at] = len(places)
            return f"${known[at]}"

        return PARAMETER.sub(place, statements[n].postgres)

    if len(statements) == 1:
        return _Text(numbered(0).encode(), tuple(places))
    expressions, answers = [], []
    for n, statement in enumerate(statements):
        name, text = statement.gives or f"step{n}", numbered(n)
        if statement.asks:
            answers = [text]
            break
        expressions.append(f"{name} AS (\n{text}\n)")
        if statement.returns:
            answers.append(f"SELECT {n} AS step, to_jsonb({name}) AS row FROM {name}")
    return _Text(f"WITH {', '.join(expressions)}\n{' UNION ALL '.join(answers)}".encode(), tuple(places))
