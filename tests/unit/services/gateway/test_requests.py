"""Requests as the gateway reads them: errors and their statuses, queries, bodies, the page, and the document."""

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from berth.page.files import PageFile
from berth.schemas.gateway.endpoints import ENDPOINTS
from berth.schemas.gateway.openapi import openapi
from berth.schemas.programs.requests import CancelRequest, NodesRequest
from berth.services.gateway.application import Application
from berth.services.gateway.bodies import json_body
from berth.services.gateway.config import PageLink
from berth.services.gateway.errors import CODES, RequestError, status_of
from berth.services.gateway.event_routes import _flag, _position
from berth.services.gateway.job_routes import asked_in, check_object, converted, fields
from tests.support.gateway_requests import an_application, told

GUIDE = Path(__file__).parents[4] / "docs" / "gateway.md"
JSON = {"content-type": "application/json"}


def a_request(
    query: str = "", headers: Mapping[str, str] = JSON, parts: tuple[bytes, ...] = (b"{}",), method: str = "POST"
) -> Request:
    waiting = list(parts)

    async def receive() -> dict[str, Any]:
        body = waiting.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(waiting)}

    scope = {
        "type": "http",
        "method": method,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "path_params": {"namespace": "team-a", "name": "train"},
    }
    return Request(scope, receive)


def error_of(call: Any, *words: object, **more: object) -> str:  # noqa: ANN401  # any function
    with pytest.raises(RequestError) as caught:
        call(*words, **more)
    return caught.value.error


def test_every_code_has_a_status_and_the_guide_has_all_of_them() -> None:
    table = GUIDE.read_text("utf-8").partition("## Errors")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", table, re.MULTILINE)
    documented = {code: int(status) for status, codes in rows for code in re.findall(r"`([a-z-]+)`", codes)}
    assert documented.keys() == {*CODES, "job-shape"}
    assert documented == {code: status_of(code) for code in documented}


def test_a_code_that_is_not_known_is_an_error_of_the_request() -> None:
    assert status_of("some-new-refusal") == HTTPStatus.BAD_REQUEST


def test_fields_of_a_query_are_known_and_there_once() -> None:
    assert fields(a_request("uid=a%20b&reason="), {"uid", "reason"}) == {"uid": "a b", "reason": ""}
    assert error_of(fields, a_request("uuid=x"), {"uid", "reason"}) == (
        "query field uuid is unknown, expected one of reason, uid"
    )
    assert error_of(fields, a_request("x=1")) == "query field x is unknown, expected one of none"
    assert error_of(fields, a_request("uid=a&uid=b"), {"uid"}) == "query field uid is there twice, expected once"


def test_a_request_to_api_is_made_of_path_and_query() -> None:
    found = asked_in(a_request("reason=enough"), CancelRequest, {"uid", "reason"})
    assert found == CancelRequest(name="train", namespace="team-a", reason="enough")
    assert error_of(converted, {"limit": "many"}, NodesRequest) == "limit is 'many', expected `int`"
    assert error_of(converted, {"limit": "0"}, NodesRequest) == "limit is '0', expected `int` >= 1"
    assert "namespace is '../x', expected `str` matching" in error_of(
        converted, {"name": "a", "namespace": "../x"}, CancelRequest
    )


@pytest.mark.parametrize("text", ["", "-1", "1.5", "x", "9" * 19, "¹"])
def test_a_position_is_a_whole_number(text: str) -> None:
    assert "expected the id of an event" in error_of(_position, "after", text)


def test_flags_and_positions() -> None:
    assert (_flag("follow", "true"), _flag("follow", "false"), _position("after", "017")) == (True, False, 17)
    assert error_of(_flag, "follow", "yes") == "query field follow is 'yes', expected true or false"


async def test_a_body_is_read_up_to_its_limit() -> None:
    assert await json_body(a_request(parts=(b'{"a"', b":1}")), 10) == b'{"a":1}'
    assert await json_body(a_request(parts=(b"x" * 10,)), 10) == b"x" * 10
    with pytest.raises(RequestError, match="body is over 10 bytes, expected at most 10"):
        await json_body(a_request(parts=(b"x" * 6, b"x" * 6, b"never read")), 10)
    for length in ("11", "9" * 30):
        request = a_request(headers=JSON | {"content-length": length}, parts=())
        with pytest.raises(RequestError) as caught:
            await json_body(request, 10)
        assert caught.value.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE


