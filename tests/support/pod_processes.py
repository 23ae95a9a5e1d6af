"""Pods of manifests without containers: their commands, with their environment and files, as plain processes.

What a cluster gives by itself is translated: the name of a pod of NATS becomes the loopback address, each port of each
pod a port of this machine, and each mounted volume a path below a folder. All else is as the manifests say.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from berth.lab.servers.nats_server import server_binary
from tests.support.compiled_files import COMPILED_FILES
from tests.support.compose import Composed, Planned, Translation, at_work
from tests.support.kustomize import Tree
from tests.support.pods import Pod

_FETCH: Final = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=2)"


def planned_pods(pods: list[Pod], folder: Path, *, domains: Mapping[str, str]) -> list[Planned]:
    """Processes of pods, in their order; the files that they read are written below ``folder``.

    Args:
        pods: What is to run; none waits for another.
        folder: A folder below it belongs to each pod.
        domains: Headless service of each workload whose pods are spoken to by name.
    """
    hosts = {pod.name: f"{pod.name}.{domains[pod.workload]}" if pod.workload in domains else pod.name for pod in pods}
    translation = Translation(set(hosts.values()), folder)
    return [_planned(pod, hosts[pod.name], translation) for pod in pods]


@asynccontextmanager
async def cell_at_work(
    planned: list[Planned], first: Planned, folder: Path, *, deadline_s: float
) -> AsyncIterator[Composed]:
    """The processes of a cell: NATS, then what makes its streams, to its end, then the services.

    Args:
        planned: NATS and the services.
        first: What runs before the services.
        folder: Where logs go.
        deadline_s: As of :func:`tests.support.compose.at_work`.

    Raises:
        AssertionError: They were not well in time, or the streams were not made.
    """
    nats = [one for one in planned if not one.is_ours]
    async with at_work(nats, folder, deadline_s=deadline_s) as servers:
        once = await asyncio.create_subprocess_exec(
            *first.command,
            env={**COMPILED_FILES, **first.environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await once.communicate()
        assert once.returncode == 0, said.decode()
        ours = [one for one in planned if one.is_ours]
        async with at_work(ours, folder, deadline_s=deadline_s) as services:
            services.processes |= servers.processes
            yield services


def _planned(pod: Pod, host: str, translation: Translation) -> Planned:
    folder = translation.folder / pod.name
    places = {mount["mountPath"]: folder / mount["mountPath"].lstrip("/") for mount in pod.container["volumeMounts"]}
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
    for path, content in pod.files.items():
        (folder / path.lstrip("/")).write_text(translation.text(host, content, places))
    program, *words = (translation.text(host, word, places) for word in pod.command)
    return Planned(
        name=pod.name,
        command=(sys.executable if program == "python" else str(server_binary()), *words),
        environment={
            name: translation.variable(host, name, value, places) for name, value in sorted(pod.environment.items())
        },
        after=(),
        check=(sys.executable, "-c", _FETCH, _url(pod, host, translation)) if "ports" in pod.container else (),
        restarts=True,
        grace_s=pod.grace_s,
        is_ours=pod.workload != "nats",
    )


def _url(pod: Pod, host: str, translation: Translation) -> str:
    """What a kubelet asks before it counts the pod as ready."""
    probe: Tree = pod.container.get("startupProbe") or pod.container["readinessProbe"]
    get = probe["httpGet"]
    ports = {port["name"]: port["containerPort"] for port in pod.container["ports"]}
    return f"http://127.0.0.1:{translation.port(host, ports[get['port']])}{get['path']}"
