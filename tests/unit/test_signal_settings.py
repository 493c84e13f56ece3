"""The settings of Signal: what cannot work is refused at start."""

from __future__ import annotations

import pytest

from shared.errors import ConfigurationError
from shared.platforms.signal import SignalSettings
from shared.settings import Settings
from tests.support import environment
from tests.support.signal import ACCOUNT, ANN, ANN_UUID, OWN_UUID

BOTH = {"HTTP_URL": "http://127.0.0.1:8080", "ACCOUNT": ACCOUNT}

pytestmark = pytest.mark.usefixtures("nothing_set")


def load(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    return environment.load(monkeypatch, **{f"SIGNAL__{name}": value for name, value in variables.items()})


def test_without_a_daemon_it_is_off_and_with_one_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    block = load(monkeypatch).block(SignalSettings)
    assert (block.on, block.listens, block.addresses, list(block.findings())) == (False, False, {}, [])
    block = load(monkeypatch, **BOTH, UUID=OWN_UUID, ALLOWED_USERS=f"{ANN},{ANN_UUID}").block(SignalSettings)
    assert (block.on, block.listens, block.addresses) == (True, True, {"signal": BOTH["HTTP_URL"]})
    assert block.allowed_users == (ANN, ANN_UUID) and list(block.findings())
    block = load(monkeypatch, ENABLED="false").block(SignalSettings)
    assert (block.on, block.listens) == (False, False)


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"HTTP_URL": BOTH["HTTP_URL"]}, "SIGNAL__ACCOUNT is missing"),
        ({"ACCOUNT": ACCOUNT}, "SIGNAL__HTTP_URL is missing"),
        ({"ENABLED": "true"}, "SIGNAL__HTTP_URL is missing"),
        ({**BOTH, "HTTP_URL": "127.0.0.1:8080"}, "SIGNAL__HTTP_URL is an http"),
        ({**BOTH, "ACCOUNT": "15550001111"}, "SIGNAL__ACCOUNT is the bot's number"),
        ({**BOTH, "UUID": "me"}, "SIGNAL__UUID is"),
        ({**BOTH, "ALLOWED_USERS": f"{ANN},Ann"}, "SIGNAL__ALLOWED_USERS: entry 2 is no Signal id"),
        ({**BOTH, "ALLOWED_USERS": ANN_UUID.upper()}, "SIGNAL__ALLOWED_USERS: entry 1 is no Signal id"),
        ({**BOTH, "ADMIN_USERS": "*"}, "SIGNAL__ADMIN_USERS: entry 1 is no Signal id"),
        ({**BOTH, "NOPE": "x"}, "KEYTURN_SIGNAL__NOPE"),
    ],
)
def test_what_cannot_work_is_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        load(monkeypatch, **variables)
