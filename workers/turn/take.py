"""Steps 4 to 9 of a message's path: lease, load, run, commit, acknowledge.

A crash before the commit leaves the mail where it was; the next holder begins again. A crash after it leaves mail that
the next holder finds committed and drops. Only the commit decides, and it succeeds once.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from functools import partial

from shared import log, metrics
from shared.agent.turn import Result, Speaker, Turn
from shared.clock import now_ms
from shared.codec import storable
from shared.context import marks
from shared.errors import AlreadyDone, Crashed, Outage, Permanent, Stopped, Superseded, Unavailable
from shared.ids import fresh_id
from shared.lane import Lease
from shared.lane.lease import Waiting
from shared.lane.session_lock import SessionLock
from shared.lane_key import CONTROL, conversation_of
from shared.mail import TakeNotes
from shared.messages import Entry, Inbound, Mail, Reply, Session, State
from shared.owner import owner_of
from shared.session_key import SessionKey
from shared.stages import correlate, stage
from shared.store.change import NO_CHANGE, Change, Commit, Committed, Ending, Proof
from shared.store.usage import Whose, has_usage, turns_usage
from shared.value import value
from workers import commands
from workers.agents.contract import Agent
from workers.delivery.parts import in_parts
from workers.side.budget import day_at
from workers.side.memory_notes import look_back
from workers.turn.album import as_one, rest_of_album
from workers.turn.lifetime import consumed, ending
from workers.turn.open import Opened, open_barely, open_mail
from workers.turn.parts import Runner
from workers.turn.prepare import prepare

COMMIT_RETRY_SECONDS = 0.5
REASONS = {Permanent: "refused", TimeoutError: "timeout", Crashed: "crashed"}
WORKERS_KILLED = 4  # times MAX_ATTEMPTS: more attempts that took their whole worker along are no coincidence
STOPPED = "(The user stopped this before it was finished.)"  # where the answer would be: the next row is the user's
AWAY = "Sorry, the service that I need for an answer is not available. Please try again later."
NOTICE = "Sorry, I could not process your last message. It has been set aside for a person to look at."


async def take_turns(lease: Lease, runner: Runner) -> None:
    """Run a key's waiting turns until it is idle, handed over or another's. Twice for the same mail commits once."""
    runner = runner.of(conversation_of(lease.key))
    turns = KeyTurns(lease, runner)
    try:
        await _take_turns(lease, turns)
    finally:
        await turns.lock.give_back()


async def _take_turns(lease: Lease, turns: KeyTurns) -> None:
    while lease.mail:
        waiting = lease.mail[0]
        ended: Ended | None = None
        try:
            ended = await turns.end(waiting)
        except Superseded:
            metrics.FENCE_REJECTED.inc()
            log.get().warning("commit refused: the session had moved on", key=lease.key)
            turns.session = None
        except AlreadyDone:  # an earlier try did it, unheard: look again, and acknowledge what has ended
            turns.session = None
        except Unavailable:
            raise
        except Exception as error:
            if lease.ended:
                raise
            ended = await turns.not_opened(waiting, error)
        if ended is not None:
            await turns.acknowledge(ended)
        if lease.ended:
            return


@value
class Ended:
    """Mail that needs nothing more but to leave the mailbox."""

    seqs: tuple[int, ...]
    committed: Committed | None = None  # by us, just now; None: it had ended before


class KeyTurns:
    """The turns of one key under one lease. The session is read once and then known from our own commits."""

    def __init__(self, lease: Lease, runner: Runner) -> None:
        self.lease = lease
        self.runner = runner
        self.pipe = runner.pipe
        self.lock = SessionLock(lease, self.pipe.store.journal, self.pipe.settings.heartbeat.total_seconds())
        self.session: Session | None = None
        self.merged: tuple[Mail, ...] = ()  # what the turn answers besides its mail: the rest of an album
        self._seed: tuple[Entry, ...] = ()  # rows that the session begins with
        self._outage_ms: int | None = None  # how long the mail's provider has been away, as the journal knows
        self._done = 0
        self._claimed_at = now_ms()

    async def end(self, waiting: Waiting) -> Ended | None:
        """Open the mail at the head of the mailbox and run its turn. None: look again, or the key was given back."""
        opened = await open_mail(self.lease.key, waiting, self.session, self.pipe.store)
        if isinstance(opened, TakeNotes):
            await look_back(opened.session_id, self.lease.key, self.runner)
            return Ended((waiting.seq,))
        if await self.lock.follow(opened.session):  # another key talks to it: it may have moved on meanwhile
            self.session = None
            return None
        if opened.mail is None:
            return Ended((waiting.seq,))
        committed = await self.take(opened)
        if committed is None:
            return None
        return Ended((opened.mail.seq, *(mail.seq for mail in self.merged)), committed)

    async def take(self, opened: Opened) -> Committed | None:
        """Run one turn to its commit. None: it failed and the key was given back, the key is another's by now, or the
        session had ended by itself, and the mail is to be opened again in the one that follows."""
        lease, limit = self.lease, self.pipe.settings.max_attempts
        self.session, mail = opened.session, opened.mail
        assert mail is not None
        correlate(mail.inbound.id)
        self._seed, self.merged, self._outage_ms = (), (), opened.outage_ms
        if opened.unreadable is not None:
            return await self._bury(mail, Ending(State.DEAD, "malformed", opened.unreadable), 0)
        if opened.lacking is not None:  # only at the head of the mailbox are its attempts known to the next holder
            await lease.lane.put(lease.key, mail.seq, opened.lacking)
        begun, failed = lease.attempts_before(mail.seq)
        before = max(begun, opened.attempts)
        if before >= limit * WORKERS_KILLED:
            return await self._bury(mail, Ending(State.DEAD, "crashed", f"{before} attempts came to no end"), before)
        if not await lease.begin(mail.seq):
            lease.lose()
            return None
        # An attempt that nobody saw the end of may have killed its worker, or died with a guilty neighbour: run it apart.
        agent = self.runner.apart if begun > failed else self.runner.agent
        try:
            return await self._answer(mail, before + 1, agent)
        except (Superseded, AlreadyDone, Unavailable):
            raise
        except Exception as error:
            return await self._failed(mail, before + 1, error)

    async def _answer(self, mail: Mail, attempt: int, agent: Agent) -> Committed | None:
        """An attempt that has begun: whatever it raises counts against the message."""
        lease, session = self.lease, self.session
        assert session is not None
        if lease.drop_until_ms and mail.inbound.received_at <= lease.drop_until_ms:
            return await self._stop(mail, ())
        if lease.lane.name != CONTROL:
            if (reason := self.runner.lifetime.over(session, mail.inbound)) is not None:
                await self._end_session(session, reason)
                return None
            self._seed = await self.runner.lifetime.seed(session, lease.key, mail.inbound.source)
        if mail.inbound.album is not None:
            self.merged = await rest_of_album(lease, mail, self.pipe.store.journal)
        if (command := commands.parse(mail.inbound.text)) is not None:
            return await self._obey(mail, attempt, agent, *command)
        if lease.lane.name == CONTROL:  # no agent runs here, whoever put this into the mailbox
            return await self._bury(mail, Ending(State.DEAD, "malformed", "no control message"), attempt)
        return await self._attempt(mail, attempt, agent)

    async def not_opened(self, waiting: Waiting, error: Exception) -> Ended | None:
        """Something failed outside of an attempt that could count it. Count it, and set the message aside in the end."""
        lease = self.lease
        attempt = lease.attempts_before(waiting.seq).begun + 1
        log.get().exception("message not opened", key=lease.key, attempt=attempt)
        if attempt < self.pipe.settings.max_attempts:
            await lease.release(delay=self._backoff(attempt), spent=True)
            return None
        opened = await open_barely(lease.key, waiting, self.pipe.store)
        if opened.mail is None:
            return Ended((waiting.seq,))
        if opened.lacking is not None:  # the attempts were counted for the mail behind it: it gets its own
            await lease.lane.put(lease.key, opened.mail.seq, opened.lacking)
            await lease.release(delay=self._backoff(attempt), spent=True)
            return None
        self.session, self.merged, self._seed = opened.session, (), ()
        ending = Ending(State.DEAD, "error", f"{type(error).__name__}: {error}"[:500])
        return Ended((opened.mail.seq,), await self._bury(opened.mail, ending, attempt))

    async def _end_session(self, session: Session, reason: str) -> None:
        """Let the key talk to a new session. No mail ends by this, and no model is asked."""
        await self._commit_alone(session, ending(session, reason), State.EXPIRED)
        self.session = None
        log.get().info("session ended", key=self.lease.key, session=session.id, reason=reason)

    async def _relieve(self, change: Change) -> Session:
        assert self.session is not None
        await self._commit_alone(self.session, change, State.ANSWERED)
        self.session, _ = await self.pipe.store.transcript.load(self.lease.key, "")
        return self.session

    async def _commit_alone(self, session: Session, change: Change, state: State) -> None:
        """Change the session between two turns, by the same compare-and-set."""
        proof = Proof(f"turn_{fresh_id()}", self.runner.worker, 0, self._claimed_at, now_ms())
        await self.pipe.store.commit(Commit(session, self.lease.key, proof, ending=Ending(state), change=change))

    async def _obey(self, mail: Mail, attempt: int, agent: Agent, name: str, args: str) -> Committed | None:
        """A command is its key's turn: it waits its time and is committed like any other."""
        session, key = self.session, conversation_of(self.lease.key)
        assert session is not None
        if key != self.lease.key:  # a control message is about the conversation, and only numbered apart from it
            session, _ = await self.pipe.store.transcript.load(key, "")
        call = commands.Call(
            name, storable(args), mail.inbound, key, session, self.pipe, self.runner.asks, self.runner.budgets
        )
        try:
            done = await commands.run(call)
            if isinstance(done, commands.Answer):
                return await self._say(mail, attempt, done)
        except (Superseded, AlreadyDone, Unavailable):
            raise
        except Exception:  # a second try would end the same way, and what was said after it must not wait for that
            log.get().exception("command failed", key=self.lease.key, command=name)
            return await self._say(mail, attempt, commands.Answer(f"Sorry, /{name} did not work. Nothing was changed."))
        return await self._attempt(mail, attempt, agent, done)

    async def _say(self, mail: Mail, attempt: int, answer: commands.Answer) -> Committed:
        """Commit a command with its answer and what it changes."""
        rows = (marks.command_row(marks.user_row(mail.inbound)), marks.command_row(Entry("assistant", answer.text)))
        proof = Proof(f"turn_{fresh_id()}", self.runner.worker, attempt, self._claimed_at, now_ms())
        committed = await self._commit(mail, rows, (Reply(answer.text),), Ending(), proof, answer.change)
        metrics.ENDED["command"].inc()
        return committed

    async def acknowledge(self, ended: Ended) -> None:
        """Tell delivery and take the next mail, in one round trip. If Redis is away, the housekeeper does both later."""
        committed = ended.committed
        if committed is None:
            await self.lease.acknowledge(ended.seqs, limit=1)
            return
        self.session = None if committed.changed else committed.session
        self._done += 1
        over = self._done >= self.pipe.settings.turns_per_lease
        with stage("acknowledge"):
            publish = self.runner.publisher.publish
            puts = [put for place, rows in committed.by_destination.items() for put in publish(place, rows)]
            try:
                await self.lease.acknowledge(ended.seqs, limit=1, hand_over=over)
            finally:
                if not all(put.done() for put in puts):  # on another server
                    await asyncio.wait(puts)
                for error in [error for put in puts if (error := put.exception()) is not None]:
                    raise error
        self._claimed_at = now_ms()

    async def _attempt(
        self, mail: Mail, attempt: int, agent: Agent, again: commands.Again | None = None
    ) -> Committed | None:
        """One try at a turn: on what was said now, or again on what was said before."""
        lease, session = self.lease, self.session
        assert session is not None
        inbound = as_one(mail.inbound, self.merged)
        if session.owner is None:  # asked for by the turn and by its commit: find out once
            self.session = session = replace(session, owner=self._owner(inbound))
        if again:
            inbound = replace(inbound, text=again.text)
        history, change = (again.history, again.change) if again else (session.history, NO_CHANGE)
        if self._seed and not again:
            history = (*self._seed, *history)
        if self.runner.budgets is not None:
            refusal = await self.runner.budgets.refusal(self._owner(inbound))
            if refusal is not None:
                return await self._refuse(mail, attempt, "budget", refusal)
        if attempt > 1:
            metrics.REDELIVERED.inc()
        notes, notices = self.runner.lifetime.notices(session, inbound.source)
        started_at = now_ms()
        try:
            told = Turn(
                f"turn_{fresh_id()}",
                lease.key,
                session.id,
                history,
                (inbound,),
                attempt,
                notes=notes,
                speaker=Speaker(session.owner or ""),
                run=f"run_{mail.inbound.id}",
            )
            prepared = await prepare(self.runner, told, session, None if again else self._relieve)
            self.session, turn = prepared.session, prepared.turn
            result = await self._run(agent, turn, mail.inbound.received_at)
        except Stopped:
            said = () if again else (marks.user_row(inbound), Entry("assistant", STOPPED))
            return await self._stop(mail, said, attempt)
        except asyncio.CancelledError:
            if not lease.lost:
                delay = self._backoff(attempt) if lease.killed_by_operator else timedelta(0)
                await asyncio.shield(lease.release(delay=delay, spent=lease.killed_by_operator))
            raise
        except Unavailable as error:
            log.get().warning("turn put off", key=lease.key, error=str(error))
            await lease.release(delay=self._backoff(1), spent=False)
            return None
        except (Superseded, AlreadyDone):
            raise
        except Outage as error:
            return await self._wait(mail, attempt, error)
        except Exception as error:
            return await self._failed(mail, attempt, error)
        replies = (*map(Reply, notices), *result.replies, *map(Reply, prepared.notices))
        if prepared.facts:
            change = replace(change, facts={**change.facts, **prepared.facts})
        entries = (marks.user_row(inbound), *result.entries)
        proof = Proof(turn.id, self.runner.worker, attempt, self._claimed_at, started_at)
        if has_usage(result.entries):
            day = day_at(now_ms(), self.pipe.settings)
            change = replace(change, also=(*change.also, *turns_usage(result.entries, self._whose(inbound), day)))
        titling = self.runner.titling
        if titling is not None and session.version == 0 and (title := titling.with_commit(session, inbound)):
            change = replace(change, title=title)
        try:
            committed = await self._commit(mail, entries, replies, Ending(), proof, consumed(prepared.session, change))
        except (Superseded, AlreadyDone, Unavailable):
            raise
        except Exception as error:  # the agent's answer is nothing that can be kept
            return await self._failed(mail, attempt, error)
        if titling is not None and not again and change.title is None:
            answer = next((entry for entry in reversed(result.entries) if entry.role == "assistant"), None)
            titling.after(session, partial(self._whose, inbound), entries[0], answer)
        metrics.ENDED["answered"].inc()
        log.get().info("answered", key=lease.key, turn=turn.id, attempt=attempt, ms=now_ms() - started_at)
        return committed

    async def _run(self, agent: Agent, turn: Turn, received_ms: int) -> Result:
        """Run the agent. Stopped: the user asked for it meanwhile, in whatever process."""
        lease, task = self.lease, asyncio.current_task()
        assert task is not None
        lease.turn_begins(received_ms, task.cancel)
        try:
            with stage("agent"):
                result = await agent.run(turn)
        except asyncio.CancelledError:
            if lease.cut_short and not task.uncancel() and not lease.lost:  # nobody else wants it to end
                raise Stopped from None
            raise
        finally:
            lease.turn_ends()
        if lease.cut_short:
            task.uncancel()  # the agent had its answer ready and kept it
        return result

    async def _stop(self, mail: Mail, said: tuple[Entry, ...], attempts: int = 0) -> Committed:
        """End a message that the user wants no answer to any more. /stop has its own answer: nothing is said here."""
        proof = Proof(f"turn_{fresh_id()}", self.runner.worker, attempts, self._claimed_at, now_ms())
        committed = await self._commit(mail, said, (), Ending(State.SUPERSEDED, "stopped"), proof, NO_CHANGE)
        metrics.ENDED["stopped"].inc()
        log.get().info("stopped", key=self.lease.key, message=mail.inbound.id)
        return committed

    async def _refuse(self, mail: Mail, attempt: int, reason: str, notice: str) -> Committed:
        """End the message without a turn and tell the chat why: both in the one commit."""
        proof = Proof(f"turn_{fresh_id()}", self.runner.worker, attempt, self._claimed_at, now_ms())
        ending = Ending(State.REJECTED, reason)
        committed = await self._commit(mail, (), (Reply(notice),), ending, proof, NO_CHANGE)
        metrics.ENDED["rejected"].inc()
        log.get().info("refused", key=self.lease.key, reason=reason)
        return committed

    def _owner(self, inbound: Inbound) -> str | None:
        assert self.session is not None
        return self.session.owner or owner_of(SessionKey.parse(self.lease.key), inbound.source)

    def _whose(self, inbound: Inbound) -> Whose:
        assert self.session is not None
        return Whose(self.session.id, self._owner(inbound) or "", SessionKey.parse(self.lease.key).agent)

    async def _failed(self, mail: Mail, attempt: int, error: Exception) -> Committed | None:
        """Try again later without holding a worker, or set the message aside and go on with the next."""
        reason = next((word for kind, word in REASONS.items() if isinstance(error, kind)), "error")
        detail = f"{type(error).__name__}: {error}"[:500]
        log.get().warning("turn failed", key=self.lease.key, reason=reason, error=type(error).__name__, attempt=attempt)
        if attempt >= self.pipe.settings.max_attempts or isinstance(error, Permanent):
            notice = error.notice if isinstance(error, Permanent) else None
            return await self._bury(mail, Ending(State.DEAD, reason, detail), attempt, notice or NOTICE)
        metrics.ENDED["failed"].inc()
        if mail.journaled:
            await self.pipe.store.journal.count_attempt(mail.inbound.id, attempt, f"{reason}: {detail}")
        # After a crash nothing outside needs time to recover.
        wait = self._backoff(1) / 2 if isinstance(error, Crashed) else self._backoff(attempt)
        await self.lease.release(delay=wait, spent=True)
        return None

    async def _wait(self, mail: Mail, attempt: int, outage: Outage) -> Committed | None:
        """Try again when the provider may be back: the message did nothing wrong. It is set aside if that takes too long,
        and at once where the provider asks for more time than is left: the user is told now, not after it."""
        settings, away, asked = self.pipe.settings, self._away(mail), outage.retry_after
        limit = timedelta(seconds=settings.provider_outage_seconds)
        about = {"key": self.lease.key, "provider": outage.provider, "status": outage.status, "error": str(outage)}
        away_s = round(away.total_seconds(), 1)
        if away >= limit or away + asked > limit:
            log.get().error("provider away for too long", **about, away_s=away_s)
            detail = f"{outage.provider} {outage.status or ''}: {outage}; away for {away_s:.0f} s"
            detail = f"{detail}, asks for {asked.total_seconds():.0f} s more"[:500]
            return await self._bury(mail, Ending(State.DEAD, "provider", detail), attempt, AWAY)
        # As long again as it has been away already: the waits double.
        longest = timedelta(seconds=settings.backoff_max_seconds)
        delay = max(self._backoff(1), min(away, longest), asked)
        log.get().warning("turn waits for the provider", **about, away_s=away_s, again_in_s=delay.total_seconds())
        metrics.ENDED["failed"].inc()
        if mail.journaled:
            away_ms = int(away.total_seconds() * 1000)
            await self.pipe.store.journal.note_outage(mail.inbound.id, away_ms, "provider")
        await self.lease.release(delay=delay, spent=False, outage=True)
        return None

    def _away(self, mail: Mail) -> timedelta:
        """How long the provider has been away, by Redis or, where that lost it, by the journal."""
        return max(self.lease.outage_before(mail.seq), timedelta(milliseconds=self._outage_ms or 0))

    async def _bury(self, mail: Mail, ending: Ending, attempts: int, notice: str = NOTICE) -> Committed:
        """Make the message a dead letter and tell the chat, once: both in the one commit."""
        proof = Proof(f"turn_{fresh_id()}", self.runner.worker, attempts, self._claimed_at, now_ms())
        committed = await self._commit(mail, (), (Reply(notice),), ending, proof, NO_CHANGE)
        metrics.DEAD_LETTER.labels(ending.reason).inc()
        metrics.ENDED["dead"].inc()
        log.get().error("dead letter", key=self.lease.key, reason=ending.reason, attempts=attempts)
        return committed

    async def _commit(
        self,
        mail: Mail,
        entries: tuple[Entry, ...],
        replies: tuple[Reply, ...],
        ending: Ending,
        proof: Proof,
        change: Change,
    ) -> Committed:
        """Commit, waiting for a database that is away while the key is ours: the agent's work is not thrown away."""
        session, key = self.session, self.lease.key
        assert session is not None
        entries, replies = (*self._seed, *entries), in_parts(mail.inbound.source.platform, replies)
        commit = Commit(session, key, proof, (mail, *self.merged), entries, replies, ending, change)
        with stage("commit"):
            while True:
                try:
                    return await self.pipe.store.commit(commit)
                except Unavailable as error:
                    if self.lease.lost:
                        raise
                    log.get().warning("commit waits for the database", key=key, error=str(error))
                    await asyncio.sleep(COMMIT_RETRY_SECONDS)

    def _backoff(self, attempt: int) -> timedelta:
        settings = self.pipe.settings
        return timedelta(seconds=min(settings.backoff_seconds * 2 ** (attempt - 1), settings.backoff_max_seconds))
