"""What every way out promises, whatever its platform: the real sender against a local fake, driven by the real delivery.

A platform joins by its case in tests/contract/<platform>.py; tests/contract/case.py says what belongs into it.
"""

from __future__ import annotations

import asyncio
import html
import logging
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from shared.agent.events import Ask, Call
from shared.agent.turn import Turn
from shared.choices import ask_id
from shared.embedded import child
from shared.errors import Ambiguous, BotRefused, PipelineError, Transient, Undeliverable
from shared.messages import Part, Reply
from shared.pipeline import open_pipeline
from shared.platforms import PLATFORMS
from shared.platforms.facts import Idempotency, Markup
from tests.contract.case import Answer, NotHere, Outgoing
from tests.contract.fake_api import NoAnswer, open_api
from tests.contract.found import WAYS_OUT, require_case
from tests.contract.gate import Taken, Trouble
from tests.contract.hostile import HOSTILE, UNPAIRED
from tests.contract.inlet import PATIENCE_SECONDS, MakeSettings
from tests.contract.outlet import Outlet, open_outlet
from tests.store.books import ask
from workers.agents.tools.approval import Approval
from workers.delivery import open_senders
from workers.delivery.button_removal import ButtonRemoval
from workers.delivery.followed import FollowedSender
from workers.delivery.sender import Edits, MarksRead, Rewrites, ShowsTyping
from workers.turn.question import question_reply, question_text

SENDING = [way for way in WAYS_OUT.values() if not isinstance(way, NotHere)]
READ = [platform for platform, way in WAYS_OUT.items() if isinstance(way, NotHere)]
TURN = f"turn_{'0' * 32}"
BUTTONS = [("Approve", f"/approve {ask_id(TURN, 0)}"), ("Deny", f"/deny {ask_id(TURN, 0)}")]
PAGE = Answer(502, b"<html><h1>Bad Gateway</h1></html>", (("content-type", "text/html"),))

NAMELESS = {  # successes that do not say which message a send became
    "telegram": b'{"ok": true, "result": {}}',
    "slack": b'{"ok": true}',
    "feishu": b'{"code": 0, "data": {}}',
    "webhook": b"",
}


def named(way: type[Outgoing]) -> str:
    return way.platform


@pytest.fixture(params=SENDING, ids=named)
async def case(request: pytest.FixtureRequest) -> AsyncIterator[Outgoing]:
    async with request.param.open() as opened:
        yield opened


@pytest.fixture
async def outlet(case: Outgoing, make_settings: MakeSettings) -> AsyncIterator[Outlet]:
    async with open_outlet(case, make_settings) as opened:
        yield opened


@pytest.mark.parametrize("platform", list(PLATFORMS))
def test_every_platform_has_a_case_for_its_way_out(platform: str) -> None:
    way = require_case(platform).SENDING
    assert isinstance(way, NotHere) or way.platform == platform


@pytest.mark.parametrize("platform", READ)
async def test_where_nothing_is_sent_replies_are_read_from_the_outbox(
    platform: str, make_settings: MakeSettings
) -> None:
    async with open_pipeline(make_settings()) as pipe, open_senders(pipe) as senders:
        assert isinstance(senders[platform], FollowedSender)
    assert PLATFORMS[platform].idempotency is Idempotency.NATIVE and PLATFORMS[platform].text_limit is None


async def test_a_sender_can_do_what_its_facts_say(case: Outgoing, outlet: Outlet) -> None:
    facts = PLATFORMS[case.platform]
    assert outlet.sender.idempotency is facts.idempotency
    assert isinstance(outlet.sender, Edits) == facts.can_edit
    assert isinstance(outlet.sender, Rewrites) == (facts.preview is not None)
    assert isinstance(outlet.sender, ShowsTyping | MarksRead) == (facts.typing_seconds is not None)
    assert isinstance(case.threaded, NotHere) != facts.can_thread


# Days on which all goes well.


