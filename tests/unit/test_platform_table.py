"""README's table of platforms is what their facts say."""

from __future__ import annotations

from keyturn.platform_table import README, table, with_table
from shared.platforms import PLATFORMS


def test_the_table_in_the_readme_is_as_the_facts_are() -> None:
    page = README.read_text()
    assert table() in page and with_table(page) == page, "the facts changed: run ./run docs"


def test_every_platform_where_messages_come_from_outside_has_a_row() -> None:
    titles = {line.split("|")[1].strip() for line in table().splitlines()[2:]}
    assert titles == {facts.title for facts in PLATFORMS.values() if facts.receives or facts.listens}
    assert len(titles) >= 7
