"""How a Signal account is set up: signal-cli's daemon says whether it has the account."""

from __future__ import annotations

import re
from collections.abc import Sequence

from producers.connecting import Connect, PersonQuestion, Question
from shared.errors import Denied, Undeliverable
from shared.finding import Finding, ok
from shared.platforms.signal import GROUP, NAME, NUMBER_FORM, UUID_FORM, SignalSettings
from shared.platforms.signal_api import open_daemon, results_in

_ID = re.compile(f"(?:{NUMBER_FORM.pattern})|(?:{UUID_FORM.pattern})")
_URL = re.compile(r"https?://[^\s/]+/?.*")


class SignalConnect(Connect[SignalSettings]):
    """The daemon holds the account and its keys; we only know where it answers."""

    steps = (
        "Register or link a number in signal-cli (https://github.com/AsamK/signal-cli).",
        "Run its daemon: signal-cli -a +15550001111 daemon --http 127.0.0.1:8090 --receive-mode=on-connection",
    )
    questions = (
        Question(
            "http_url",
            "Where the daemon answers",
            "such as http://127.0.0.1:8090; keep it on this machine or in a private network",
            form=_URL,
            looks="an http address",
        ),
        Question(
            "account",
            "The bot's own number",
            "with + and the country's code, such as +15550001111",
            form=NUMBER_FORM,
            looks="+ and digits",
        ),
    )
    person = PersonQuestion(
        "Your own number", "with +, or your Signal uuid", _ID, "a number with +, or a lower-case uuid"
    )

    async def check(self, block: SignalSettings) -> Sequence[Finding]:
        async with open_daemon(block) as daemon:
            try:
                about = await daemon.call("version", {})
            except Undeliverable as error:
                raise Denied(f"signal-cli's daemon does not serve this account ({error})") from None
        return (ok(NAME, f"signal-cli {str(about.get('version', ''))[:20]} serves the account"),)

    async def greet(self, block: SignalSettings, to: str, text: str) -> None:
        place = {"groupId": to.removeprefix(GROUP)} if to.startswith(GROUP) else {"recipient": [to]}
        async with open_daemon(block) as daemon:
            results = results_in(await daemon.call("send", {"message": text, **place}))
        kinds = [str(result.get("type")) for result in results]
        if kinds and "SUCCESS" not in kinds:
            raise Undeliverable(f"Signal: {kinds[0][:40]}")


CONNECT = SignalConnect()
