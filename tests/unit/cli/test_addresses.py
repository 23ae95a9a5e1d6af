"""Addresses of NATS: a clear error for a wrong one, without its password."""

import pytest

from berth.cli.addresses import checked
from berth.cli.app import call

HOST = "an address with a host"
PORT = "a port from 1 to 65535"


@pytest.mark.parametrize(
    "text",
    [
        "nats://127.0.0.1:4222",
        "127.0.0.1:4222",
        "localhost",
        "nats://nats",
        "tls://nats.berth:4222,tls://other:1",
        "ws://127.0.0.1:8080",
        "nats://[::1]:4222",
    ],
)
def test_an_address_is_taken_as_it_is(text: str) -> None:
    assert checked("--url", text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nats://127.0.0.1:99999", PORT),
        ("nats://127.0.0.1:0", PORT),
        ("nats://127.0.0.1:abc", PORT),
        ("127.0.0.1:-1", PORT),
        ("nats://[::1", HOST),
        ("nats://", HOST),
        ("nats://a:1,", HOST),
        (":4222", HOST),
        ("foo://127.0.0.1:4222", "an address that begins with nats://, tls://, ws:// or wss://"),
        ("nats://a:1,foo://b", "an address that begins with nats://"),
        ("nats://a:1, nats://b:1", "an address"),
    ],
)
def test_a_wrong_address_is_wrong_use(text: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["jobs", "--url", text]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: --url is {text}, expected {expected}")


@pytest.mark.parametrize(
    "text",
    [
        "nats://u:secret@127.0.0.1:9",
        "u:secret@h",
        "nats://a,nats://u:sec@ret@h",
        "nats://u:sec,/ret@h",
        "foo://secret@h",
    ],
)
@pytest.mark.parametrize("variable", ["", "BERTH_NATS_URL", "BERTH_BUS__URL"])
def test_no_error_contains_a_password(
    text: str, variable: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BERTH_NATS_URL", raising=False)
    if variable:
        monkeypatch.setenv(variable, text)
    assert call(["jobs", *([] if variable else ["--url", text])]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "***@" in line
    assert "expected no user and no password" in line
    assert not any(part in line for part in ("secret", "sec@", "ret@", "sec,"))
