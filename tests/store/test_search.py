"""Search: what an owner said is found, by words, parts of words and in every script; nobody else's is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shared.clock import now_ms
from shared.context.marks import REMOVED
from shared.messages import Entry, Mail, Reply, Session, Source
from shared.store import Store, open_store
from shared.store.change import Change, Commit
from shared.store.database import Step
from shared.store.grams import folded, grams_for, grams_of
from shared.store.search import ROWS_AT_ONCE, TAIL, Found, snippet
from shared.store.signature import SIZES, Signature, masks
from tests.store.books import accept, ask, crowd, indexed_rows, load, proof, write
from tests.support.pipe import an_inbound, key_of

ME, OTHER = "webhook:u=me", "webhook:u=other"


async def said(
    store: Store, *texts: str, chat: str = "c1", user: str = "me", change: Change | None = None, **data: object
) -> Session:
    """A turn in which a user said the first text, and the others were answered."""
    inbound = an_inbound(texts[0], chat=chat)
    source = Source("webhook", chat, user=user)
    letter = Mail(
        (await accept(store, inbound, key=key_of(chat))).seq,
        type(inbound)(inbound.id, inbound.event_id, source, texts[0]),
    )
    rows = [Entry("user", texts[0], inbound.id, data), *(Entry("assistant", text, data=data) for text in texts[1:])]
    session = await load(store, key_of(chat))
    commit = Commit(session, key_of(chat), proof(), [letter], rows, [Reply("ok")], change=change or Change())
    return (await store.commit(commit)).session


async def next_millisecond() -> None:
    """What comes next is later by the clock of the store, too."""
    now = now_ms()
    while now_ms() == now:
        await asyncio.sleep(0)


async def indexed(store: Store) -> None:
    while await store.search.index():
        pass


async def found(store: Store, words: str, owner: str | None = ME) -> set[str]:
    """The keys of the sessions where the words were found."""
    result = await store.search.find(words, owner)
    assert result is not None
    return {hit.session_key for hit in result.hits}


@pytest.fixture(params=["indexed", "not indexed yet"])
def when(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "indexed")


TEXTS = {
    "en": "The quick brown fox jumped over our internationalisation efforts, didn't it? See foo_bar in C++.",
    "zh": "我们昨天讨论了数据库的全文搜索功能",
    "ja": "東京タワーへ行きたいです。カタカナとひらがな",
    "ko": "오늘 서울의 날씨는 맑습니다",
    "de": "Größe und STRASSE, naïve Äpfel",
    "hi": "नमस्ते दुनिया, आप कैसे हैं",
    "th": "สวัสดีชาวโลก",
    "ru": "Привет, Мир! Ёлка",
    "full": "ｆｕｌｌ ｗｉｄｔｈ 12345",
}


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ("quick", "en"),
        ("QUICK fox", "en"),
        ("nationalis", "en"),
        ("ump", "en"),
        ("fo", "en"),
        ("foo_bar", "en"),
        ("c++", "en"),
        ("didn't", "en"),
        ('"brown fox"', "en"),
        ("“brown fox”", "en"),
        ("搜", "zh"),
        ("搜索", "zh"),
        ("全文搜索", "zh"),
        ("数据库 功能", "zh"),
        ("東京", "ja"),
        ("行", "ja"),
        ("ひら", "ja"),
        ("タワー", "ja"),
        ("서울", "ko"),
        ("날씨", "ko"),
        ("맑", "ko"),
        ("äpfel", "de"),
        ("strasse", "de"),
        ("straße", "de"),
        ("größe", "de"),
        ("दुनिया", "hi"),
        ("สวัสดี", "th"),
        ("привет мир", "ru"),
        ("full width", "full"),
    ],
)
async def test_words_parts_of_words_and_cjk_of_any_length_are_found(
    store: Store, when: bool, words: str, where: str
) -> None:
    for chat, text in TEXTS.items():
        await said(store, text, chat=chat)
    if when:
        await indexed(store)
    assert await found(store, words) == {key_of(where)}


@pytest.mark.parametrize(
    "words", ["quick zebra", '"fox brown"', "xyz", "鸟", "搜全", "索搜", "' OR 1=1 --", '"^qu"', "a*"]
)
async def test_what_nobody_said_is_not_found(store: Store, when: bool, words: str) -> None:
    for chat, text in TEXTS.items():
        await said(store, text, chat=chat)
    if when:
        await indexed(store)
    assert await found(store, words) == set()


@pytest.mark.parametrize("words", ["", "  ", "!?", '""', "…", "🙂"])
async def test_a_question_without_letters_is_no_question(store: Store, words: str) -> None:
    assert await store.search.find(words, ME) is None


async def test_nobody_finds_what_another_said(store: Store, when: bool) -> None:
    await said(store, "my secret garden", "a lovely garden", chat="mine", user="me")
    await said(store, "their secret garden", chat="theirs", user="other")
    if when:
        await indexed(store)
    assert await found(store, "garden") == {key_of("mine")}
    assert await found(store, "secret", OTHER) == {key_of("theirs")}
    assert await found(store, "garden", "webhook:u=nobody") == set()
    assert await found(store, "garden", None) == {key_of("mine"), key_of("theirs")}  # an operator


async def test_commands_hidden_rows_and_what_was_undone_are_not_found(store: Store, when: bool) -> None:
    await said(store, "/search walrus", "no walrus", chat="commands", command=True)
    await said(store, "walrus of automation", chat="hidden", hidden=True)
    undone = await said(store, "walrus one", "walrus two", chat="undone")
    if when:
        await indexed(store)
        assert await found(store, "walrus") == {key_of("undone")}
    await said(store, "/undo", chat="undone", change=Change(inactive_from=1), command=True)
    assert undone.message_count == 2
    assert await found(store, "walrus") == set()
    await indexed(store)
    assert await found(store, "walrus") == set()


async def test_every_row_is_indexed_once_however_many_do_it_at_once(store: Store) -> None:
    for turn in range(3):
        for chat in ("a", "b", "c", "d"):
            await said(store, f"word{turn} there", f"answer{turn} here", chat=chat)
        await crowd(store)
        await asyncio.gather(*(store.search.index() for _ in range(8)))
    await indexed(store)
    assert await indexed_rows(store) == await ask(store, "SELECT session_id, n FROM messages ORDER BY session_id, n")
    assert await store.search.index() == 0


async def test_two_housekeepers_share_the_work_without_an_error(
    store: Store, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is in a process of its own, so one that finds a session claimed goes on with another."""
    other = await open_store(database_url, history_messages=4)
    rows, errors = 0, list[BaseException]()
    for housekeeper in (store, other):
        monkeypatch.setattr(housekeeper.database, "write", _noting(housekeeper.database.write, errors))
    for turn in range(3):
        for chat in range(10):
            await said(store, f"word{turn} there", f"answer{turn} here", chat=f"c{chat}")
            rows += 2
        await asyncio.gather(crowd(store), crowd(other))
        await asyncio.gather(*(housekeeper.search.index() for housekeeper in (store, other) for _ in range(4)))
    await indexed(store)
    assert [error for error in errors if store.database.dialect == "postgres"] == []
    assert len(await indexed_rows(store)) == rows
    await other.database.close()


