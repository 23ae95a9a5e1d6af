"""Holds, releases and priorities that programs ask for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from berth.schemas.envelope import decode, encode
from berth.schemas.intake import JobSteer
from berth.schemas.subjects import StreamName
from berth.services.api.config import ApiConfig, Grant
from tests.support.programs import Programs, job_file, programs

TRAIN = {"namespace": "team", "name": "train"}
GRANTS = ApiConfig(access="grants", grants=[Grant(identity="alice", role="submit", namespaces=["team"])])


@asynccontextmanager
async def waiting() -> AsyncIterator[Programs]:
    """A cell with users, in which a job of alice waits."""
    async with programs(nodes=0, is_started=False) as told:
        await told.start(GRANTS)
        await told.ask("submit", {"job": job_file("train", namespace="team", uid="u-1")}, identity="alice")
        await told.turns(2)
        yield told


async def changed(told: Programs, **change: object) -> dict[str, object]:
    """The reply to a change that alice asks for, after the dispatcher has judged it."""
    reply: dict[str, object] = await told.ask("update", {**TRAIN, "change": change}, identity="alice")
    await told.turns(2)
    return reply


async def job_of(told: Programs) -> dict[str, object]:
    found: dict[str, object] = (await told.ask("status", TRAIN, identity="alice"))["job"]
    return found


async def test_a_job_is_held_and_released_by_a_program() -> None:
    async with waiting() as told:
        assert await changed(told, held=True, reason="no data yet") == {
            "ok": True,
            **TRAIN,
            "uid": "u-1",
            "sequence": 2,
        }
        job = await job_of(told)
        assert (job["phase"], job["held"], job["code"]) == ("waiting", True, "")
        assert job["sentence"] == "held by program alice: no data yet"
        (listed,) = (await told.ask("jobs", {}, identity="alice"))["jobs"]
        assert (listed["held"], listed["sentence"]) == (True, job["sentence"])
        await changed(told, held=False)
        assert (await job_of(told))["held"] is False


async def test_a_program_lowers_a_priority_and_raises_none() -> None:
    async with waiting() as told:
        await changed(told, priority=-3)
        assert (await job_of(told))["priority"] == -3
        reply = await changed(told, priority=0)
        assert (reply["code"], reply["error"]) == (
            "conflict",
            "change is not possible, expected another: team/train has priority -3: a program may only lower it, an"
            " operator may set 0",
        )


async def test_what_an_operator_holds_a_program_does_not_release() -> None:
    async with waiting() as told:
        wish = JobSteer("team", "train", "u-1", held=True, by="ops@host")
        await told.bus.publish(told.bus.subjects.intake_steer("team", "train"), encode(wish))
        await told.turns(2)
        reply = await changed(told, held=False)
        assert str(reply["error"]).endswith("team/train is held by ops@host: only an operator may release it")
        assert (await job_of(told))["held"] is True


async def test_where_nobody_has_an_identity_a_program_is_an_operator() -> None:
    async with programs(nodes=0) as told:
        await told.submit()
        await told.turns(2)
        assert (await told.ask("update", {**TRAIN, "change": {"priority": 9}}))["ok"]
        await told.turns(2)
        assert (await told.ask("status", TRAIN))["job"]["priority"] == 9


async def test_a_job_with_a_place_is_not_held() -> None:
    async with programs() as told:
        await told.submit()
        await told.turns(2)
        reply = await told.ask("update", {**TRAIN, "change": {"held": True}})
        assert (reply["code"], "has its place already" in reply["error"]) == ("conflict", True)


async def test_a_job_without_a_verdict_or_that_is_over_is_not_changed() -> None:
    async with programs(nodes=0) as told:
        await told.submit()
        reply = await told.ask("update", {**TRAIN, "change": {"held": True}})
        assert (reply["code"], reply["error"]) == (
            "conflict",
            "name is team/train, expected a job that was accepted; repeat it soon",
        )
        await told.ask("cancel", TRAIN)
        await told.turns(2)
        assert (await told.ask("update", {**TRAIN, "change": {"held": True}}))["code"] == "over"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"held": "yes"}, "change.held is 'yes'"),
        ({"priority": 1 << 40}, "change.priority is 1099511627776"),
        ({"hold": True}, "change.hold"),
    ],
)
async def test_a_wrong_change_is_refused_with_its_field(change: dict[str, object], words: str) -> None:
    async with programs() as told:
        reply = await told.ask("update", {**TRAIN, "change": change})
        assert reply["code"] == "invalid-request"
        assert words in reply["error"]


async def test_the_identity_of_the_program_is_stored() -> None:
    async with waiting() as told:
        await changed(told, held=True)
        (stored,) = (one for one in await told.bus.read(StreamName.INTAKE) if ".steer." in one.subject)
        wish = decode(stored.data, JobSteer)
        assert (wish.program, wish.by) == ("alice", "program alice")
