"""What survives: journal, sessions and transcripts, outbox, dead letters, in SQLite or PostgreSQL."""

from __future__ import annotations

from shared.store.backlog import backlog
from shared.store.commits import Commits
from shared.store.database import Database, Row, open_database
from shared.store.dead import DeadLetters
from shared.store.deletion import Deletion
from shared.store.facts import Facts
from shared.store.journal import Journal
from shared.store.memory import Memory
from shared.store.outbox import Outbox
from shared.store.owned import Owned
from shared.store.rejection import Rejections
from shared.store.search import Search
from shared.store.secrets import Secrets
from shared.store.sessions import Sessions
from shared.store.titles import Titles
from shared.store.transcript import Transcript
from shared.store.usage import Usage
from shared.store.windows import Windows

__all__ = ["Store", "open_store"]


class Store:
    def __init__(self, database: Database, history_messages: int) -> None:
        self.database = database
        self.journal = Journal(database)
        windows = Windows()
        self.transcript = Transcript(database, history_messages, windows)
        self.commit = Commits(database, windows).commit
        self.reject_waiting = Rejections(database).reject_waiting
        self.facts = Facts(database)
        self.memory = Memory(database)
        self.owned = Owned(database)
        self.outbox = Outbox(database)
        self.dead = DeadLetters(database)
        self.delete = Deletion(database).delete
        self.search = Search(database)
        self.sessions = Sessions(database)
        self.secrets = Secrets(database, self.facts)
        self.titles = Titles(database)
        self.usage = Usage(database)

    async def backlog(self) -> Row:
        """How much waits, and since when."""
        return await backlog(self.database)


async def open_store(url: str, history_messages: int) -> Store:
    return Store(await open_database(url), history_messages)
