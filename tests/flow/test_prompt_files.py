"""Persona and system prompt from files: what the model is told, when a file counts, and what happens when it cannot be used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError
from structlog.testing import capture_logs

from shared.errors import ConfigurationError
from shared.settings import LlmSettings, Settings
from tests.flow.test_llm import a_turn, config
from tests.support.openai import KEY, MODEL, Provider, open_provider
from tests.support.reading import answer_of
from workers.agents.isolated import Isolated
from workers.agents.llm import LlmAgent
from workers.agents.local import LocalAgent
from workers.agents.named import check_name
from workers.agents.prompt_files import LARGEST_BYTES, SystemPrompt


def from_files(provider: Provider, **changes: Any) -> LlmSettings:
    return LlmSettings(model=MODEL, base_url=provider.url, api_key=SecretStr(KEY), **changes)


def told(provider: Provider) -> list[str]:
    return [text for asked in provider.requests for role, text in asked.messages if role == "system"]


async def test_the_persona_stands_before_the_system_prompt_and_both_come_from_files(tmp_path: Path) -> None:
    soul, prompt = tmp_path / "SOUL.md", tmp_path / "PROMPT.md"
    soul.write_bytes(b"\xef\xbb\xbfYou are Ada.\n\n")
    prompt.write_text("Answer in rhymes. Grüße.\n")
    async with open_provider() as provider:
        await answer_of(LlmAgent(from_files(provider, persona_file=soul, system_prompt_file=prompt)), a_turn())
        await answer_of(LlmAgent(config(provider, persona_file=soul)), a_turn())
        await answer_of(LlmAgent(from_files(provider, system_prompt_file=prompt)), a_turn())
    assert told(provider) == [
        "You are Ada.\n\nAnswer in rhymes. Grüße.",
        "You are Ada.\n\nBe kind.",
        "Answer in rhymes. Grüße.",
    ]


async def test_a_file_that_changed_is_read_before_the_next_turn_without_a_restart(tmp_path: Path) -> None:
    prompt = tmp_path / "PROMPT.md"
    prompt.write_text("Be brief.")
    async with open_provider() as provider:
        agent = LlmAgent(from_files(provider, system_prompt_file=prompt))
        for text in ("Be brief.", "Be loud.", "Be long."):
            prompt.write_text(text)
            await answer_of(agent, a_turn())
            await answer_of(agent, a_turn())
        newer = tmp_path / "newer"  # as editors and ConfigMaps replace a file
        newer.write_text("Be fast.")
        os.utime(newer, ns=(prompt.stat().st_atime_ns, prompt.stat().st_mtime_ns))
        newer.replace(prompt)
        await answer_of(agent, a_turn())
    assert told(provider) == ["Be brief."] * 2 + ["Be loud."] * 2 + ["Be long."] * 2 + ["Be fast."]


@pytest.mark.parametrize("harm", ["gone", "empty", "large", "not text", "a directory", "a pipe", "a long link"])
async def test_a_file_that_cannot_be_used_any_more_changes_nothing_and_is_complained_of_once(
    tmp_path: Path, harm: str
) -> None:
    prompt = tmp_path / "PROMPT.md"
    prompt.write_text("Be brief.")
    async with open_provider() as provider:
        agent = LlmAgent(from_files(provider, system_prompt_file=prompt))
        _harm(prompt, harm)
        with capture_logs() as lines:
            for _ in range(3):
                await answer_of(agent, a_turn())
        assert len([line for line in lines if line["event"].startswith("prompt file not read")]) == 1
        if harm == "a directory":
            prompt.rmdir()
        elif harm in ("a pipe", "a long link"):
            prompt.unlink()
        prompt.write_text("Be brief again.")
        await answer_of(agent, a_turn())
    assert told(provider) == ["Be brief."] * 3 + ["Be brief again."]


@pytest.mark.parametrize(
    ("harm", "complaint"),
    [
        ("gone", "cannot be read: No such file or directory"),
        ("empty", "is empty"),
        ("large", "is larger than 100,000 bytes"),
        ("not text", "is not text in UTF-8"),
        ("a directory", "is no file"),
        ("a pipe", "is no file"),
        ("a long link", "cannot be read: File name too long"),
    ],
)
@pytest.mark.parametrize("setting", ["persona_file", "system_prompt_file"])
async def test_an_agent_whose_file_cannot_be_used_does_not_start_and_says_so_in_one_sentence(
    tmp_path: Path, harm: str, complaint: str, setting: str
) -> None:
    file = tmp_path / "SOUL.md"
    file.write_text("You are Ada.")
    _harm(file, harm)
    broken: dict[str, Any] = {"model": MODEL, "base_url": "http://127.0.0.1:1/v1", setting: file}
    said = f"LLM__{setting.upper()}: {file} {complaint}"
    with pytest.raises(ConfigurationError, match=f"^{said}$"):
        LlmAgent(LlmSettings(**broken))
    with pytest.raises(ConfigurationError, match=f"^{said}$"):
        LocalAgent(LlmSettings(**broken))
    for name in ("llm", "local"):  # `keyturn up` looks before it starts anything
        with pytest.raises(ConfigurationError, match=f"^{said}$"):
            check_name(name, Settings(agent=name, llm=LlmSettings(**broken)))


def test_a_pipe_that_takes_the_place_of_a_file_just_when_it_is_opened_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "SOUL.md"
    file.write_text("You are Ada.")
    prompt = SystemPrompt(LlmSettings(persona_file=file, system_prompt=""))
    file.write_text("You are Bea, and no file.")
    really_open = os.open

    def swapped(path: Any, flags: int, *more: Any, **named: Any) -> int:
        _harm(file, "a pipe")
        return really_open(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", swapped)
    assert prompt.text == "You are Ada."


def test_a_path_counts_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "SOUL.md").write_text("You are Ada.")
    monkeypatch.chdir(tmp_path)
    prompt = SystemPrompt(LlmSettings(persona_file=Path("SOUL.md"), system_prompt=""))
    monkeypatch.chdir("/")
    assert prompt.text == "You are Ada."


def test_a_system_prompt_and_a_file_with_one_contradict_each_other() -> None:
    with pytest.raises(ValidationError, match="contradict each other"):
        LlmSettings(system_prompt="Be brief.", system_prompt_file=Path("PROMPT.md"))


async def test_a_turn_in_a_process_of_its_own_is_told_what_the_file_says_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = tmp_path / "PROMPT.md"
    prompt.write_text("Be brief.")
    async with open_provider() as provider:
        for name, value in {
            "MODEL": MODEL,
            "BASE_URL": provider.url,
            "API_KEY": KEY,
            "SYSTEM_PROMPT_FILE": str(prompt),
        }.items():
            monkeypatch.setenv(f"KEYTURN_LLM__{name}", value)
        isolated = Isolated("llm")
        try:
            await answer_of(isolated, a_turn())
            prompt.write_text("Be loud.")
            await answer_of(isolated, a_turn())
        finally:
            isolated.close()
    assert told(provider) == ["Be brief.", "Be loud."]


def _harm(file: Path, harm: str) -> None:
    match harm:
        case "gone":
            file.unlink()
        case "empty":
            file.write_text(" \n")
        case "large":
            file.write_text("a" * (LARGEST_BYTES + 1))
        case "not text":
            file.write_bytes(b"\xff\xfe\x00")
        case "a directory":
            file.unlink()
            file.mkdir()
        case "a pipe":
            file.unlink()
            os.mkfifo(file)
        case "a long link":  # as a directory that may not be entered any more: the file cannot even be looked at
            file.unlink()
            file.symlink_to("a" * 300)
