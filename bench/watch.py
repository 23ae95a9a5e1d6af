"""``watch``: from the start of the inventory's reflections until all nodes and pods are known, on a real API server.

The limit is a bare download of both lists with the same decoding. Both take turns, each time in a process of its own,
whose memory is read afterwards. ``python -m bench.watch NODES PODS ROUNDS`` is for a quick try.
"""

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from bench.limits.watch import Measured
from bench.report import Report, Row, machine, row, show
from berth.runtime.clock import SystemClock
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.config import KubeConfig
from berth.runtime.local.kube_server import KubeServer
from berth.runtime.local.nats_server import EmbeddedServer

NODES = 5_000
PODS = 20_000
ROUNDS = 5
TIME_TARGET = 1.5
MEMORY_TARGET_MB = 250.0
_NAMESPACE = "bench"
_CHIPS = 8
_POD_BYTES = 5_000
_HANDS = 48


def run() -> Report:
    """Measure."""
    return Report(bench="watch", machine=machine(), rows=uvloop.run(measure(NODES, PODS, ROUNDS)))


async def measure(nodes: int, pods: int, rounds: int) -> list[Row]:
    """Measure a cluster of a given size.

    Raises:
        RuntimeError: A process failed, or did not see everything.
    """
    ours: list[Measured] = []
    bare: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="berth-watch-") as root:
        server = KubeServer(Path(root) / "kube", controllers=())
        async with server, EmbeddedServer(Path(root) / "nats") as nats:
            (Path(root) / "token").write_text(server.admin_token, "utf-8")
            shutil.copy(server.ca_file, Path(root) / "ca.crt")
            await _fill(server.write_kubeconfig(Path(root) / "kubeconfig"), nodes, pods)
            for number in range(rounds):
                for turn in (number % 2, 1 - number % 2):
                    if turn:
                        ours.append(await _child("bench.watching", server.url, root, nats.url))
                    else:
                        token = server.admin_token
                        bare.append(await _child("bench.limits.watch", server.url, str(server.ca_file), token))
        for found in (*ours, *bare):
            if (found.nodes, found.pods) != (nodes, pods):
                raise RuntimeError(f"{found.nodes} nodes and {found.pods} pods seen, expected {nodes} and {pods}")
    case = f"{nodes} nodes, {pods} pods of {_POD_BYTES // 1000} KB, {server.version}"
    times_s = row(case, "start to synced", "s", [one.took_s for one in ours], limits=[one.took_s for one in bare])
    return [
        times_s,
        row(case, "against a bare download", "ratio", [times_s.ratio or 0.0], target=TIME_TARGET),
        row(case, "memory kept", "MB", [one.kept_mb for one in ours], target=MEMORY_TARGET_MB),
        row(case, "memory at most", "MB", [one.peak_mb for one in ours], limits=[one.peak_mb for one in bare]),
    ]


async def _child(module: str, *arguments: str) -> Measured:
    """Measurement of a separate process.

    Raises:
        RuntimeError: It failed.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{module} ended with {process.returncode}")
    return msgspec.json.decode(said, type=Measured)


async def _fill(kubeconfig: Path, nodes: int, pods: int) -> None:
    """Create the cluster."""
    async with await KubeApi.connect(KubeConfig(kubeconfig=kubeconfig), clock=SystemClock()) as api:
        await api.create("/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
        await _create_all(api, "/api/v1/nodes", (_a_node(number) for number in range(nodes)))
        made = (_a_pod(number, number % nodes) for number in range(pods))
        await _create_all(api, f"/api/v1/namespaces/{_NAMESPACE}/pods", made)


async def _create_all(api: KubeApi, path: str, bodies: Iterable[dict[str, Any]]) -> None:
    async def hand(left: Iterator[dict[str, Any]]) -> None:
        for body in left:
            await api.create(path, body)

    left = iter(bodies)  # one iterator for all workers
    async with asyncio.TaskGroup() as group:
        for _ in range(_HANDS):
            group.create_task(hand(left))


def _node_name(number: int) -> str:
    return f"node-{number:05d}"


def _a_node(number: int) -> dict[str, Any]:
    """A ready node of eight chips, with the annotations of its device plug-in."""
    base = {
        f"Ascend910-{chip}": {"IP": f"10.20.{number % 250}.{chip}", "SuperDeviceID": str(chip)}
        for chip in range(_CHIPS)
    }
    resources = {"cpu": "192", "memory": "1500Gi", "pods": "110", "huawei.com/Ascend910": str(_CHIPS)}
    conditions = [
        {"type": kind, "status": str(kind == "Ready"), "reason": f"Kubelet{kind}", "message": f"kubelet on {kind}"}
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    return {
        "metadata": {
            "name": _node_name(number),
            "labels": {
                "kubernetes.io/hostname": _node_name(number),
                "kubernetes.io/arch": "arm64",
                "host-arch": "huawei-arm",
                "accelerator": "huawei-Ascend910",
                "accelerator-type": "module",
                "node-role.kubernetes.io/worker": "worker",
            },
            "annotations": {"baseDeviceInfos": json.dumps(base), "superPodID": str(number // 48)},
        },
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": conditions,
            "addresses": [{"type": "InternalIP", "address": f"10.1.{number // 250}.{number % 250}"}],
            "images": [{"names": [f"registry.example/image-{image}:1"], "sizeBytes": 1 << 30} for image in range(20)],
        },
    }


def _a_pod(number: int, node: int) -> dict[str, Any]:
    """A bound pod of about 5 KB that holds two chips: most of it is environment, volumes and arguments."""
    volumes = [{"name": f"data-{index}", "hostPath": {"path": f"/mnt/data/{index}"}} for index in range(8)]
    container: dict[str, Any] = {
        "name": "main",
        "image": "registry.example/training:1",
        "command": ["python", "train.py"],
        "resources": {"limits": {"huawei.com/Ascend910": 2, "cpu": "40", "memory": "300Gi"}},
        "env": [{"name": f"SETTING_{index}", "value": f"{index:040d}"} for index in range(25)],
        "volumeMounts": [{"name": f"data-{index}", "mountPath": f"/data/{index}"} for index in range(8)],
    }
    chips = [2 * (number // NODES) % _CHIPS, 2 * (number // NODES) % _CHIPS + 1]
    held = ",".join(f"Ascend910-{chip}" for chip in chips)
    pod: dict[str, Any] = {
        "metadata": {
            "name": f"pod-{number:06d}",
            "labels": {"app": "bench", "job-name": f"job-{number // 64}"},
            "annotations": {"huawei.com/Ascend910": held, "huawei.com/AscendReal": held},
        },
        "spec": {
            "schedulerName": "volcano",
            "nodeName": _node_name(node),
            "containers": [container],
            "volumes": volumes,
        },
    }
    container["args"] = ["x" * (_POD_BYTES - len(json.dumps(pod)))]
    return pod


if __name__ == "__main__":
    show(Report(bench="watch", machine=machine(), rows=uvloop.run(measure(*map(int, sys.argv[1:])))), as_json=False)
