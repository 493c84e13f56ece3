"""Tools whose effects are counted in a file of DATA_DIR, which all processes share. LLM__TOOLS=tests.agents.shop"""

from __future__ import annotations

import os
from pathlib import Path

from keyturn import tool

LOG = "charged"


@tool(effect="write")
async def charge(what: str) -> str:
    """Charge for something."""
    note(what)
    return f"charged {what}"


def note(what: str) -> None:
    """Write down one effect, which has no spaces: whoever is killed afterwards has had it."""
    file = os.open(Path(os.environ["KEYTURN_DATA_DIR"]) / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, f"{what}\n".encode())
    finally:
        os.close(file)


def charged(data_dir: Path) -> list[str]:
    """What was charged for, each time."""
    path = data_dir / LOG
    return path.read_text().split() if path.exists() else []