@pytest.mark.parametrize(
    "headers",
    [{}, {"content-type": "text/plain"}, {"content-type": "application/jsonx"}, JSON | {"content-encoding": "gzip"}],
)
async def test_a_body_that_is_no_plain_json_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(RequestError) as caught:
        await json_body(a_request(headers=headers), 10)
    assert caught.value.status == HTTPStatus.UNSUPPORTED_MEDIA_TYPE


@pytest.mark.parametrize(("method", "header"), [("POST", "Accept-Post"), ("PATCH", "Accept-Patch")])
async def test_the_answer_says_which_type_the_method_takes(method: str, header: str) -> None:
    with pytest.raises(RequestError) as caught:
        await json_body(a_request(headers={}, method=method), 10)
    assert caught.value.headers == {header: "application/json"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "malformed"),
        (b"{", "malformed"),
        (b'{} , "more": 1', "malformed"),
        (b'{"a": 1} {}', "malformed"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, "nested too deeply"),
        (b"[]", "expected a JSON object"),
        (b'"\xff"', "expected a JSON object"),
    ],
)
def test_a_body_must_be_one_object(body: bytes, words: str) -> None:
    assert words in error_of(check_object, body)


def test_one_object_is_taken() -> None:
    check_object(b' {"a": [1, {}]}\n')


async def test_every_route_is_in_the_document_and_nothing_else() -> None:
    served = {
        (method.lower(), route.path.replace(":path}", "}"))
        for route in an_application().routes
        for method in (route.methods or set()) - {"HEAD"}
    }
    document = openapi()
    shown = {(method, path) for path, one in document["paths"].items() for method in one}
    of_page = {(one.method, one.path) for one in ENDPOINTS if not one.tag}
    assert (shown | of_page, shown & of_page) == (served, set())
    assert len({one.name for one in ENDPOINTS}) == len(ENDPOINTS)


def test_the_guide_lists_every_endpoint_with_its_role() -> None:
    table = GUIDE.read_text("utf-8").partition("## Endpoints")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([A-Z]+) (\S+)` \| ([\w-]+) \|", table, re.MULTILINE)
    assert rows == [(one.method.upper(), one.path, one.role) for one in ENDPOINTS]


def test_every_reference_of_the_document_leads_somewhere() -> None:
    document = openapi()
    names = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert names == set(document["components"]["schemas"])
    assert len(names) > 10


async def ask(app: Application, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    found = {"host": "localhost"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return await told(app, method, path, headers=[(name.encode(), value.encode()) for name, value in found.items()])


PAGE = {
    "index.html": PageFile(b"<p>", "text/html; charset=utf-8"),
    "page.js": PageFile(b"1", "text/javascript"),
}


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../secret",
        "/assets/",
        "/assets/page",
        "/assets/index.html",
        "/assets//etc/passwd",
        "/assets/page.js/../x",
        "/x",
    ],
)
async def test_no_path_leads_out_of_the_page(path: str) -> None:
    status, head, body = await ask(an_application(PAGE), path)
    assert (status, json.loads(body)["code"]) == (404, "not-found")
    assert head["content-type"] == "application/json"


async def test_the_page_is_served_with_headers_that_keep_others_out() -> None:
    app = an_application(PAGE)
    status, head, body = await ask(app, "/")
    assert (status, body, head["content-type"]) == (200, b"<p>", "text/html; charset=utf-8")
    assert head["x-content-type-options"] == "nosniff"
    assert head["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in head["content-security-policy"]
    assert not [name for name in head if name.startswith("access-control")]
    assert (await ask(app, "/assets/page.js"))[2] == b"1"
    assert (await ask(app, "/", if_none_match=head["etag"]))[0] == 304
    assert (await ask(an_application({}), "/"))[0] == 404


async def test_a_wrong_method_names_the_right_ones() -> None:
    status, head, body = await ask(an_application(), "/api/v1/jobs", "PUT")
    assert (status, head["allow"], json.loads(body)["code"]) == (405, "GET, HEAD, POST", "wrong-method")


async def test_answers_of_the_api_are_not_stored() -> None:
    _, head, _ = await ask(an_application(), "/api/v1/openapi.json")
    assert head["cache-control"] == "no-store"


async def test_links_of_the_settings_are_those_of_the_page() -> None:
    links = [PageLink(name="Logs", url="https://logs.example/{job}")]
    answer = await told(an_application(links=links), "GET", "/api/v1/page")
    assert answer.status == 200
    assert json.loads(answer.body) == {"links": [{"name": "Logs", "url": "https://logs.example/{job}"}]}
