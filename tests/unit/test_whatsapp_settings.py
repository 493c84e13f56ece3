"""The settings of WhatsApp: what cannot work is refused at start, in words that hold no secret."""

from __future__ import annotations

import pytest

from shared.errors import ConfigurationError
from shared.platforms.whatsapp import WhatsAppSettings
from shared.settings import Settings
from tests.support import environment

CANARY = "canary-7f3a9c"
ALL = {
    "ACCESS_TOKEN": f"EAA{CANARY}",
    "APP_SECRET": CANARY,
    "VERIFY_TOKEN": f"verify-{CANARY}",
    "PHONE_NUMBER_ID": "106",
}

pytestmark = pytest.mark.usefixtures("nothing_set")


def load(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    return environment.load(monkeypatch, **{f"WHATSAPP__{name}": value for name, value in variables.items()})


def test_without_its_secrets_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    block = load(monkeypatch).block(WhatsAppSettings)
    assert (block.on, block.listens, block.addresses, list(block.findings())) == (False, False, {}, [])


def test_with_all_of_them_it_is_on_for_every_number(monkeypatch: pytest.MonkeyPatch) -> None:
    block = load(monkeypatch, **ALL, FURTHER_PHONE_NUMBER_IDS="200,300").block(WhatsAppSettings)
    assert block.on and block.numbers == {"": "106", "200": "200", "300": "300"}
    assert not load(monkeypatch, ENABLED="false").block(WhatsAppSettings).on


def test_the_secrets_are_in_no_repr_and_known_to_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(monkeypatch, **ALL)
    assert CANARY not in repr(loaded) + str(loaded)
    assert {ALL["ACCESS_TOKEN"], ALL["APP_SECRET"], ALL["VERIFY_TOKEN"]} <= set(loaded.secret_values())


@pytest.mark.parametrize("missing", list(ALL))
def test_a_receiver_without_one_of_its_secrets_does_not_start(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    others = {name: value for name, value in ALL.items() if name != missing}
    with pytest.raises(ConfigurationError, match=f"WHATSAPP__{missing} is missing") as caught:
        load(monkeypatch, **others)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"ACCESS_TOKEN": f"{CANARY}\r\nx: y"}, "WHATSAPP__ACCESS_TOKEN is one word"),
        ({"APP_SECRET": '[""]'}, "an empty one would let everybody in"),
        ({"VERIFY_TOKEN": ""}, "an empty one would let everybody in"),
        ({"PHONE_NUMBER_ID": "+1 555"}, "WHATSAPP__PHONE_NUMBER_ID is the id of a number"),
        ({"FURTHER_PHONE_NUMBER_IDS": "106"}, "again"),
        ({"FURTHER_PHONE_NUMBER_IDS": "../x"}, "WHATSAPP__PHONE_NUMBER_ID is the id of a number"),
        ({"API_URL": CANARY}, "WHATSAPP__API_URL is an http"),
        ({"ALLOWED_USERS": "15552223333,+15552223333"}, "WHATSAPP__ALLOWED_USERS: entry 2 is no WhatsApp id"),
        ({"ALLOWED_USERS": "Ann"}, "WHATSAPP__ALLOWED_USERS: entry 1 is no WhatsApp id"),
        ({"ADMIN_USERS": "*"}, "WHATSAPP__ADMIN_USERS: entry 1 is no WhatsApp id"),
        ({"NOPE": CANARY}, "KEYTURN_WHATSAPP__NOPE"),
    ],
)
def test_what_cannot_work_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        load(monkeypatch, **{**ALL, **variables})
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("entry", ["15552223333", "US.1349", "US.ENT.118", "*"])
def test_people_are_listed_by_their_number_or_by_the_id_that_hides_it(
    monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    assert load(monkeypatch, **ALL, ALLOWED_USERS=entry).block(WhatsAppSettings).allowed_users == (entry,)


def test_doctor_names_a_verify_token_that_can_be_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(load(monkeypatch, **{**ALL, "VERIFY_TOKEN": "short"}).block(WhatsAppSettings).findings())
    assert [finding.check for finding in found if "guessed" in finding.detail] == ["whatsapp"]
    assert not any(
        "guessed" in finding.detail for finding in load(monkeypatch, **ALL).block(WhatsAppSettings).findings()
    )
