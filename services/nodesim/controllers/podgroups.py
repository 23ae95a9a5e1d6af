"""Volcano's controller of PodGroups for pods without a job controller: Deployments, StatefulSets, Jobs, bare pods.

Source: docs/reference/kubernetes.md, "Volcano PodGroups".
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from berth.formats.ascend.pod_annotations import GROUP_NAME
from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.paths import api_path
from berth.runtime.kube.port import Api, Change, RefusedError
from berth.services.nodesim.controllers.gang_children import (
    GROUP_VERSION,
    GROUPS,
    group_body,
    is_live,
    min_resources,
    owner_of,
)
from berth.services.nodesim.kube.writes import KubeWrites, make_object

MIN_MEMBER: Final = "scheduling.volcano.sh/group-min-member"
QUEUE_NAME: Final = "scheduling.volcano.sh/queue-name"
_PLURALS: Final = {"ReplicaSet": "replicasets", "StatefulSet": "statefulsets", "Job": "jobs", "DaemonSet": "daemonsets"}


class _Owner(Lean, frozen=True):
    metadata: Meta = Meta()


class PodGroupController:
    """The controller.

    Args:
        api: The API server.
        schedulers: Schedulers whose pods get a PodGroup.
        writes: Queue of its writes.
    """

    def __init__(self, api: Api, schedulers: Sequence[str], writes: KubeWrites) -> None:
        self._api = api
        self._schedulers = schedulers
        self._writes = writes

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name in dict.fromkeys(self._schedulers):
                params = {"fieldSelector": f"spec.schedulerName={name}"}
                group.create_task(self._api.reflect("/api/v1/pods", Pod, self, params=params).run())

    def replace(self, objects: list[Pod]) -> None:
        """Take all pods of a scheduler."""
        for pod in objects:
            self._see(pod)

    def change(self, changes: list[tuple[Change, Pod]]) -> None:
        """Take changes of pods."""
        for kind, pod in changes:
            if kind != "DELETED":
                self._see(pod)

    def _see(self, pod: Pod) -> None:
        if is_live(pod) and not pod.metadata.annotation(GROUP_NAME) and not pod.spec.node_name:
            self._writes.put(f"podgroup {pod.metadata.uid}", partial(self._group, pod), is_newest=True)

    async def _group(self, pod: Pod) -> None:
        """Create the PodGroup of a pod unless it exists, and write its name on the pod.

        Raises:
            RefusedError: The server refuses.
            TransientError: The server did not answer.
        """
        meta = pod.metadata
        owner = meta.controller
        uid = meta.uid if owner is None else owner.uid
        reference = owner_of(meta, api_version="v1", kind="Pod")
        if owner is not None:
            named = Meta(name=owner.name, uid=owner.uid)
            reference = owner_of(named, api_version=owner.api_version, kind=owner.kind)
        least = await self._min_member(meta)
        template = {"spec": _spec(pod)}
        spec = {
            "minMember": least,
            "queue": meta.annotation(QUEUE_NAME, "default"),
            "priorityClassName": pod.spec.priority_class_name,
            "minResources": min_resources([(template, least)], least),
        }
        name = f"podgroup-{uid}"
        body = group_body(name, meta.namespace, reference, spec)
        await make_object(self._api, api_path(GROUP_VERSION, "namespaces", meta.namespace, GROUPS), body)
        patch = {"metadata": {"uid": meta.uid, "annotations": {GROUP_NAME: name}}}
        await self._api.patch(api_path("v1", "namespaces", meta.namespace, "pods", meta.name), patch)

    async def _min_member(self, meta: Meta) -> int:
        """Pods that must start together, from the owner's annotation; 1 by default.

        Raises:
            TransientError: The server did not answer.
        """
        owner = meta.controller
        if owner is None or owner.kind not in _PLURALS or "/" not in owner.api_version:
            return 1
        path = api_path(owner.api_version, "namespaces", meta.namespace, _PLURALS[owner.kind], owner.name)
        try:
            found = await self._api.get(path, _Owner)
        except RefusedError:
            return 1
        text = found.metadata.annotation(MIN_MEMBER)
        return int(text) if text.isascii() and text.isdigit() and int(text) else 1


def _spec(pod: Pod) -> dict[str, Any]:
    """Resources of a pod's containers, in the form of a template."""
    return {
        "containers": [
            {
                "resources": {
                    "limits": dict(container.resources.limits or {}),
                    "requests": dict(container.resources.requests or {}),
                }
            }
            for container in pod.spec.containers or ()
            if container.resources is not None
        ]
    }
