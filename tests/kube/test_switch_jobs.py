"""Jobs with switch affinity on a real API server: annotations, table of leaves, restart, pods of another scheduler."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from berth.core.topologies.switches.occupancy.leaf_bits import EXCLUSIVE, SHARED, STATE
from berth.core.topologies.switches.occupancy.leaf_index import leaf_index_of
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.history import state_now
from berth.schemas.subjects import StreamName
from tests.support.kube_api import KubeApi, RefusedError
from tests.support.kube_cells import ORDER, KubeCell, a_volcano_job
from tests.support.processes import services
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(240)
TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 20, name: "a2-{index:02}", leaf: {size: 4}}
"""
JOBS: Final = "/apis/batch.volcano.sh/v1alpha1/namespaces"
TABLE: Final = "/api/v1/namespaces/volcano-system/configmaps/tor-share-cm"
DECISIONS: Final = {"nslb_version": "2.0", "shared_tor_num": 1, "shard_retry_ms": 100}
Tree = dict[str, Any]


def a_model(name: str, replicas: int, label: str = "large-model-schema") -> Tree:
    """A foundation-model job of whole nodes."""
    job = a_volcano_job(name, replicas, 8, run_for="600s")
    job["metadata"]["labels"] |= {"tor-affinity": label}
    job["spec"]["tasks"][0]["template"]["metadata"]["labels"] = {"tor-affinity": label}
    return job


def leaves_said(pods: list[Tree]) -> list[tuple[str, str, str]]:
    """What the annotations of pods say of their leaves, sorted."""
    names = ("isSharedTor", "isHealthy", "sharedTorIp")
    return sorted(tuple(pod["metadata"]["annotations"].get(name, "-") for name in names) for pod in pods)


async def table_of(api: KubeApi) -> dict[str, Tree]:
    """The published table of leaves; empty while there is none."""
    try:
        found = await api.get(TABLE)
    except RefusedError:
        return {}
    table: dict[str, Tree] = json.loads(found["data"]["global-tor-info"])
    return table


async def bits_of(bus: NatsBus) -> list[int]:
    """States of the leaves as the ledger and the facts give them now."""
    return [int(bit) & STATE for bit in leaf_index_of((await state_now(bus, SystemClock())).indexes).occupancy.bits()]


