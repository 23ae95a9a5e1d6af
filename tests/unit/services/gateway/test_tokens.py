"""Tokens and the guard: who a request comes from, and which requests nobody reads."""

import hashlib
from datetime import UTC, datetime

import pytest

from berth.runtime.config import ConfigError, load
from berth.runtime.keys.bearer_tokens import new_token, of_text
from berth.services.gateway.config import GatewayConfig, Token, check, is_loopback
from berth.services.gateway.errors import RequestError
from berth.services.gateway.guard import Guard
from tests.support.clock import ManualClock

NOW_MS = 1_790_000_000_000
HOST = {"host": "berth.example"}
LATER = datetime.fromtimestamp(NOW_MS / 1000 + 60, UTC)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def guard(*, now_ms: int = NOW_MS, **settings: object) -> Guard:
    tokens = [
        Token(identity="alice", sha256=digest("of-alice")),
        Token(identity="alice", sha256=digest("new-of-alice")),
        Token(identity="bob", sha256=digest("of-bob"), expires_at=LATER),
    ]
    return Guard(GatewayConfig(**({"tokens": tokens} | settings)), ManualClock(now_ms))  # type: ignore[arg-type]


def refused(one: Guard, path: str = "/api/v1/me", query: bytes = b"", **headers: str) -> RequestError:
    with pytest.raises(RequestError) as caught:
        one.caller(path, query, HOST | {name.replace("_", "-"): value for name, value in headers.items()})
    return caught.value


@pytest.mark.parametrize(
    ("header", "identity"),
    [("Bearer of-alice", "alice"), ("bearer  new-of-alice ", "alice"), ("Bearer of-bob", "bob")],
)
def test_a_known_token_gives_its_identity(header: str, identity: str) -> None:
    assert guard().caller("/api/v1/me", b"", HOST | {"authorization": header}).identity == identity


@pytest.mark.parametrize(
    ("header", "word"),
    [
        ("Bearer of-carol", "unknown"),
        ("Bearer of-alicf", "unknown"),
        ("Basic b2YtYWxpY2U=", "another form"),
        ("Bearer", "another form"),
        ("of-alice", "another form"),
        (f"Bearer {'x' * 1001}", "1001 letters"),
        ("Bearer \udce4", "unknown"),
    ],
)
def test_anything_else_is_refused_and_not_repeated(header: str, word: str) -> None:
    error = refused(guard(), authorization=header)
    assert (error.status, error.code) == (401, "no-token")
    assert error.all_headers()["WWW-Authenticate"] == 'Bearer realm="berth"'
    assert word in error.error
    assert "carol" not in error.error
    assert refused(guard()).error == "token is missing, expected the header Authorization: Bearer TOKEN"


def test_a_token_expires() -> None:
    one = guard()
    caller = one.caller("/api/v1/me", b"", HOST | {"authorization": "Bearer of-bob"})
    one.check_valid(caller)
    late = guard(now_ms=NOW_MS + 60_000)
    assert "of bob has expired" in refused(late, authorization="Bearer of-bob").error
    with pytest.raises(RequestError, match="expired"):
        late.check_valid(caller)


def test_without_tokens_everything_is_refused_and_the_setting_is_named() -> None:
    assert "setting tokens is empty" in refused(guard(tokens=[]), authorization="Bearer of-alice").error


@pytest.mark.parametrize("query", [b"token=x", b"a=1&access_token=", b"TOKEN=x", b"%74oken=x"])
@pytest.mark.parametrize("path", ["/", "/api/v1/me", "/api/v1/openapi.json"])
def test_a_token_in_a_url_is_refused_everywhere(path: str, query: bytes) -> None:
    error = refused(guard(), path, query, authorization="Bearer of-alice")
    assert (error.status, error.code) == (400, "token-in-url")


