"""A script's opening comment is its contract. It is compared with the body, so that it cannot drift."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shared.redis_servers import Script

LANE = Path(__file__).parents[2] / "shared/lane"
ROOT = LANE.parents[1]
ELSEWHERE = [
    *sorted((ROOT / "producers").glob("*.lua")),
    ROOT / "shared/rights.lua",
    *sorted((ROOT / "shared/sending").glob("*.lua")),
    *sorted((ROOT / "workers/limits").glob("*.lua")),
]
FILES = [*sorted(LANE.glob("*.lua")), *ELSEWHERE]
INCLUDED = {name for path in FILES for name in re.findall(r"^-- include (\S+)$", path.read_text(), re.M)}
SCRIPTS = [path for path in FILES if path.name not in {Path(name).name for name in INCLUDED}]
ENDLESS = 10**6


def header_of(path: Path) -> str:
    lines = []
    for line in path.read_text().splitlines():
        if not line.startswith("--"):
            break
        if not line.startswith("-- include "):
            lines.append(line.removeprefix("--").strip())
    return "\n".join(lines)


def body_of(path: Path) -> str:
    return "\n".join(line for line in path.read_text().splitlines() if not line.startswith("--"))


def shared_part(name: str, which: str) -> list[str]:
    """The names that a part reads from its `k` or `a` on, as its own header lists them."""
    [listed] = re.findall(rf"^{which} ([^\n]*)$", header_of(LANE / f"{name}.lua"), re.M)
    return re.sub(r"\s*\([^)]*\)", "", listed).split(", ")


def documented(header: str, which: str) -> list[tuple[int, int, str]]:
    """(first, last, name) of everything that the header says of KEYS or ARGV."""
    found = []
    for first, last, rest in re.findall(
        rf"\b{which}\[(\d+)(?:\.\.(\d+))?\]([^\n]*?)(?=\s+(?:KEYS|ARGV)\[|\n|$)", header
    ):
        if last and (part := re.match(r" as (\w+)", rest)):
            names = shared_part(part[1], which)
            assert len(names) == int(last) - int(first) + 1, (
                f"{which}[{first}..{last}] is not as long as {part[1]} reads"
            )
            found += [(n, n, name) for n, name in enumerate(names, int(first))]
            continue
        endless = " and on" in rest or ", then" in rest
        found.append((int(first), ENDLESS if endless else int(last or first), rest.strip()))
    return found


def covered(index: int, said: list[tuple[int, int, str]]) -> bool:
    return any(first <= index <= last for first, last, _ in said)


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.replace("'s ", " ").lower()))


def used(body: str, which: str) -> set[int]:
    """Every index that the body reads, by itself or through a shared part."""
    found = {int(n) for n in re.findall(rf"\b{which}\[(\d+)\]", body)}
    for part, k, a in re.findall(r"\b(rq_\w+)\((\d+), (\d+)(?: \+ \w+)?\)", body):
        start = int(k if which == "KEYS" else a)
        found |= set(range(start, start + len(shared_part(part, which))))
    return found


def test_there_are_scripts_to_look_at() -> None:
    assert {"put", "start", "acknowledge", "release", "renew", "recover", "requeue", "attempt", "finish"} <= {
        path.stem for path in SCRIPTS
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_opens_with_its_purpose_and_includes_files_that_exist(path: Path) -> None:
    assert re.match(r"[A-Z][^\n]{20,}", header_of(path))
    for name in re.findall(r"^-- include (\S+)$", path.read_text(), re.M):
        assert (LANE / name).is_file()
    assert "-- include" not in Script.load(path).source


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("which", ["KEYS", "ARGV"])
def test_a_header_names_every_key_and_argument_and_no_other(path: Path, which: str) -> None:
    header, body = header_of(path), body_of(path)
    said, reads = documented(header, which), used(body, which)
    if not said:  # a bare list, such as requeue's job ids
        assert re.search(rf"^{which} \w+", header, re.M) and not reads and f"ipairs({which})" in body
        return
    assert [n for n in sorted(reads) if not covered(n, said)] == []
    computed = re.search(rf"\b{which}\[(i\b|\d+ \+)", body)
    for first, last, _ in said:
        assert any(first <= n <= last for n in reads) or (last == ENDLESS and computed), f"{which}[{first}] is not used"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_names_in_the_body_are_those_of_the_header(path: Path) -> None:
    header = header_of(path)
    bound = 0
    for names, values in re.findall(r"^local ([\w, ]+) = (.*)$", body_of(path), re.M):
        for name, value in zip(names.split(", "), values.split(", "), strict=False):
            source = re.fullmatch(r"(?:tonumber\()?(KEYS|ARGV)\[(\d+)\]\)?(?: == '1')?", value)
            if source is None:
                continue
            which, index = source[1], int(source[2])
            told = [said for first, last, said in documented(header, which) if first <= index <= last]
            assert told and words(name.replace("_", " ")) <= words(told[0].replace("_", " ")), (name, told)
            bound += 1
    assert bound or path.stem == "finish"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_header_says_what_is_returned(path: Path) -> None:
    told = header_of(path).partition("\nReturns")[2]
    assert told
    for number in re.findall(r"(?:\breturn |local answer = )\{?(-?\d+)", body_of(path)):
        assert re.search(rf"(?<![\d-]){re.escape(number)}(?!\d)", told), number
