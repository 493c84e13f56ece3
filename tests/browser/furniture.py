"""A deployment with something on every page, and the list of its pages."""

from __future__ import annotations

from keyturn.dashboard.app import PAGES
from shared.clock import now_ms
from shared.codec import encode_text
from shared.messages import Source
from shared.operating.pauses import pause
from shared.operating.schedules import WantedSchedule, add_schedule, pause_schedule, run_schedule
from shared.reading.keys import KeyPhase, state_of_key
from tests.browser.house import PLATFORM, House, key, until
from tests.store.books import write

TALKS = (
    ("garden", "Ann", "When should I plant tomatoes outside?"),
    ("travel", "Bo", "Which train reaches Lyon before noon?"),
    ("invoices", "Chidi", "Sum up the open invoices of October."),
    ("recipes", "Dana", "A soup for six, without milk, please."),
    ("standup", "Emre", "Remind the team of the release notes."),
)
ONE_OF_SEVERAL = (
    "/live",
    "/conversation",
    "/dead/letter",
    "/session",
    "/schedule",
    "/question",
)  # they need to know which


async def furnish(house: House) -> dict[str, str]:
    """Put something on every page. Gives the path of each page, by a name for it."""
    for chat, user, text in TALKS:
        await house.talk(text, chat, user_name=user, chat_name=chat)
        await write(house.pipe.store, f"UPDATE sessions SET title = '{chat.title()}' WHERE session_key = '{key(chat)}'")
    await house.talk("And how deep?", "garden", user_name="Ann")
    letter = await house.a_dead_letter("fail to read the attached sheet", "invoices")
    await house.a_dead_letter("fail again", "recipes")
    running = await house.say("wait for the long report", "report", user_name="Finn")
    await house.say("And mail it to me.", "report", user_name="Finn")

    async def runs() -> bool:
        return (await state_of_key(house.pipe.turns, running.session_key)).state is KeyPhase.LEASED

    await until(runs)
    await _money(house)
    schedule = await _schedules(house)
    await a_question(
        house, key("invoices"), tool="pay_invoice", text='May I run `pay_invoice` with this?\n{"amount": "80.00 EUR"}'
    )
    await a_question(house, key("travel"), tool="ask_user", text="First or second class?", user="bo")
    await write(house.pipe.store, "UPDATE outbox SET ambiguous = 1, reason = 'timed out after 30 s' WHERE id = 2")
    await pause(house.pipe, key("standup"), by="ann")
    await house.say("Is it out yet?", "standup", user_name="Emre")

    async def waits() -> bool:
        return (await state_of_key(house.pipe.turns, key("standup"))).state is KeyPhase.PAUSED

    await until(waits)
    answered = await house.talk("Thank you!", "travel", user_name="Bo")
    session = await house.pipe.store.sessions.find(key("garden"))
    assert session is not None
    paths = {room.path.strip("/").replace("/", "-") or "overview": room.path for room in PAGES}
    paths = {name: path for name, path in paths.items() if path not in ONE_OF_SEVERAL}
    return paths | {
        "messages": f"/messages?id={answered.id}",
        "conversation": f"/conversation?key={key('report')}",
        "conversation-paused": f"/conversation?key={key('standup')}",
        "deliveries-flagged": "/deliveries?show=flagged",
        "letter": f"/dead/letter?id={letter}",
        "session": f"/session?id={session['id']}",
        "schedule": f"/schedule?id={schedule}",
        "schedules-paused": "/schedules?state=paused",
        "question": "/question?id=ask_pay_invoice_000",
        "conversation-asking": f"/conversation?key={key('invoices')}",
        "usage": "/usage?by=model",
    }


async def _money(house: House) -> None:
    for model, tokens, nano in (("small-1", 48_210, 90_000_000), ("large-2", 12_480, 410_000_000)):
        await write(
            house.pipe.store,
            "INSERT INTO usage (session_id, owner, agent, model, day, requests, input, output, cache_read, cache_write,"
            f" total, cost_nano, priced, updated_at) VALUES ('s-{model}', 'api:u=ann', 'main', '{model}', date('now'), 31,"
            f" {tokens - 900}, 900, 0, 0, {tokens}, {nano}, 31, {now_ms()})",
        )


async def _schedules(house: House) -> str:
    """Three schedules, of which one has run and one is paused. Gives the one that has run."""
    wanted = (
        WantedSchedule(
            "every 1d at 09:00 in Europe/Berlin", "Sum up what is open.", ("api:standup",), "Morning summary"
        ),
        WantedSchedule("every 2h", "Look for new invoices.", ("local",), "Invoices"),
        WantedSchedule("0 7 * * 1", "Write the weekly report.", ("local",), "Weekly report"),
    )
    added = [await add_schedule(house.pipe, one) for one in wanted]
    await pause_schedule(house.pipe.store, added[2].id)
    for _ in range(2):
        run = await run_schedule(house.pipe, added[0].id)

        async def has_run(id: str = run.id) -> bool:
            row = await house.pipe.store.journal.find(id)
            return row is not None and row["state"] == "answered"

        await until(has_run)
    return added[0].id


async def a_question(house: House, session_key: str, *, tool: str, text: str, user: str = "ann") -> str:
    """A question that waits for a person, as a turn leaves it behind."""
    id, run, now = f"ask_{tool[:40]}_000", f"run_{tool[:40]}", now_ms()
    source = encode_text(Source(PLATFORM, "c1", user=user, user_name=user.title()))
    values = (id, run, session_key, "ses_1", "approve", text, '["yes", "no"]', source)
    quoted = ", ".join(f"'{one.replace(chr(39), chr(39) * 2)}'" for one in values)
    await write(
        house.pipe.store,
        "INSERT INTO asks (id, run_id, session_key, session_id, name, text, choices, source, is_approval, state, answer,"
        f" expires_at, created_at) VALUES ({quoted}, {int(tool != 'ask_user')}, 'open', '', {now + 3_000_000}, {now - 90_000})",
    )
    await write(
        house.pipe.store,
        "INSERT INTO steps (run_id, n, kind, call_id, name, arguments, effect, state, body)"
        f" VALUES ('{run.replace(chr(39), chr(39) * 2)}', 1, 'call', 'c1', '{tool.replace(chr(39), chr(39) * 2)}', '', '', 'planned', '')",
    )
    return id


def led_to(paths: dict[str, str]) -> dict[str, tuple[str, str]]:
    """The pages that a button leads to: the page that has the button, and its name."""
    return {
        "session-read": (paths["session"], "Show what was said"),
        "letter-read": (paths["letter"], "Show the payload"),
        "session-delete": (paths["session"], "Delete…"),
        "schedule-read": (paths["schedule"], "Show what the agent is asked"),
        "schedule-remove": (paths["schedule"], "Remove…"),
        "question-read": (paths["question"], "Show what is asked"),
    }
