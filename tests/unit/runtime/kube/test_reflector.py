"""Reflections against a server that answers as a test tells it: what real servers do seldom."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import structlog

from berth.formats.kubernetes.objects import Pod
from berth.runtime.clock import SystemClock
from berth.runtime.kube import reflector
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.config import KubeConfig
from berth.runtime.kube.port import Change, RefusedError
from berth.runtime.kube.reflector import Reflector
from tests.support.clock import ManualClock
from tests.support.mirror import Mirror
from tests.support.scripted_http import Answer, ScriptedHttp, hang_up, reply, stream
from tests.support.waiting import until

PODS = "/api/v1/pods"
DEADLINE_S = 10


def pod(name: str, version: int, **spec: object) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "a", "resourceVersion": str(version)}, "spec": spec}


def page(version: int, *items: dict[str, Any], more: str = "") -> Answer:
    return reply(json.dumps({"metadata": {"resourceVersion": str(version), "continue": more}, "items": items}))


def line(kind: str, found: object) -> str:
    return json.dumps({"type": kind, "object": found}) + "\n"


def bookmark(version: int) -> str:
    return line("BOOKMARK", {"metadata": {"resourceVersion": str(version)}, "spec": {"containers": None}})


def failure(code: int, reason: str, message: str) -> dict[str, Any]:
    return {"kind": "Status", "metadata": {}, "status": "Failure", "code": code, "reason": reason, "message": message}


def refusal(code: int, reason: str, message: str, **headers: str) -> Answer:
    return reply(json.dumps(failure(code, reason, message)), status=code, **headers)


@asynccontextmanager
async def reflecting(
    folder: Path, *answers: Answer, idle_s: float = 5.0, page_size: int = 100
) -> AsyncIterator[tuple[ScriptedHttp, Mirror[Pod], Reflector[Pod]]]:
    with pytest.MonkeyPatch.context() as patch:
        async with ScriptedHttp(*answers) as server:
            config = folder / "kubeconfig"
            entry = {"name": "x", "cluster": {"server": server.url}, "context": {"cluster": "x"}}
            config.write_text(
                json.dumps({"clusters": [entry], "contexts": [entry], "users": [], "current-context": "x"}), "utf-8"
            )
            seen: Mirror[Pod] = Mirror()
            patch.setattr(reflector, "_IDLE_S", idle_s)
            patch.setattr(reflector, "PAGE_SIZE", page_size)
            patch.setattr(reflector, "_PAUSE_MAX_S", 0.2)
            async with await KubeApi.connect(KubeConfig(kubeconfig=config), clock=SystemClock(), rng=Random(1)) as api:  # noqa: S311  # spreads load, no secret
                reflection = api.reflect(PODS, Pod, seen, params={"labelSelector": "a=b"})
                async with asyncio.TaskGroup() as group:
                    task = group.create_task(reflection.run())
                    yield server, seen, reflection
                    task.cancel()


async def asked(server: ScriptedHttp, count: int) -> None:
    await until(lambda: len(server.asked) >= count, deadline_s=DEADLINE_S, what=f"{count} requests")


async def logged(seen: Mirror[Pod], *log: tuple[str, str]) -> None:
    await until(lambda: len(seen.log) >= len(log), deadline_s=DEADLINE_S, what=f"{log}")
    assert seen.log == list(log)


async def test_pages_are_listed_and_then_watched(tmp_path: Path) -> None:
    answers = (
        page(7, pod("p", 1), pod("q", 2), more="next"),
        page(7, pod("r", 3)),
        stream(line("ADDED", pod("s", 8)), line("MODIFIED", pod("p", 9)) + line("DELETED", pod("q", 10)), bookmark(12)),
    )
    async with reflecting(tmp_path, *answers, page_size=2) as (server, seen, reflection):
        await asked(server, 4)
        assert seen.names == ["p", "r", "s"]
        assert seen.log[0] == ("LIST", "p q r")
        assert (reflection.lists, reflection.watches, reflection.events, reflection.errors) == (1, 2, 3, 0)
    first, second, third, fourth = server.asked
    assert first.query == {"labelSelector": "a=b", "limit": "2"}
    assert second.query == {"labelSelector": "a=b", "limit": "2", "continue": "next"}
    assert (third.query["watch"], third.query["allowWatchBookmarks"], third.query["labelSelector"]) == (
        "true",
        "true",
        "a=b",
    )
    assert [asked.query["resourceVersion"] for asked in (third, fourth)] == ["7", "12"]
    lasting = [int(asked.query["timeoutSeconds"]) for asked in (third, fourth)]
    assert all(280 <= seconds <= 560 for seconds in lasting)
    assert lasting[0] != lasting[1]


async def test_an_expired_page_starts_the_list_again_and_at_last_in_one_piece(tmp_path: Path) -> None:
    gone = refusal(410, "Expired", "the provided continue parameter is too old")
    some = page(7, pod("p", 1), more="next")
    async with reflecting(tmp_path, some, gone, some, gone, page(9, pod("q", 8))) as (server, seen, reflection):
        await logged(seen, ("LIST", "q"))
        assert (reflection.lists, reflection.errors) == (3, 2)
    assert "limit" in server.asked[2].query
    assert "limit" not in server.asked[4].query


@pytest.mark.parametrize(
    "end",
    [
        refusal(410, "Expired", "too old resource version"),
        stream(line("ERROR", failure(410, "Expired", "too old resource version"))),
        stream(line("ERROR", failure(504, "Timeout", "Too large resource version: 9, current: 3"))),
        refusal(504, "Timeout", "Too large resource version: 9, current: 3"),
        stream('{"type":"MODIFIED","object":\n'),
        stream('{"type":5}\n'),
    ],
    ids=["410", "error 410", "error too large", "504 too large", "broken line", "unexpected line"],
)
async def test_a_version_that_the_server_does_not_know_is_listed_again(tmp_path: Path, end: Answer) -> None:
    async with reflecting(tmp_path, page(7, pod("p", 1)), end, page(9, pod("q", 8))) as (server, seen, reflection):
        await logged(seen, ("LIST", "p"), ("LIST", "q"))
        await asked(server, 4)
        assert (reflection.lists, reflection.watches, reflection.errors) == (2, 2, 1)
        assert server.asked[3].query["resourceVersion"] == "9"
        assert reflection.synced.is_set()


@pytest.mark.parametrize(
    "end",
    [
        stream(line("ADDED", pod("q", 8)), breaks=True),
        stream(line("ADDED", pod("q", 8)), '{"type":"ADDED","obj', breaks=True),
        stream(line("ADDED", pod("q", 8)) + '{"type":"ADDED","obj'),
        stream(line("ADDED", pod("q", 8)) + line("ERROR", failure(500, "InternalError", "no"))),
    ],
    ids=["broken off", "in a line", "half a line", "error 500"],
)
async def test_a_watch_that_breaks_goes_on_where_it_was(tmp_path: Path, end: Answer) -> None:
    more = stream(line("ADDED", pod("r", 9)), lasts=True)
    async with reflecting(tmp_path, page(7, pod("p", 1)), end, more) as (server, seen, reflection):
        await logged(seen, ("LIST", "p"), ("ADDED", "q"), ("ADDED", "r"))
        assert [asked.query.get("resourceVersion") for asked in server.asked] == [None, "7", "8"]
        assert reflection.lists == 1


async def test_a_line_in_many_parts_is_one(tmp_path: Path) -> None:
    text = line("ADDED", pod("q", 8, schedulerName="berth" * 100))
    parts = [text[at : at + 50] for at in range(0, len(text), 50)]
    async with reflecting(tmp_path, page(7), stream(*parts, lasts=True)) as (_, seen, _reflection):
        await logged(seen, ("LIST", ""), ("ADDED", "q"))
        assert seen.objects["q"].spec.scheduler_name == "berth" * 100


async def test_a_silent_watch_is_asked_for_again_from_where_it_was(tmp_path: Path) -> None:
    answers = (
        page(7, pod("p", 1)),
        stream(bookmark(8), lasts=True),
        page(9),
        stream(line("ADDED", pod("q", 9)), lasts=True),
    )
    async with reflecting(tmp_path, *answers, idle_s=0.8) as (server, seen, reflection):
        await logged(seen, ("LIST", "p"), ("ADDED", "q"))
        assert server.asked[2].query == {"labelSelector": "a=b", "limit": "1"}
        assert server.asked[3].query["resourceVersion"] == "8"
        assert reflection.lists == 1


async def test_a_history_that_went_back_is_listed_again(tmp_path: Path) -> None:
    answers = (page(7, pod("p", 1)), stream(bookmark(8), lasts=True), page(5, pod("q", 4)), page(5, pod("q", 4)))
    async with reflecting(tmp_path, *answers, idle_s=0.8) as (_, seen, reflection):
        await logged(seen, ("LIST", "p"), ("LIST", "q"))
        assert (reflection.lists, reflection.errors) == (2, 1)


async def test_a_server_that_is_not_well_is_asked_again_later(tmp_path: Path) -> None:
    answers = (
        refusal(429, "TooManyRequests", "slower", Retry_After="1"),
        refusal(403, "Forbidden", "pods is forbidden"),
        hang_up(),
        hang_up(),
        reply("<html>"),
        page(7, pod("p", 1)),
    )
    loop = asyncio.get_running_loop()
    begin = loop.time()
    with structlog.testing.capture_logs() as logs:
        async with reflecting(tmp_path, *answers) as (server, seen, reflection):
            await asked(server, 2)
            assert loop.time() - begin >= 1
            await logged(seen, ("LIST", "p"))
            assert (reflection.lists, reflection.errors) == (5, 4)
    said = [entry["reason"] for entry in logs]
    assert len(said) == 4
    assert "slower" in said[0]
    assert said[1] == "pods is forbidden"


async def test_an_object_that_does_not_decode_is_skipped_and_named_once(tmp_path: Path) -> None:
    bad = pod("bad", 2, priority="high")
    answers = (
        page(7, pod("p", 1), bad, {"metadata": "none"}),
        stream(
            line("ADDED", pod("q", 8))
            + line("MODIFIED", {**bad, "metadata": {**bad["metadata"], "resourceVersion": "9"}}),
            line("MODIFIED", pod("p", 10, priority="low")) + line("ADDED", pod("r", 11)),
            line("DELETED", pod("p", 12, priority="low")),
        ),
    )
    with structlog.testing.capture_logs() as logs:
        async with reflecting(tmp_path, *answers) as (server, seen, reflection):
            await logged(seen, ("LIST", "p"), ("ADDED", "q"), ("ADDED", "r"), ("DELETED", "p"))
            await asked(server, 3)
            assert server.asked[2].query["resourceVersion"] == "12"
            assert (reflection.skipped, reflection.events, reflection.errors) == (4, 3, 0)
    named = [(entry["object"], entry["reason"]) for entry in logs]
    assert [name for name, _ in named] == ["a/bad", "", "a/p"]
    assert "$.spec.priority" in named[0][1]


async def test_an_object_with_a_text_that_is_not_utf8_is_skipped_and_named(tmp_path: Path) -> None:
    strange = json.dumps({"metadata": {"resourceVersion": "7"}, "items": [pod("p", 1), pod("l", 1, nodeName="n?")]})
    half = line("MODIFIED", pod("q", 8, nodeName="x\ud800"))
    answers = (
        reply(page_text := strange.encode().replace(b"n?", b"\xff")),
        stream(half),
        reply(page_text),
        stream(line("ADDED", pod("q", 10)), lasts=True),
    )
    with structlog.testing.capture_logs() as logs:
        async with reflecting(tmp_path, *answers) as (_, seen, reflection):
            await logged(seen, ("LIST", "p"), ("LIST", "p"), ("ADDED", "q"))
            assert (reflection.skipped, reflection.errors) == (2, 1)
    said = [(entry.get("object", ""), entry["reason"]) for entry in logs]
    assert [name for name, _ in said] == ["a/l", ""]
    assert "utf-8" in said[0][1]
    assert "broken line: " in said[1][1]


class Breaking:
    """A handler with a fault."""

    def replace(self, objects: list[Pod]) -> None:
        pass

    def change(self, changes: list[tuple[Change, Pod]]) -> None:
        raise LookupError(changes[0][1].metadata.name)


async def test_a_fault_of_the_handler_ends_the_reflection(tmp_path: Path) -> None:
    async with reflecting(tmp_path, page(7), stream(line("ADDED", pod("q", 8)), lasts=True)) as (
        server,
        seen,
        _,
    ):
        await logged(seen, ("LIST", ""), ("ADDED", "q"))  # the answers below are not for this one
        config = KubeConfig(kubeconfig=tmp_path / "kubeconfig")
        server.answers[:0] = [page(7), stream(line("ADDED", pod("q", 8)), lasts=True)]
        async with await KubeApi.connect(config, clock=SystemClock()) as api:
            with pytest.raises(LookupError, match="q"):
                await api.reflect(PODS, Pod, Breaking()).run()


async def test_a_silent_server_that_has_nothing_new_is_not_listed_again(tmp_path: Path) -> None:
    answers = (
        page(7, pod("p", 1)),
        stream(bookmark(8), lasts=True),
        page(8),
        stream(line("ADDED", pod("q", 9)), lasts=True),
    )
    async with reflecting(tmp_path, *answers, idle_s=0.8) as (_, seen, reflection):
        await logged(seen, ("LIST", "p"), ("ADDED", "q"))
        assert (reflection.lists, reflection.errors) == (1, 0)


async def test_how_long_the_server_has_been_silent_is_known(tmp_path: Path) -> None:
    clock = ManualClock()
    answers = (page(7, pod("p", 1)), stream(lasts=True))
    async with ScriptedHttp(*answers) as server:
        config = tmp_path / "kubeconfig"
        entry = {"name": "x", "cluster": {"server": server.url}, "context": {"cluster": "x"}}
        config.write_text(
            json.dumps({"clusters": [entry], "contexts": [entry], "users": [], "current-context": "x"}), "utf-8"
        )
        seen: Mirror[Pod] = Mirror()
        async with await KubeApi.connect(KubeConfig(kubeconfig=config), clock=clock) as api:
            assert api.silence_s() == 0
            clock.advance(50)
            reflection = api.reflect(PODS, Pod, seen)
            assert api.silence_s() == 0
            clock.advance(60)
            assert api.silence_s() == 60
            async with asyncio.TaskGroup() as group:
                task = group.create_task(reflection.run())
                await until(lambda: api.silence_s() == 0, deadline_s=DEADLINE_S, what="the list")
                await asked(server, 2)
                clock.advance(30)
                assert api.silence_s() == 30
                task.cancel()
            api.reflect(PODS, Pod, seen)
            clock.advance(5)
            assert api.silence_s() == 35


async def test_after_a_list_in_one_piece_the_next_one_comes_in_pages_again(tmp_path: Path) -> None:
    gone = refusal(410, "Expired", "the provided continue parameter is too old")
    old = refusal(410, "Expired", "too old resource version")
    some = page(7, pod("p", 1), more="next")
    answers = (some, gone, some, gone, page(9, pod("q", 8)), old, page(11, pod("r", 10)))
    async with reflecting(tmp_path, *answers) as (server, seen, _):
        await logged(seen, ("LIST", "q"), ("LIST", "r"))
    assert ["limit" in server.asked[index].query for index in (4, 6)] == [False, True]


@pytest.mark.parametrize("status", [403, 404])
async def test_a_refusal_ends_a_run_of_an_optional_collection_which_lists_again_when_it_is_run_again(
    tmp_path: Path, status: int
) -> None:
    clock, refused = ManualClock(), refusal(status, "Refused", "no")
    answers = (refused, page(7, pod("p", 1)), refused, page(9, pod("q", 8)), stream(lasts=True))
    async with ScriptedHttp(*answers) as server:
        config = tmp_path / "kubeconfig"
        entry = {"name": "x", "cluster": {"server": server.url}, "context": {"cluster": "x"}}
        config.write_text(
            json.dumps({"clusters": [entry], "contexts": [entry], "users": [], "current-context": "x"}), "utf-8"
        )
        seen: Mirror[Pod] = Mirror()
        async with await KubeApi.connect(KubeConfig(kubeconfig=config), clock=clock) as api:
            reflection = api.reflect(PODS, Pod, seen, is_optional=True)
            for log in ([], [("LIST", "p")]):
                clock.advance(60)
                with pytest.raises(RefusedError):
                    await asyncio.wait_for(reflection.run(), DEADLINE_S)
                assert (seen.log, api.silence_s()) == (log, 0)
            async with asyncio.TaskGroup() as group:
                task = group.create_task(reflection.run())
                await logged(seen, ("LIST", "p"), ("LIST", "q"))
                task.cancel()
