"""The manifest in docs makes an app that may do what our code asks of Slack, and is told what our code understands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
CODE = (
    *(ROOT / "producers/slack").glob("*.py"),
    *(ROOT / "workers/delivery").glob("slack*.py"),
    *(ROOT / "shared/platforms").glob("slack*.py"),
)
METHOD = re.compile(r'"((?:api|apps|auth|chat|conversations|files|reactions|users|views)(?:\.[a-zA-Z]+)+)"')
_KINDS = ("channels", "groups", "mpim")
SCOPES: dict[str, set[str]] = {
    "apps.connections.open": set(),  # of the app-level token
    "auth.test": set(),
    "chat.postMessage": {"chat:write", "chat:write.public"},
    "chat.update": {"chat:write"},
    "conversations.history": {f"{kind}:history" for kind in (*_KINDS, "im")},
    "conversations.info": {f"{kind}:read" for kind in _KINDS},  # of a direct chat nothing is asked
    "conversations.replies": {f"{kind}:history" for kind in (*_KINDS, "im")},
    "files.completeUploadExternal": {"files:write"},
    "files.getUploadURLExternal": {"files:write"},
    "files.info": {"files:read"},
    "users.info": {"users:read"},
}
TOLD = {"app_mentions:read", "commands"}  # events and slash commands, which no method asks for
EVENTS = {"app_mention", "message.im", "message.mpim", "message.channels", "message.groups"}


def manifest() -> dict[str, Any]:
    found = yaml.safe_load((ROOT / "docs/slack-manifest.yaml").read_text())
    assert isinstance(found, dict)
    return found


def methods_used() -> set[str]:
    return {method for path in CODE for method in METHOD.findall(path.read_text())}


def test_the_manifest_has_the_scopes_that_our_code_uses_and_no_others() -> None:
    used = methods_used()
    assert used == set(SCOPES)
    needed = TOLD.union(*(SCOPES[method] for method in used))
    assert set(manifest()["oauth_config"]["scopes"]["bot"]) == needed


def test_the_page_about_slack_lists_the_scopes_of_the_manifest() -> None:
    page = (ROOT / "docs/slack.md").read_text()
    for scope in manifest()["oauth_config"]["scopes"]["bot"]:
        assert f"`{scope}`" in page


def test_the_manifest_subscribes_to_what_is_understood_and_holds_a_socket() -> None:
    settings = manifest()["settings"]
    assert set(settings["event_subscriptions"]["bot_events"]) == EVENTS
    assert settings["socket_mode_enabled"] and settings["interactivity"]["is_enabled"]
    assert manifest()["features"]["app_home"]["messages_tab_enabled"]
