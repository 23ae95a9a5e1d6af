"""Controllers of others beside a test server: programs, definitions and webhooks of a release of theirs.

``make controllers-assets`` builds them. Their webhooks are registered by URL, with an authority of the test, since no
Service leads anywhere here; the rest of the registration is what the release says.
"""

import base64
import copy
import os
import re
import ssl
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
import yaml

from berth.lab.servers.kube_server import KubeServer
from berth.lab.servers.place import die_with
from berth.lab.servers.ports import free_ports
from berth.lab.servers.processes import LocalProcesses
from berth.runtime.config import kube_assets_from_environment
from tests.support.certificates import authority, certificate
from tests.support.kube_api import KubeApi, apply_crds, crds_in
from tests.support.kube_objects import collection_of, path_of
from tests.support.kustomize import Tree
from tests.support.manifest_programs import kustomize_build
from tests.support.waiting import until, until_true

_MODULES: Final = Path(__file__).parents[2] / "k8s" / "assets" / "modules"
_REGISTRATIONS: Final = "/apis/admissionregistration.k8s.io/v1"
_KINDS: Final = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}
_DEADLINE_S: Final = 30.0
_LOG_TAIL: Final = 3000
_OK: Final = 200


class Start(NamedTuple):
    """What a controller needs to start."""

    folder: Path
    """For its files."""
    certificates: Path
    """Has ``tls.crt`` and ``tls.key`` for its webhooks."""
    port: int
    """Of its webhooks."""
    probes: str
    """Address at which it says that it is ready."""


@dataclass(frozen=True)
class Release:
    """A release of a controller.

    Attributes:
        name: Folder of its pins below ``k8s/assets/modules``.
        module: Its Go module.
        program: Name of the program.
        definitions: Folder of the custom resources, within the manifests.
        webhooks: Kustomization of the webhooks, likewise.
        flags: Arguments of the program.
        environment: More environment variables.
        port: Port of the webhooks, where the program has no flag for it.
        needs: Objects that must be there before it starts, such as its namespace.
        marks: Files that must exist before it starts, whatever is in them.
    """

    name: str
    module: str
    program: str
    definitions: str
    webhooks: str
    flags: Callable[[Start], list[str]]
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None
    needs: Sequence[Tree] = ()
    marks: Sequence[Path] = ()

    @property
    def folder(self) -> Path:
        """Where ``make controllers-assets`` puts it.

        Raises:
            AssertionError: It is not there.
        """
        pins = (_MODULES / self.name / "go.mod").read_text("utf-8")
        version = re.search(rf"^(?:require )?\s*{re.escape(self.module)} (v\S+)", pins, re.MULTILINE)
        assert version is not None, f"{self.name} is not pinned"
        found = kube_assets_from_environment()[1] / f"{self.name}-{version[1]}"
        assert (found / self.program).is_file(), f"no {found / self.program}: run make controllers-assets"
        return found

    @property
    def manifests(self) -> Path:
        """Its definitions, webhooks and samples."""
        return self.folder / "manifests"


def _jobset(start: Start) -> list[str]:
    settings = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "webhook": {"host": "127.0.0.1", "port": start.port, "certDir": str(start.certificates)},
        "metrics": {"bindAddress": "0"},
        "featureGates": {"ElasticJobSet": True, "RestartJob": True},
    }
    file = start.folder / "settings.yaml"
    file.write_text(yaml.safe_dump(settings))
    return [f"--config={file}", "--metrics-bind-address=0", f"--health-probe-bind-address={start.probes}"]


JOBSET: Final = Release(
    name="jobset",
    module="sigs.k8s.io/jobset",
    program="jobset",
    definitions="config/components/crd/bases",
    webhooks="config/components/webhook",
    flags=_jobset,
)


def _kuberay(start: Start) -> list[str]:
    return ["--enable-leader-election=false", "--metrics-addr=0", f"--health-probe-bind-address={start.probes}"]


KUBERAY: Final = Release(
    name="kuberay",
    module="github.com/ray-project/kuberay/ray-operator",
    program="ray-operator",
    definitions="config/crd/bases",
    webhooks="config/webhook",
    flags=_kuberay,
    # The pod that would clean Redis when a cluster is deleted has no Redis here, and would run for ever.
    environment={"ENABLE_WEBHOOKS": "true", "ENABLE_GCS_FT_REDIS_CLEANUP": "false"},
    port=9443,
)
"""Ray's operator makes a PodGroup for none of its clusters."""
KUBERAY_WITH_GROUPS: Final = replace(KUBERAY, flags=lambda start: [*_kuberay(start), "--batch-scheduler=volcano"])
"""Ray's operator makes a PodGroup of Volcano for each of its clusters, and names Volcano's scheduler in their pods."""


def _training(start: Start) -> list[str]:
    return [
        "--metrics-bind-address=0",
        f"--health-probe-bind-address={start.probes}",
        f"--webhook-server-port={start.port}",
    ]


