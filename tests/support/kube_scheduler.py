"""A kube-scheduler that says which nodes its default plug-ins allow for a pod, and binds nothing.

An HTTP extender gets the nodes that are left after the filters of the plug-ins, keeps them, and allows none. A pod
for which no node is left never gets there; the condition ``PodScheduled`` of the pod says that it was tried.
"""

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from aiohttp import web

from berth.lab.servers.kube_assets import SCHEDULER, kube_assets, program_in
from berth.lab.servers.kube_server import KubeServer
from berth.lab.servers.place import die_with
from tests.support.kube_api import KubeApi
from tests.support.waiting import until, until_true

NAME: Final = "probe"
"""``schedulerName`` of the pods that it looks at."""
_DEADLINE_S: Final = 30.0
_LOG_TAIL: Final = 2000
_OFF: Final = ("DefaultPreemption",)
"""Plug-ins that would delete pods to make room."""
_GATES: Final = ("OpportunisticBatching=false",)
"""A hint of one pod for the next would shorten the list of nodes."""


class KubeScheduler:
    """A kube-scheduler with the default plug-ins that looks at all nodes. An async context manager.

    It reads all objects before it looks at the first pod, so what was created before its start counts for certain.

    Args:
        server: The API server, which runs.
        folder: Folder for its files; created if missing.
        sees: Fields of the profile's plug-in arguments, by plug-in.
    """

    def __init__(
        self, server: KubeServer, folder: Path, *, sees: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        self._server = server
        self._folder = folder
        self._args = dict(sees or {})
        self._allowed: dict[str, tuple[str, ...]] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._runner = web.ServerRunner(web.Server(self._filter), shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        port = self._runner.addresses[0][1]
        self._child = self._spawn(f"http://127.0.0.1:{port}")
        return self

    async def __aexit__(self, *_: object) -> None:
        child = self._child
        if child is not None:
            child.kill()
            await until(lambda: child.poll() is not None, deadline_s=_DEADLINE_S, what="kube-scheduler has ended")
        await self._runner.cleanup()

    async def allowed(self, api: KubeApi, pods: str, names: Iterable[str]) -> dict[str, frozenset[str]]:
        """Nodes that are allowed for each pod, by its name; waits until all were tried.

        Args:
            api: As an admin.
            pods: Path of the pods of a namespace.
            names: Names of pods with the scheduler name :data:`NAME`.

        Raises:
            AssertionError: A pod was not tried in time, or the scheduler failed at one.
        """
        wanted = set(names)
        found: dict[str, dict[str, Any]] = {}

        async def all_are_tried() -> bool:
            assert self._child is not None, "use it as a context manager"
            assert self._child.poll() is None, f"kube-scheduler ended: {self._tail()}"
            for pod in await api.items(pods):
                tried = _tried(pod)
                if pod["metadata"]["name"] in wanted and tried is not None:
                    assert tried["reason"] == "Unschedulable", (pod, tried, self._tail())
                    found[pod["metadata"]["name"]] = pod
            return found.keys() >= wanted

        await until_true(all_are_tried, deadline_s=_DEADLINE_S, what=f"kube-scheduler tried {sorted(wanted)}")
        return {name: frozenset(self._allowed.get(pod["metadata"]["uid"], ())) for name, pod in found.items()}

    def _spawn(self, extender: str) -> "subprocess.Popen[bytes]":
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "scheduler.json"
        config.write_text(json.dumps(self._config(extender)), "utf-8")
        program = program_in(kube_assets(), SCHEDULER)
        args = [f"--config={config}", "--secure-port=0", f"--feature-gates={','.join(_GATES)}"]
        with self._log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603  # a program of the assets and generated arguments
                [program, *args],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with(os.getpid()),  # noqa: PLW1509  # two system calls, no locks
            )

    @property
    def _log(self) -> Path:
        return self._folder / "scheduler.log"

    def _tail(self) -> str:
        return self._log.read_text("utf-8", errors="replace")[-_LOG_TAIL:]

    def _config(self, extender: str) -> dict[str, Any]:
        kubeconfig = self._server.write_kubeconfig(self._folder / "kubeconfig")
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 2000},
            "percentageOfNodesToScore": 100,
            "profiles": [
                {
                    "schedulerName": NAME,
                    "plugins": {"multiPoint": {"disabled": [{"name": name} for name in _OFF]}},
                    "pluginConfig": [{"name": name, "args": args} for name, args in sorted(self._args.items())],
                }
            ],
            "extenders": [{"urlPrefix": extender, "filterVerb": "filter", "nodeCacheCapable": True}],
        }

    async def _filter(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = await request.json()
        names = tuple(asked["NodeNames"] or ())
        self._allowed[asked["Pod"]["metadata"]["uid"]] = names
        answer = {"NodeNames": [], "FailedNodes": dict.fromkeys(names, "only asked")}
        return web.json_response(answer)


def _tried(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The condition that the scheduler writes to a pod that it could not place; None before."""
    conditions = pod.get("status", {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"), None)
