"""How much may be sent now, to a chat and by a bot, over all workers together: counted in Redis, on its clock.

kt:budget:<bot>           hash full_at/held_until/refused/late_at, with a TTL: what the bot has sent lately, to all its chats
kt:budget:<bot>:edits     the same of changes of drafts, where the platform counts them
kt:budget:<destination>   the same of one chat, and reserved_at: when its next reply may use the send that it took from the bot

All budgets of a bot are on one server, so one call asks chat and bot at once. If Redis loses its data, budgets begin full and
holds are forgotten: the platform then says again that it wants us to wait.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from shared import keys
from shared.escape import bot_text
from shared.lane_key import Destination, platform_of
from shared.platforms import PLATFORMS
from shared.platforms.facts import Facts, SendBudget, SendRate
from shared.platforms.settings import ChatSettings, PlatformSettings
from shared.redis_servers import RedisServer, Script, Servers
from shared.settings import Settings

RESERVATION_MS = 10_000  # a chat whose turn has come and that does not send for so long gets in line again
LATE_MS = 1000  # a housekeeper wakes chats every half second, so this late is usual
PROBE = -1  # spend.lua: this send tells whether a refused bot is refused no longer
REFUSED_WAIT = timedelta(minutes=1)  # while a platform refuses our credentials: somebody has to change them
KEEP_MS = 60_000  # a budget that was held is remembered for so long: it does not begin with a burst
OWN_BURST = 5  # of a rate that only the settings know
_HERE = Path(__file__).parent
SPEND, HOLD = (Script.load(_HERE / f"{name}.lua") for name in ("spend", "hold"))


class SendBudgets:
    """The budgets of all connected platforms. A platform without one costs no call, and never waits."""

    def __init__(self, servers: Servers, settings: Settings) -> None:
        self._servers = servers
        self._probing = set[str]()  # refused bots of which a chat of this process was let through
        blocks = ((PLATFORMS[name], settings.platform(name)) for name in settings.connected)
        self._budgets = {facts.name: budget for facts, block in blocks if (budget := _budget(facts, block)) is not None}

    def budgeted(self, destination: str) -> Destination | None:
        """The destination with this text, if its platform has a budget."""
        return Destination.parse(destination) if platform_of(destination) in self._budgets else None

    async def take(self, to: Destination) -> timedelta:
        """Take one send. Zero: it may be made now. Otherwise it may not; ask again when so much time has passed. Unavailable
        where Redis does not answer."""
        return await self._spend(to, is_edit=False)

    async def take_edit(self, to: Destination) -> timedelta:
        """Take one change of a draft, as `take` does. Changes give way to replies."""
        return await self._spend(to, is_edit=True)

    async def hold(self, to: Destination, wait: timedelta, *, whole_bot: bool) -> None:
        """The platform asked us to wait with this chat, or with all chats of the bot: no worker sends before."""
        if to.platform not in self._budgets or wait <= timedelta(0):
            return
        name = keys.send_budget(_bot(to) if whole_bot else str(to))
        await self._server(to).call(HOLD, [name], [int(wait.total_seconds() * 1000), KEEP_MS, 0])

    async def refuse(self, to: Destination) -> None:
        """The platform takes nothing from this bot: no worker sends to any of its chats for REFUSED_WAIT. Then `take` lets one
        chat at a time through, until `answered` says that the platform took what it sent."""
        self._probing.discard(_bot(to))
        if to.platform in self._budgets:
            args = [int(REFUSED_WAIT.total_seconds() * 1000), KEEP_MS, 1]
            await self._server(to).call(HOLD, [keys.send_budget(_bot(to))], args)

    async def answered(self, to: Destination) -> None:
        """The platform no longer refuses this bot. Costs a call only after `take` let a chat of a refused bot through."""
        if (bot := _bot(to)) in self._probing:
            self._probing.discard(bot)
            server = self._server(to)
            await server.asked(server.client.hdel(keys.send_budget(bot), "refused"))

    async def free(self, to: Destination) -> None:
        """Forget what this chat has sent and that it was to wait. Its bot's budget stays as it is."""
        if to.platform in self._budgets:
            server = self._server(to)
            await server.asked(server.client.delete(keys.send_budget(str(to))))

    async def _spend(self, to: Destination, *, is_edit: bool) -> timedelta:
        budget = self._budgets.get(to.platform)
        if budget is None:
            return timedelta(0)
        bot = _bot(to)
        names = [keys.send_budget(name) for name in (str(to), bot, f"{bot}:edits")]
        is_group = PLATFORMS[to.platform].chat_type_of(to.chat) == "group"
        rates = (budget.group or budget.chat if is_group else budget.chat, budget.bot, budget.edits)
        args = [int(is_edit), RESERVATION_MS, LATE_MS, *(number for rate in rates for number in _numbers(rate))]
        wait_ms = await self._server(to).call(SPEND, names, args)
        if wait_ms == PROBE:
            self._probing.add(bot)
        return timedelta(milliseconds=max(wait_ms, 0))

    def _server(self, to: Destination) -> RedisServer:
        return self._servers.of_key(_bot(to))


def _bot(to: Destination) -> str:
    return bot_text(to.platform, to.account)


def _numbers(rate: SendRate | None) -> tuple[float, int]:
    return (rate.seconds * 1000 / rate.sends, rate.burst) if rate is not None else (0, 1)


def _budget(facts: Facts, block: PlatformSettings | None) -> SendBudget | None:
    """The platform's budget, with the rates that the settings say instead."""
    budget = facts.send_budget
    if budget is None or not isinstance(block, ChatSettings):
        return budget
    if block.sends_per_second is not None:
        budget = replace(budget, bot=_instead(budget.bot, block.sends_per_second, 1.0))
    if block.chat_sends_per_minute is not None:
        own = _instead(budget.chat, block.chat_sends_per_minute, 60.0)
        budget = replace(budget, chat=own, group=None)
    return budget


def _instead(rate: SendRate | None, sends: float, seconds: float) -> SendRate:
    return SendRate(sends, seconds, rate.burst if rate is not None else OWN_BURST)
