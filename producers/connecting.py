"""What a platform writes so that `keyturn connect` can set it up and `keyturn doctor` can look at it: what an operator is
asked, how the answers are checked against the platform, and how its messages find their way to us.

It stands in `producers/<name>/connect.py` as `CONNECT`, for every platform whose facts say that it `connects`.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Generic, TypeVar

from shared.errors import ConfigurationError, Denied, PipelineError, RateLimited
from shared.finding import Finding, fail, warn
from shared.platforms import PLATFORMS
from shared.platforms.settings import PlatformSettings
from shared.value import value

CHECK_SECONDS = 20.0
Block = TypeVar("Block", bound=PlatformSettings)


@value
class Question:
    """One setting of a platform's block, as an operator is asked for it."""

    name: str  # of the setting; the option of `keyturn connect` is called the same
    text: str
    hint: str = ""  # where it is found
    secret: bool = False  # not shown while it is typed, and written to .env
    needed: bool = True
    form: re.Pattern[str] | None = None  # an answer that does not match is refused at once
    looks: str = ""  # how one that matches looks, in words
    choices: Mapping[str, str] | None = None  # all answers there are, each with what it means
    unless: str = ""  # not asked where the question of this name was answered
    make: Callable[[], str] | None = None  # makes one up where the answer is left empty

    def fault(self, answer: str) -> str:
        """What is wrong with an answer; empty where nothing is. The answer is not repeated: it may be a secret."""
        if not answer.isprintable():
            return "it has characters that cannot be seen"
        if self.choices is not None and answer not in self.choices:
            return f"it is one of {', '.join(self.choices)}"
        if self.form is not None and not self.form.fullmatch(answer):
            return f"it is {self.looks}"
        return ""


@value
class PersonQuestion:
    """How an operator says who may talk to the bot: by an id that people cannot choose."""

    text: str
    hint: str
    form: re.Pattern[str]
    looks: str


class Connect(ABC, Generic[Block]):
    """How one platform is set up. Nothing here writes settings: whoever calls does, when all went well.

    The functions that talk to the platform raise what its API raises. They show no secret.
    """

    steps: Sequence[str] = ()
    """What an operator does at the platform before, in order, with links."""
    questions: Sequence[Question] = ()
    person: PersonQuestion | None = None
    """None: whoever has a secret may talk for anybody."""
    secret_settings: Sequence[str] = ()
    """Settings beside those of the questions that are secrets, such as one that `for_address` makes up."""
    address_is_for: str = ""
    """What a public address of ours is good for; empty: the platform never asks for one."""

    def wants_address(self, block: Block) -> bool:
        """Whether, set so, the platform posts to us."""
        return bool(self.address_is_for)

    def for_address(self, block: Block) -> Mapping[str, str]:
        """Settings that are needed as well where an operator gives an address, made up or known."""
        return {}

    @abstractmethod
    async def check(self, block: Block) -> Sequence[Finding]:
        """Whether the platform takes these credentials, and who we are there."""

    async def check_reception(self, block: Block) -> Sequence[Finding]:
        """Whether messages find their way to us, as far as the platform says."""
        return ()

    async def set_webhook(self, block: Block, url: str | None) -> Sequence[Finding]:
        """Tell the platform to post to this URL; None: to leave messages where `keyturn listen` fetches them. What the
        platform does not let us do is said in words for the operator. Repeated, it changes nothing."""
        return ()

    def greeted(self, block: Block, people: Sequence[str]) -> str | None:
        """Who gets the test message, unless the operator says so; None: nobody can."""
        return people[0] if people else None

    @abstractmethod
    async def greet(self, block: Block, to: str, text: str) -> None:
        """Send the test message."""


def connect_of(name: str) -> Connect[Any]:
    """How a platform is set up."""
    found: Connect[Any] = import_module(f"producers.{name}.connect").CONNECT
    return found


async def examined(name: str, asked: Awaitable[Sequence[Finding]]) -> list[Finding]:
    """What a question to a platform brought. A refusal or silence is a finding too."""
    title = PLATFORMS[name].title
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return list(await asked)
    except RateLimited as error:
        return [warn(name, f"{title} asks us to wait: {error}", "try again later")]
    except (Denied, ConfigurationError) as error:
        return [fail(name, str(error), f"give it other credentials: keyturn connect {name}")]
    except TimeoutError:
        return [fail(name, f"{title} does not answer within {CHECK_SECONDS:.0f} s", "look at the network")]
    except PipelineError as error:
        return [fail(name, f"{title} does not answer as it should: {error}", "look at the network and the address")]
