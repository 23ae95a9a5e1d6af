"""``berth token``: a token once, and lines that the gateway reads."""

import json
import tomllib

import msgspec
import pytest

from berth.cli.app import call
from berth.runtime.keys.bearer_tokens import of_text
from berth.services.gateway.config import GatewayConfig


def test_the_lines_are_settings_of_the_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["token", 'al"ice', "--expires-in", "90d"]) == 0
    out, err = capsys.readouterr()
    token, _, lines = out.partition("\n")
    assert "not shown again" in err
    (found,) = msgspec.convert(tomllib.loads(lines), GatewayConfig).tokens
    assert (found.identity, found.sha256) == ('al"ice', of_text(token).sha256)
    assert found.expires_at is not None
    assert token not in lines


def test_json_has_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["token", "alice", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row == {"identity": "alice", "token": row["token"], "sha256": of_text(row["token"]).sha256, "expires_at": ""}


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["token", ""], "identity is '', expected 1 to 256 characters"),
        (["token", "alice", "--expires-in", "soon"], "--expires-in is 'soon', expected days such as 90d"),
        (["token", "alice", "--expires-in", "99999999h"], "--expires-in is '99999999h', expected at most 99999d"),
    ],
)
def test_wrong_values_are_named(words: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(words) == 2
    assert error in capsys.readouterr().err