def _noting(write: Callable[..., Awaitable[Any]], errors: list[BaseException]) -> Callable[..., Awaitable[Any]]:
    async def noting(*steps: Step, **options: bool) -> Any:
        try:
            return await write(*steps, **options)
        except Exception as error:
            errors.append(error)
            raise

    return noting


async def test_a_long_session_is_indexed_piece_by_piece_and_found_all_the_while(store: Store) -> None:
    rows = ROWS_AT_ONCE * 2 + 7
    await said(store, "needle first", *(f"row {n}" for n in range(rows - 2)), "thread last")
    for _ in range(4):
        assert await found(store, "needle") == await found(store, "thread") == {key_of()}
        await store.search.index()
    assert len(await indexed_rows(store)) == rows


async def test_hits_are_sessions_newest_first_with_the_newest_row_and_its_surroundings(store: Store) -> None:
    await said(store, "the otter swims", "an Otter indeed", chat="old")
    await indexed(store)
    await said(store, "otters again", chat="new")
    result = await store.search.find("otter", ME)
    assert result is not None and result.complete
    assert [(hit.session_key, hit.n, hit.role, hit.rows, hit.snippet) for hit in result.hits] == [
        (key_of("new"), 1, "user", 1, "«otter»s again"),
        (key_of("old"), 2, "assistant", 2, "an «Otter» indeed"),
    ]
    only = await store.search.find("otter", ME, only=lambda key: key == key_of("old"))
    assert only is not None and [hit.session_key for hit in only.hits] == [key_of("old")]


async def test_words_in_more_sessions_than_asked_for_give_the_newest(store: Store, when: bool) -> None:
    for n in range(30):  # more than one page of the index has, and as many as one look indexes at most
        await said(store, f"badger number {n}", chat=f"c{n:02}")
        await next_millisecond()
    if when:
        await indexed(store)
    result = await store.search.find("badger", ME, limit=3)
    assert result is not None and len(result.hits) == 3
    if when:
        assert [hit.session_key for hit in result.hits] == [key_of(f"c{n}") for n in (29, 28, 27)]


async def test_a_search_says_when_more_waits_to_be_indexed_than_it_looks_at(store: Store) -> None:
    await said(store, *(f"row {n}" for n in range(TAIL + 1)))
    result = await store.search.find("row", ME)
    assert result is not None and not result.complete
    await indexed(store)
    result = await store.search.find("row", ME, limit=1)
    assert result is not None and result.complete


async def test_a_session_without_an_owner_is_nobodys_until_it_has_one(store: Store) -> None:
    await said(store, "orphan words", user="")
    await indexed(store)
    assert await found(store, "orphan", None) == set()
    await said(store, "more", user="me")
    await indexed(store)
    assert await found(store, "orphan") == {key_of()}


def test_every_gram_of_a_part_is_a_gram_of_the_whole() -> None:
    for text in TEXTS.values():
        whole, line = grams_of(text), folded(text)
        for start in range(0, len(line), 3):
            part = line[start : start + 7].strip()
            assert grams_for(part) <= whole or any(gram.startswith("^") for gram in grams_for(part)), part


