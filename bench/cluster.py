"""Setup of a cluster for benches on Kubernetes: nodes, permissions of an ordinary user, pods."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from berth.formats.ascend.bind_annotations import NodeCard
from berth.lab.servers.kube_server import KubeServer
from berth.schemas.columns import pack
from berth.schemas.facts import MembersSeen
from berth.schemas.placement import Run, placement_of
from berth.services.binder.cluster import Gang

RESOURCE = "huawei.com/Ascend910"
NAMESPACE = "bench"
USER = "berth"
CHIPS = tuple(range(8))
POD_BYTES = 5_000
SELECTOR = {"accelerator-type": "module-910b-8"}
_HANDS = 32


class Admin:
    """Creates the objects of a bench."""

    def __init__(self, server: KubeServer, session: aiohttp.ClientSession) -> None:
        self._url = server.url
        self._session = session

    async def prepare(self, nodes: int, rules: Sequence[dict[str, Any]]) -> None:
        """Create nodes of eight chips, a namespace, and the permissions of the user."""
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER}
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}]
        named = {"metadata": {"name": USER}}
        await self.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await self.post(f"{rbac}/clusterroles", {**named, "rules": rules})
        await self.post(f"{rbac}/clusterrolebindings", {**named, "roleRef": role, "subjects": subjects})
        await self._post_all("/api/v1/nodes", [_a_node(number) for number in range(nodes)])

    async def gang(self, name: str, pods: int) -> tuple[Gang, MembersSeen]:
        """A gang of whole-node pods, and the fact of its members."""
        made = await self._post_all(
            f"/api/v1/namespaces/{NAMESPACE}/pods", [_a_pod(f"{name}-{rank}") for rank in range(pods)]
        )
        return _gang_of(name, made)

    async def gang_of_job(self, name: str) -> tuple[Gang, MembersSeen]:
        """The pods of a Job as a gang, and the fact of its members."""
        params = {"labelSelector": f"job-name={name}"}
        async with self._session.get(f"{self._url}/api/v1/namespaces/{NAMESPACE}/pods", params=params) as answer:
            answer.raise_for_status()
            return _gang_of(name, (await answer.json())["items"])

    async def delete(self, path: str) -> None:
        """Delete an object and, in the background, its dependents."""
        async with self._session.delete(self._url + path, params={"propagationPolicy": "Background"}) as answer:
            answer.raise_for_status()

    async def _post_all(self, path: str, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = [{}] * len(bodies)
        left = iter(enumerate(bodies))

        async def hand() -> None:
            for index, body in left:
                made[index] = await self.post(path, body)

        async with asyncio.TaskGroup() as group:
            for _ in range(_HANDS):
                group.create_task(hand())
        return made

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object; returns the created object."""
        async with self._session.post(self._url + path, data=json.dumps(body)) as answer:
            answer.raise_for_status()
            made: dict[str, Any] = await answer.json()
            return made


@asynccontextmanager
async def admin_of(server: KubeServer) -> AsyncIterator[Admin]:
    """An admin of a server."""
    headers = {"Authorization": f"Bearer {server.admin_token}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=server.ssl_context()), headers=headers
    ) as session:
        yield Admin(server, session)


def _gang_of(name: str, pods: Sequence[dict[str, Any]]) -> tuple[Gang, MembersSeen]:
    """Pods as a gang, one pod on each node."""
    count = len(pods)
    placement = placement_of(
        [_node_name(rank) for rank in range(count)], [CHIPS] * count, [Run(count, len(CHIPS))], resource=RESOURCE
    )
    gang = Gang(NAMESPACE, name, f"uid-{name}", 1, placement)
    members = MembersSeen(
        NAMESPACE,
        name,
        gang.uid,
        rank=pack(range(count), 4),
        pods=[one["metadata"]["name"] for one in pods],
        pod_uids=[one["metadata"]["uid"] for one in pods],
        rank_index=[str(rank) for rank in range(count)],
        distributed=True,
    )
    return gang, members


def _node_name(number: int) -> str:
    return f"node-{number:05d}"


def card(number: int) -> NodeCard:
    """A node as annotations of its pods need it."""
    node = _a_node(number)
    base = node["metadata"]["annotations"]["baseDeviceInfos"]
    return NodeCard(node["metadata"]["name"], address=node["status"]["addresses"][0]["address"], base_device_infos=base)


def _a_node(number: int) -> dict[str, Any]:
    base = {f"Ascend910-{chip}": {"IP": f"10.20.{number % 250}.{chip}", "SuperDeviceID": chip} for chip in CHIPS}
    amounts = {"cpu": "192", "memory": "1500Gi", "pods": "110", RESOURCE: str(len(CHIPS))}
    return {
        "metadata": {
            "name": _node_name(number),
            "labels": {**SELECTOR, "accelerator": "huawei-Ascend910"},
            "annotations": {"baseDeviceInfos": json.dumps(base)},
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "by a bench"}],
            "addresses": [{"type": "InternalIP", "address": f"10.1.{number // 250}.{number % 250}"}],
        },
    }


def a_template(labels: dict[str, str]) -> dict[str, Any]:
    """Metadata and spec of a pod of about 5 KB, like a training pod: most of it is environment."""
    container = {
        "name": "main",
        "image": "none",
        "resources": {"limits": {RESOURCE: len(CHIPS)}},
        "env": [{"name": f"SETTING_{index}", "value": "x" * 80} for index in range(30)],
    }
    pod: dict[str, Any] = {
        "metadata": {"labels": labels},
        "spec": {
            "schedulerName": "berth",
            "restartPolicy": "Never",
            "nodeSelector": SELECTOR,
            "containers": [container],
        },
    }
    pod["metadata"]["annotations"] = {"note": "x" * (POD_BYTES - len(json.dumps(pod)))}
    return pod


def _a_pod(name: str) -> dict[str, Any]:
    pod = a_template({"app": "bench"})
    pod["metadata"]["name"] = name
    return pod
