"""A new kind of workload is one module and one line: a toy kind is read wherever a kind is asked.

The kind is ``tests/support/toy_workload.py``; a fixture is its line in the registry.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.formats.kubernetes.workloads import registry
from berth.formats.kubernetes.workloads.port import WorkloadKind
from berth.formats.kubernetes.workloads.registry import Kinds, kinds
from berth.formats.manifests.reader import read_job, read_jobs
from berth.schemas.columns import unpack
from berth.schemas.facts import MembersSeen
from berth.schemas.intake import JobRequest
from berth.services.binder.cluster import NotYetError
from tests.support import binder_world
from tests.support.binder_world import bound
from tests.support.kube_binder import owned
from tests.support.toy_workload import NUMBER, SWARM
from tests.unit.services.binder.test_remade_pods import half_bound, late
from tests.unit.services.inventory.test_service import RESOURCE, World, a_pod

ROOT = Path(__file__).parents[2]
PODS = "/api/v1/namespaces/team/pods"
SWARMS = "/apis/toys.example/v1/namespaces/team/swarms"
BEES, FEWEST = 4, 3
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "main", "resources": {"limits": {RESOURCE: "2"}}}]}}
MANIFEST: dict[str, Any] = {
    "apiVersion": "toys.example/v1",
    "kind": "Swarm",
    "metadata": {"name": "s", "namespace": "team"},
    "spec": {"bees": BEES, "fewest": FEWEST, "template": TEMPLATE},
}


@pytest.fixture(autouse=True)
def line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line in the registry."""
    monkeypatch.setattr(registry, "_KINDS", Kinds((*kinds().named.values(), SWARM)))


class Hive(World):
    """A world with a Swarm, whose pods come one by one; the names of the pods count up, and their numbers down."""

    def __init__(self) -> None:
        super().__init__()
        self.uid = self.kube.put(SWARMS, MANIFEST)["metadata"]["uid"]

    def born(self, *names: int) -> None:
        owner = {"apiVersion": "toys.example/v1", "kind": "Swarm", "name": "s", "uid": self.uid, "controller": True}
        for name in names:
            pod = a_pod(f"s-{name}")
            pod["metadata"] |= {"ownerReferences": [owner], "labels": {NUMBER: str(BEES - 1 - name)}}
            self.kube.put(PODS, pod)

    def members(self) -> dict[str, MembersSeen]:
        """Last fact of each request."""
        return {fact.job: fact for fact in self.facts("member", MembersSeen)}


async def test_the_inventory_finds_size_minimum_and_ranks() -> None:
    world = Hive()
    await world.bus.ensure_streams()
    world.born(0, 1)
    async with world.inventory():
        await world.has(world.members, "a fact about the pods")
        assert world.members()["swarm.s"].hold == f"2 of at least {FEWEST} pods exist"
        world.born(3)
        await world.has(world.requests, "a request")
    await world.bus.close()
    (request,) = world.requests()
    (task,) = request.tasks
    assert (request.name, task.name) == ("swarm.s", "bee")
    assert task.replicas == FEWEST, "the minimum of the Swarm, which has one pod more"
    seen = world.members()["swarm.s"]
    ranks = dict(zip(seen.pods, seen.rank_index, strict=True))
    assert ranks == {"s-0": "3", "s-1": "2", "s-3": "0"}, "the numbers of the pods"
    assert unpack(seen.rank, 4) == [0, 1, 2]
    assert (seen.owner.kind, seen.owner.name, seen.distributed) == ("Swarm", "s", True)


def submitted(manifest: dict[str, Any]) -> JobRequest:
    """The request of a manifest, as the command line reads files and the API reads objects."""
    reading = read_jobs(yaml.safe_dump(manifest))
    assert (reading.errors, reading.skipped) == ([], [])
    request, name_of = read_job(manifest, path="job")
    assert [request] == reading.jobs
    assert [name_of(f) for f in ("min_available", "tasks[0].replicas")] == ["job.spec.fewest", "job.spec.bees"]
    return request


def test_submit_reads_its_manifest() -> None:
    request = submitted(MANIFEST)
    assert (request.origin, request.resource, request.min_available) == ("swarm", RESOURCE, FEWEST)
    (task,) = request.tasks
    assert (task.name, task.replicas, task.chips) == ("bee", BEES, 2)
    assert task.labels == {"hive": "oak"}, "those that all pods have"


def test_submit_names_what_is_wrong_in_it() -> None:
    wrong = MANIFEST | {"spec": MANIFEST["spec"] | {"bees": -1}}
    (error,) = read_jobs(yaml.safe_dump(wrong)).errors
    assert error.path == "spec.bees"


def test_no_two_kinds_have_one_name_or_word() -> None:
    for other in (SWARM, replace(SWARM, name="Other", word="swarm"), replace(SWARM, word="other")):
        with pytest.raises(ValueError, match="twice"):
            Kinds((SWARM, other))


@pytest.mark.parametrize("mourns", [True, False])
async def test_the_binder_knows_what_becomes_of_a_deleted_pod(*, mourns: bool) -> None:
    world = await binder_world.made(bind_give_up_s=300)
    gang = await half_bound(world)
    owned(world.kube, "p0", "p1", kind="Swarm", version="toys.example/v1", mourns=mourns)
    await late(world, gang)
    if mourns:
        with pytest.raises(NotYetError, match="Swarm owner mourns each bee"):
            await world.cluster.bind(gang)
        return
    assert await world.cluster.bind(gang) == bound(1, (1, "pod p1 is refused: admission webhook denied the request"))


async def test_without_the_line_its_pods_start_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    world = Hive()
    await world.bus.ensure_streams()
    world.born(0, 1)
    async with world.inventory():
        await world.has(lambda: len(world.requests()) > 1, "two requests")
    await world.bus.close()
    assert [task.replicas for request in world.requests() for task in request.tasks] == [1, 1]
    assert [skipped.kind for skipped in read_jobs(yaml.safe_dump(MANIFEST)).skipped] == ["Swarm"]


def verbs(service: str, group: str, plural: str) -> set[str]:
    """What a service may do with a kind in every namespace."""
    objects = yaml.safe_load_all((ROOT / f"k8s/base/rights/{service}.yaml").read_text("utf-8"))
    rules = [rule for one in objects if one["kind"] == "ClusterRole" for rule in one["rules"]]
    found = [rule for rule in rules if group in rule["apiGroups"] and plural in rule["resources"]]
    return {verb for rule in found for verb in rule["verbs"]}


@pytest.mark.parametrize("kind", kinds().named.values(), ids=lambda kind: kind.name)
def test_services_may_read_each_kind(kind: WorkloadKind[Any]) -> None:
    group = kind.api_kind[0]
    assert {"get", "list", "watch"} <= verbs("inventory", group, kind.plural)
    assert ("get" in verbs("binder", group, kind.plural)) == (kind.makes_anew is not None)
