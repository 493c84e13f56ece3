"""What was sent without a question, as files under DATA_DIR: `cron/output/<job>/<time>-<digest>.md`. A file is there whole or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from shared.clock import moment
from shared.ids import fresh_id
from shared.private_directory import make_private_directory

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


async def save_output(data_dir: Path, job: str, at_ms: int, key: str, header: Mapping[str, str], text: str) -> Path:
    """Write the text under a header. The same job, time and key name the same file, so writing again changes nothing. OSError
    where the file cannot be written."""
    assert _NAME.fullmatch(job), job
    digest = blake2b(key.encode(errors="replace"), digest_size=6).hexdigest()
    path = _directory(data_dir) / job / f"{f'{moment(at_ms):%Y-%m-%dT%H-%M-%S-%f}'[:-3]}-{digest}"
    lines = [f"{name}: {' '.join(value.split())}" for name, value in header.items()]
    await asyncio.to_thread(_write, path.with_suffix(".md"), "\n".join(["---", *lines, "---", "", text, ""]))
    return path.with_suffix(".md")


def remove_old_outputs(data_dir: Path, before_ms: int, limit: int) -> int:
    """Remove some files that were written before that time, and directories that are empty since. Gives how many."""
    removed = 0
    try:
        jobs = [job for job in os.scandir(_directory(data_dir)) if job.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return 0
    for job in jobs:
        with contextlib.suppress(OSError), os.scandir(job) as files:  # somebody else may remove the same
            for file in files:
                if removed < limit and file.is_file(follow_symlinks=False) and _is_older(file, before_ms):
                    os.unlink(file)
                    removed += 1
        with contextlib.suppress(OSError):
            if _is_older(job, before_ms):
                os.rmdir(job)
        if removed >= limit:
            break
    return removed


def _is_older(entry: os.DirEntry[str], before_ms: int) -> bool:
    return entry.stat(follow_symlinks=False).st_mtime * 1000 < before_ms


def _directory(data_dir: Path) -> Path:
    return data_dir / "cron" / "output"


def _write(path: Path, text: str) -> None:
    make_private_directory(path.parent)
    unfinished = path.with_name(f".{path.name}.{fresh_id()}")
    try:
        unfinished.write_text(text, encoding="utf-8", errors="replace")
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)
