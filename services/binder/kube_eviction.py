"""Pods of an attempt are asked to end: those, all of those, and no others.

Facts of pods show which ranks have pods, facts of members name the current pods of the ranks. A pod's own annotations
decide whether the attempt bound it. Pods that neither fact names are looked for on the nodes of the placement.
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
"""Up to so many nodes are asked one by one for pods; beyond, the whole namespace is."""
_PAGE: Final = "500"
FOREIGN_PREFIX: Final = "pod/"
"""A gang of another scheduler is one pod, and is called after it."""


class KubeEviction:
    """Deletes pods.

    Args:
        api: The API server.
        pods: Reads pods, within the bounds of all requests.
        at_once: Deletions under way at the same time.
    """

    def __init__(self, api: Api, pods: PodBinding, *, at_once: int) -> None:
        self._api = api
        self._pods = pods
        self._gate = asyncio.Semaphore(at_once)

    async def evict(self, gang: Gang, members: Mapping[int, Member]) -> list[PodLean]:
        """Ask all pods of a gang that have not ended to do so; returns those that were still there.

        A pod that has another uid by then is a different pod and is not deleted.

        Raises:
            TransientError: The server did not answer; some may have been asked.
            RefusedError: The server does not let us.
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
                    group.create_task(self._look(gang, rank, members[rank], found, errors), name="look at pod")
        if errors:
            raise errors[0]
        unknown = {node for rank, node in wanted.items() if rank not in found}
        if unknown:
            for pod in await self._on_nodes(gang.namespace, sorted(unknown)):
                told = whole_number(pod.metadata.annotation(RANK))
                if told is not None and told in wanted and pod.belongs_to(gang.uid, gang.attempt):
                    found.setdefault(told, pod)
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
