"""Pauses: what is held back and by whom; hold something back, and let it go on."""

from __future__ import annotations

from starlette.responses import Response

from keyturn.dashboard.desk import Desk, Visit
from shared.lane_key import DELIVERIES, TURNS
from shared.operating import pauses as operating
from shared.pause_scope import ScopeKind, platform_scope
from shared.platforms import facts_of

PAGE = "/pauses"


async def show(desk: Desk, visit: Visit) -> Response:
    held = {pause.scope for pause in desk.watch.pauses}
    offered = [
        ("everything", ScopeKind.ALL.value, "All turns and deliveries. Commands such as /stop get through."),
        ("all turns", f"lane:{TURNS}", "No agent is run. Replies that are written leave."),
        ("all deliveries", f"lane:{DELIVERIES}", "No reply leaves. Agents go on, and their replies wait."),
    ]
    for name in desk.pipe.settings.connected:
        title = facts_of(name).title
        offered.append((title, platform_scope(name).text, f"Turns and deliveries of {title}."))
    return desk.page("pauses.html", visit, offered=[one for one in offered if one[1] not in held])


async def pause(desk: Desk, visit: Visit) -> Response:
    scope, who = visit.form.one("scope").strip(), visit.login.name
    done = await desk.act(visit, "pause", scope, lambda: operating.pause(desk.pipe, scope, by=who))
    await desk.watch.look_at_pauses(now=True)
    text = f"Paused: {done.scope}. Messages are accepted and wait. {done.note}".strip()
    return desk.done(visit, text, visit.form.one("back") or PAGE)


async def resume(desk: Desk, visit: Visit) -> Response:
    scope = visit.form.one("scope").strip()
    done = await desk.act(visit, "resume", scope, lambda: operating.resume(desk.pipe, scope))
    await desk.watch.look_at_pauses(now=True)
    woken = "1 key was woken" if done.woken == 1 else f"{done.woken:,} keys were woken"
    return desk.done(visit, f"Resumed: {done.scope}. {woken}. {done.note}".strip(), visit.form.one("back") or PAGE)
