"""Pods whose annotations say falsely that Berth bound them: they are pods of another scheduler, and stop nobody."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from berth.formats.ascend.mark_proofs import MarkProofs
from berth.formats.ascend.pod_annotations import MARKS
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen, PodsSeen, Witness
from berth.schemas.intake import JobRequest, Task
from berth.schemas.subjects import StreamName
from berth.services.inventory.config import InventoryConfig
from tests.unit.services.inventory.test_service import CONFIG, RESOURCE, Tree, World, a_node, a_pod

KEY = bytes(range(32))
PATH = "/api/v1/namespaces/team/pods"
CHIPS = {"huawei.com__Ascend910": "Ascend910-0,Ascend910-1"}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.bus.ensure_streams()
    made.kube.put("/api/v1/nodes", a_node("a"))
    made.kube.put("/api/v1/nodes", a_node("b"))
    yield made
    await made.bus.close()


@pytest.fixture
def config(tmp_path: Path) -> InventoryConfig:
    (tmp_path / "marks").write_text(KEY.hex())
    return msgspec.structs.replace(CONFIG, marks_file=tmp_path / "marks")


def marked(name: str, stream: str, *, sequence: int = 7, node: str = "a", rank: int = 0) -> Tree:
    """A running pod with the marks of a job, and nothing that proves them."""
    marks = {"berth__job": "job", "berth__uid": "u", "berth__attempt": "1", "berth__rank": str(rank)}
    return a_pod(name, node=node, phase="Running", berth__ledger=f"{stream}/3/{sequence}", **marks, **CHIPS)


def bind(world: World, pod: Tree) -> Tree:
    """Make a pod on the server, with a code for its marks by its uid."""
    made = world.kube.put(PATH, pod)
    meta = made["metadata"]
    meta["annotations"] = MarkProofs([KEY]).proved(meta["uid"], meta["annotations"])
    return world.kube.put(PATH, made)


async def stream_of(world: World) -> str:
    return (await world.bus.state(StreamName.LEDGER)).created


async def give_job(world: World, pods: int = 1) -> None:
    request = JobRequest("team", "job", "u", RESOURCE, [Task("t", pods, 2)])
    await world.bus.publish(
        world.bus.subjects.fact_job("team", "job"), encode(JobSeen("team", "job", "u", "accepted", 1, request=request))
    )


def foreign(world: World) -> list[str]:
    return [fact.gang for fact in world.facts("pod", PodsSeen) if fact.foreign]


def events(world: World, reason: str) -> list[Tree]:
    return [one for one in world.kube.objects("/api/v1/events") if one["reason"] == reason]


async def test_forged_ledger_mark(world: World, config: InventoryConfig) -> None:
    """A tenant's pod names record 999,999,999 of the ledger's own stream: nothing is said of it on the bus."""
    stream = await stream_of(world)
    world.kube.put(PATH, marked("forged", stream, sequence=999_999_999))
    async with world.inventory(config):
        await world.has(world.ledgers, "what pods say of the ledger")
        await world.has(lambda: foreign(world) == ["pod/forged"], "its chips as those of another scheduler's pod")
        await world.quiet()
    (seen,) = world.ledgers()
    assert (seen.stream, seen.sequence, seen.witnesses) == (stream, 0, [])


async def test_a_forged_mark_of_a_running_job_takes_no_rank_of_it(world: World, config: InventoryConfig) -> None:
    stream = await stream_of(world)
    await give_job(world)
    world.kube.put(PATH, marked("forged", stream))
    async with world.inventory(config):
        await world.has(lambda: foreign(world) == ["pod/forged"], "another scheduler's pod")
        await world.quiet()
    assert [fact.gang for fact in world.facts("pod", PodsSeen)] == ["pod/forged"]


async def test_false_marks_of_many_pods_are_one_event_and_a_count(world: World, config: InventoryConfig) -> None:
    stream = await stream_of(world)
    for number in range(4):
        world.kube.put(PATH, marked(f"forged-{number}", stream, node="a" if number % 2 else "b"))
    async with world.inventory(config):
        await world.has(lambda: events(world, "MarkFalse"), "an event")
        world.kube.put(PATH, marked("forged-9", stream, node="b"))
        await world.has(lambda: "pod/forged-9" in foreign(world), "the last one")
        await world.quiet()
    (event,) = events(world, "MarkFalse")
    assert event["involvedObject"]["name"] == "forged-0"
    assert "berth/mac" in event["message"]


async def test_a_pod_that_berth_bound_is_its_own_with_keys(world: World, config: InventoryConfig) -> None:
    stream = await stream_of(world)
    await give_job(world, 2)
    bind(world, marked("p0", stream, sequence=7))
    bind(world, marked("p1", stream, sequence=9, node="b", rank=1))
    async with world.inventory(config):
        await world.has(world.ledgers, "what pods say of the ledger")
    assert world.phases() == [("job", ["RUNNING", "RUNNING"])]
    assert foreign(world) == []
    assert events(world, "MarkFalse") == []
    assert world.ledgers()[-1].witnesses == [Witness("team/p1", "b", 9), Witness("team/p0", "a", 7)]


@pytest.mark.parametrize("left", [(), ("berth/uid",)])
async def test_marks_that_are_changed_later_take_no_pod_from_its_job(
    world: World, config: InventoryConfig, left: tuple[str, ...]
) -> None:
    stream = await stream_of(world)
    await give_job(world)
    made = bind(world, marked("p0", stream))
    async with world.inventory(config):
        await world.has(world.ledgers, "what pods say of the ledger")
        for key in MARKS:
            made["metadata"]["annotations"].pop(key, None)
        made["metadata"]["annotations"] |= dict.fromkeys(left, "another")
        made["metadata"]["labels"] = {"seen": "yes"}
        world.kube.put(PATH, made)
        world.kube.put(PATH, marked("later", stream))
        await world.has(lambda: foreign(world) == ["pod/later"], "a later pod")
        await world.quiet()
    assert world.phases() == [("job", ["RUNNING"]), ("pod/later", ["RUNNING"])]
    assert foreign(world) == ["pod/later"]


async def test_a_pod_made_from_the_yaml_of_a_running_one_is_another_pod(world: World, config: InventoryConfig) -> None:
    stream = await stream_of(world)
    await give_job(world)
    made = bind(world, marked("p0", stream))
    copied = marked("copy", stream, sequence=90)
    copied["metadata"]["annotations"] = dict(made["metadata"]["annotations"])
    world.kube.put(PATH, copied)
    async with world.inventory(config):
        await world.has(lambda: foreign(world) == ["pod/copy"], "the copy")
        await world.has(world.ledgers, "what pods say of the ledger")
    assert world.ledgers()[-1].sequence == 7


async def test_without_keys_marks_count_as_they_are(world: World) -> None:
    stream = await stream_of(world)
    await give_job(world)
    world.kube.put(PATH, marked("p0", stream))
    async with world.inventory():
        await world.has(world.ledgers, "what pods say of the ledger")
    assert world.phases() == [("job", ["RUNNING"])]
    assert world.ledgers()[-1].sequence == 7
