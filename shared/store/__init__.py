"""What survives: journal, sessions and transcripts, outbox, dead letters, in SQLite or PostgreSQL."""

from __future__ import annotations

from shared.store.approvals import Approvals
from shared.store.asks import AskStore
from shared.store.audit import Audit
from shared.store.blob_references import BlobReferences
from shared.store.closed_chats import ClosedChats
from shared.store.commits import Commits
from shared.store.control import ControlCommits
from shared.store.database import CONNECTIONS, Database, open_database
from shared.store.dead import DeadLetters
from shared.store.deletion import Deletion
from shared.store.drafts import Drafts
from shared.store.draining import DrainingServers
from shared.store.facts import FactStore
from shared.store.journal import Journal
from shared.store.memory import Memory
from shared.store.notices import Notices
from shared.store.outbox import Outbox
from shared.store.overview import OverviewRows
from shared.store.owned import Owned
from shared.store.pairing import Pairings
from shared.store.pauses import Pauses
from shared.store.people import PeopleStore
from shared.store.places import Places
from shared.store.quota import Quota
from shared.store.rejection import Rejections
from shared.store.retention import Retention
from shared.store.runs import Runs
from shared.store.schedules import Schedules
from shared.store.search import Search
from shared.store.secrets import Secrets
from shared.store.sessions import Sessions
from shared.store.stateless import StatelessRequests
from shared.store.tasks import Tasks
from shared.store.titles import Titles
from shared.store.transcript import Transcript
from shared.store.usage import Usage
from shared.store.windows import Windows

__all__ = ["Store", "open_store"]


class Store:
    """Everything in SQL, one attribute for each table or question. What a method has written when it returns survives a crash."""

    def __init__(self, database: Database, history_messages: int) -> None:
        self.database = database
        self.journal = Journal(database)
        windows = Windows()
        self.transcript = Transcript(database, history_messages, windows)
        self.commit = Commits(database, windows).commit
        self.commit_control = ControlCommits(database).commit
        self.reject_waiting = Rejections(database).reject_waiting
        self.blob_references = BlobReferences(database)
        self.closed_chats = ClosedChats(database)
        self.facts = FactStore(database)
        self.memory = Memory(database)
        self.owned = Owned(database)
        self.outbox = Outbox(database)
        self.drafts = Drafts(database)
        self.draining = DrainingServers(database)
        self.notices = Notices(database)
        self.dead = DeadLetters(database)
        self.audit = Audit(database)
        self.overview = OverviewRows(database)
        self.quota = Quota(database)
        self.pairings = Pairings(database)
        self.runs = Runs(database)
        self.asks = AskStore(database)
        self.approvals = Approvals(self.pairings)
        self.pauses = Pauses(database)
        self.places = Places(database)
        self.delete = Deletion(database).delete
        self.retention = Retention(database)
        self.people = PeopleStore(database)
        self.schedules = Schedules(database)
        self.search = Search(database)
        self.sessions = Sessions(database)
        self.secrets = Secrets(database, self.facts)
        self.stateless = StatelessRequests(database)
        self.tasks = Tasks(database)
        self.titles = Titles(database)
        self.usage = Usage(database)


async def open_store(url: str, history_messages: int, connections: int = CONNECTIONS) -> Store:
    """The store on the database that a URL names, ready for use."""
    return Store(await open_database(url, connections), history_messages)