@pytest.mark.parametrize(
    ("text", "term", "expected"),
    [
        ("short", "ort", "sh«ort»"),
        ("x" * 100 + " hit " + "y" * 200, "hit", "…" + "x" * 39 + " «hit» " + "y" * 99 + "…"),
        ("a\n\nb   c", "b c", "a «b c»"),
        ("ßßß Straße am See", "strasse", "ßßß «Straße» am See"),
        ("ﬁﬁ find", "find", "ﬁﬁ «find»"),
    ],
)
def test_a_snippet_shows_the_hit_as_it_was_written(text: str, term: str, expected: str) -> None:
    assert snippet(text, [term]) == expected


async def test_found_nothing_is_complete(store: Store) -> None:
    assert await store.search.find("anything", ME) == Found(())


async def test_so_many_words_are_looked_for_and_no_more(store: Store) -> None:
    words = [f"word{n}" for n in range(8)]
    await said(store, " ".join(words))
    assert await found(store, " ".join(words)) == {key_of()}
    assert await found(store, " ".join([*words[:7], "absent"])) == set()
    assert await found(store, " ".join([*words, "absent"])) == {key_of()}  # the ninth


async def test_a_span_that_outgrows_its_signature_still_finds_its_first_rows(store: Store) -> None:
    """A session that is indexed turn by turn: its signature is made anew, larger, and then another one begins."""
    for turn in range(20):
        await said(store, f"begin{turn}", *(f"{word}{turn}ly" for word in TEXTS["en"].split()))
        await store.search.index()
    for turn in range(20):
        assert await found(store, f"begin{turn}") == await found(store, f"jumped{turn}ly") == {key_of()}
    rows = await ask(store, "SELECT session_id, n FROM messages ORDER BY session_id, n")
    assert await indexed_rows(store) == rows


async def test_a_long_text_is_found_by_its_first_and_last_words_and_does_not_hide_its_neighbours(store: Store) -> None:
    long = " ".join(f"{n * n * 7919:x}" for n in range(5000))
    await said(store, "heron before", long, "heron after", chat="long")
    await indexed(store)
    result = await store.search.find("heron", ME)
    assert result is not None and [hit.rows for hit in result.hits] == [2]
    assert await found(store, f"{4000 * 4000 * 7919:x}") == {key_of("long")}


def test_signatures_never_miss_a_gram_and_rarely_have_one_by_chance() -> None:
    said_grams = {f"{a}{b}{c}" for a in "abcdefgh" for b in "ijklmnop" for c in "qrstuvwx"}
    signature = Signature.of(said_grams)
    [mask] = [mask for mask in masks(said_grams) if mask.size == signature.size]
    assert mask == signature and signature.is_roomy
    others = [f"{a}{b}{c}" for a in "0123456789" for b in "0123456789" for c in "0123456789"]
    by_chance = [gram for gram in others if signature.plus({gram}) == signature]
    assert len(by_chance) < len(others) / 50


def test_grams_that_fill_the_largest_signature_are_still_all_in_it() -> None:
    grams = {f"gram{n}" for n in range(20_000)}
    signature = Signature.of(grams)
    assert signature.size == SIZES[-1]
    assert all(masks({gram})[-1].bits & ~signature.bits == 0 for gram in grams)


async def test_words_that_are_removed_while_an_indexer_has_read_them_are_not_indexed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await said(store, "canaryzyxq", chat="c1")
    rows = await ask(
        store,
        "SELECT session_id, n, data, sessions.version FROM messages JOIN sessions ON sessions.id = messages.session_id",
    )
    read, has_forgotten = store.database.read, list[bool]()

    async def forgotten_after(*steps: Step) -> Any:
        """What `sessions forget` does, when an indexer has just read the words."""
        answer = await read(*steps)
        if steps[0].statement.name == "search_texts" and not has_forgotten:
            has_forgotten.append(await store.people.blank(rows))
        return answer

    monkeypatch.setattr(store.database, "read", forgotten_after)
    await store.search.index()
    await indexed(store)
    assert has_forgotten == [True] and len(await indexed_rows(store)) == 1
    if store.database.dialect == "postgres":
        [span] = await ask(store, "SELECT CAST(bits AS TEXT) AS bits FROM search_spans")
        assert int(span["bits"], 2) == Signature.of(grams_of(REMOVED)).bits
    else:
        grams = "SELECT rowid FROM search_grams WHERE search_grams MATCH :gram"
        assert [gram for gram in grams_of("canaryzyxq") if await ask(store, grams, gram=f'"{gram}"')] == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # PostgreSQL: spans go with their session
async def test_a_row_that_retention_removes_while_an_indexer_has_read_it_is_not_indexed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await said(store, "canaryzyxq")
    read = store.database.read

    async def removed_after(*steps: Step) -> Any:
        answer = await read(*steps)
        if steps[0].statement.name == "search_texts":
            await write(store, "DELETE FROM messages")
        return answer

    monkeypatch.setattr(store.database, "read", removed_after)
    await indexed(store)
    assert await indexed_rows(store) == []
