"""Requests for events: who may read which, how many at once, and what is said of wrong ones."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from berth.schemas.subjects import StreamName
from berth.services.api import event_pages
from berth.services.api.config import ApiConfig, Grant
from tests.support.fake_bus import FakeBus, FakeFollower
from tests.support.programs import ask
from tests.support.stored_events import events, uids, waits
from tests.support.waiting import SLACK

GRANTS = ApiConfig(
    access="grants",
    grants=[
        Grant(identity="alice", role="submit", namespaces=["a"]),
        Grant(identity="bob", role="read", namespaces=["a", "b"]),
        Grant(identity="root", role="read", namespaces=["*"]),
    ],
)


@pytest.mark.parametrize(
    ("identity", "namespace", "is_read"),
    [
        ("alice", "a", True),
        ("alice", "b", False),
        ("alice", "*", False),
        ("bob", "b", True),
        ("bob", "*", False),
        ("root", "*", True),
        ("root", "a", True),
        ("carol", "a", False),
        ("", "a", False),
        ("", "*", False),
    ],
)
async def test_who_may_read_which_namespaces(identity: str, namespace: str, *, is_read: bool) -> None:
    async with events(GRANTS) as told:
        told.store(0, namespace="a")
        told.store(1, namespace="b")
        reply = await told.ask(identity, namespace=namespace)
        if is_read:
            assert uids(reply) == {"a": ["u-0"], "b": ["u-1"], "*": ["u-0", "u-1"]}[namespace]
        else:
            assert (reply["ok"], reply["code"], "events" in reply) == (False, "denied", False)


async def test_events_of_a_namespace_that_the_caller_may_not_read_never_end_its_wait() -> None:
    async with events(GRANTS) as told, asyncio.TaskGroup() as group:
        waiting = group.create_task(told.ask("alice", namespace="a", wait_s=30))
        await waits(told)
        told.store(*range(5), namespace="b")
        told.store(9, namespace="a")
        assert uids(await waiting) == ["u-9"]


async def test_an_identity_has_so_many_requests_at_once_and_others_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_pages, "AT_ONCE", 2)
    async with events(GRANTS) as told, asyncio.TaskGroup() as group:
        waiting = [group.create_task(told.ask("alice", namespace="a", wait_s=30)) for _ in range(2)]
        await waits(told, 2)
        refused = await told.ask("alice", namespace="a")
        assert (refused["code"], refused["error"]) == (
            "too-many",
            "events requests at once is 2, expected fewer than 2: ask again",
        )
        assert uids(await told.ask("bob", namespace="a")) == []
        told.store(1)
        assert [uids(await one) for one in waiting] == [["u-1"]] * 2
        assert uids(await told.ask("alice", namespace="a")) == ["u-1"], "its places are free again"
        assert not told.pages._open


class CountingBus(FakeBus):
    """Counts how many readers of some subjects there are at the same time."""

    now = most = 0

    def follow(self, *args: Any, filters: Sequence[str] = (), **more: Any) -> FakeFollower:  # noqa: ANN401  # as they are
        follower = super().follow(*args, filters=filters, **more)
        if filters:
            self.now += 1
            self.most = max(self.most, self.now)
            stop = follower.stop

            async def ended() -> None:
                await stop()
                self.now -= 1

            follower.stop = ended  # type: ignore[method-assign]
        return follower


async def test_pages_of_one_identity_are_put_together_one_after_another() -> None:
    async with events(GRANTS, CountingBus) as told:
        service = told.service
        assert isinstance(service, CountingBus)
        told.store(1)
        for identities, most in ((["alice", "alice"], 1), (["alice", "alice", "bob", "bob", "root"], 3)):
            service.most = 0
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(told.ask(identity, namespace="a")) for identity in identities]
            assert [uids(one.result()) for one in asked] == [["u-1"]] * len(asked)
            assert service.most == most


async def test_a_service_that_ends_answers_what_waits() -> None:
    async with events() as told, asyncio.TaskGroup() as group:
        waiting = group.create_task(told.ask(wait_s=30))
        await waits(told)
        await told.pages.close()
        async with asyncio.timeout(5 * SLACK):
            assert (await waiting)["code"] == "unavailable"
        assert (await told.ask())["code"] == "unavailable"


async def test_a_server_that_is_away_is_said_and_the_service_goes_on() -> None:
    async with events() as told:
        told.store(1)
        name = told.bus.subjects.stream(StreamName.EVENTS)
        told.server.leaderless.add(name)
        assert (await told.ask())["code"] == "unavailable"
        told.server.leaderless.clear()
        assert uids(await told.ask()) == ["u-1"]


WRONG: list[tuple[object, str]] = [
    (b"", "request is '', expected a JSON object"),
    ([], "request is [], expected `object`"),
    ({"namespace": "A b"}, "namespace is 'A b', expected"),
    ({"namespace": "a*"}, "namespace is 'a*', expected"),
    ({"namespace": "a.>"}, "namespace is 'a.>', expected"),
    ({"namespace": ""}, "namespace is '', expected"),
    ({"namespace": "a" * 254}, "namespace is 'aaa"),
    ({"namespace": None}, "namespace is None, expected `str`"),
    ({"name": ">"}, "name is '>', expected"),
    ({"name": "a\nb"}, "name is "),
    ({"name": 3}, "name is 3, expected `str`"),
    ({"after": -1}, "after is -1, expected `int` >= 0"),
    ({"after": 1.5}, "after is 1.5, expected `int`"),
    (b'{"after": 9223372036854775808}', "after is "),
    (b'{"after": 1e400}', "expected"),
    ({"mark": "x"}, "mark is 'x', expected the mark of a reply"),
    ({"mark": "a/1/-1"}, "mark is 'a/1/-1', expected the mark of a reply"),
    ({"mark": "a/1/" + "9" * 19}, "expected the mark of a reply"),
    ({"mark": "m" * 1_001}, "mark is 'mmm"),
    ({"limit": -1}, "limit is -1, expected `int` >= 0"),
    ({"limit": 1_001}, "limit is 1001, expected `int` <= 1000"),
    ({"wait_s": -0.1}, "wait_s is -0.1, expected `float` >= 0"),
    ({"wait_s": 31}, "wait_s is 31, expected `float` <= 30"),
    ({"wait_s": "1"}, "wait_s is '1', expected `float`"),
    (b'{"wait_s": NaN}', "expected a JSON object"),
    ({"waits": 1}, "waits is an unknown field, expected 'wait_s'?"),
]


@pytest.mark.parametrize(("request_", "error"), WRONG, ids=lambda value: str(value)[:40])
async def test_a_wrong_request_is_refused_with_field_value_and_what_is_expected(request_: object, error: str) -> None:
    async with events() as told:
        reply = await ask(told.bus, "events", request_)
        assert (reply["ok"], reply["code"]) == (False, "invalid-request")
        assert error in reply["error"]
        assert (await told.ask())["ok"], "the service goes on"
