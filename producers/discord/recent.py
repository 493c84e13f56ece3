"""A bounded memory for things of guilds: channels, threads, names of roles."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class Recent(Generic[Thing]):
    """Things by their ids. Beyond `limit` the one that was not used for longest is forgotten."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[str, tuple[str, Thing]] = OrderedDict()  # guild and thing, the last used at the end

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, id: str) -> bool:
        return id in self._kept

    def get(self, id: str) -> Thing | None:
        if id not in self._kept:
            return None
        self._kept.move_to_end(id)
        return self._kept[id][1]

    def keep(self, id: str, guild: str, thing: Thing) -> None:
        self._kept[id] = (guild, thing)
        self._kept.move_to_end(id)
        if len(self._kept) > self._limit:
            self._kept.popitem(last=False)

    def forget(self, id: str) -> None:
        self._kept.pop(id, None)

    def forget_guild(self, guild: str) -> None:
        for id in [id for id, (of, _) in self._kept.items() if of == guild]:
            del self._kept[id]
