"""A Kubernetes API server as child processes, with etcd and controllers, for tests and trials.

There is no kubelet: a pod that is bound to a node stays Pending until a client writes its status. Every process listens
only on the loopback interface, unless it is given another place, and writes to a log file. The kernel kills it when the
thread that started it ends.
"""

import asyncio
import base64
import csv
import http.client
import json
import os
import secrets
import signal
import ssl
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from berth.lab.servers.kube_assets import API_SERVER, CONTROLLER_MANAGER, ETCD, kube_assets, program_in, version_of
from berth.lab.servers.place import Place
from berth.lab.servers.ports import free_ports
from berth.lab.servers.processes import LocalProcesses
from berth.runtime.errors import FatalError

ADMIN: Final = "admin"
"""User with all rights: a member of ``system:masters``, which the server neither authorizes nor throttles."""

CONTROLLERS: Final = (
    "clusterrole-aggregation",
    "deployment",
    "disruption",
    "garbagecollector",
    "job",
    "namespace",
    "podgc",
    "replicaset",
    "root-ca-cert-publisher",
    "serviceaccount",
    "statefulset",
)
"""Default controllers, by names that are valid in all versions."""

_NODE_CONTROLLER: Final = "nodelifecycle"
_MINOR_WITHOUT_INSECURE_PORT: Final = 24
_LOG_TAIL_BYTES: Final = 2000
_POLL_S: Final = 0.02
_ASK_S: Final = 2.0
# A private key on the curve P-256 without its public part: RFC 5915, around a secret of 32 octets.
_KEY_HEAD: Final = bytes.fromhex("30310201010420")
_KEY_TAIL: Final = bytes.fromhex("a00a06082a8648ce3d030107")


