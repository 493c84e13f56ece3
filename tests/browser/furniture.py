"""A deployment with something on every page, and the list of its pages."""

from __future__ import annotations

from keyturn.dashboard.app import PAGES
from shared.clock import now_ms
from shared.operating.pauses import pause
from shared.reading.keys import KeyPhase, state_of_key
from tests.browser.house import House, key, until
from tests.store.books import write

TALKS = (
    ("garden", "Ann", "When should I plant tomatoes outside?"),
    ("travel", "Bo", "Which train reaches Lyon before noon?"),
    ("invoices", "Chidi", "Sum up the open invoices of October."),
    ("recipes", "Dana", "A soup for six, without milk, please."),
    ("standup", "Emre", "Remind the team of the release notes."),
)
ONE_OF_SEVERAL = ("/live", "/conversation", "/dead/letter", "/session")  # they need to know which


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


def led_to(paths: dict[str, str]) -> dict[str, tuple[str, str]]:
    """The pages that a button leads to: the page that has the button, and its name."""
    return {
        "session-read": (paths["session"], "Show what was said"),
        "letter-read": (paths["letter"], "Show the payload"),
        "session-delete": (paths["session"], "Delete…"),
    }
