"""Eviction of the pods of an attempt: all of them, and no others.

Facts state which ranks have pods; members state the current pod of each rank. The annotations of a pod decide whether
the attempt bound it. Pods that are not known by name are searched on the nodes of the placement.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from berth.formats.ascend.pod_annotations import RANK
from berth.formats.kubernetes.objects import Listed
from berth.formats.whole_numbers import whole_number
from berth.runtime.errors import TransientError
from berth.runtime.kube.port import Api, RefusedError
from berth.services.binder.cluster import Gang
from berth.services.binder.members import Member
from berth.services.binder.pod_binding import PodBinding, PodLean, pod_path

_NODES_ASKED_MAX: Final = 16
"""Maximum number of nodes that are listed one by one; beyond, the whole namespace is listed."""
_PAGE: Final = "500"
FOREIGN_PREFIX: Final = "pod/"
"""A gang of another scheduler is one pod, and has the pod's name behind this prefix."""


class KubeEviction:
    """Deletes pods.

    Args:
        api: The API server.
        pods: Reads pods, within the limit of concurrent requests.
        at_once: Maximum number of concurrent deletions.
    """

    def __init__(self, api: Api, pods: PodBinding, *, at_once: int) -> None:
        self._api = api
        self._pods = pods
        self._gate = asyncio.Semaphore(at_once)

    async def evict(self, gang: Gang, members: Mapping[int, Member]) -> list[PodLean]:
        """Delete all unfinished pods of a gang; returns the pods that still existed.

        A pod whose uid has changed is another pod and stays.

        Raises:
            TransientError: The server did not answer; some pods may be deleted.
            RefusedError: The server refuses the deletion.
        """
        found = await self._of_foreign(gang) if gang.attempt == 0 else await self._of_attempt(gang, members)
        going = [pod for pod in found if not pod.has_ended]
        errors: list[TransientError | RefusedError] = []
        async with asyncio.TaskGroup() as group:
            for pod in going:
                if pod.metadata.deletion_timestamp is None:
                    group.create_task(self._delete(pod, errors), name="delete pod")
        if errors:
            raise errors[0]
        return going

    async def _delete(self, pod: PodLean, errors: list[TransientError | RefusedError]) -> None:
        meta = pod.metadata
        try:
            async with self._gate:
                await self._api.delete(pod_path(meta.namespace, meta.name), uid=meta.uid)
        except RefusedError as error:
            if not error.is_conflict:  # another pod has the name by now
                errors.append(error)
        except TransientError as error:
            errors.append(error)

    async def _of_foreign(self, gang: Gang) -> list[PodLean]:
        pod = await self._pods.look(gang.namespace, gang.name.removeprefix(FOREIGN_PREFIX))
        return [pod] if pod is not None and pod.metadata.uid == gang.uid else []

    async def _of_attempt(self, gang: Gang, members: Mapping[int, Member]) -> list[PodLean]:
        wanted = {rank: node for rank, node in enumerate(gang.placement.names()) if rank not in set(gang.gone)}
        found: dict[int, PodLean] = {}
        errors: list[TransientError | RefusedError] = []
        async with asyncio.TaskGroup() as group:
            for rank in wanted:
                if rank in members:
                    group.create_task(self._look(gang, rank, members[rank], found, errors), name="read pod")
        if errors:
            raise errors[0]
        unknown = {node for rank, node in wanted.items() if rank not in found}
        if unknown:
            for pod in await self._on_nodes(gang.namespace, sorted(unknown)):
                stated = whole_number(pod.metadata.annotation(RANK))
                if stated is not None and stated in wanted and pod.belongs_to(gang.uid, gang.attempt):
                    found.setdefault(stated, pod)
        return [found[rank] for rank in sorted(found)]

    async def _look(
        self,
        gang: Gang,
        rank: int,
        member: Member,
        found: dict[int, PodLean],
        errors: list[TransientError | RefusedError],
    ) -> None:
        try:
            pod = await self._pods.look(gang.namespace, member.pod)
        except (TransientError, RefusedError) as error:
            errors.append(error)
            return
        if pod is not None and pod.belongs_to(gang.uid, gang.attempt):
            found[rank] = pod

    async def _on_nodes(self, namespace: str, nodes: list[str]) -> Iterable[PodLean]:
        if len(nodes) > _NODES_ASKED_MAX:
            return await self._list(namespace, {})
        return [
            pod for node in nodes for pod in await self._list(namespace, {"fieldSelector": f"spec.nodeName={node}"})
        ]

    async def _list(self, namespace: str, params: Mapping[str, str]) -> list[PodLean]:
        pods: list[PodLean] = []
        more = ""
        while True:
            asked = {**params, "limit": _PAGE, **({"continue": more} if more else {})}
            page = await self._api.get(f"/api/v1/namespaces/{namespace}/pods", Listed[PodLean], params=asked)
            pods += page.items or ()
            more = page.metadata.continue_
            if not more:
                return pods
