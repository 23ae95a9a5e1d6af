"""Whatever a client sends, the gateway answers in its own form, and never with an error of its own."""

import asyncio
from collections.abc import Iterator
from typing import Final

import hypothesis.strategies as st
import pytest
from hypothesis import given

from berth.schemas.gateway.endpoints import ENDPOINTS
from berth.services.gateway.application import Application
from tests.support.gateway_requests import Told, an_application, told

METHODS: Final = st.sampled_from(["GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "X"])
SEGMENT: Final = st.text(max_size=30)
KNOWN: Final = st.sampled_from(
    [(one.method.upper(), one.path) for one in ENDPOINTS if not one.path.endswith("/changes")]
)


def _filled(known: tuple[str, str], namespace: str, name: str) -> tuple[str, str]:
    """A known method and path with names in it."""
    return known[0], known[1].replace("{namespace}", namespace).replace("{name}", name).replace("{path}", name)


ASKED: Final = st.one_of(
    st.builds(_filled, KNOWN, SEGMENT, SEGMENT),
    st.just(("POST", "/api/v1/jobs")),
    st.tuples(METHODS, st.lists(SEGMENT, max_size=5).map(lambda parts: "/" + "/".join(parts))),
)
QUERIES: Final = st.one_of(
    st.binary(max_size=60),
    st.lists(
        st.tuples(
            st.sampled_from([b"uid", b"after", b"limit", b"names", b"follow", b"reason"]), st.binary(max_size=12)
        ),
        max_size=4,
    ).map(lambda parts: b"&".join(b"%b=%b" % one for one in parts)),
)
HEADERS: Final = st.lists(
    st.tuples(
        st.sampled_from(
            [b"host", b"origin", b"authorization", b"content-type", b"content-length", b"sec-fetch-site",
             b"last-event-id", b"if-none-match", b"content-encoding"]
        ),
        st.one_of(st.binary(max_size=30), st.sampled_from([b"application/json", b"localhost", b"Bearer x", b"none"])),
    ),
    max_size=6,
)  # fmt: skip
BODIES: Final = st.lists(
    st.one_of(st.binary(max_size=50), st.sampled_from([b'{"metadata":', b"[" * 3_000, b"{}", b'{"kind": "Job"}'])),
    min_size=1,
    max_size=4,
)


def check(answer: Told, method: str) -> None:
    assert answer.status < 500 or answer.status == 503, answer
    assert answer.headers["x-content-type-options"] == "nosniff"
    if answer.status >= 400 and method != "HEAD":
        assert answer.headers["content-type"] == "application/json"
        assert answer.json["ok"] is False
        assert answer.json["error"]
        assert answer.json["code"]


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """A loop for all examples: the application is made once."""
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def is_open(runner: asyncio.Runner) -> Application:
    async def make() -> Application:
        return an_application()

    return runner.run(make())


@pytest.fixture(scope="module")
def closed(runner: asyncio.Runner) -> Application:
    async def make() -> Application:
        return an_application(access="token")

    return runner.run(make())


@given(asked=ASKED, query=QUERIES, headers=HEADERS, body=BODIES)
def test_every_request_gets_an_answer_in_the_form_of_the_gateway(
    runner: asyncio.Runner,
    is_open: Application,
    asked: tuple[str, str],
    query: bytes,
    headers: list[tuple[bytes, bytes]],
    body: list[bytes],
) -> None:
    method, path = asked
    plain = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    for some in (headers, plain):
        answer = runner.run(told(is_open, method, path, query=query, headers=some, body=body))
        check(answer, method)


@given(headers=HEADERS, query=QUERIES)
def test_without_a_token_nothing_is_read(
    runner: asyncio.Runner, closed: Application, headers: list[tuple[bytes, bytes]], query: bytes
) -> None:
    answer = runner.run(told(closed, "GET", "/api/v1/nodes", query=query, headers=headers))
    assert answer.status in {400, 401, 403}
    check(answer, "GET")
