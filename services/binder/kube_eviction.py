"""Eviction of the pods of an attempt, or of some of its ranks: all of them, and no others.

Facts state which ranks have pods; members state the current pod of each rank. The annotations of a pod decide whether
the attempt bound it, and for which step of a recovery. Pods that are not known by name are searched on the nodes of
the placement.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from berth.formats.ascend.pod_annotations import RANK
from berth.formats.kubernetes.objects import Listed
from berth.formats.kubernetes.paths import api_path
from berth.formats.whole_numbers import whole_number
from berth.runtime.errors import TransientError
from berth.runtime.kube.listing import objects_of
from berth.runtime.kube.port import Api, RefusedError
from berth.schemas.facts import RankFailure
from berth.services.binder.cluster import Gang, HeldBackError, Leave, Manner
from berth.services.binder.members import Member
from berth.services.binder.pod_binding import PodBinding, PodLean, Verdict
from berth.services.binder.pod_deletion import BudgetError, PodDeletion
from berth.services.binder.work import Clearing

_NODES_ASKED_MAX: Final = 16
"""Maximum number of nodes that are listed one by one; beyond, the whole namespace is listed."""
_PAGE: Final = 500
FOREIGN_PREFIX: Final = "pod/"
"""A gang of another scheduler is one pod, and has the pod's name behind this prefix."""
_OF_LIVE: Final[frozenset[Manner]] = frozenset({"none", "plain"})
"""Manners in which pods that have ended are left alone."""
Errors: TypeAlias = list[TransientError | RefusedError]


class KubeEviction:
    """Finds pods and deletes them.

    Args:
        api: The API server.
        pods: Reads pods, within the limit of concurrent requests.
        deletion: Deletes pods.
    """

    def __init__(self, api: Api, pods: PodBinding, deletion: PodDeletion) -> None:
        self._api = api
        self._pods = pods
        self._deletion = deletion

    async def evict(
        self,
        gang: Gang,
        members: Mapping[int, Member],
        manner: Manner,
        reason: str,
        *,
        beside: Sequence[tuple[int, Member]] = (),
    ) -> list[PodLean]:
        """Delete all pods of a gang that are to be deleted in this manner; returns those that still exist and run.

        A pod whose uid has changed is another pod and stays. Backup pods are ``beside`` those of their ranks.

        Raises:
            HeldBackError: Disruption budgets hold some pods back; the others are deleted.
            TransientError: The server did not answer; some pods may be deleted.
            RefusedError: The server refuses the deletion.
        """
        if gang.attempt == 0:
            found = await self._of_foreign(gang)
        else:
            found = await self._of_attempt(gang, members, released=manner not in _OF_LIVE)
            known = {pod.metadata.uid for pod in found}
            backups = [await self._pods.read(gang.namespace, member.pod) for _, member in beside]
            found += [
                pod
                for pod in backups
                if pod is not None and pod.belongs_to(gang.uid, gang.attempt) and pod.metadata.uid not in known
            ]
        going = [pod for pod in found if manner not in _OF_LIVE or not pod.has_ended]
        held = HeldPods()
        if manner != "none":
            await all_of(held.delete(self._deletion, _rank_of(pod), pod, manner, reason) for pod in going)
        held.end()
        return [pod for pod in going if not pod.has_ended]

    async def remove(
        self, gang: Gang, members: Mapping[int, Member], leaves: Mapping[int, Leave], held: "HeldPods"
    ) -> list[tuple[int, PodLean]]:
        """Delete the pods of some ranks that were bound for earlier steps; returns them, with their ranks.

        Those that disruption budgets hold back are noted in ``held``.

        Raises:
            TransientError: The server did not answer; some pods may be deleted.
            RefusedError: The server refuses a deletion; the others were tried.
        """
        nodes = {rank: leave.node for rank, leave in leaves.items()}
        found = await self._find(gang, members, nodes)
        going = [(rank, pod) for rank, pod in found if pod.step < leaves[rank].step]
        await all_of(
            held.delete(self._deletion, rank, pod, leaves[rank].manner, leaves[rank].reason) for rank, pod in going
        )
        return going

    async def end_former(self, verdict: Verdict) -> None:
        """Delete a backup pod at once that was bound just when its place was given up: it runs at no place of its own.

        Raises:
            TransientError: The server did not answer.
            RefusedError: The server refuses the deletion.
        """
        if verdict.is_former and verdict.pod is not None:
            await self._deletion.delete(verdict.pod, "force", verdict.reason)

    async def clear(self, clearing: Clearing) -> None:
        """Delete ended pods of earlier attempts of a job.

        Raises:
            TransientError: The server did not answer; some pods may be deleted.
            RefusedError: The server refuses a deletion; the others were tried.
        """
        pods = await self._list(clearing.namespace, {})
        left = [pod for pod in pods if pod.has_ended and pod.is_before(clearing.uid, clearing.attempt)]
        await all_of(self._deletion.delete(pod, "force", "") for pod in left)

    async def mark(self, gang: Gang, members: Mapping[int, Member], ranks: Sequence[int], kind: str) -> None:
        """Mark the pods of some ranks that were bound for earlier steps.

        Raises:
            TransientError: The server did not answer; some pods may be marked.
            RefusedError: The server refuses it.
        """
        names = gang.placement.names()
        found = await self._find(gang, members, {rank: names[rank] for rank in ranks})
        await all_of(self._deletion.mark(pod, kind) for _, pod in found if pod.step < gang.step)

    async def _of_foreign(self, gang: Gang) -> list[PodLean]:
        pod = await self._pods.read(gang.namespace, gang.name.removeprefix(FOREIGN_PREFIX))
        return [pod] if pod is not None and pod.metadata.uid == gang.uid else []

    async def _of_attempt(self, gang: Gang, members: Mapping[int, Member], *, released: bool) -> list[PodLean]:
        """Pods of ranks; those of ranks that were released, which have ended, only where they are asked for."""
        wanted = {rank: node for rank, node in enumerate(gang.placement.names()) if rank not in set(gang.gone)}
        if released:
            wanted |= dict.fromkeys(gang.gone, "")
        return [pod for _, pod in await self._find(gang, members, wanted)]

    async def _find(
        self, gang: Gang, members: Mapping[int, Member], wanted: Mapping[int, str]
    ) -> list[tuple[int, PodLean]]:
        """Pods that an attempt bound, by rank; those that members do not name are searched on nodes, if one is given.

        Args:
            gang: The attempt.
            members: Its current pods.
            wanted: Ranks, and the node of each; empty to look at the pod that members name alone.
        """
        found: dict[str, tuple[int, PodLean]] = {}

        async def look(rank: int, member: Member) -> None:
            pod = await self._pods.read(gang.namespace, member.pod)
            if pod is not None and pod.belongs_to(gang.uid, gang.attempt):
                found[pod.metadata.uid] = (rank, pod)

        await all_of(look(rank, members[rank]) for rank in wanted if rank in members)
        known = {rank for rank, _ in found.values()}
        unknown = {node for rank, node in wanted.items() if node and rank not in known}
        if unknown:
            for pod in await self._on_nodes(gang.namespace, sorted(unknown)):
                stated = whole_number(pod.metadata.annotation(RANK))
                if stated is not None and stated in wanted and pod.belongs_to(gang.uid, gang.attempt):
                    found.setdefault(pod.metadata.uid, (stated, pod))
        return sorted(found.values(), key=lambda item: (item[0], item[1].metadata.uid))

    async def _on_nodes(self, namespace: str, nodes: list[str]) -> Iterable[PodLean]:
        if len(nodes) > _NODES_ASKED_MAX:
            return await self._list(namespace, {})
        return [
            pod for node in nodes for pod in await self._list(namespace, {"fieldSelector": f"spec.nodeName={node}"})
        ]

    async def _list(self, namespace: str, selectors: Mapping[str, str]) -> list[PodLean]:
        path = api_path("v1", "namespaces", namespace, "pods")
        pods = objects_of(self._api, path, Listed[PodLean], page_size=_PAGE, selectors=selectors)
        return [self._pods.counted(pod) async for pod in pods]


