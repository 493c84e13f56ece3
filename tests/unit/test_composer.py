"""A transaction for PostgreSQL: one statement where the first gives something to the others, else one for each."""

from __future__ import annotations

from shared.store.database import Row
from shared.store.database.postgres.composer import one_by_one, rows_of_steps, together
from shared.store.database.statements import Statement, Step

NUMBER = "INSERT INTO routes VALUES (:session_key, :id) RETURNING last_seq"
KEEP = "INSERT INTO inbox SELECT :id, :session_key, :text, last_seq FROM numbered RETURNING seq"
number = Step(Statement("number", NUMBER, NUMBER, "numbered"), {"session_key": "k", "id": "a"})
keep = Step(Statement("keep", KEEP, KEEP), {"session_key": "k", "id": "b", "text": "hi"})
ask = Step(Statement("ask", "", "SELECT last_seq FROM numbered WHERE key = :session_key"), {"session_key": "k"})


def test_statements_that_hang_on_the_first_are_sent_as_one() -> None:
    [(text, values)] = together((number, keep))
    assert text.decode() == (
        "WITH numbered AS (\nINSERT INTO routes VALUES ($1, $2) RETURNING last_seq\n), "
        "step1 AS (\nINSERT INTO inbox SELECT $3, $1, $4, last_seq FROM numbered RETURNING seq\n)\n"
        "SELECT 0 AS step, to_jsonb(numbered) AS row FROM numbered UNION ALL "
        "SELECT 1 AS step, to_jsonb(step1) AS row FROM step1"
    )
    assert values == ["k", "a", "b", "hi"]


def test_each_step_gets_the_rows_that_it_returned() -> None:
    answer: list[Row] = [{"step": 1, "row": {"seq": 7}}, {"step": 0, "row": {"last_seq": 7}}]
    assert rows_of_steps((number, keep), [answer]) == [[{"last_seq": 7}], [{"seq": 7}]]
    assert rows_of_steps((number, keep), [[]]) == [[], []]


def test_a_query_at_the_end_is_the_answer() -> None:
    [(text, values)] = together((number, keep, ask))
    assert text.decode().endswith("\n)\nSELECT last_seq FROM numbered WHERE key = $1")
    assert values == ["k", "a", "b", "hi"]
    assert rows_of_steps((number, keep, ask), [[{"last_seq": 7}]]) == [[], [], [{"last_seq": 7}]]


def test_statements_that_give_nothing_are_sent_one_by_one() -> None:
    assert together((keep, number)) == one_by_one((keep, number))
    assert [values for _, values in one_by_one((keep, number))] == [["b", "k", "hi"], ["k", "a"]]
    assert rows_of_steps((keep, number), [[{"seq": 1}], []]) == [[{"seq": 1}], []]