@pytest.mark.processes
async def test_annotations_say_what_leaves_are_and_later_jobs_respect_it_after_a_restart_of_everything(
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    with services(tmp_path, nats_server) as made:
        settings: dict[str, Mapping[str, object]] = {
            "dispatcher": {"lease_s": 1, "snapshot_records": 20, "decisions": DECISIONS}
        }
        world = KubeCell(
            made, folder=tmp_path, cell=cell, bus=real_bus, api=kube_api, topology=TOPOLOGY, settings=settings
        )
        await world.start()
        leaf = await _run(world, namespace, "one", 6)
        await _run(world, namespace, "two", 7)
        await _until_told(kube_api, [0, 1, 1, 2, 2], {leaf: {"one"}})
        summary = f"/api/v1/namespaces/{namespace}/configmaps/job-summary-one"

        async def summed_up() -> bool:
            data = await kube_api.data(summary)
            return data.get("job_status") == "running" and json.loads(data["sharedTorIp"] or "[]") == [leaf]

        await until_true(summed_up, deadline_s=20, what="the summary names the shared leaf")

        before = await bits_of(real_bus)
        for name in ORDER:
            await world.services[name].kill()
        await world.start()
        await kube_api.post(f"{JOBS}/{namespace}/jobs", a_model("three", 7))
        status = await world.until_status(namespace, await _job_name(world, "three"), "waiting")
        assert await bits_of(real_bus) == before
        assert sorted(before) == [0, SHARED, SHARED, EXCLUSIVE, EXCLUSIVE]
        assert status.sentence.startswith("needs 7 nodes")  # four of a free leaf, and two of one shared leaf, are there
        await kube_api.delete(f"{JOBS}/{namespace}/jobs/two")
        await world.until_pods(namespace, {"Running": 13}, deadline_s=60)
        assert await _run(world, namespace, "four", 6) == leaf
        await _until_told(kube_api, [1, 1, 2, 2, 2], {leaf: {"one", "four"}})
        assert await world.check_chips(namespace) == 19 * 8
        await world.stop()


async def _run(world: KubeCell, namespace: str, name: str, replicas: int) -> str:
    """Run a job that needs a whole leaf and some nodes of another; the leaf that it shares."""
    await world.api.post(f"{JOBS}/{namespace}/jobs", a_model(name, replicas))
    selector = f"volcano.sh/job-name={name}"
    pods = await world.until_pods(namespace, {"Running": replicas}, selector=selector)
    shared = {pod["metadata"]["annotations"].get("sharedTorIp") for pod in pods} - {None}
    assert len(shared) == 1
    leaf = str(shared.pop())
    assert leaves_said(pods) == [("1", "0", leaf)] * (replicas - 4) + [("2", "0", "-")] * 4
    return leaf


async def _until_told(api: KubeApi, states: list[int], jobs: dict[str, set[str]]) -> None:
    """Wait until the published table has these states, and these jobs on some leaves."""

    async def told() -> bool:
        table = await table_of(api)
        return sorted(row["IsSharedTor"] for row in table.values()) == states and all(
            {name for node in table[leaf]["nodes"] for name in node["JobName"]} == names for leaf, names in jobs.items()
        )

    await until_true(told, deadline_s=20, what=f"a table with {states} and {jobs}")


async def _job_name(world: KubeCell, name: str) -> str:
    """Name of the request that stands for a Volcano job.

    Raises:
        AssertionError: There is none in time; shows logs.
    """
    found: list[str] = []

    async def there() -> bool:
        nonlocal found
        state = await state_now(world.bus, SystemClock())
        found = [job for _, job in state.jobs if name in job]
        return bool(found)

    try:
        await until_true(there, deadline_s=30, what=f"a request for {name}")
    except AssertionError as error:
        raise AssertionError(f"{error}{world.logs()}") from error
    return found[0]


@pytest.mark.processes
async def test_states_are_rebuilt_from_annotations_when_the_ledger_knows_nothing_of_the_pods(
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    with services(tmp_path, nats_server) as made:
        settings: dict[str, Mapping[str, object]] = {
            "dispatcher": {"decisions": DECISIONS},
            "inventory": {"stranger_s": 0.5},
        }
        world = KubeCell(
            made, folder=tmp_path, cell=cell, bus=real_bus, api=kube_api, topology=TOPOLOGY, settings=settings
        )
        await world.start()
        await kube_api.post(f"{JOBS}/{namespace}/jobs", a_model("one", 6))
        await world.until_pods(namespace, {"Running": 6})
        before = await bits_of(real_bus)
        assert sorted(before) == [0, 0, 0, SHARED, EXCLUSIVE]
        for name in ORDER[1:]:
            await world.services[name].stop()

        async with await NatsBus.connect(nats_server, f"{cell}-anew", name="test", inbox="_INBOX.person.test") as bus:
            await bus.ensure_streams()
            anew = [
                made.service(name, f"{cell}-anew", **_settings(world, name, settings))  # type: ignore[arg-type]  # no setting is called label
                for name in ORDER[1:]
            ]
            for service in anew:
                service.start()

            async def rebuilt() -> bool:
                if (await bus.state(StreamName.LEDGER)).last_seq == 0:
                    return False
                return await bits_of(bus) == before

            try:
                await until_true(rebuilt, deadline_s=40, what="states from annotations")
            except AssertionError as error:
                raise AssertionError(f"{error}{anew[0].log()}{anew[1].log()}") from error
            for service in reversed(anew):
                await service.stop()
        await world.services["nodesim"].stop()


def _settings(world: KubeCell, name: str, settings: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """Settings of a service of a second cell beside the first."""
    own = dict(settings.get(name, {}))
    if name != "dispatcher":
        own["kube"] = {"kubeconfig": world.kubeconfigs[name]}
    return own
