"""A software bill of materials: CycloneDX JSON of what `keyturn` needs, from the metadata of the installed distributions.

./run sbom [--all] [FILE]   prints it, or writes it to FILE; --all adds what only tests and tools need.
The same installation gives the same document, so that two releases can be compared.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = "keyturn"


def bill(*, everything: bool = False) -> dict[str, Any]:
    """The document. Every component has its exact version; the graph says who needs whom."""
    root = distribution(ROOT)
    needed = closure(root) if not everything else {_name(found): found for found in distributions()}
    needed.pop(ROOT, None)
    components = [component(found) for _, found in sorted(needed.items())]
    listed = [component(root), *components]
    known = {part["name"]: part["bom-ref"] for part in listed}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**component(root), "type": "application"}},
        "components": components,
        "dependencies": [
            {"ref": known[_name(found)], "dependsOn": sorted({known[name] for name in needs(found) if name in known})}
            for found in (root, *(needed[name] for name in sorted(needed)))
        ],
    }
    return {"serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, json.dumps(document, sort_keys=True))}", **document}


def closure(root: Distribution) -> dict[str, Distribution]:
    """Everything that a distribution needs here, by name."""
    found: dict[str, Distribution] = {}
    waiting = [(root, frozenset(root.metadata.get_all("Provides-Extra") or ()))]
    seen = set()
    while waiting:
        current, extras = waiting.pop()
        if (_name(current), extras) in seen:
            continue
        seen.add((_name(current), extras))
        found[_name(current)] = current
        for requirement in requirements(current, extras):
            with suppress(PackageNotFoundError):  # of an extra that is not installed here
                waiting.append((distribution(requirement.name), frozenset(requirement.extras)))
    return found


def requirements(of: Distribution, extras: Iterable[str] = ()) -> Iterator[Requirement]:
    """What it needs on this machine, with these extras."""
    for text in of.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def needs(of: Distribution) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in of.requires or ()}


def component(of: Distribution) -> dict[str, Any]:
    name, version = _name(of), of.version
    purl = f"pkg:pypi/{name}@{version}"
    part: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if summary := _said(of, "Summary"):
        part["description"] = summary
    if expression := _said(of, "License-Expression"):
        part["licenses"] = [{"expression": expression}]
    elif text := _said(of, "License").partition("\n")[0]:
        part["licenses"] = [{"license": {"name": text[:100]}}]
    return part


def _said(of: Distribution, field: str) -> str:
    return str((of.metadata.get_all(field) or [""])[0]).strip()


def _name(of: Distribution) -> str:
    return canonicalize_name(of.metadata["Name"])


def main(arguments: list[str]) -> None:
    files = [argument for argument in arguments if argument != "--all"]
    text = json.dumps(bill(everything="--all" in arguments), indent=2, ensure_ascii=False) + "\n"
    if files:
        Path(files[0]).write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
