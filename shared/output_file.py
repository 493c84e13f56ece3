"""What was sent without a question, as files under DATA_DIR: `cron/output/<job>/<time>.md`. A file is there whole or not at all."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

from shared.clock import moment
from shared.ids import fresh_id

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


async def save_output(data_dir: Path, job: str, at_ms: int, header: Mapping[str, str], text: str) -> Path:
    """Write the text under a header. The same job and time name the same file, so writing again changes nothing. OSError
    where the file cannot be written."""
    assert _NAME.fullmatch(job), job
    path = data_dir / "cron" / "output" / job / f"{moment(at_ms):%Y-%m-%dT%H-%M-%S-%f}"[:-3]
    lines = [f"{name}: {' '.join(value.split())}" for name, value in header.items()]
    await asyncio.to_thread(_write, path.with_suffix(".md"), "\n".join(["---", *lines, "---", "", text, ""]))
    return path.with_suffix(".md")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = path.with_name(f".{path.name}.{fresh_id()}")
    try:
        unfinished.write_text(text, encoding="utf-8", errors="replace")
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)
