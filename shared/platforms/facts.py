"""What Keyturn knows of a platform before it talks to it: the facts that both halves of the pipeline need."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from shared.platforms.settings import PlatformSettings
from shared.value import value


class Idempotency(Enum):
    """What happens when the same part is sent twice."""

    NATIVE = "native"  # the platform recognises the key: sending again is safe
    NONE = "none"  # the chat sees it twice


class Markup(Enum):
    """What a reply's Markdown, as models write it, is turned into."""

    MARKDOWN = "Markdown"  # nothing: the reader takes it as it is
    HTML = "HTML"
    MRKDWN = "mrkdwn"  # *bold*, _italic_, <address|label>; only &, < and > are escaped
    MARKS = "marks around words, such as *bold*"
    RANGES = "plain text, and beside it which parts of it are bold"
    PLAIN = "plain text"


@value
class Limit:
    """How much text a platform takes in one message, and how it counts: no character as less than one."""

    units: int
    measure: Callable[[str], int] = len


def utf16_units(text: str) -> int:
    """Characters beyond the first 65,536 count as two."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf8_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


@value
class MediaLimits:
    """The largest file that a platform gives us and takes from us, in bytes."""

    fetched: int
    sent: int


@value
class PreviewLimits:
    """How an answer may be shown while it is written: how often its message may be changed, and how many times at most."""

    seconds: float
    changes: int = 1000


@value
class ButtonLimits:
    """The buttons that a message may have: how many, how long the words on each, and how long the message itself."""

    count: int
    label: Limit
    text: Limit | None = None  # None: as any message


@value
class SendRate:
    """How often we may send: so many times in so many seconds on average, and `burst` times at once."""

    sends: float
    seconds: float = 1.0
    burst: int = 1


@value
class SendBudget:
    """How much a platform takes from us. A rate that is None has no limit; who is asked to wait waits in any case."""

    bot: SendRate | None = None  # of one of our bots, to all its chats together
    chat: SendRate | None = None  # to one chat
    group: SendRate | None = None  # to a chat that `chat_type_of` calls a group; None: as to any chat
    edits: SendRate | None = None  # changes of messages by a bot, in all its chats together


@value
class Facts:
    """One platform. Everything that names platforms is derived from these: routes, listeners, senders, settings, metrics,
    prompts, redaction, checks and help texts."""

    name: str  # in session keys, settings and folders: a lower-case word
    title: str  # as people write it
    settings: type[PlatformSettings] | None = None  # its block of settings; None: always on, nothing to set

    # Receiving
    receives: bool = False  # producers/<name>/receive.py mounts HTTP routes
    listens: bool = False  # producers/<name>/listen.py holds a connection of its own
    connects: bool = False  # producers/<name>/connect.py says how an operator sets it up, and checks it
    redelivers: bool = False  # a message that was not taken comes again
    cut_text: Limit | None = (
        None  # people's programs cut a longer text in several messages, about here; None: they do not
    )
    trusts_sender: bool = (
        False  # a program of the operator's sends: its key is the permission, and it makes up the user ids
    )
    users_are_admins: bool = False  # whoever can write here owns the machine

    # Sending
    text_limit: Limit | None = None  # None: a reply is sent as it is, in one part
    markup: Markup = Markup.MARKDOWN
    typing_seconds: float | None = (
        None  # how often the sign that an answer is coming must be renewed; None: there is none
    )
    idempotency: Idempotency = Idempotency.NONE
    send_budget: SendBudget | None = None  # None: it takes whatever we send, and each chat waits for itself
    can_edit: bool = False  # a message of ours can be changed after it was sent
    preview: PreviewLimits | None = None  # None: answers appear when they are finished
    buttons: ButtonLimits | None = None  # None: questions are answered by typing alone
    can_thread: bool = False  # a chat has threads or topics that replies can go to
    media: MediaLimits | None = None  # None: it takes no files from us, only addresses of files
    chat_type_of: Callable[[str], str] = lambda chat: "other"  # the type of a chat by its id, as far as ids tell it

    # Words
    hides_ids: bool = False  # nobody needs a user's id to mention them, so REDACT_PII hides it
    prompt_note: str = ""  # what an agent should know of it
    prompt_place: str = ""  # where the agent is, in words, where chats there have no names
    answer_goes: str = "goes to this chat"