class HeldPods:
    """Pods that disruption budgets hold back, by rank."""

    def __init__(self) -> None:
        self._reasons: dict[int, str] = {}

    async def delete(self, deletion: PodDeletion, rank: int, pod: PodLean, manner: Manner, reason: str) -> None:
        """Delete the pod of a rank, and note it if it is held back; arguments and errors as of the deletion."""
        try:
            await deletion.delete(pod, manner, reason)
        except BudgetError as error:
            self._reasons[rank] = error.reason

    def end(self) -> None:
        """Say which pods are held back, if any are.

        Raises:
            HeldBackError: Pods are held back.
        """
        if self._reasons:
            raise HeldBackError([RankFailure(rank, self._reasons[rank]) for rank in sorted(self._reasons)])


def _rank_of(pod: PodLean) -> int:
    """Rank of a pod, as the binder wrote it; 0 for a pod of another scheduler."""
    return whole_number(pod.metadata.annotation(RANK)) or 0


async def all_of(calls: Iterable[Coroutine[object, object, None]]) -> None:
    """Await calls at the same time; an error of one does not hold the others up.

    Raises:
        TransientError: The first error, if it is one.
        RefusedError: Likewise.
    """
    errors: Errors = []

    async def one(call: Coroutine[object, object, None]) -> None:
        try:
            await call
        except (TransientError, RefusedError) as error:
            errors.append(error)

    given = list(calls)
    try:
        async with asyncio.TaskGroup() as group:
            for call in given:
                group.create_task(one(call), name="call")
    finally:
        for call in given:
            call.close()  # its task may have been cancelled before it began
    if errors:
        raise errors[0]
