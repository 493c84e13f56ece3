"""A checkpointer that keeps a graph's threads in a file, so that they outlive the process."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver


class FileSaver(InMemorySaver):
    """As the one in memory, but written down with every change. One process at a time."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        if file.exists():
            storage, writes, blobs = pickle.loads(file.read_bytes())
            for thread, spaces in storage.items():
                self.storage[thread].update(spaces)
            self.writes.update(writes)
            self.blobs.update(blobs)

    def put(self, *about: Any, **more: Any) -> Any:
        config = super().put(*about, **more)
        self._write()
        return config

    def put_writes(self, *about: Any, **more: Any) -> None:
        super().put_writes(*about, **more)
        self._write()

    def _write(self) -> None:
        storage = {thread: dict(spaces) for thread, spaces in self.storage.items()}
        self._file.write_bytes(pickle.dumps((storage, dict(self.writes), dict(self.blobs))))
