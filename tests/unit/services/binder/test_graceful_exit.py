"""Agents that are told to save a checkpoint, on an API server in memory."""

import json
from typing import Any

import pytest

from berth.formats.ascend.check_code import check_code
from berth.formats.ascend.reset_config import read_reset
from berth.runtime.errors import TransientError
from berth.runtime.kube.config import FaultObjectsConfig
from berth.runtime.kube.port import RefusedError
from berth.schemas.facts import Owner
from berth.services.binder.cluster import Gang
from tests.support.binder_world import PODS, World, made, uid_of
from tests.support.kube_binder import a_gang, members_of

MAPS = "/api/v1/namespaces/ns/configmaps"
NAME = "reset-config-llm"
SINCE_MS = 1_000


async def world_of(text: str = "", *, owner: str = "llm", written_by: str = "berth") -> tuple[World, Gang]:
    """A job with one pod whose ConfigMap has a text; without a text there is none."""
    world = await made(fault_objects=FaultObjectsConfig(written_by=written_by))  # type: ignore[arg-type]  # one of two
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    rows = [(0, "p0", uid_of(world, "p0"))]
    world.cluster.take_members(members_of(gang, rows, owner=Owner("AscendJob", owner, "u")))
    if text:
        data = {"reset.json": text, "mine": "y"}
        world.kube.put(MAPS, {"kind": "ConfigMap", "metadata": {"name": NAME}, "data": data})
    world.kube.calls.clear()
    return world, gang


def config_map(world: World) -> dict[str, Any]:
    return world.kube.object(f"{MAPS}/{NAME}")


def writes(world: World) -> int:
    return sum(call.method == "PATCH" for call in world.kube.calls)


async def test_agents_are_told_once_and_what_others_wrote_stays() -> None:
    world, gang = await world_of('{"RankList":[{"RankId":3}],"RetryTime":2,"UpdateTime":1,"more":7}')
    await world.cluster.request_checkpoint(gang, SINCE_MS)
    found = config_map(world)
    assert found["metadata"]["labels"] == {"reset": "true"}
    assert found["metadata"]["annotations"] == {"berth/saves": f"{gang.uid}/{SINCE_MS}"}
    text, now_s = found["data"]["reset.json"], world.clock.now_ms() // 1000
    told = json.loads(text)
    assert (told["GracefulExit"], told["RetryTime"], told["UpdateTime"], told["more"]) == (1, 2, now_s, 7)
    assert told["RankList"][0]["RankId"] == 3
    assert found["data"]["checkCode"] == check_code(read_reset(text))
    assert found["data"]["mine"] == "y"
    await world.cluster.request_checkpoint(gang, SINCE_MS)
    assert writes(world) == 1
    await world.cluster.request_checkpoint(gang, SINCE_MS + 1)
    assert config_map(world)["metadata"]["annotations"] == {"berth/saves": f"{gang.uid}/{SINCE_MS + 1}"}
    assert config_map(world)["data"]["reset.json"] == text


@pytest.mark.parametrize("owner", ["x/../../../team-b/configmaps/victim", "x?fieldManager=a", "x/y", "%2e%2e"])
async def test_the_name_of_an_owner_reaches_no_other_object(owner: str) -> None:
    world, gang = await world_of("{}", owner=owner)
    await world.cluster.request_checkpoint(gang, SINCE_MS)
    assert world.kube.calls == []


async def test_a_value_that_another_client_changes_in_between_is_read_again() -> None:
    world, gang = await world_of("{}")
    world.kube.fail(RefusedError("modified", status=409, cause="Conflict"), method="PATCH")
    with pytest.raises(TransientError, match="changed in between"):
        await world.cluster.request_checkpoint(gang, SINCE_MS)
    assert world.kube.calls[-1].body["metadata"]["resourceVersion"]
    await world.cluster.request_checkpoint(gang, SINCE_MS)
    assert json.loads(config_map(world)["data"]["reset.json"])["GracefulExit"] == 1


async def test_a_server_that_does_not_answer_is_asked_again() -> None:
    world, gang = await world_of("{}")
    world.kube.fail(TransientError("no answer"), method="GET")
    with pytest.raises(TransientError, match="no answer"):
        await world.cluster.request_checkpoint(gang, SINCE_MS)


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("", None, ""),
        ("{", None, "reset-config is left as it is"),
        ("{}", RefusedError("no", status=403, cause="Forbidden"), "bind the role berth-summary-resets"),
        ("{}", RefusedError("too large", status=413, cause="RequestEntityTooLarge"), "agents are not asked to save"),
    ],
)
async def test_what_cannot_be_written_holds_no_deletion_up(
    text: str, error: RefusedError | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world, gang = await world_of(text)
    if error is not None:
        world.kube.fail(error, part=NAME)
    await world.cluster.request_checkpoint(gang, SINCE_MS)
    assert said in capsys.readouterr().out
    assert writes(world) == 0 or error is not None


@pytest.mark.parametrize("changes", [{"written_by": "other"}, {"owner": ""}])
async def test_where_nobody_is_to_be_told_nothing_is_read(changes: dict[str, str]) -> None:
    world, gang = await world_of("{}", **changes)
    await world.cluster.request_checkpoint(gang, SINCE_MS)
    assert world.kube.calls == []
    assert world.kube.objects(PODS)
