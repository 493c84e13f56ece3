"""From the name in a setting to an agent: which kind of agent something is, and what is said where it is none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from keyturn import AgentFault, Done, Entry, Event, Reply, Result, Turn
from shared.errors import ConfigurationError
from shared.messages import Inbound, Source
from tests.support.reading import answer_of
from workers.agents.capabilities import Answer, asks, context_tokens, takes_admission, takes_tools, wants_context
from workers.agents.functions import said_in
from workers.agents.resolve import from_function, resolve
from workers.agents.results import ResultAgent, answered

_modules = count(1)


def a_turn(*texts: str, **about: Any) -> Turn:
    source = Source("webhook", "c1", user="u1")
    mail = tuple(Inbound(f"in_{n}", f"evt_{n}", source, text, **about) for n, text in enumerate(texts))
    return Turn("turn_1", "agent:main:webhook:dm:c1", "ses_1", (), mail)


def plain(text):  # type: ignore[no-untyped-def]
    return f"heard {text}"


async def plain_async(text: str) -> str:
    return f"heard {text}"


def of_turn(turn: Turn) -> Result:
    return answered(f"heard {turn.mail[-1].text}")


async def of_turn_async(turn: Turn) -> Result:
    return answered(f"heard {turn.mail[-1].text}")


def pieces(text: str) -> Iterator[str]:
    yield "heard "
    yield text


def pieces_of_turn(turn: Turn) -> Iterator[str]:
    yield "heard "
    yield turn.mail[-1].text


async def pieces_async(text: str) -> AsyncIterator[str]:
    yield "heard "
    yield text


async def events(turn: Turn) -> AsyncIterator[Event]:
    yield Done((Reply(f"heard {turn.mail[-1].text}"),))


async def events_unannotated(turn):  # type: ignore[no-untyped-def]
    yield Done((Reply(f"heard {turn.mail[-1].text}"),))


def _without_strings(function: Callable[..., Any]) -> Callable[..., Any]:
    """As in a module without `from __future__ import annotations`."""
    function.__annotations__ = {"turn": Turn, "return": Result}
    return function


def of_turn_by_type(turn):  # type: ignore[no-untyped-def]
    return answered(f"heard {turn.mail[-1].text}")


class Calling:
    async def __call__(self, text: str) -> str:
        return f"heard {text}"


@pytest.mark.parametrize(
    "function",
    [
        plain,
        plain_async,
        of_turn,
        of_turn_async,
        pieces,
        pieces_of_turn,
        pieces_async,
        events,
        events_unannotated,
        _without_strings(of_turn_by_type),
        Calling(),
    ],
    ids=lambda function: getattr(function, "__name__", type(function).__name__),
)
async def test_a_function_is_called_with_what_its_first_parameter_wants(function: Callable[..., Any]) -> None:
    result = await answer_of(from_function(function), a_turn("hello"))
    assert result.replies == (Reply("heard hello"),)


async def test_a_function_without_a_signature_is_given_the_text() -> None:
    assert (await answer_of(from_function(str), a_turn("hello"))).replies == (Reply("hello"),)


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (lambda text: 5, "answered int, not str"),
        (lambda text: None, "answered NoneType, not str"),
        (_without_strings(lambda turn: "text"), "returned str, not Result"),
    ],
)
async def test_a_function_that_answers_something_else_is_the_agents_fault(
    function: Callable[..., Any], fault: str
) -> None:
    with pytest.raises(AgentFault, match=fault):
        await answer_of(from_function(function), a_turn("hello"))


async def test_an_empty_answer_says_nothing() -> None:
    assert await answer_of(from_function(lambda text: ""), a_turn("hello")) == Result()
    assert answered("") == Result() and answered("a") == Result((Entry("assistant", "a"),), (Reply("a"),))


def test_all_mail_of_a_turn_is_said_after_what_it_refers_to() -> None:
    assert said_in(a_turn("one", "two")) == "one\ntwo"
    said = said_in(a_turn("one", "two", earlier="before"))
    assert said.endswith("one\ntwo") and said.count("before") == 2


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """The name of a module with this source."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(source: str) -> str:
        name = f"agents_of_a_test_{next(_modules)}"
        (tmp_path / f"{name}.py").write_text(source)
        return name

    return write


RUNS = "class Agent:\n    def run(self, turn):\n        yield\n"


@pytest.mark.parametrize(
    ("source", "named", "said"),
    [
        ("import no_such_thing\n", "agent", "No module named 'no_such_thing' ({file}, line 1)"),
        ("\n1 / 0\n", "agent", "importing {module} raised ZeroDivisionError: division by zero ({file}, line 2)"),
        (
            "def f():\n    return 1 +\n",
            "f",
            "importing {module} raised SyntaxError: invalid syntax ({name}.py, line 2)",
        ),
        ("import importlib\nimportlib.import_module('no_such_thing')\n", "a", "named 'no_such_thing' ({file}, line 2)"),
        ("", "agent", "module '{module}' has no attribute 'agent': <module '{module}' from '{file}'>"),
        ("agent = 5\n", "agent", "it must be a function from text to text"),
        (
            "class Agent:\n    def __init__(self, key): ...\n    def run(self, turn): ...\n",
            "Agent",
            "Agent() raised TypeError",
        ),
        (
            "class Agent:\n    def __init__(self):\n        self.a = {}['a']\n    def run(self, turn): ...\n",
            "Agent",
            "Agent() raised KeyError: 'a' ({file}, line 3)",
        ),
    ],
)
def test_an_agent_that_cannot_be_had_is_refused_with_the_place_in_the_users_code(
    module: Callable[[str], str], tmp_path: Path, source: str, named: str, said: str
) -> None:
    name = module(source)
    with pytest.raises(ConfigurationError) as refused:
        resolve(f"{name}:{named}")
    text = str(refused.value)
    assert text.startswith(f"AGENT={name}:{named}: ")
    assert said.format(file=tmp_path / f"{name}.py", module=name, name=name) in text
    assert text.count("line ") <= 1 and "frozen" not in text


def test_a_class_is_made_an_object_and_an_object_is_taken_as_it_is(module: Callable[[str], str]) -> None:
    name = module(f"{RUNS}\nagent = Agent()\n")
    made, taken = resolve(f"{name}:Agent"), resolve(f"{name}:agent")
    assert type(made) is type(taken) and made is not taken and resolve(f"{name}:agent") is taken


class Able:
    wants_context = True
    own_tools: Sequence[str] = ("memory",)

    async def run(self, turn: Turn) -> Result:
        return answered("hi")

    async def ask(self, rows: object, system_prompt: str) -> Answer:
        return Answer("a", "", {})

    def context_tokens(self, model: str = "") -> int | None:
        return 1000 if model == "large" else 100

    def take_tools(self, tools: object) -> None: ...

    def take_admission(self, admission: object) -> None: ...


class Unwilling(Able):
    wants_context = False
    own_tools = ()


def test_an_agent_can_what_it_has_the_members_for_also_behind_an_adapter() -> None:
    able = Able()
    for agent in (able, ResultAgent(able.run, able)):
        offered: list[object] = [asks(agent), takes_tools(agent), takes_admission(agent)]
        assert offered == [able] * 3 and wants_context(agent)
        assert (context_tokens(agent), context_tokens(agent, "large")) == (100, 1000)
    unwilling = Unwilling()
    assert not wants_context(unwilling) and takes_tools(unwilling) is None
    for unable in (object(), ResultAgent(able.run)):
        assert asks(unable) is None and not wants_context(unable) and takes_tools(unable) is None
        assert takes_admission(unable) is None and context_tokens(unable) is None
