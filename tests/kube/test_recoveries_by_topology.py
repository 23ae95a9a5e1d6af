"""Jobs by leaf switch, in SuperPoDs and in racks of Atlas 950 recover on a real API server; healthy ranks stay."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from berth.schemas.envelope import decode
from berth.schemas.facts import NodeHealth
from berth.schemas.fault_facts import GroupSeen
from berth.schemas.simulation import BreakNode
from berth.schemas.subjects import StreamName
from tests.kube.test_superpod_jobs import in_blocks
from tests.kube.test_switch_jobs import a_model
from tests.support.faulty_cell import (
    DEADLINE_S,
    FAULTS,
    GROUPS,
    JOBS,
    RunningCell,
    Seat,
    break_node,
    conditions_of,
    pods_of,
    seats_of,
    settings,
    steps_of,
    until_seats,
    unusable_chips,
)
from tests.support.kube_cells import KubeCell, a_container
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(150)
TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 12, name: "a2-{index:02}", leaf: {size: 4, name: "leaf-{index}"}}
  - {product: superpod910a3x16, count: 12, name: "a3-{index:02}", superpod: {size: 6}}
  - {product: superpod950x8, count: 8, name: "a5-{index:02}", superpod: {size: 8}, rack: {size: 4}}
"""
SIZES: Final = {"model": 6, "blocks": 8, "racks": 4}
"""Pods of each job: a whole leaf and half of another; four blocks of two nodes; two blocks of two nodes of a rack."""
Tree = dict[str, Any]


class Cell(NamedTuple):
    """A cell with three jobs that run."""

    world: KubeCell
    namespace: str
    seats: dict[str, dict[int, Seat]]

    async def break_chip(self, node: str, *, repair: bool = False) -> None:
        """Break or repair a chip, and wait until the facts show it: what breaks next is known later."""
        await break_node(self.world, BreakNode(node, "chip", [3], repair=repair))

        async def is_known() -> bool:
            return (await unusable_chips(self.world, node) >> 3 & 1 == 0) == repair

        await until_true(is_known, deadline_s=DEADLINE_S, what=f"chip 3 of {node} is as it should be")

    async def break_leaf(self, leaf: str, onto: set[str]) -> None:
        """All nodes below a leaf break; wait until ranks 4 and 5 of the model are on these: reports come one by one."""
        await break_node(self.world, BreakNode(leaf, "node", leaf=True))

        async def is_elsewhere() -> bool:
            seats = seats_of(await pods_of(self.world.api, self.namespace, "model"))
            return all(rank in seats and seats[rank].node in onto for rank in (4, 5))

        await until_true(is_elsewhere, deadline_s=DEADLINE_S, what=f"both ranks are on {sorted(onto)}")

    async def repair(self, wish: BreakNode, nodes: set[str]) -> None:
        """Repair something, and wait until these nodes take work again."""
        await break_node(self.world, msgspec.structs.replace(wish, repair=True))

        async def are_well() -> bool:
            found = await conditions_of(self.world)
            ready = {
                node["metadata"]["name"]
                for node in await self.world.api.items("/api/v1/nodes")
                if any((one["type"], one["status"]) == ("Ready", "True") for one in node["status"]["conditions"])
            }
            return nodes <= ready and all(found[node].level is NodeHealth.OK for node in nodes)

        await until_true(are_well, deadline_s=DEADLINE_S, what=f"{sorted(nodes)} are well")

    async def leave_by(self, how: str) -> None:
        """Change the label of all jobs, and wait until the facts have it."""
        path = GROUPS.format(self.namespace)
        for group in await self.world.api.items(path):
            labels = {"metadata": {"labels": {"fault-scheduling": how}}}
            await self.world.api.patch(f"{path}/{group['metadata']['name']}", labels)
        bus = self.world.bus

        async def is_known() -> bool:
            found = await bus.read(StreamName.LATEST, filters=(bus.subjects.facts("group"),))
            return [decode(one.data, GroupSeen).labels["fault-scheduling"] for one in found] == [how] * len(SIZES)

        await until_true(is_known, deadline_s=DEADLINE_S, what=f"fault-scheduling is {how} for all jobs")

    async def hows(self, job: str) -> list[str]:
        """How pods of a job left, in all steps so far."""
        return [step.how for step in await steps_of(self.world, f"vcjob.{job}") if step.how != "place"]

    async def notes(self, job: str) -> dict[int, dict[str, str]]:
        """Annotations of the pods of a job by rank."""
        found = [pod["metadata"]["annotations"] for pod in await pods_of(self.world.api, self.namespace, job)]
        return {int(one["berth/rank"]): one for one in found}

    async def recovered(self, job: str, ranks: set[int]) -> list[str]:
        """Wait until these ranks of a job have other pods on other nodes, while all others are as they were.

        Returns:
            Scopes of all steps of the job so far.
        """
        old = self.seats[job]
        left = frozenset(old[rank].uid for rank in ranks)
        now = await until_seats(self.world, self.namespace, job, SIZES[job], without=left)
        stay = {rank: seat for rank, seat in old.items() if rank not in ranks}
        assert {rank: now[rank] for rank in stay} == stay, f"healthy ranks of {job} keep node, chips and pod"
        nodes = {seat.node for seat in old.values()}
        assert all(now[rank].node not in nodes for rank in ranks)
        assert all(now[rank].chips == old[rank].chips for rank in ranks)
        self.seats[job] = now
        return [step.scope for step in await steps_of(self.world, f"vcjob.{job}") if step.how != "place"]


