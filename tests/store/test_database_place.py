"""An error about an SQLite file says which file it is: three slashes name one below the working directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.errors import ConfigurationError
from shared.sqlite_place import place_in_words
from shared.store.database import open_database
from shared.store.database.schema import require_schema


async def test_a_database_without_tables_is_named_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    database = await open_database("sqlite:///tmp/x.db")
    with pytest.raises(ConfigurationError) as raised:
        await require_schema(database)
    await database.close()
    assert f"the database at {tmp_path}/tmp/x.db (for /tmp/x.db write four slashes: sqlite:////tmp/x.db) lacks" in str(
        raised.value
    )


@pytest.mark.parametrize("path", ["/tmp/x.db", "x.db", "nowhere-of-mine/x.db"])
def test_a_path_that_is_meant_as_it_is_gets_no_advice(path: str) -> None:
    assert place_in_words(Path(path)) == str(Path(path).absolute())
