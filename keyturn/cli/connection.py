"""Setting a platform up: ask → check → write the settings → set the webhook → send a test message.

Nothing is written before the platform has taken the credentials, and what is written is accepted by the settings as a whole.
Where the platform then refuses the webhook, the files are put back.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_origin

import typer

from keyturn.cli import show
from keyturn.cli.asking import ask, given_or_read, is_somebody_there
from producers.connecting import CHECK_SECONDS, Connect, Question, connect_of, examined
from shared import log, settings
from shared.embedded import running
from shared.errors import ConfigurationError, PipelineError
from shared.finding import Finding, Level, ok
from shared.platforms import PLATFORMS
from shared.platforms.settings import PlatformSettings
from shared.settings import Settings
from shared.settings.files import Content, SettingsFiles, Where, variable
from shared.value import value

TRIES = 3  # with credentials that the platform refuses, where somebody can give others
GREETING = "Keyturn is connected. This is its test message."
_ADDRESS = re.compile(r"https://[^\s/?#]+(/[^\s?#]*)?")


@value
class Given:
    """What the options say. `asks`: questions are allowed, where somebody is there to answer."""

    answers: Mapping[str, str | None]
    address: str | None
    allow: tuple[str, ...]
    to: str | None
    sends_test: bool
    asks: bool


def set_up(name: str, given: Given) -> None:
    """Set the platform up as the options and the answers say. ConfigurationError where they cannot work, typer.Exit(1) where
    the platform refuses them: then nothing was written."""
    log.setup("error", "connect")
    Setup(name, given).run()


class Setup:
    """One platform on its way into the settings of the working directory."""

    def __init__(self, name: str, given: Given) -> None:
        self._name = name
        self._title = PLATFORMS[name].title
        self._part: Connect[Any] = connect_of(name)
        self._asks = given.asks and is_somebody_there()
        self._files = SettingsFiles(Path.cwd())
        self._options = {each: given_or_read(option) for each, option in given.answers.items()}
        self._given = given
        self._changes: dict[str, Content] = {}  # settings of the block that will be written

    def run(self) -> None:
        if self._asks:
            self._introduce()
        block = self._credentials()
        url = self._address(block)
        block = self._people()
        written, overruled = self._change()
        self._files.write()  # before the platform is told: it would post with a secret that nobody has
        self._tell(block, url)
        _say(self._name, written, overruled)
        self._greet(block)
        is_running = running.find(self._loaded().data_dir) is not None
        typer.echo("Next: keyturn down, then keyturn up" if is_running else "Next: keyturn up")

    def _introduce(self) -> None:
        typer.secho(f"{self._title}", bold=True)
        for n, step in enumerate(self._part.steps, 1):
            typer.echo(f"  {n}. {step}")
        typer.echo()

    # -- credentials

    def _credentials(self) -> PlatformSettings:
        """The block with credentials that the platform takes."""
        for tries_left in reversed(range(TRIES)):
            self._changes = self._answers()
            block = self._block()
            found = asyncio.run(examined(self._name, self._part.check(block)))
            _print(found)
            if not _failed(found):
                return block
            if not self._asks or not tries_left:
                break
            self._options = dict.fromkeys(self._options)  # what an option said was wrong, too
        raise _nothing_written()

    def _answers(self) -> dict[str, Content]:
        found: dict[str, Content] = {}
        missing = []
        for question in self._part.questions:
            if self._options[question.name] is None and self._is_idle(question, found):
                continue
            answer = self._answer(question)
            if answer is not None:
                found[question.name] = answer
            elif question.needed and not self._is_written(question.name):
                missing.append(question)
        if missing:
            raise ConfigurationError("; ".join(self._is_missing(question) for question in missing))
        return found

    def _answer(self, question: Question) -> Content | None:
        """What will be written; None where nothing has to be: it is written already, or may be left out."""
        present = self._files.present(self._name, question.name)
        given = self._options[question.name]
        if given is None and self._asks:
            hint = question.hint
            if question.choices is not None:
                hint = "; ".join(f"{choice}: {meaning}" for choice, meaning in question.choices.items())
            if present is not None:
                hint = f"{hint}; leave it empty to keep the one in {present.where.value}".removeprefix("; ")
            needed = question.needed and present is None and question.make is None
            given = ask(question.text, hint, secret=question.secret, needed=needed, fault=question.fault)
        elif given and (wrong := question.fault(given)):
            raise ConfigurationError(f"{_flag(question.name)}: {wrong}")
        if not given and present is not None:
            return present.content if present.where is Where.ENVIRONMENT else None
        if not given and question.make is not None:
            given = question.make()
        if not given:
            return None
        return (given,) if self._is_list(question.name) else given

    def _is_missing(self, question: Question) -> str:
        instead = f" (or {_flag(question.unless)})" if question.unless else ""
        named = variable(self._name, question.name)
        return f"{_flag(question.name)}{instead} is needed: as an option, as `-` from standard input, or as {named}"

    def _is_idle(self, question: Question, found: Mapping[str, Content]) -> bool:
        """Whether another answer makes this one needless."""
        return bool(question.unless) and (question.unless in found or self._is_written(question.unless))

    def _is_written(self, name: str) -> bool:
        present = self._files.present(self._name, name)
        return present is not None and bool(present.content)

    def _is_list(self, name: str) -> bool:
        kind = PLATFORMS[self._name].settings
        assert kind is not None
        return get_origin(kind.model_fields[name].annotation) is tuple

    # -- how messages come, and from whom

    def _address(self, block: PlatformSettings) -> str | None:
        """The URL that the platform is told to post to; None where there is none."""
        if not self._part.address_is_for or not self._part.wants_address(block):
            return None
        address = self._given.address
        if address is None and self._asks:
            hint = f"{self._part.address_is_for}; leave it empty if you have none"
            address = ask("This Keyturn's public address, https://…", hint, fault=_address_fault)
        elif address and (wrong := _address_fault(address)):
            raise ConfigurationError(f"--address: {wrong}")
        if not address:
            return None
        self._changes |= self._part.for_address(block)
        return f"{address.rstrip('/')}/webhooks/{self._name}"

    def _people(self) -> PlatformSettings:
        """The block with those who may talk."""
        block, person = self._block(), self._part.person
        if person is None:
            return block
        known: tuple[str, ...] = getattr(block, "allowed_users", ())
        people = tuple(each.strip() for each in self._given.allow)
        form = Question("allow", person.text, form=person.form, looks=person.looks)
        if not people and not known and self._asks:
            hint = f"{person.hint}; you may talk then, and get a test message. Or leave it empty and pair later"
            answer = ask(person.text, hint, fault=form.fault)
            people = (answer,) if answer else ()
        if wrong := next(filter(None, map(form.fault, people)), ""):
            raise ConfigurationError(f"--allow: {wrong}")
        if new := tuple(each for each in dict.fromkeys(people) if each not in known):
            self._changes["allowed_users"] = (*known, *new)
        return self._block()

    # -- settings

    def _loaded(self) -> Settings:
        """All settings as they will be; ConfigurationError where they do not fit each other."""
        return settings.load(**{self._name: dict(self._changes)})

    def _block(self) -> PlatformSettings:
        block = self._loaded().platform(self._name)
        assert block is not None
        block.check()
        if not block.on:
            raise ConfigurationError(f"{self._title} is turned off: set {block.needed}")
        return block

    def _change(self) -> tuple[dict[Where, list[str]], list[str]]:
        """Put the changes into the files' texts: what will be written where, and which variables will win over it."""
        secrets = {question.name for question in self._part.questions if question.secret}
        secrets |= set(self._part.secret_settings)
        written: dict[Where, list[str]] = {}
        overruled = []
        for name, content in self._changes.items():
            present = self._files.present(self._name, name)
            if present is not None and present.where is Where.ENVIRONMENT and present.content != content:
                overruled.append(variable(self._name, name))
            where = self._files.change(self._name, name, content, secret=name in secrets)
            written.setdefault(where, []).append(name)
        return written, overruled

    def _tell(self, block: PlatformSettings, url: str | None) -> None:
        """Set the webhook. A crash leaves what was written: the platform may have the secret."""
        found = asyncio.run(examined(self._name, self._part.set_webhook(block, url)))
        _print(found)
        if _failed(found):
            self._files.undo()
            raise _nothing_written()

    # -- the end

    def _greet(self, block: PlatformSettings) -> None:
        if not self._given.sends_test:
            return
        people: Sequence[str] = getattr(block, "allowed_users", ())
        wanted = [each.strip() for each in self._given.allow] or [each for each in people if each != "*"]
        to = self._given.to or self._part.greeted(block, wanted)
        if to is None:
            typer.echo("No test message was sent: there is nobody to send it to.")
            return
        try:
            asyncio.run(_within(self._part.greet(block, to, GREETING)))
        except (PipelineError, TimeoutError) as error:
            reason = show.plain(str(error) or "no answer")
            typer.echo(f"The settings are written. The test message was not sent: {reason}", err=True)
            raise typer.Exit(1) from None
        _print([ok(self._name, f"the test message was sent to {to}")])


async def _within(work: Awaitable[None]) -> None:
    async with asyncio.timeout(CHECK_SECONDS):
        await work


def _failed(found: Sequence[Finding]) -> bool:
    return any(finding.level is Level.FAIL for finding in found)


def _print(found: Sequence[Finding]) -> None:
    for finding in found:
        typer.echo(show.plain(f"{finding.level}: {finding.detail}"))
        if finding.fix:
            typer.echo(show.plain(f"  {finding.fix}"))


def _say(name: str, written: Mapping[Where, Sequence[str]], overruled: Sequence[str]) -> None:
    for where, names in written.items():
        typer.echo(f"written to {where.value}: {', '.join(f'{name}.{each}' for each in names)}")
    for named in overruled:
        typer.echo(f"{named} is set to something else in the environment, which wins: change it there")


def _nothing_written() -> typer.Exit:
    typer.echo("Nothing was written.", err=True)
    return typer.Exit(1)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _address_fault(address: str) -> str:
    return "" if _ADDRESS.fullmatch(address) else "it begins with https:// and has no ? and no #"
