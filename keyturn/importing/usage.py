"""What was spent at an older gateway, in the table of usage. A second run writes the same sums over the first one's."""

from __future__ import annotations

from keyturn.importing.conversation import GatewayReader, Used, session_id
from keyturn.importing.report import Report
from shared.session_key import MAIN
from shared.store.database import Database, Step
from shared.store.imports import sql
from shared.store.usage import NANO, Counted

NOBODYS = "usage"  # stands for the conversation of what was spent where none is known
AT_ONCE = 500


async def bring_usage(reader: GatewayReader, database: Database, report: Report) -> None:
    """Write down what no conversation of the gateway is known for."""
    used = reader.used()
    if report.dry_run:
        return
    apart = session_id(reader.gateway, NOBODYS)
    for start in range(0, len(used), AT_ONCE):
        await database.write(*(_apart(one, apart) for one in used[start : start + AT_ONCE]))


def _apart(used: Used, session_id: str) -> Step:
    counted: Counted = spent_row(used, owner="", agent=MAIN)
    return sql.import_usage_apart(session_id=session_id, now=0, **counted)


def spent_row(used: Used, *, owner: str, agent: str) -> Counted:
    """What a model has cost, as the table of usage has it."""
    return {
        "owner": owner,
        "agent": agent,
        "model": used.model,
        "day": used.day,
        "requests": used.requests,
        "input": used.input,
        "output": used.output,
        "cache_read": used.cache_read,
        "cache_write": used.cache_write,
        "total": used.input + used.output,
        "cost_nano": 0 if used.cost_usd is None else int(used.cost_usd * NANO),
        "priced": 0 if used.cost_usd is None else used.requests,
        "last_prompt": used.last_prompt,
    }
