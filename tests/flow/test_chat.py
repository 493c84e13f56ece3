"""`keyturn chat` in a real terminal, beside a running `up`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from shared.embedded import running
from tests.flow.told import VARIABLE
from tests.support.place import KEYTURN, PATIENCE_SECONDS, Place
from tests.support.terminal import CTRL_C, CTRL_D, ENTER, UP, Terminal

HOSTILE = "now \x1b]0;PWNED\x07\x1b[31mred\x9b2J"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """An `up` whose agent answers texts that begin with `now` at once, and others when told."""
    directory = tmp_path_factory.mktemp("chat")
    opened = Place(directory, agent="tests.flow.told:agent")
    opened.environment[VARIABLE] = str(directory)
    opened.up()
    yield opened
    opened.close()


@pytest.fixture
def chat(place: Place, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    """A conversation of its own for each test."""
    with terminal(place, request.node.name) as opened:
        opened.until_it_reads()
        yield opened


def terminal(place: Place, name: str) -> Terminal:
    command = [*KEYTURN, "chat", "--name", name]
    return Terminal(command, cwd=place.directory, env=place.environment)


def noted(place: Place, kind: str, text: str) -> bool:
    """Whether the agent has begun a turn with this text, or was cancelled in it."""
    path = place.directory / kind
    return path.exists() and any(line.split()[:1] == [text] for line in path.read_text().splitlines())


def said(place: Place, name: str) -> list[str]:
    """What the user said in a conversation."""
    shown = place.run("sessions", "show", f"agent:main:local:dm:{name}", "--json")
    return [row["text"] for row in orjson.loads(shown.stdout)["messages"] if row["role"] == "user"]


def test_lines_can_be_edited_and_recalled(place: Place, chat: Terminal, request: pytest.FixtureRequest) -> None:
    chat.type("now oneX\x7f" + ENTER)
    chat.until("done now one")
    chat.type(UP + " more" + ENTER)
    chat.until("done now one more")
    chat.type(CTRL_D)
    assert chat.ended() == 0
    with terminal(place, request.node.name) as later:  # lines of an earlier chat are recalled too
        later.until_it_reads()
        later.type(UP + " again" + ENTER)
        later.until("done now one more again")
    assert said(place, request.node.name) == ["now one", "now one more", "now one more again"]


def test_a_pasted_text_of_several_lines_is_one_message(
    place: Place, chat: Terminal, request: pytest.FixtureRequest
) -> None:
    chat.paste("now one\ntwo\n\nthree")
    chat.type(ENTER)
    chat.until("done now one")
    assert said(place, request.node.name) == ["now one\ntwo\n\nthree"]


def test_no_key_is_lost_that_is_typed_while_a_reply_is_printed(chat: Terminal) -> None:
    with chat.watched() as edited_by_the_terminal:  # which would take a Ctrl-D for itself
        for n in range(10):
            chat.type(f"now {n}" + ENTER)
            chat.until(f"done now {n}")
    assert not any(edited_by_the_terminal)


def test_stop_is_heard_while_a_turn_runs(place: Place, chat: Terminal) -> None:
    chat.type("story1" + ENTER)
    place.until(lambda: noted(place, "begun", "story1"))
    chat.type("/stop" + ENTER)
    chat.until("Stopped: 1 message.")
    place.until(lambda: noted(place, "cancelled", "story1"))
    chat.type("now go on" + ENTER)
    chat.until("done now go on")
    assert "done story1" not in chat.shown
    assert "control:" not in place.run("sessions", "list").stdout  # how it was carried is no conversation


def test_ctrl_c_once_stops_the_turn_and_twice_leaves(place: Place, chat: Terminal) -> None:
    chat.type("story2" + ENTER)
    place.until(lambda: noted(place, "begun", "story2"))
    chat.type(CTRL_C)
    chat.until("Stopped: 1 message.")
    chat.type("now go on" + ENTER)
    chat.until("done now go on")
    chat.type(CTRL_C)
    chat.until("Ctrl-C again leaves", 2)
    assert chat.process.poll() is None
    chat.type(CTRL_C)
    assert chat.ended() == 0


@pytest.mark.parametrize("word", ["/quit", "/exit"])
def test_a_word_leaves_and_an_empty_line_does_not(chat: Terminal, word: str) -> None:
    chat.type(ENTER + "now still here" + ENTER)
    chat.until("done now still here")
    chat.type(word + ENTER)
    assert chat.ended() == 0


def test_a_reply_reaches_the_terminal_as_text_only(place: Place, chat: Terminal) -> None:
    chat.paste(HOSTILE)
    chat.type(ENTER)
    chat.until("done now")
    chat.type("now over" + ENTER)
    chat.until("done now over")
    assert b"\x1b]0;" not in chat.raw and b"\x1b[31m" not in chat.raw and "\x9b" not in chat.shown
    answered = place.run("chat", "-m", HOSTILE)
    assert answered.returncode == 0 and answered.stdout.startswith("done now")
    assert not set(answered.stdout) & {"\x1b", "\x07", "\x9b"}


def test_one_question_is_asked_and_answered(place: Place) -> None:
    answered = place.run("chat", "-m", "now or never")
    assert (answered.returncode, answered.stdout, answered.stderr) == (0, "done now or never\n", "")


def test_a_single_question_prints_its_own_answer_only(place: Place) -> None:
    """Two programs ask in one conversation at once."""
    slow = place.start("slow", "chat", "--name", "both", "-m", "slow")
    place.until(lambda: noted(place, "begun", "slow"))
    quick = place.start("quick", "chat", "--name", "both", "-m", "now quick")
    key = "agent:main:local:dm:both"
    place.until(lambda: orjson.loads(place.run("keys", "show", key, "--json").stdout)["waiting"] == 2)
    (place.directory / "go-slow").touch()
    assert [slow.wait(PATIENCE_SECONDS), quick.wait(PATIENCE_SECONDS)] == [0, 0]
    notice = (
        "I am still working on an earlier message. Yours waits; it is number 1 in line.\n"  # where a machine is slow
    )
    assert [place.said("slow"), place.said("quick").removeprefix(notice)] == ["done slow\n", "done now quick\n"]


def test_lines_of_a_pipe_are_messages_and_its_end_leaves(place: Place) -> None:
    ended = subprocess.run(
        [*KEYTURN, "chat", "--name", "piped"],
        input="now one\n\n  \nnow two\n/quit\nnow three\n",
        cwd=place.directory,
        env=place.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done now one\ndone now two\n", "")


def test_chat_starts_an_up_where_none_runs_and_stops_it_at_the_end(tmp_path: Path) -> None:
    alone = Place(tmp_path)
    answered = alone.run("chat", "-m", "hello")
    assert (answered.returncode, answered.stdout, answered.stderr) == (
        0,
        "echo: hello\n",
        "starting; the log is in .keyturn/chat.log\n",
    )
    assert not running.held(tmp_path / ".keyturn")


def test_chat_says_why_its_up_could_not_start(tmp_path: Path) -> None:
    refused = Place(tmp_path).run("chat", "-m", "hello", "--agent", "lama")
    assert (refused.returncode, refused.stdout) == (78, "")
    assert refused.stderr.endswith(
        "keyturn: AGENT=lama: not a known agent; use echo, llm, local, command, http or module:object\n"
    )


def test_chat_says_that_a_turn_is_tried_again_while_the_model_is_away(tmp_path: Path) -> None:
    place = Place(tmp_path, agent="llm", llm__model="m", llm__base_url="http://127.0.0.1:9/v1", llm__api_key="x")
    try:
        place.up()
        chat = place.start("chat", "chat", "-m", "hello")
        place.until(lambda: "More in the log of `up`" in place.said("chat", "err"), "chat", chat)
        assert "no answer yet, it is tried again: provider: " in place.said("chat", "err")
        assert "no connection to 127.0.0.1:9" in place.said("chat", "err")
        assert "turn waits for the provider" in place.said("up", "err")
        behind = place.start("behind", "chat", "-m", "and this")
        place.until(lambda: "More in the log of `up`" in place.said("behind", "err"), "behind", behind)
        assert "no answer yet, a message before it is tried again: provider: " in place.said("behind", "err")
        chat.kill()
        behind.kill()
    finally:
        place.close()


def test_chat_says_why_a_message_failed_and_where_its_own_log_is(tmp_path: Path) -> None:
    place = Place(tmp_path, agent="mybot:answer", max_attempts="1")
    place.write("mybot.py", "def answer(text): raise ValueError('no such book')\n")
    ended = place.run("chat", "-m", "hello")
    assert ended.returncode == 1
    assert "not answered: error: ValueError: no such book. More in .keyturn/chat.log\n" in ended.stderr


def test_a_question_that_is_stopped_from_elsewhere_ends_with_a_sentence(place: Place) -> None:
    asked = place.start("asked", "chat", "--name", "stopped", "-m", "story6")
    place.until(lambda: noted(place, "begun", "story6"), "asked", asked)
    stopped = place.run("keys", "stop", "agent:main:local:dm:stopped")
    assert stopped.stdout == "agent:main:local:dm:stopped: its turn was stopped, 1 message gets no answer\n"
    place.until(lambda: asked.poll() is not None, "asked")
    assert (asked.returncode, place.said("asked")) == (1, "")
    assert place.said("asked", "err") == "not answered: stopped\n"


def test_while_the_agent_thinks_a_terminal_shows_a_sign_and_a_pipe_nothing(place: Place, chat: Terminal) -> None:
    chat.type("story3" + ENTER)
    chat.until("thinking.")
    (place.directory / "go-story3").touch()
    chat.until("done story3")
    (place.directory / "go-story4").touch()
    command = [*KEYTURN, "chat", "-m", "story5"]
    with Terminal(command, cwd=place.directory, env=place.environment) as asked:
        asked.until("thinking..")
        (place.directory / "go-story5").touch()
        asked.until("done story5")
        assert asked.ended() == 0
    piped = place.run("chat", "-m", "story4")
    assert (piped.returncode, piped.stdout, piped.stderr) == (0, "done story4\n", "")


def test_a_chat_left_open_ends_with_one_sentence_when_its_up_stops(tmp_path: Path) -> None:
    place = Place(tmp_path)
    try:
        place.up()
        with terminal(place, "left-open") as chat:
            chat.until_it_reads()
            assert place.run("down").returncode == 0
            assert chat.ended() == 1
            assert chat.shown.count("keyturn: the `keyturn up` that this chat talked to has stopped") == 1
            assert "Traceback" not in chat.shown
    finally:
        place.close()