class KubeServer(LocalProcesses):
    """A kube-apiserver with RBAC, its etcd and, by default, a kube-controller-manager.

    All files are below ``root``: data, keys, logs. A restart uses the same data, ports, certificate and tokens.
    As an async context manager it starts and stops. A new node gets no taint unless the node controller runs.

    Args:
        root: Folder of its files; created if missing, never removed. A folder in memory is faster.
        assets: Folder of the programs; None searches for them, see
            :func:`~berth.lab.servers.kube_assets.kube_assets`.
        users: Users besides :data:`ADMIN`, with their groups; without a role they have no rights.
        controllers: Names of the controllers to run; empty for none.
        service_account_admission: Whether a pod needs the service account of its namespace, as in a real cluster; the
            controller ``serviceaccount`` creates them shortly after their namespace.
        api_args: More arguments of kube-apiserver.
        controller_args: More arguments of kube-controller-manager.
        start_deadline_s: Seconds within which each part must be ready.

    Attributes:
        root: Folder of its files.
        ca_file: File of the CA certificate; exists after the first start.
        admin_token: Bearer token of :data:`ADMIN`.
        places: Where programs run that have a place of their own, by name; to be set before the first start.
    """

    def __init__(
        self,
        root: Path,
        *,
        assets: Path | None = None,
        users: Mapping[str, Sequence[str]] | None = None,
        controllers: Sequence[str] = CONTROLLERS,
        service_account_admission: bool = False,
        api_args: Sequence[str] = (),
        controller_args: Sequence[str] = (),
        start_deadline_s: float = 60.0,
    ) -> None:
        self.root = root
        self.places: dict[str, Place] = {}
        self._assets = assets if assets is not None else kube_assets()
        self._groups = {ADMIN: ("system:masters",), **(users or {})}
        self._tokens = {user: secrets.token_hex(16) for user in self._groups}
        self._controllers = tuple(controllers)
        self._service_account_admission = service_account_admission
        self._api_args = tuple(api_args)
        self._controller_args = tuple(controller_args)
        self._start_deadline_s = start_deadline_s
        self._ports = dict(zip(("api", "etcd", "peer", "kcm"), free_ports(4), strict=True))
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._version = ""
        self.ca_file = root / "pki" / "apiserver.crt"
        self.admin_token = self._tokens[ADMIN]

    @property
    def url(self) -> str:
        """URL for clients."""
        return f"https://{self._host(API_SERVER)}:{self._ports['api']}"

    @property
    def etcd_url(self) -> str:
        """URL of its etcd, which has no authentication."""
        return f"http://{self._host(ETCD)}:{self._ports['etcd']}"

    @property
    def version(self) -> str:
        """Version that kube-apiserver prints, such as ``v1.36.3``; valid after the first start."""
        return self._version

    @property
    def minor(self) -> int:
        """Second number of the version, such as 36; valid after the first start."""
        return int(self._version.split(".")[1])

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the running programs, by name."""
        return {name: child.pid for name, child in sorted(self._children.items()) if child.poll() is None}

    @property
    def users(self) -> tuple[str, ...]:
        """Names of all users, sorted."""
        return tuple(sorted(self._tokens))

    def token(self, user: str) -> str:
        """Bearer token of a user.

        Raises:
            FatalError: There is no such user.
        """
        if user not in self._tokens:
            raise FatalError(f"user {user} is unknown; known are {', '.join(self.users)}")
        return self._tokens[user]

    def log_path(self, program: str) -> Path:
        """Log file of a program, for all its starts."""
        return self.root / f"{program}.log"

    def ssl_context(self) -> ssl.SSLContext:
        """TLS context for clients; valid after the first start."""
        context = ssl.create_default_context(cafile=self.ca_file)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the self-signed certificate of the server lacks extensions
        return context

    def write_kubeconfig(self, path: Path, *, user: str = ADMIN) -> Path:
        """Write a kubeconfig for a user, readable only by the owner, and return its path.

        Raises:
            FatalError: There is no such user.
        """
        name = "berth"
        cluster = {"server": self.url, "certificate-authority": str(self.ca_file.resolve())}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self.token(user)}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
            "current-context": name,
        }
        _write_secret(path, json.dumps(config, indent=2) + "\n")
        return path

    async def start(self) -> None:
        """Start the programs that do not run, and wait until they are ready.

        Raises:
            FatalError: A program is missing, ended, or was not ready in time; contains the end of its log.
        """
        for name in (ETCD, API_SERVER, *([CONTROLLER_MANAGER] if self._controllers else [])):
            program_in(self._assets, name)
        self._prepare()
        if not self._version:
            self._version = await version_of(program_in(self._assets, API_SERVER))
        try:
            self.start_etcd()
            await self.start_api()
            if self._controllers:
                self._spawn(CONTROLLER_MANAGER, self._kcm_args())
                await self._until_ready(
                    CONTROLLER_MANAGER, self._ports["kcm"], "/healthz", self.root / "kcm" / f"{CONTROLLER_MANAGER}.crt"
                )
        except BaseException:
            await self.stop()
            raise

    async def start_api(self) -> None:
        """Start kube-apiserver and wait until it is ready; does nothing while it runs.

        Raises:
            FatalError: It ended or was not ready in time; contains the end of its log.
        """
        self.spawn_api()
        # Old versions report readiness shortly before they have created the default namespaces.
        for path in ("/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-node-lease"):
            await self._until_ready(API_SERVER, self._ports["api"], path, self.ca_file)

    def spawn_api(self) -> None:
        """Start kube-apiserver and do not wait for it; does nothing while it runs."""
        self._spawn(API_SERVER, self._api_flags())

    async def kill_api(self) -> None:
        """Kill kube-apiserver as a power failure would; etcd and the controllers continue."""
        await self._kill(API_SERVER)

    async def restart_api(self) -> None:
        """Kill kube-apiserver and start it with the same data and port."""
        await self.kill_api()
        await self.start_api()

    async def kill_etcd(self) -> None:
        """Kill etcd as a crash of the program would; what it has acknowledged is kept."""
        await self._kill(ETCD)

    def start_etcd(self) -> None:
        """Start etcd with the same data and ports; does nothing while it runs."""
        self._spawn(ETCD, self._etcd_args())

    async def stop(self) -> None:
        """Kill all programs; a graceful stop with open watches takes a minute. Acknowledged writes are kept."""
        for name in (CONTROLLER_MANAGER, API_SERVER, ETCD):
            await self._kill(name)

    def _place(self, name: str) -> Place:
        return self.places.get(name) or Place()

    def _host(self, name: str) -> str:
        return self._place(name).host

    def _prepare(self) -> None:
        """Write keys, tokens and the controllers' kubeconfig."""
        self.ca_file.parent.mkdir(parents=True, exist_ok=True)
        key = self._key_file()
        if not key.exists():
            _write_secret(key, _new_key())
        tokens = self.root / "tokens.csv"
        _write_secret(tokens, "")
        with tokens.open("w", encoding="utf-8", newline="") as file:
            rows = ((self._tokens[user], user, user, ",".join(groups)) for user, groups in self._groups.items())
            csv.writer(file, lineterminator="\n").writerows(rows)

    def _key_file(self) -> Path:
        return self.root / "pki" / "service-accounts.key"

    def _etcd_args(self) -> list[str]:
        peer = f"http://{self._host(ETCD)}:{self._ports['peer']}"
        return [
            f"--data-dir={self.root / 'etcd'}",
            f"--listen-client-urls={self.etcd_url}",
            f"--advertise-client-urls={self.etcd_url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            f"--quota-backend-bytes={4 << 30}",
            "--log-level=warn",
        ]

    def _api_flags(self) -> list[str]:
        off = [] if self._service_account_admission else ["ServiceAccount"]
        if _NODE_CONTROLLER not in self._controllers:
            off.append("TaintNodesByCondition")  # without the node controller the taint would stay
        key = self._key_file()
        return [
            f"--etcd-servers={self.etcd_url}",
            f"--bind-address={self._host(API_SERVER)}",
            f"--secure-port={self._ports['api']}",
            f"--advertise-address={self._host(API_SERVER)}",
            "--endpoint-reconciler-type=none",  # a service may not lead to a loopback address
            f"--cert-dir={self.ca_file.parent}",
            f"--token-auth-file={self.root / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged=true",
            "--profiling=false",
            *([f"--disable-admission-plugins={','.join(off)}"] if off else []),
            *self._api_args,
        ]

    def _kcm_args(self) -> list[str]:
        kubeconfig = self.write_kubeconfig(self.root / "kcm.kubeconfig")
        return [
            f"--kubeconfig={kubeconfig}",
            f"--bind-address={self._host(CONTROLLER_MANAGER)}",
            f"--secure-port={self._ports['kcm']}",
            *(["--port=0"] if self.minor < _MINOR_WITHOUT_INSECURE_PORT else []),
            f"--cert-dir={self.root / 'kcm'}",
            f"--root-ca-file={self.ca_file}",
            f"--service-account-private-key-file={self._key_file()}",
            "--leader-elect=false",
            f"--controllers={','.join(self._controllers)}",
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
            *self._controller_args,
        ]

    def _spawn(self, name: str, args: Sequence[str]) -> None:
        child = self._children.get(name)
        if child is not None and child.poll() is None:
            return
        with self.log_path(name).open("ab") as log:
            self._children[name] = subprocess.Popen(  # noqa: S603  # programs of the assets and generated arguments
                [program_in(self._assets, name), *args],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=self._place(name).prepare(),  # noqa: PLW1509  # system calls, no locks
            )

    async def _until_ready(self, name: str, port: int, path: str, ca_file: Path) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._start_deadline_s
        while not await asyncio.to_thread(self._answers, self._host(name), port, path, ca_file):
            for part in (name, ETCD):
                child = self._children[part]
                if child.poll() is not None:
                    raise FatalError(f"{part} ended with {child.returncode}: {self._log_tail(part)}")
            if loop.time() > end:
                raise FatalError(f"{name} is not ready after {self._start_deadline_s} s: {self._log_tail(name)}")
            await asyncio.sleep(_POLL_S)

    def _answers(self, host: str, port: int, path: str, ca_file: Path) -> bool:
        """Whether the server on a port serves a path; it writes its certificate when it starts."""
        try:
            context = ssl.create_default_context(cafile=ca_file)
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            connection = http.client.HTTPSConnection(host, port, timeout=_ASK_S, context=context)
            try:
                connection.request("GET", path, headers={"Authorization": f"Bearer {self.admin_token}"})
                return connection.getresponse().status == http.HTTPStatus.OK
            finally:
                connection.close()
        except (OSError, http.client.HTTPException):
            return False

    async def _kill(self, name: str) -> None:
        child = self._children.get(name)
        if child is None or child.poll() is not None:
            return
        child.send_signal(signal.SIGKILL)
        while child.poll() is None:  # noqa: ASYNC110  # a process has no event to wait for
            await asyncio.sleep(_POLL_S)

    def _log_tail(self, name: str) -> str:
        with self.log_path(name).open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - _LOG_TAIL_BYTES))
            return log.read().decode(errors="replace")


def _new_key() -> str:
    """A private key in PEM for tokens of service accounts. Its first octet is 0, so it is below the group order."""
    key = base64.b64encode(_KEY_HEAD + b"\0" + secrets.token_bytes(31) + _KEY_TAIL).decode("ascii")
    lines = [key[at : at + 64] for at in range(0, len(key), 64)]
    return "\n".join(["-----BEGIN EC PRIVATE KEY-----", *lines, "-----END EC PRIVATE KEY-----", ""])


def _write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text, "utf-8")