def in_racks(name: str, replicas: int, block: int) -> Tree:
    """A Volcano job of whole Atlas 950 nodes, in blocks that stay in a rack."""
    job = in_blocks(name, replicas, block)
    (task,) = job["spec"]["tasks"]
    chips = str(8 * block)
    told = {"huawei.com/schedule_policy": "chip8-node8-ra64-sp", "sp-block": chips, "ra-block": chips}
    for meta in (job["metadata"], task["template"]["metadata"]):
        meta["annotations"] |= told
    spec = task["template"]["spec"]
    del spec["nodeSelector"]
    spec["containers"] = [a_container(8, resource="huawei.com/npu")]
    return job


@asynccontextmanager
async def three_jobs(running: RunningCell, namespace: str, how: str) -> AsyncIterator[Cell]:
    """Three jobs that run."""
    own = settings()
    decisions = {"nslb_version": "2.0", "shared_tor_num": 1, "super_pod_size": 6}
    own["dispatcher"] = {**own["dispatcher"], "decisions": {**FAULTS, **decisions}}
    async with running(TOPOLOGY, own) as world:
        jobs = [a_model("model", SIZES["model"]), in_blocks("blocks", SIZES["blocks"], 2), in_racks("racks", 4, 2)]
        for job in jobs:
            job["metadata"]["labels"] |= {"fault-scheduling": how, "pod-rescheduling": "on"}
            await world.api.post(JOBS.format(namespace), job)
        yield Cell(world, namespace, {name: await until_seats(world, namespace, name, SIZES[name]) for name in SIZES})
        await world.check_chips(namespace)


async def test_after_the_fault_of_a_chip_one_rank_moves_or_its_block_if_there_is_no_room_around_it(
    running: RunningCell, namespace: str
) -> None:
    async with three_jobs(running, namespace, "force") as found:
        before = {job: await found.notes(job) for job in SIZES}
        for job, count in SIZES.items():
            await found.break_chip(found.seats[job][count - 1].node)
        old = found.seats["blocks"][7].node
        assert await found.recovered("model", {5}) == ["pod"]
        assert await found.recovered("blocks", {7}) == ["pod"]
        assert await found.recovered("racks", {2, 3}) == ["pod", "rank-block"], "the rack has no other node"

        used = {seat.node for seat in found.seats["blocks"].values()}
        for node in {f"a3-{number:02}" for number in range(6)} - used:
            await found.break_chip(node)
        await found.break_chip(old, repair=True)
        await found.leave_by("grace")
        await found.break_chip(found.seats["model"][5].node)
        await found.break_chip(found.seats["blocks"][3].node)
        await found.break_chip(found.seats["racks"][3].node)
        assert await found.recovered("blocks", {2, 3}) == ["pod", "pod", "superpod"], "the SuperPoD has no other node"
        assert await found.recovered("racks", {3}) == ["pod", "rank-block", "pod"]
        assert await found.recovered("model", {5}) == ["pod", "pod"]
        assert await found.hows("model") == ["force", "grace"]
        assert await found.hows("blocks") == ["force", "grace", "grace"]
        assert await found.hows("racks") == ["force", "force", "grace"]
        now = {job: await found.notes(job) for job in SIZES}
        for rank, note in now["model"].items():
            assert note["isSharedTor"] == before["model"][rank]["isSharedTor"]
        for rank, note in now["blocks"].items():
            assert note["super-pod-rank"] == before["blocks"][rank]["super-pod-rank"] == str(rank // 2)
            assert note["super-pod-id"] == str(int(found.seats["blocks"][rank].node.removeprefix("a3-")) // 6)


async def test_after_the_fault_of_a_node_or_a_leaf_its_ranks_leave_with_grace_or_by_force(
    running: RunningCell, namespace: str
) -> None:
    async with three_jobs(running, namespace, "grace") as found:
        first, second = ({f"a2-{number:02}" for number in range(4 * leaf, 4 * leaf + 4)} for leaf in (1, 2))
        await found.break_leaf("leaf-1", second)
        blocks, racks = found.seats["blocks"][5].node, found.seats["racks"][3].node
        await break_node(found.world, BreakNode(blocks, "kubelet"))
        await break_node(found.world, BreakNode(racks, "node"))
        assert set(await found.recovered("model", {4, 5})) == {"pod"}
        assert await found.recovered("blocks", {5}) == ["pod"]
        assert await found.recovered("racks", {2, 3}) == ["pod", "rank-block"]
        for job in SIZES:
            assert set(await found.hows(job)) == {"grace"}

        await found.repair(BreakNode("leaf-1", "node", leaf=True), first)
        await found.repair(BreakNode(blocks, "kubelet"), {blocks})
        await found.leave_by("force")
        await found.break_leaf("leaf-2", first)
        await break_node(found.world, BreakNode(found.seats["blocks"][5].node, "node"))
        await break_node(found.world, BreakNode(found.seats["racks"][3].node, "kubelet"))
        assert set(await found.recovered("model", {4, 5})) == {"pod"}
        assert await found.recovered("blocks", {5}) == ["pod", "pod"]
        assert await found.recovered("racks", {3}) == ["pod", "rank-block", "pod"]
        for job, before in (("blocks", 1), ("racks", 2)):
            assert await found.hows(job) == ["grace"] * before + ["force"]
        assert set(await found.hows("model")) == {"grace", "force"}
