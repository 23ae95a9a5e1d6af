"""Workloads of a controller that is not Berth's, and how their pods stand."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from berth.formats.ascend.pod_annotations import ATTEMPT, JOB, JOB_UID, RANK_INDEX
from berth.schemas.envelope import decode
from berth.schemas.simulation import BreakNode
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.support.faulty_cell import break_node
from tests.support.kube_api import RefusedError
from tests.support.kube_cells import KubeCell, chips_of
from tests.support.kube_objects import collection_of, path_of
from tests.support.kustomize import Tree
from tests.support.real_controllers import RealController
from tests.support.waiting import until_true

DEADLINE_S: Final = 30.0
_OVER: Final = frozenset({"Failed", "Succeeded"})
_LIVE: Final = frozenset({"waiting", "placed", "bound", "running", "ending"})


class Workloads:
    """A namespace in which objects of a real controller are made, beside a cell.

    Args:
        world: The cell, which runs.
        controller: Makes pods of the objects.
        namespace: Where they are.
        findings: What ``berth fsck --cluster`` finds.
    """

    def __init__(
        self,
        world: KubeCell,
        controller: RealController,
        namespace: str,
        findings: Callable[[], Awaitable[Sequence[object]]],
    ) -> None:
        self.world = world
        self.api = world.api
        self.controller = controller
        self.namespace = namespace
        self._findings = findings
        self._made: dict[str, Tree] = {}

    async def make(self, body: Tree) -> Tree:
        """Make an object in the namespace; returns it as the server has it."""
        body = {**body, "metadata": {**body["metadata"], "namespace": self.namespace}}
        made = await self.api.post(collection_of(body), body)
        self._made[path_of(body)] = body
        return made

    async def change(self, body: Tree, patch: Tree) -> None:
        """Merge a patch into an object that was made."""
        await self.api.patch(self._path(body), patch)

    async def read(self, body: Tree) -> Tree:
        """An object that was made, as it is now."""
        return await self.api.get(self._path(body))

    async def drop(self, body: Tree) -> None:
        """Delete an object that was made."""
        path = self._path(body)
        await self.api.delete(path)
        self._made.pop(path, None)

    async def end(self, body: Tree) -> None:
        """Delete an object that was made, and wait until nothing of it is left."""
        await self.drop(body)
        await self.until_over()

    async def drop_all(self) -> None:
        """Delete all objects that were made."""
        for body in list(self._made.values()):
            await self.drop(body)

    async def pods(self) -> list[Tree]:
        """All pods of the namespace."""
        return await self.api.items(f"/api/v1/namespaces/{self.namespace}/pods")

    async def until_whole(
        self,
        *names: str,
        beside: Sequence[str] = (),
        without: Sequence[Tree] = (),
        were: Sequence[Tree] = (),
        ranks: Sequence[int] = (),
        apart: bool = False,
    ) -> list[Tree]:
        """Wait until a gang runs whole, and nothing else does: these pods with chips, by rank.

        All are of one attempt of one request, but for those that came while others ran; no chip is held twice. Pods
        that are over do not count.

        Args:
            names: Beginning of the name of each pod with chips, in order of rank.
            beside: Beginnings of the names of the pods without chips, which have no rank.
            without: Former pods, which must be gone.
            were: Pods that must still be there; the others came while these ran.
            ranks: Their ranks, if not from 0 on.
            apart: Pods come in turn, and are requests of their own.

        Raises:
            AssertionError: They do not in time, or ranks, requests or chips are wrong; shows pods, jobs and a log.
        """
        gone, stay = uids(without), uids(were)
        found: list[Tree] = []

        async def run() -> bool:
            nonlocal found
            found = [pod for pod in await self.pods() if pod["status"].get("phase") not in _OVER]
            now = uids(found)
            right = len(found) == len(names) + len(beside) and not now & gone and stay <= now
            return right and all(_runs(pod) for pod in found)

        await self.until(f"{', '.join((*names, *beside))} run", run)
        by_rank = {pod["metadata"]["annotations"].get(RANK_INDEX, ""): pod for pod in found if chips_of(pod)}
        told = {rank: pod["metadata"]["name"] for rank, pod in sorted(by_rank.items())}
        wanted = [str(rank) for rank in ranks or range(len(names))]
        assert sorted(told) == sorted(wanted), told
        assert all(told[rank].startswith(name) for rank, name in zip(wanted, names, strict=True)), (told, names)
        others = sorted(pod["metadata"]["name"] for pod in found if not chips_of(pod))
        assert all(name.startswith(start) for name, start in zip(others, sorted(beside), strict=True)), others
        notes = [pod["metadata"]["annotations"] for pod in found if not stay or pod["metadata"]["uid"] in stay]
        assert apart or len({(note[JOB], note[JOB_UID], note[ATTEMPT]) for note in notes}) == 1, notes
        await self.world.check_chips(self.namespace)
        return [by_rank[rank] for rank in wanted]

    async def until_all_run(self, count: int) -> list[Tree]:
        """Wait until there are so many pods and all of them run; returns them.

        Raises:
            AssertionError: They do not in time; shows pods, jobs and a log.
        """
        found: list[Tree] = []

        async def run() -> bool:
            nonlocal found
            found = await self.pods()
            return len(found) == count and all(_runs(pod) for pod in found)

        await self.until(f"{count} pods run", run)
        return found

    async def try_samples(self, found: Iterable[tuple[str, Tree, int]], *, gangs: bool) -> dict[str, str]:
        """Run samples one after the other, each to its end; returns what was wrong with which of them.

        Args:
            found: Names, objects, and numbers of their pods.
            gangs: Whether all pods of each are one request.
        """
        wrong: dict[str, str] = {}
        for name, body, count in found:
            try:
                await self.make(body)
                pods = await self.until_all_run(count)
                jobs = {pod["metadata"]["annotations"][JOB] for pod in pods}
                if gangs and len(jobs) != 1:
                    wrong[name] = f"{count} pods are {len(jobs)} requests"
                await self.world.check_chips(self.namespace)
            except (AssertionError, RefusedError) as error:
                wrong[name] = str(error)
            await self.drop(body)
            await self.until_gone()
        await self.until_over()
        return wrong

    async def until_count(self, prefix: str, *, running: int, waiting: int) -> None:
        """Wait until so many pods whose names begin so run, and so many have no node."""

        async def fits() -> bool:
            pods = [pod for pod in await self.pods() if pod["metadata"]["name"].startswith(prefix)]
            free = [pod for pod in pods if not pod["spec"].get("nodeName")]
            return (sum(map(_runs, pods)), len(free)) == (running, waiting)

        await self.until(f"{running} {prefix} run and {waiting} wait", fits)

    async def fail(self, pod: Tree, *, exit_code: int = 1) -> None:
        """Let the containers of a running pod fail."""
        name = f"{self.namespace}/{pod['metadata']['name']}"
        await break_node(self.world, BreakNode(pod["spec"]["nodeName"], "container", pod=name, exit_code=exit_code))

    async def lose_node(self, pod: Tree) -> None:
        """Let the node of a pod leave the cluster."""
        await break_node(self.world, BreakNode(pod["spec"]["nodeName"], "gone"))

    async def until_told(self, prefix: str, words: str) -> None:
        """Wait until a pod whose name begins so has no node, and its condition says why with these words."""

        async def says() -> bool:
            pods = [pod for pod in await self.pods() if pod["metadata"]["name"].startswith(prefix)]
            assert not [pod for pod in pods if pod["spec"].get("nodeName")], "it has a node"
            said = [one for pod in pods for one in pod["status"].get("conditions") or ()]
            return any(one["type"] == "PodScheduled" and words in one.get("message", "") for one in said)

        await self.until(f"{prefix} waits and says {words}", says)

    async def until_over(self) -> None:
        """Wait until nothing of the workloads is left: no pod that is not over, no job, no chip in use, no finding."""
        await self.until_gone()
        assert await self.world.check_chips() == 0
        assert await self._findings() == []

    async def until_gone(self) -> None:
        """Wait until no pod that is not over, and no job that is not, is left."""

        async def none_is_left() -> bool:
            pods = [pod for pod in await self.pods() if pod["status"].get("phase") not in _OVER]
            return not pods and not [one for one in await self.jobs() if one.phase in _LIVE]

        await self.until("no pod and no job is left", none_is_left)

    async def jobs(self) -> list[JobStatus]:
        """Statuses of all jobs of the namespace."""
        stored = await self.world.bus.read(StreamName.STATUS)
        found = [decode(one.data, JobStatus) for one in stored]
        return [one for one in found if one.namespace == self.namespace]

    async def until_has(self, body: Tree, what: str, holds: Callable[[Mapping[str, Any]], object]) -> None:
        """Wait until an object that was made is as it should be."""

        async def fits() -> bool:
            return bool(holds(await self.read(body)))

        await self.until(f"{body['kind']} {body['metadata']['name']} {what}", fits)

    async def until(self, what: str, fits: Callable[[], Awaitable[object]]) -> None:
        """Wait until something holds.

        Raises:
            AssertionError: It does not in time; shows pods, jobs and a log.
        """

        async def holds() -> bool:
            self.world.check()
            return bool(await fits())

        try:
            await until_true(holds, deadline_s=DEADLINE_S, what=what)
        except AssertionError as error:
            pods = [_line(pod) for pod in await self.pods()]
            jobs = [f"{one.name}: {one.phase} {one.sentence} {one.warning}" for one in await self.jobs()]
            raise AssertionError("\n".join([str(error), *pods, *jobs, self.controller.log()])) from error

    def _path(self, body: Tree) -> str:
        return path_of({**body, "metadata": {**body["metadata"], "namespace": self.namespace}})


def has_condition(one: Mapping[str, Any], kind: str) -> bool:
    """Whether a condition of an object is true."""
    conditions = one.get("status", {}).get("conditions") or ()
    return any(item["type"] == kind and item["status"] == "True" for item in conditions)


def uids(pods: Sequence[Tree]) -> set[str]:
    """Uids of pods."""
    return {pod["metadata"]["uid"] for pod in pods}


def _runs(pod: Tree) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _line(pod: Tree) -> str:
    meta = pod["metadata"]
    notes = {key: value for key, value in meta.get("annotations", {}).items() if key.startswith("berth/")}
    chips = f"{pod['spec'].get('nodeName')} {chips_of(pod):#x}"
    return f"{meta['name']}: {pod['status']} {chips} {notes} leaves={meta.get('deletionTimestamp')}"
