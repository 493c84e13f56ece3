"""How a Telegram bot is set up: getMe says who it is, setWebhook where its updates go."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from producers.connecting import Connect, PersonQuestion, Question, examined
from shared.errors import Transient, Undeliverable
from shared.finding import Finding, fail, ok, warn
from shared.platforms.telegram import NAME, TOKEN_FORM, UPDATE_KINDS, USER_ID_FORM, TelegramSettings
from shared.platforms.telegram_api import BadRequest, BotApi, open_bot_api

RECENT_SECONDS = 3600  # a failure longer ago is over


class TelegramConnect(Connect[TelegramSettings]):
    """The bot of TELEGRAM__TOKEN is set up; all bots are looked at."""

    steps = (
        "In Telegram, write /newbot to @BotFather (https://t.me/BotFather) and choose a name.",
        "It answers with the bot's token.",
    )
    questions = (
        Question(
            "token",
            "The bot's token",
            "as @BotFather gave it, such as 123456:ABC-def",
            secret=True,
            form=TOKEN_FORM,
            looks="digits, a colon and a secret",
        ),
    )
    person = PersonQuestion(
        "Your own user id", "a number; @userinfobot tells you yours", USER_ID_FORM, "a number, and no name"
    )
    secret_settings = ("webhook_secret",)
    address_is_for = "Telegram posts updates there; without one, `keyturn up` asks Telegram for them"

    def for_address(self, block: TelegramSettings) -> Mapping[str, str]:
        return {} if block.webhook_secret else {"webhook_secret": secrets.token_urlsafe(32)}

    async def check(self, block: TelegramSettings) -> Sequence[Finding]:
        found: list[Finding] = []
        for bot in block.accounts.values():
            found += await examined(NAME, _check(bot))
        return found

    async def check_reception(self, block: TelegramSettings) -> Sequence[Finding]:
        found: list[Finding] = []
        for bot in block.accounts.values():
            found += await examined(NAME, _check_webhook(bot))
        return found

    async def set_webhook(self, block: TelegramSettings, url: str | None) -> Sequence[Finding]:
        """A webhook that is set elsewhere is removed where updates are to be fetched: Telegram would refuse to give them."""
        async with open_bot_api(block) as api:
            if url is None and not block.webhook_secret:
                return await _remove_webhook(api)
            if url is None:
                return ()
            fields = {
                "url": url,
                "secret_token": block.webhook_secret[0].get_secret_value(),
                "allowed_updates": UPDATE_KINDS,
            }
            try:
                await api.call("setWebhook", fields)
            except BadRequest as refused:
                fix = "give an https address that Telegram can reach, on port 443, 80, 88 or 8443"
                return (fail(NAME, f"Telegram does not take the address: {refused.description}", fix),)
        return (ok(NAME, f"Telegram posts updates to {urlsplit(url).hostname}"),)

    async def greet(self, block: TelegramSettings, to: str, text: str) -> None:
        async with open_bot_api(block) as api:
            try:
                await api.call("sendMessage", {"chat_id": to, "text": text})
            except Undeliverable as refused:
                raise Undeliverable(f"{refused}. A bot may not speak first: write to it, then try again") from None


async def _check(bot: TelegramSettings) -> Sequence[Finding]:
    async with open_bot_api(bot) as api:
        id, name = await api.me()
    return (ok(NAME, f"Telegram knows the token: @{name}, id {id}"),)


async def _check_webhook(bot: TelegramSettings) -> Sequence[Finding]:
    async with open_bot_api(bot) as api:
        info = await _webhook(api)
    url, again = str(info.get("url") or ""), f"keyturn connect {NAME} --address https://…"
    if bool(url) != bool(bot.webhook_secret):
        if url:
            where, fix = urlsplit(url).hostname, f"keyturn connect {NAME}, or set TELEGRAM__WEBHOOK_SECRET"
            return (fail(NAME, f"updates are asked for, and Telegram posts them to {where}", fix),)
        return (fail(NAME, "updates should come by webhook, and none is set at Telegram", again),)
    failed_at = info.get("last_error_date")
    if type(failed_at) is int and time.time() - failed_at < RECENT_SECONDS:
        said = str(info.get("last_error_message", ""))[:200]
        return (warn(NAME, f"Telegram could not bring updates: {said}", f"start `keyturn receive` there, or {again}"),)
    return ()


async def _remove_webhook(api: BotApi) -> Sequence[Finding]:
    url = str((await _webhook(api)).get("url") or "")
    if not url:
        return ()
    await api.call("deleteWebhook", {})
    return (ok(NAME, f"Telegram no longer posts updates to {urlsplit(url).hostname}: we ask for them"),)


async def _webhook(api: BotApi) -> dict[str, Any]:
    info = await api.call("getWebhookInfo", {})
    if not isinstance(info, dict):
        raise Transient("Telegram: getWebhookInfo says something else")
    return info


CONNECT = TelegramConnect()
