"""A restore: a backup takes the place of the database, while nothing of the deployment runs.

| step                                         | after a crash behind it                                                  |
|----------------------------------------------|--------------------------------------------------------------------------|
| 1 the backup is read through and checked     | nothing has changed                                                      |
| 2 SQLite: it is copied beside the database   | nothing has changed; the next restore uses the hidden file again         |
| 3 what is ours in Redis is removed           | the old database is whole. The journal fills Redis again; with           |
|                                              | DURABILITY=redis, messages that waited are lost, as they are by a restore |
| 4 the new database takes the old one's place | the new one is whole, with its replies held and its audit row            |
| 5 its pauses are put into Redis              | the restore is done                                                      |

Step 4 is one renaming (SQLite) or one transaction (PostgreSQL): what is held is held in the same step. Redis comes before it: mail
of the lost future, met by numbers that are given again, would be taken for mail of the present. After a crash between 4 and 5
workers begin turns that are paused, until a housekeeper looks. Doing it again is right after a crash at any step.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

from pydantic import SecretStr

from shared import log
from shared.clock import moment
from shared.embedded import running, valkey
from shared.errors import CannotDo, ConfigurationError
from shared.failpoints import reach
from shared.operating.at_rest import check_at_rest
from shared.operating.audit import Operator
from shared.pauses import enforce_pauses
from shared.pipeline import open_pipeline
from shared.redis_emptying import check_rights, empty
from shared.redis_servers import Servers
from shared.settings import Settings
from shared.store.backup.content import CopyProgress, Tell, check_kind, check_schema
from shared.store.backup.place import backup_of
from shared.store.backup.replacing import LastWords
from shared.store.backup.restored import WAITING, knows_pauses, note, statements
from shared.value import value


@value
class RestorePlan:
    """What is about to be done: which backup takes the place of which database."""

    file: str
    written_at: datetime
    sessions: int
    messages: int
    database: str


@value
class RestoredDatabase:
    """What a restore did. `held` replies wait for a decision, `waiting` messages are answered as soon as workers run, unless they
    are `holding`. `lacks`: migrations that the backup does not have."""

    file: str
    sessions: int
    messages: int
    held: int
    waiting: int
    holding: bool
    redis_names: int
    kept: str | None
    lacks: tuple[str, ...]


@value
class WantedRestore:
    """Which backup, and whether waiting messages are to be held."""

    file: Path
    hold: bool = False


async def restore(
    settings: Settings, wanted: WantedRestore, by: Operator, agree: Callable[[RestorePlan], None], tell: Tell
) -> RestoredDatabase:
    """Put a backup in the database's place. `agree` may raise: nothing has changed then. CannotDo, and nothing has changed,
    while anything runs, and for a backup that is damaged, of something else or of a newer version."""
    database, file = backup_of(settings.database), wanted.file
    check_kind(file, database.dialect)
    tell(CopyProgress("reading the backup through"))
    content = database.look(file)
    lacks = check_schema(file, content, database.dialect)
    about = note(by.name, by.role, str(file), hold=wanted.hold)
    last = LastWords(statements(about, content.migrations), (about.held_letters, WAITING))
    plan = RestorePlan(
        str(file), moment(int(file.stat().st_mtime * 1000)), content.sessions, content.messages, database.name
    )
    async with _alone(settings) as joined:
        async with _servers(settings, joined) as servers, database.replacing(file, content) as replacement:
            agree(plan)
            replacement.prepare(last, tell)
            reach("restore.before_emptying")
            tell(CopyProgress("removing what Redis holds"))
            removed = sum([await empty(server) for server in servers.all])
            reach("restore.after_emptying")
            done = replacement.put_in_place(tell)
        log.get().info("database restored", file=str(file), kept=done.kept)
        if knows_pauses(content.migrations):
            await _put_pauses_in_force(joined)
    held, waiting = done.numbers
    counts = (content.sessions, content.messages, held, waiting)
    return RestoredDatabase(str(file), *counts, wanted.hold, removed, done.kept, tuple(lacks))


@asynccontextmanager
async def _alone(settings: Settings) -> AsyncIterator[Settings]:
    """The settings with a Redis, while no `up` runs or starts here: where none is named, the Valkey of `up` is started for the
    block."""
    try:
        with running.alone(settings.data_dir):
            if settings.redis_url is not None:
                yield settings
                return
            server = valkey.start(settings.data_dir / "valkey")
            try:
                yield settings.model_copy(update={"redis_url": SecretStr(server.url)})
            finally:
                server.stop()
    except ConfigurationError as error:
        if running.held(settings.data_dir):  # the settings are right: an `up` is there
            raise CannotDo(str(error)) from None
        raise


@asynccontextmanager
async def _servers(settings: Settings, joined: Settings) -> AsyncIterator[Servers]:
    """All Redis servers, each of which may be emptied and none of which shows a process of the deployment."""
    tls = settings.redis_tls.connecting()
    tls.check()
    servers = Servers(joined.redis_urls(), settings.partitions, tls)
    try:
        for server in servers.all:
            await check_rights(server)
        if settings.redis_url is not None:  # the Valkey of `up` had to be started: nobody is at work there
            await check_at_rest(servers)
        yield servers
    finally:
        await servers.close()


async def _put_pauses_in_force(settings: Settings) -> None:
    """Workers look at Redis before they begin a turn, and may start before a housekeeper does."""
    async with open_pipeline(settings) as pipe:
        done = await enforce_pauses(pipe)
    if done.away is not None:
        raise done.away
