"""Every row of docs/behaviour.md is a test named after it, or says what holds instead; never both, and rarely the latter."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "behaviour.md"

ONE_IN = 10  # at most one row in so many may be mapped instead of tested

_TEST = re.compile(r"^\s*(?:async )?def test_((?:[A-Z]\d+[a-z]?_)+)", re.MULTILINE)
_ROW = re.compile(r"\b([A-Z])0*(\d+[a-z]?)\b")


def rows_in(text: str) -> list[str]:
    """The ids in a text; `N05b` and `N5b` are one."""
    return [f"{letter}{number}" for letter, number in _ROW.findall(text.replace("_", " "))]


# The rows to be met, as the page numbers them: some numbers do not exist.
ALL_ROWS = rows_in(
    """
    K1 K2 K3 K4 K5 K6 K7 K8 K9 K10 K11 K12 K14 K15 K16 K17 K18 K19 K20 K21
    E1 E2 E3 E4 E5 E6 E7 E8 E9 E10 E11 E12 E13
    R1 R2 R4 R5 R7 R8 R9 R11 R12 R13 R14 R15 R16 R17 R18 R19 R20
    C1 C2 C3 C4 C5 C6 C7 C8 C9 C10 C11 C13 C14 C15 C16 C17
    X1 X2 X3 X4 X5 X6 X7 X8 X9 X10
    W1 W3 W4 W5 W6 W7 W9 W10 W11 W12 W13 W14 W15
    U1 U2 U3 U5 U7 U8 U9 U10 U11 U12 U13 U14 U15 U16 U17
    D1 D2 D3 D5 D6 D8 D9
    P1 P2 P3 P4 P5 P7 P8 P9 P10 P11 P12 P13 P14 P15 P16
    F1 F2 F4 F5 G1 G2 G3 H1 H2 H3 H4
    N1 N2 N3 N4 N5 N5b N6 N7 N8 N9 N10 N11 N12 N14 N15 N16 N17 N18 N19 N20 N21
    N23 N24 N25 N26 N27 N29 N30 N32 N33 N34 N35 N36 N37 N38
    N39 N40 N41 N42 N43 N45 N46 N47 N48 N50 N51 N52 N53 N54 N56 N57 N58
    N59 N60 N61 N62 N64 N65 N66 N85 N86 N87 N88 N89
    Q1 Q2 Q3 Q4 Q5 Q6 Q7 Q8 Q10 Q11 Q12 Q13 Q14 Q15 Q17
    T1 T2 T3 T4 T5 T6 T9 T10 T11 T12 T13 T14 T15 T16 T17
    M1 M2 M3 M5 M6 M8 M9 M10 M12 M13 M14 M15 M16 M17 M18 M19
    N67 N68 N69 N70 N71 N72 N73 N74 N75 N76 N77 N78 N79 N80 N81 N82 N83 N84
    N90 N91 N92 N93 N94 N95 N96
    """
)


def rows_tested() -> set[str]:
    files = (path.read_text() for path in TESTS.rglob("test_*.py"))
    return {row for text in files for names in _TEST.findall(text) for row in rows_in(names)}


def lines_of(section: str) -> dict[str, list[str]]:
    """The rows of a section of the page, each with the other cells of its line."""
    _, found, rest = PAGE.read_text().partition(f"\n## {section}\n")
    assert found, f"the page has no section {section!r}"
    found_rows: dict[str, list[str]] = {}
    for line in rest.partition("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and not line.startswith("| collision") and (rows := rows_in(cells[0])):
            for row in rows:
                assert row not in found_rows, f"{row} stands there twice"
                found_rows[row] = cells[1:]
    return found_rows


def test_every_row_is_tested_or_mapped() -> None:
    assert sorted(set(ALL_ROWS) - rows_tested() - lines_of("Met otherwise").keys()) == []


def test_no_row_is_tested_and_mapped() -> None:
    assert sorted(rows_tested() & lines_of("Met otherwise").keys()) == []


def test_a_mapped_row_is_one_of_the_page_and_says_why_and_what_holds_instead() -> None:
    mapped = lines_of("Met otherwise")
    assert mapped.keys() <= set(ALL_ROWS)
    assert [row for row, cells in mapped.items() if len(cells) != 2 or not all(cells)] == []


def test_few_rows_are_only_mapped() -> None:
    assert len(lines_of("Met otherwise")) * ONE_IN <= len(ALL_ROWS)


def test_every_row_that_a_test_carries_is_a_sentence_on_the_page() -> None:
    assert lines_of("Rows").keys() == rows_tested()
    assert [row for row, cells in lines_of("Rows").items() if not cells[0].endswith(".")] == []


def test_every_collision_that_a_test_carries_is_a_sentence_on_the_page() -> None:
    files = "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    shown = re.findall(r"^\| collision (K\d+) \| .+\. \|$", PAGE.read_text(), re.MULTILINE)
    assert sorted(shown) == sorted(set(re.findall(r"def test_collision_(K\d+)_", files)))


def test_no_row_is_listed_twice() -> None:
    assert len(set(ALL_ROWS)) == len(ALL_ROWS)


@pytest.mark.parametrize(("text", "rows"), [("N05b_", ["N5b"]), ("K01_K10_", ["K1", "K10"]), ("a_row", [])])
def test_ids_are_read_with_and_without_zeros(text: str, rows: list[str]) -> None:
    assert rows_in(text) == rows
