"""``watch``: from the start of the inventory's reflections until all nodes and pods are known, on a real API server.

The limit is a bare download of both lists with the same decoding. Both take turns, each time in a process of its own,
whose memory is read afterwards.
"""

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from bench.ends import EndedError, ended_text, kube_server, nats_server, until_done
from bench.limits.watch import Measured
from bench.processes import ROOT
from bench.report import Report, Row, machine, row
from berth.runtime.clock import SystemClock
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.config import KubeConfig

TIME_TARGET = 1.5
MEMORY_TARGET_MB = 250.0
_NAMESPACE = "bench"
_CHIPS = 8
_POD_BYTES = 5_000
_HANDS = 48


class Size(NamedTuple):
    """Size of a run: nodes, pods, and how often each program runs."""

    nodes: int = 5_000
    pods: int = 20_000
    rounds: int = 5


FULL: Final = Size()
SMALL: Final = Size(nodes=50, pods=200, rounds=1)


def run(size: Size = FULL) -> Report:
    """Measure."""
    return Report(bench="watch", machine=machine(), rows=until_done(measure(*size)))


async def measure(nodes: int, pods: int, rounds: int) -> list[Row]:
    """Measure a cluster of a given size.

    Raises:
        RuntimeError: A process failed, or did not see everything.
    """
    ours: list[Measured] = []
    bare: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="berth-watch-") as root:
        async with (
            kube_server(Path(root) / "kube", controllers=()) as server,
            nats_server(Path(root) / "nats") as nats,
        ):
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
        EndedError: It failed.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, cwd=ROOT, stdout=pipe, stderr=pipe
    )
    said, log = await process.communicate()
    if process.returncode:
        raise EndedError(ended_text(module, f"ended with exit code {process.returncode}", log.decode(errors="replace")))
    return msgspec.json.decode(said, type=Measured)


async def _fill(kubeconfig: Path, nodes: int, pods: int) -> None:
    """Create the cluster."""
    async with await KubeApi.connect(KubeConfig(kubeconfig=kubeconfig), clock=SystemClock()) as api:
        await api.create("/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
        await _create_all(api, "/api/v1/nodes", (_a_node(number) for number in range(nodes)))
        made = (_a_pod(number, number % nodes, number // nodes) for number in range(pods))
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


def _a_pod(number: int, node: int, turn: int) -> dict[str, Any]:
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
    chips = [2 * turn % _CHIPS, 2 * turn % _CHIPS + 1]
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
