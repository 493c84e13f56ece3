"""How a Feishu or Lark app is set up: its id and secret give a token, which says who the bot is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import uuid4

import orjson

from producers.connecting import Connect, PersonQuestion, Question
from shared.finding import Finding, ok, warn
from shared.platforms.feishu import APP_ID_FORM, NAME, SECRET_FORM, USER_ID_FORM, FeishuSettings
from shared.platforms.feishu_api import open_api

_URL = re.compile(r"https?://[^\s/]+/?.*")


class FeishuConnect(Connect[FeishuSettings]):
    """By a long connection, or by webhook with an encrypt key."""

    steps = (
        "At https://open.feishu.cn/app (Lark: https://open.larksuite.com/app) create a custom app and add the Bot feature.",
        "Give it the permissions im:message:send_as_bot, im:message.p2p_msg, im:message.group_at_msg and im:resource.",
        "Under Events subscribe to im.message.receive_v1, by long connection unless you have a public address.",
        "Publish a version.",
    )
    questions = (
        Question(
            "api_url",
            "The open platform's address",
            "https://open.larksuite.com for Lark; leave it empty for Feishu",
            needed=False,
            form=_URL,
            looks="an http(s) address",
        ),
        Question(
            "app_id",
            "The app's id",
            "cli_…, under Credentials",
            form=APP_ID_FORM,
            looks="letters, digits, _ and -",
        ),
        Question(
            "app_secret",
            "The app's secret",
            "beside its id",
            secret=True,
            form=SECRET_FORM,
            looks="1 to 256 visible characters",
        ),
        Question(
            "encrypt_key",
            "The encrypt key, to be told by webhook",
            "under Events; leave it empty for a long connection, which needs no public address",
            secret=True,
            needed=False,
            form=SECRET_FORM,
            looks="1 to 256 visible characters",
        ),
    )
    person = PersonQuestion(
        "Your own open id",
        "ou_…; the log shows it of whoever is turned away",
        USER_ID_FORM,
        "ou_… or on_…, and no name",
    )
    address_is_for = "you enter it at Feishu, which posts events there"

    def wants_address(self, block: FeishuSettings) -> bool:
        return block.is_told

    async def check(self, block: FeishuSettings) -> Sequence[Finding]:
        async with open_api(block) as api:
            me = await api.me()
        return (ok(NAME, f"Feishu knows the app: {me.name}, open id {me.open_id}"),)

    async def set_webhook(self, block: FeishuSettings, url: str | None) -> Sequence[Finding]:
        if url is None:
            return ()
        fix = f"start Keyturn there; then enter {url} as request address under Events"
        return (warn(NAME, "only you can tell Feishu where to post events", fix),)

    async def greet(self, block: FeishuSettings, to: str, text: str) -> None:
        kind = {"ou_": "open_id", "on_": "union_id"}.get(to[:3], "chat_id")
        content = orjson.dumps({"text": text}).decode()
        fields = {"receive_id": to, "msg_type": "text", "content": content, "uuid": uuid4().hex}
        async with open_api(block) as api:
            await api.call("POST", f"/im/v1/messages?receive_id_type={kind}", fields)


CONNECT = FeishuConnect()
