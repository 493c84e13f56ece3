"""What was spent at an older gateway, in the table of usage. A second run writes the same sums over the first one's."""

from __future__ import annotations

from typing import Any

from keyturn.importing.conversation import Reader, Used, session_id
from keyturn.importing.report import Report
from shared.session_key import MAIN
from shared.store.database import Database, step
from shared.store.usage import NANO

NOBODYS = "usage"  # stands for the conversation of what was spent where none is known
AT_ONCE = 500


async def bring_usage(reader: Reader, database: Database, report: Report) -> None:
    """Write down what no conversation of the gateway is known for."""
    used = reader.used()
    if report.dry_run:
        return
    whose = {"session_id": session_id(reader.gateway, NOBODYS), "owner": "", "agent": MAIN}
    for start in range(0, len(used), AT_ONCE):
        await database.write(
            *(step("import_usage_apart", **whose, **spent_row(one), now=0) for one in used[start : start + AT_ONCE])
        )


def spent_row(used: Used) -> dict[str, Any]:
    counts = {name: getattr(used, name) for name in ("requests", "input", "output", "cache_read", "cache_write")}
    cost = 0 if used.cost_usd is None else int(used.cost_usd * NANO)
    about = {"model": used.model, "day": used.day, "last_prompt": used.last_prompt}
    priced = 0 if used.cost_usd is None else used.requests
    return {**about, **counts, "total": used.input + used.output, "cost_nano": cost, "priced": priced}
