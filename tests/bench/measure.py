"""The order of measuring: the contestants of a case in turn, round after round, so that a slow minute hits them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.bench.board import Absent, Board
from tests.bench.cases import CASES
from tests.bench.ground import Ground
from tests.bench.sizes import Sizes

Say = Callable[[str], None]


def measure(
    ground: Ground, sizes: Sizes, cases: Sequence[str], *, peers: bool, say: Say, after: Callable[[Board, str], None]
) -> Board:
    """Run the cases. A contestant that cannot run leaves the reason in its row, and is not tried again."""
    board = Board()
    for case in cases:
        variants = CASES[case](ground, sizes, peers)
        for turn in range(1, sizes.rounds + 1):
            for variant in variants:
                row = board.row(case, variant.name, variant.note)
                if row.failed:
                    continue
                say(f"{case}: {variant.name}, round {turn} of {sizes.rounds}")
                try:
                    row.samples.append(variant.run())
                except Absent as missing:
                    row.failed = f"not here: {missing}"
                except Exception as error:  # one contestant's failure is a row, not the end of the run
                    row.failed = f"failed: {type(error).__name__}: {error}"[:400]
        after(board, case)
    return board