_KUBEFLOW: Final = "kubeflow"
TRAINING: Final = Release(
    name="training-operator",
    module="github.com/kubeflow/training-operator",
    program="training-operator.v1",
    definitions="manifests/base/crds",
    webhooks="manifests/base/webhook",
    flags=_training,
    environment={"MY_POD_NAMESPACE": _KUBEFLOW},
    needs=(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _KUBEFLOW}},
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "training-operator-webhook-cert", "namespace": _KUBEFLOW},
        },
    ),
    # It waits until certificates that it makes itself, and that nothing here asks for, are mounted at this place.
    marks=(Path("/tmp/k8s-webhook-server/serving-certs/tls.crt"),),  # noqa: S108  # the program has no setting for it
)
"""Kubeflow's operator makes a PodGroup for none of its jobs."""
TRAINING_WITH_GROUPS: Final = replace(
    TRAINING, flags=lambda start: [*_training(start), "--gang-scheduler-name=volcano"]
)
"""Kubeflow's operator makes a PodGroup of Volcano for each of its jobs, and pods when it is let in."""


class RealController(LocalProcesses):
    """A controller beside an API server. An async context manager.

    Its custom resources stay when it stops; its webhooks go, so that the server does not ask in vain.

    Args:
        release: Which one.
        server: The API server, which runs.
        folder: For its files; created if missing.
    """

    def __init__(self, release: Release, server: KubeServer, folder: Path) -> None:
        self.release = release
        self._server = server
        self._folder = folder
        self._child: subprocess.Popen[bytes] | None = None
        port, probes = free_ports(2)
        # The library that all of them use looks for certificates there.
        certificates = folder / "k8s-webhook-server" / "serving-certs"
        self._start = Start(folder, certificates, release.port or port, f"127.0.0.1:{probes}")
        self._registered: list[str] = []

    async def start(self) -> None:
        """Make its definitions and webhooks known, start it, and wait until it is ready.

        Raises:
            AssertionError: It ended, or was not ready in time; contains the end of its log.
        """
        ca = self._prepare()
        async with KubeApi(self._server) as api:
            trees = crds_in(self.release.manifests / self.release.definitions)
            await apply_crds(api, [one for one in trees if one["kind"] == "CustomResourceDefinition"])
            for one in self.release.needs:
                if await api.status_of("GET", path_of(one)) != _OK:
                    await api.post(collection_of(one), one)
            self._spawn()
            await until_true(self._is_ready, deadline_s=_DEADLINE_S, what=f"{self.release.name} is ready")
            for one in kustomize_build(self.release.manifests / self.release.webhooks):
                if one["kind"] in _KINDS:
                    await self._register(api, one, ca)

    async def stop(self) -> None:
        """Take its webhooks away and kill it; a manager waits long for its watches when it is asked."""
        async with KubeApi(self._server) as api:
            while self._registered:
                await api.delete(self._registered.pop())
        await self.kill()

    async def kill(self) -> None:
        """Kill it as a crash would; its webhooks stay registered."""
        child = self._child
        if child is not None:
            child.kill()
            await until(lambda: child.poll() is not None, deadline_s=_DEADLINE_S, what=f"{self.release.name} has ended")

    async def restart(self) -> None:
        """Start it again after :meth:`kill`."""
        self._spawn()
        await until_true(self._is_ready, deadline_s=_DEADLINE_S, what=f"{self.release.name} is ready again")

    def log(self) -> str:
        """End of its log, for messages of failed tests."""
        return self._log.read_text("utf-8", errors="replace")[-_LOG_TAIL:] if self._log.exists() else ""

    @property
    def _log(self) -> Path:
        return self._folder / f"{self.release.name}.log"

    def _prepare(self) -> str:
        """Make files that it needs, and certificates for its webhooks; returns that of the authority in Base64."""
        for mark in self.release.marks:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        folder = self._start.certificates
        folder.mkdir(parents=True, exist_ok=True)
        ca = authority(folder)
        signed, key = certificate(folder, "tls", ca)
        signed.rename(folder / "tls.crt")
        assert key == folder / "tls.key"
        return base64.b64encode(ca.read_bytes()).decode("ascii")

    def _spawn(self) -> None:
        kubeconfig = self._server.write_kubeconfig(self._folder / "kubeconfig")
        own = {"KUBECONFIG": str(kubeconfig), "TMPDIR": str(self._folder), **self.release.environment}
        settings = [f"{name}={value}" for name, value in own.items()]
        program = self.release.folder / self.release.program
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(  # noqa: S603  # a program of the assets and generated arguments
                ["/usr/bin/env", *settings, program, *self.release.flags(self._start)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with(os.getpid()),  # noqa: PLW1509  # two system calls, no locks
            )

    async def _is_ready(self) -> bool:
        """Whether it says that it is ready, and its webhooks answer with their certificate."""
        assert self._child is not None
        assert self._child.poll() is None, f"{self.release.name} ended: {self.log()}"
        context = ssl.create_default_context(cafile=self._start.certificates / "ca.pem")
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            try:
                async with session.get(f"http://{self._start.probes}/readyz") as answer:
                    if answer.status != _OK:
                        return False
                async with session.get(f"https://127.0.0.1:{self._start.port}/", ssl=context):
                    return True
            except (aiohttp.ClientError, TimeoutError):
                return False

    async def _register(self, api: KubeApi, one: Tree, ca: str) -> None:
        name = f"{self.release.name}-{one['metadata']['name']}"
        body = copy.deepcopy(one) | {"metadata": {"name": name}}
        for webhook in body["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {
                "url": f"https://127.0.0.1:{self._start.port}{path}",
                "caBundle": ca,
            }
        collection = f"{_REGISTRATIONS}/{_KINDS[one['kind']]}"
        self._registered.append(f"{collection}/{name}")
        await api.post(collection, body)