@pytest.mark.parametrize(
    "arguments",
    [
        '{"cmd":"rm *.log keep*"}',
        '{"to":"[ann@example.org](https://x.example/?evil@bad.org)","amount":1}',
        '{"note":"a <!-- --amount 9999 --> <b>b</b> &amp; c"}',
        '{"a":"__x__ ~~drop~~ _ok_ ||spoiler|| <@U1> <!channel> :smile:"}',
        '{"a":"# one","b":"> two","c":"- three","d":"`four`"}',
    ],
)
async def test_a_person_reads_the_arguments_that_they_approve_as_they_are(
    case: Outgoing, outlet: Outlet, arguments: str
) -> None:
    """Whatever the platform makes of the rest, it shows code as it is."""
    turn = Turn("turn_1", "agent:main:webhook:dm:c1", "ses_1", (), ())
    asked = Approval(turn, timedelta(hours=1)).question(Call("c1", "shell", arguments), 1)
    await outlet.say(Reply(question_text([asked])))
    [shown] = outlet.texts()
    assert arguments in shown or escaped(PLATFORMS[case.platform].markup, arguments) in shown
    if PLATFORMS[case.platform].markup is Markup.MARKDOWN:
        assert f"```\n{arguments}\n```" in shown


def escaped(markup: Markup, text: str) -> str:
    """As it is sent where the platform's own form has escapes: its readers see the text."""
    if markup is Markup.HTML:
        return html.escape(text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def a_question() -> Reply:
    """Whether a tool may run, as a turn asks it."""
    return question_reply([Ask("q1", "May I?", ("yes", "no"), call=Call("c1", "shell", "{}"))], TURN)


async def test_a_question_has_buttons_where_the_platform_has_them_and_says_everywhere_how_to_answer(
    case: Outgoing, outlet: Outlet
) -> None:
    await outlet.say(a_question())
    [shown] = case.shown()
    assert "/approve or /deny" in shown.text
    assert list(shown.buttons) == (BUTTONS if PLATFORMS[case.platform].buttons is not None else [])


async def test_a_question_takes_its_buttons_along_when_it_takes_the_place_of_a_message(
    case: Outgoing, outlet: Outlet
) -> None:
    facts = PLATFORMS[case.platform]
    if facts.buttons is None or not facts.can_edit:
        return
    await outlet.say(Reply("one"))
    await outlet.say(replace(a_question(), edits=(await outlet.row())["receipt"]))
    [shown] = case.shown()
    assert "/approve or /deny" in shown.text
    assert list(shown.buttons) == (BUTTONS if case.gains_buttons is None else [])


async def test_the_buttons_of_an_answered_question_go_where_its_message_can_be_changed_and_its_text_stays(
    case: Outgoing, outlet: Outlet
) -> None:
    facts = PLATFORMS[case.platform]
    if facts.buttons is None or not facts.can_edit:
        return
    await outlet.say(a_question())
    [before] = case.shown()
    [row] = await ask(outlet.pipe.store, "SELECT turn_id FROM outbox")
    removal = ButtonRemoval(outlet.unlimited, {case.platform: outlet.sender})
    removal.begin(ask_id(row["turn_id"], 0))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while case.shown()[0].buttons:
            await asyncio.sleep(0.01)
    [after] = case.shown()
    assert (after.text, after.id) == (before.text, before.id)
    await removal.close()


async def test_a_reply_is_shown_and_its_receipt_is_kept(case: Outgoing, outlet: Outlet) -> None:
    await outlet.say(Reply("hello there"))
    [shown] = case.shown()
    row = await outlet.row()
    assert (shown.text, shown.thread, shown.answers) == ("hello there", None, None)
    assert (row["state"], row["attempts"], row["ambiguous"]) == ("sent", 1, 0)
    assert row["receipt"] == ("" if isinstance(case.receipts, NotHere) else shown.id)
    assert isinstance(case.receipts, NotHere) or shown.id


async def test_a_long_reply_is_cut_by_the_platforms_own_measure_and_loses_nothing(
    case: Outgoing, outlet: Outlet
) -> None:
    limit = PLATFORMS[case.platform].text_limit
    units = 1500 if limit is None else limit.units
    words = [f"word{n}-ж-🙂" for n in range(units // 4)]
    await outlet.say(Reply(" ".join(words)))
    texts = outlet.texts()
    if limit is None:
        assert texts == [" ".join(words)]
        return
    assert len(texts) > 1 and all(limit.measure(text) <= limit.units for text in texts)
    found = [word for text in texts for word in text.split() if word.startswith("word")]
    assert found == words


async def test_a_text_without_any_place_to_cut_breaks_no_character(case: Outgoing, outlet: Outlet) -> None:
    limit = PLATFORMS[case.platform].text_limit
    units = 1500 if limit is None else limit.units
    await outlet.say(Reply("🙂" * units))
    texts = outlet.texts()
    assert sum(text.count("🙂") for text in texts) == units
    assert all(text.encode() for text in texts)  # half a character could not be written
    assert limit is None or all(limit.measure(text) <= limit.units for text in texts)


async def test_a_hostile_text_is_sent_whole_and_holds_up_nothing(case: Outgoing, outlet: Outlet) -> None:
    """The fake is as strict as the platform: markup that it would refuse fails here."""
    for text in UNPAIRED:
        await outlet.say(Reply(f"begin {text} the end"))
    await outlet.say(*(Reply(f"begin {text} the end") for text in HOSTILE.values()))  # a language would be one word
    texts = outlet.texts()
    count = len(HOSTILE) + len(UNPAIRED)
    assert sum(text.startswith("begin") for text in texts) == sum("end" in text[-40:] for text in texts) == count
    assert {(row["state"], row["attempts"]) for row in await outlet.rows()} == {("sent", 1)}
    assert await outlet.letters() == [] and not any(line.get("exc_info") for line in outlet.lines)
    limit = PLATFORMS[case.platform].text_limit
    assert limit is None or all(limit.measure(text) <= limit.units for text in texts)


async def test_an_earlier_message_is_changed_where_that_is_possible(case: Outgoing, outlet: Outlet) -> None:
    await outlet.say(Reply("draft"))
    [draft] = case.shown()
    await outlet.say(Reply("final", edits=draft.id or "m1"))
    if not PLATFORMS[case.platform].can_edit:
        assert outlet.texts() == ["draft", "final"]  # said again: no text is lost
        return
    assert outlet.texts() == ["final"]
    await outlet.say(Reply("final", edits=draft.id))  # the same change again is no error
    assert outlet.texts() == ["final"] and await outlet.letters() == []
    case.vanish(draft)
    await outlet.say(Reply("anew", edits=draft.id))
    assert outlet.texts()[-1] == "anew"
    assert await outlet.letters() == []


async def test_a_message_is_changed_while_it_is_written_and_one_that_is_gone_is_not_sent_again(
    case: Outgoing, outlet: Outlet
) -> None:
    sender = outlet.sender
    if not isinstance(sender, Rewrites):
        assert PLATFORMS[case.platform].preview is None
        return
    await outlet.say(Reply("It was"))
    [draft] = case.shown()
    part = Part(0, "draft_1", "key", case.source, ("evt_1",), 1, 1, "It was a dark night", edits=draft.id)
    await sender.rewrite(part)
    await sender.rewrite(part)
    assert outlet.texts() == ["It was a dark night"]
    case.vanish(draft)
    before = outlet.texts()
    with pytest.raises(Undeliverable):
        await sender.rewrite(part)
    assert outlet.texts() == before


async def test_a_reply_goes_to_the_thread_that_was_spoken_in(case: Outgoing, outlet: Outlet) -> None:
    if isinstance(case.threaded, NotHere):
        assert not PLATFORMS[case.platform].can_thread
        return
    await outlet.say(Reply("here"), source=case.threaded)
    [shown] = case.shown()
    assert (shown.text, shown.thread) == ("here", case.threaded.thread)


async def test_in_a_group_the_first_part_points_at_what_it_answers(case: Outgoing, outlet: Outlet) -> None:
    if isinstance(case.pointing, NotHere):
        assert case.pointing.reason
        return
    source, message = case.pointing
    await outlet.say(Reply("first"), Reply("second"), source=source, message=message)
    assert [shown.answers for shown in case.shown()] == [message, None]


async def test_a_file_is_sent_by_reference(case: Outgoing, outlet: Outlet) -> None:
    if isinstance(case.media, NotHere):
        assert case.media.reason
        return
    await outlet.say(Reply("look", (case.media,)))
    assert [shown.media for shown in case.shown() if shown.media] == [case.media.url]
    assert [shown.text for shown in case.shown() if shown.text] == ["look"]


async def test_markup_that_the_platform_refuses_goes_out_as_plain_text(case: Outgoing, outlet: Outlet) -> None:
    if isinstance(case.markup_refused, NotHere):
        assert PLATFORMS[case.platform].markup is not Markup.HTML  # nothing else can be refused for its form
        return
    outlet.gate.trouble.append(case.markup_refused)
    await outlet.say(Reply("**bold** & <b>"))
    assert outlet.texts() == ["**bold** & <b>"]
    assert (await outlet.row())["state"] == "sent" and len(outlet.gate.sends) == 2


# Trouble.


async def test_M8_a_send_that_fails_by_the_network_and_then_by_its_markup_is_tried_again_and_then_plain(
    case: Outgoing, outlet: Outlet
) -> None:
    if isinstance(case.markup_refused, NotHere):
        assert PLATFORMS[case.platform].markup is not Markup.HTML  # nothing else can be refused for its form
        return
    outlet.gate.trouble.extend([PAGE, case.markup_refused])
    await outlet.say(Reply("**bold** & <b>"))
    assert ((await outlet.row())["state"], outlet.texts()) == ("pending", [])
    await outlet.deliver()
    row = await outlet.row()
    assert (row["state"], row["attempts"], row["ambiguous"]) == ("sent", 2, 0)
    assert outlet.texts() == ["**bold** & <b>"] and len(outlet.gate.sends) == 3


async def test_M17_a_platform_that_names_no_message_has_still_delivered_it(case: Outgoing, outlet: Outlet) -> None:
    if (nameless := NAMELESS.get(case.platform)) is None:
        return  # its answers always name the message, so one without a name is somebody else's
    outlet.gate.trouble.append(Taken(Answer(200, nameless)))
    await outlet.say(Reply("hello"), Reply("behind it"))
    first, second = await outlet.rows()
    assert (first["state"], first["attempts"], first["ambiguous"], first["receipt"]) == ("sent", 1, 0, "")
    assert second["state"] == "sent" and outlet.texts() == ["hello", "behind it"]


async def test_a_platform_that_is_busy_is_left_alone_for_as_long_as_it_says(case: Outgoing, outlet: Outlet) -> None:
    outlet.gate.trouble.append(case.busy(600))
    await outlet.say(Reply("hello"))
    assert await outlet.waits_seconds() > 100
    row = await outlet.row()
    assert (row["state"], row["attempts"] - row["waits"], row["ambiguous"]) == ("pending", 0, 0)
    assert (len(outlet.gate.sends), outlet.texts()) == (1, [])  # asked once: a sender does not try again by itself
    await outlet.deliver()
    assert outlet.texts() == ["hello"]


async def test_a_platform_that_fails_is_tried_again_later(case: Outgoing, outlet: Outlet) -> None:
    outlet.gate.trouble.append(PAGE)
    await outlet.say(Reply("hello"), Reply("behind it"))
    first, second = await outlet.rows()
    assert (first["state"], first["attempts"] - first["waits"], first["ambiguous"]) == ("pending", 1, 0)
    assert second["state"] == "pending"  # nothing overtakes it
    assert (len(outlet.gate.sends), outlet.texts()) == (1, [])
    await outlet.deliver()
    assert outlet.texts() == ["hello", "behind it"]


async def test_M5_a_platform_that_cannot_be_reached_has_taken_nothing_and_is_tried_again(
    case: Outgoing, make_settings: MakeSettings
) -> None:
    """The request never left: it is not ambiguous, whatever the policy for those."""
    nowhere = f"http://127.0.0.1:{child.free_port()}"
    async with open_outlet(case, make_settings, url=nowhere, resend_ambiguous=False) as outlet:
        await outlet.say(Reply("hello"))
        row = await outlet.row()
        assert (row["state"], row["attempts"], row["ambiguous"]) == ("pending", 1, 0)
        assert await outlet.letters() == []


async def test_a_reply_that_is_refused_for_good_is_buried_with_the_reason_and_holds_up_nothing(
    case: Outgoing, outlet: Outlet
) -> None:
    outlet.gate.trouble.append(case.refused)
    await outlet.say(Reply("hello"), Reply("behind it"))
    [letter] = await outlet.letters()
    assert (letter["kind"], letter["reason"]) == ("reply", "refused") and letter["detail"]
    assert outlet.texts() == ["behind it"]
    assert [row["state"] for row in await outlet.rows()] == ["buried", "sent"]


async def test_while_the_credentials_are_refused_replies_wait(case: Outgoing, outlet: Outlet) -> None:
    if isinstance(case.denied, NotHere):
        assert PLATFORMS[case.platform].trusts_sender
        return
    outlet.gate.trouble.append(case.denied)
    await outlet.say(Reply("hello"))
    row = await outlet.row()
    assert (row["state"], row["attempts"] - row["waits"]) == ("pending", 0)
    assert await outlet.letters() == [] and await outlet.waits_seconds() > 10
    assert [line["platform"] for line in outlet.lines if line["log_level"] == "error"] == [case.platform]
    await outlet.deliver()
    assert outlet.texts() == ["hello"]


@pytest.mark.parametrize("again", [True, False], ids=["resent", "not resent"])
async def test_M6_a_send_whose_answer_is_lost_is_flagged_and_repeated_where_that_is_safe_or_wanted(
    case: Outgoing, make_settings: MakeSettings, again: bool
) -> None:
    recognised = PLATFORMS[case.platform].idempotency is Idempotency.NATIVE
    async with open_outlet(case, make_settings, resend_ambiguous=again) as outlet:
        outlet.gate.trouble.append(Taken(NoAnswer.CUT))
        await outlet.say(Reply("hello"))
        assert (await outlet.row())["ambiguous"] == 1
        if again or recognised:
            await outlet.deliver()
            assert (await outlet.row())["state"] == "sent"
            assert outlet.texts() == ["hello"] * (1 if recognised else 2)
        else:
            [letter] = await outlet.letters()
            assert letter["reason"] == "ambiguous" and outlet.texts() == ["hello"]


async def test_an_answer_that_is_none_of_the_platforms_is_not_believed(case: Outgoing, outlet: Outlet) -> None:
    """Where answers are read, a success that says nothing may be anybody's: the send is flagged."""
    for body in (b"<html>Welcome to the hotel's network</html>", b"", b"[]", b'{"a":' * 2000):
        outlet.gate.trouble.append(Answer(200, body))
        await outlet.decide(Reply("hello"))
        await outlet.deliver()
        row = (await outlet.rows())[-1]
        if isinstance(case.receipts, NotHere):
            assert row["state"] == "sent"  # the status is the answer
        else:
            assert (row["state"], row["ambiguous"], row["receipt"]) == ("pending", 1, None)
            await outlet.deliver()
            assert (await outlet.rows())[-1]["state"] == "sent"


async def test_a_redirect_is_not_followed(case: Outgoing, outlet: Outlet) -> None:
    async with open_api(lambda _: Answer(200, b"{}")) as inside:
        location = (("location", f"{inside.url}/latest/meta-data/"),)
        for status in (301, 302, 303, 307, 308):
            outlet.gate.trouble.append(Answer(status, headers=location))
            await outlet.decide(Reply("hello"))
            await outlet.deliver()
            assert (await outlet.rows())[-1]["state"] != "sent"
            if (await outlet.rows())[-1]["state"] == "pending":
                await outlet.deliver()
        assert inside.requests == []


async def test_a_connection_that_stays_silent_is_given_up_and_counts_as_ambiguous(
    case: Outgoing, make_settings: MakeSettings
) -> None:
    async with open_outlet(case, make_settings, seconds=0.5) as outlet:
        async with asyncio.timeout(PATIENCE_SECONDS):
            error: Transient | None = None
            while not isinstance(error, Ambiguous):  # where a slow machine cannot even connect in time, it never left
                outlet.gate.trouble.append(NoAnswer.SILENCE)
                with pytest.raises(Transient) as caught:
                    await outlet.sender.send(_part(case))
                error = caught.value


async def test_a_typing_sign_never_takes_long_and_fails_only_where_the_bot_is_refused(
    case: Outgoing, outlet: Outlet
) -> None:
    if not isinstance(outlet.sender, ShowsTyping | MarksRead):
        assert PLATFORMS[case.platform].typing_seconds is None
        return
    assert isinstance(case.denied, Answer)
    troubles: list[Trouble | None] = [None, PAGE, case.denied, case.busy(5), Answer(200, b"<html>")]
    for trouble in (*troubles, NoAnswer.CUT, NoAnswer.SILENCE):
        outlet.gate.everything = trouble
        refused = suppress(BotRefused) if trouble is case.denied else nullcontext()
        async with asyncio.timeout(PATIENCE_SECONDS):
            with refused:
                await _shown(outlet.sender, case)


async def _shown(sender: ShowsTyping | MarksRead, case: Outgoing) -> None:
    if isinstance(sender, ShowsTyping):
        await sender.typing(case.source.address)
    else:
        await sender.read(case.source.address, "m1")


async def test_no_secret_is_in_an_error_a_log_line_or_a_row(
    case: Outgoing, outlet: Outlet, caplog: pytest.LogCaptureFixture
) -> None:
    troubles: list[Trouble] = [PAGE, case.busy(1), case.refused, Taken(NoAnswer.CUT), NoAnswer.CUT, Answer(200, b"<")]
    troubles += [trouble for trouble in (case.denied, case.markup_refused) if not isinstance(trouble, NotHere)]
    said: list[str] = []
    with caplog.at_level(logging.DEBUG):
        for trouble in troubles:
            outlet.gate.trouble.append(trouble)
            try:
                await outlet.sender.send(_part(case))
            except PipelineError as error:
                shown = error.__cause__ if error.__suppress_context__ else error.__context__  # with a stack trace
                said.append(repr((error, shown)))
            outlet.gate.trouble.clear()
            outlet.gate.trouble.append(trouble)
            await outlet.decide(Reply("hello"))
            await outlet.deliver()
            outlet.gate.trouble.clear()
            if (await outlet.rows())[-1]["state"] == "pending":
                await outlet.deliver()
    ours = [record for record in caplog.records if not record.name.startswith(("uvicorn", "aiohttp.access"))]
    records = [(record.getMessage(), record.exc_text) for record in ours]  # the others are a fake's
    text = repr((said, outlet.lines, records, await outlet.rows(), await outlet.letters()))
    for secret in case.secrets:
        assert secret not in text


def _part(case: Outgoing) -> Part:
    return Part(1, "out_1", f"agent:main:{case.platform}:dm:1", case.source, ("evt_1",), 1, 1, "hello")