def test_the_page_and_the_document_need_no_token() -> None:
    for path in ("/", "/assets/page.js", "/api/v1/openapi.json"):
        assert guard().caller(path, b"", HOST).identity == ""


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "cross-site", "origin": "https://berth.example"},
        {"origin": "https://elsewhere.example"},
        {"origin": "null"},
        {"origin": "https://berth.example.elsewhere.example"},
    ],
)
def test_requests_that_pages_of_other_sites_send_are_refused(headers: dict[str, str]) -> None:
    error = refused(guard(), authorization="Bearer of-alice", **headers)  # type: ignore[arg-type]  # none is the query
    assert (error.status, error.code) == (403, "cross-site")


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
        {"origin": "https://berth.example"},
        {"origin": "https://public.example"},
        {"origin": "https://public.example", "sec-fetch-site": "cross-site"},
    ],
)
def test_requests_of_the_own_page_are_not(headers: dict[str, str]) -> None:
    one = guard(origins=["https://public.example"])
    assert one.caller("/api/v1/me", b"", HOST | {"authorization": "Bearer of-alice"} | headers).identity == "alice"


@pytest.mark.parametrize("host", ["127.0.0.1:8222", "localhost", "LOCALHOST:1", "[::1]:8222", "127.8.8.8"])
def test_an_open_gateway_takes_loopback_names(host: str) -> None:
    assert guard(access="open", tokens=[]).caller("/api/v1/me", b"", {"host": host}).identity == ""


@pytest.mark.parametrize("host", ["rebound.example:8222", "", "127.0.0.1.example", "10.0.0.1", "[fe80::1]"])
def test_an_open_gateway_takes_no_other_name(host: str) -> None:
    with pytest.raises(RequestError) as caught:
        guard(access="open", tokens=[]).caller("/", b"", {"host": host})
    assert (caught.value.status, caught.value.code) == (421, "wrong-host")


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"host": "10.0.0.1", "access": "open", "plain_http": True}, "access"),
        ({"host": "10.0.0.1"}, "host"),
        ({"host": "berth.example"}, "host"),
        ({"tls_cert_file": "cert.pem"}, "tls_key_file"),
        ({"tls_key_file": "key.pem"}, "tls_cert_file"),
        ({"tls_cert_file": "cert.pem", "tls_key_file": "key.pem", "plain_http": True}, "plain_http"),
    ],
)
def test_settings_that_open_a_door_by_mistake_are_refused(settings: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(GatewayConfig(**settings))  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize("settings", [{}, {"host": "::1", "access": "open"}, {"host": "10.0.0.1", "plain_http": True}])
def test_other_settings_are_not(settings: dict[str, object]) -> None:
    check(GatewayConfig(**settings))  # type: ignore[arg-type]


def test_a_new_token_is_another_one_each_time_and_its_digest_is_accepted() -> None:
    first, second = new_token(), new_token()
    assert first.text != second.text
    assert len(first.text) > 40
    assert first == of_text(first.text)
    tokens = [Token(identity="carol", sha256=first.sha256)]
    one = guard(tokens=tokens)
    assert one.caller("/api/v1/me", b"", HOST | {"authorization": f"Bearer {first.text}"}).identity == "carol"


def test_tokens_come_from_the_environment_too() -> None:
    text = f'[{{"identity": "alice", "sha256": "{digest("x")}", "expires_at": "2030-01-01T00:00:00Z"}}]'
    found = load(GatewayConfig, None, {"BERTH_TOKENS": text})
    assert found.tokens == [Token(identity="alice", sha256=digest("x"), expires_at=datetime(2030, 1, 1, tzinfo=UTC))]


def test_a_digest_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match="setting tokens"):
        load(GatewayConfig, None, {"BERTH_TOKENS": '[{"identity": "alice", "sha256": "abc"}]'})


@pytest.mark.parametrize(("host", "is_own"), [("localhost.", True), ("127.1", False), ("10.0.0.1", False)])
def test_loopback_names(host: str, is_own: bool) -> None:  # noqa: FBT001  # a parameter of the test
    assert is_loopback(host) == is_own
