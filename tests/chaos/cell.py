"""A cell of real processes, each at an address of its own, with proxies before the servers."""

import asyncio
import hashlib
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

from berth.lab.cells.fleet import EXAMPLES
from berth.lab.servers.kube_assets import API_SERVER, CONTROLLER_MANAGER, ETCD
from berth.lab.servers.kube_server import KubeServer
from berth.lab.servers.nats_server import EmbeddedServer
from berth.lab.servers.processes import LocalProcesses
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import FatalError, TransientError
from berth.schemas.subjects import StreamName
from tests.chaos.clocks import SteppedClock
from tests.chaos.component import UNREACHED, Component, KubeComponent, NatsComponent, ServiceComponent, start_all
from tests.chaos.disk.mount import Disk
from tests.chaos.fault import USERS, Setup
from tests.chaos.network import Network
from tests.chaos.proxy import Proxy
from tests.support.kube_api import KubeApi, apply_crds, crds_in
from tests.support.kube_rights import SERVICES, grant
from tests.support.processes import Service
from tests.support.waiting import pause, until_true
from tests.support.watch import Watch

CELL: Final = "chaos"
NAMESPACE: Final = "chaos"
NATS_PORT: Final = 4222
GATEWAY_PORT: Final = 8222
GATEWAY_TOKEN: Final = "of the observer"  # noqa: S105  # of this cell alone
_ROUTE_PORT: Final = 6222
_PROXY_PORTS_FROM: Final = 5000
_STARTS_MAX: Final = 400
_SOON_S: Final = 60.0
_CONTROLLERS: Final = ("podgc",)
"""An API server that is killed between the two writes of a deletion leaves an unbound pod that is terminating."""
_START_S: Final = 150.0
_TAIL_CHARS: Final = 1500
NODES: Final = 4
TOPOLOGY: Final = f"""
apiVersion: berth/v1
kind: Cluster
nodes:
  - {{product: module910bx8, count: {NODES}, name: "a2-{{index}}", leaf: {{size: 2}}}}
"""
_DECISIONS: Final = {"shard_retry_ms": 100}
_SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "dispatcher": {"lease_s": 2, "snapshot_records": 50, "tick_s": 0.2, "gather_timeout_s": 0.5},
    "inventory": {"retry_wait_max_s": 2, "settle_s": 0.1, "gangs": {"vanished_s": 3, "retry_s": 1, "look_again_s": 2}},
    "health": {"retry_wait_max_s": 2},
    "binder": {"retry_wait_max_s": 2},
    "nodesim": {"retry_wait_max_s": 2, "terminating_s": 0.1},
    "api": {"retry_wait_max_s": 2, "access": "open"},
    "gateway": {
        "host": "0.0.0.0",  # noqa: S104  # of a network of its own
        "port": GATEWAY_PORT,
        "plain_http": True,
        "tokens": [{"identity": "observer", "sha256": hashlib.sha256(GATEWAY_TOKEN.encode()).hexdigest()}],
    },
}
_AGENTS: Final = {"report_s": 0.5, "start_s": 0.05, "admit_s": 0.05, "controllers": ["volcano", "ascend"]}


class ChaosCell(LocalProcesses):
    """A cell that may break anywhere. An async context manager: it starts everything, and leaves nothing behind.

    Attributes:
        network: Hosts and what is lost between them.
        components: All processes, by name.
        servers: The nats-servers, by name.
        disks: The disks of the nats-servers, by name. Each write is synced, so a loss of power may take nothing.
        clocks: The wall clocks of the services, by name.
        proxies: By client and server.
        ended: How often each component ended by itself and was started again.
        api: Calls of the observer to the API server, which no proxy disturbs; None without one.
    """

    def __init__(self, setup: Setup, folder: Path, seed: int) -> None:
        self.setup = setup
        self.folder = folder
        self.network = Network()
        self.components: dict[str, Component] = {}
        self.servers: dict[str, EmbeddedServer] = {}
        self.disks: dict[str, Disk] = {}
        self.clocks: dict[str, SteppedClock] = {}
        self.proxies: dict[tuple[str, str], Proxy] = {}
        self.ended: Counter[str] = Counter()
        self.kube: KubeServer | None = None
        self.api: KubeApi | None = None
        self._watch: Watch | None = None
        self._random = Random(seed)  # noqa: S311  # the same jitter every time
        self._stack = AsyncExitStack()
        self._mounts = AsyncExitStack()
        self._keeper: asyncio.Task[None] | None = None
        self._make_servers()
        self._make_proxies()

    async def stop(self) -> None:
        """End everything at once."""
        if self._keeper is not None:
            self._keeper.cancel()
        if self._watch is not None:
            await self._watch.stop()
        await self._stack.aclose()
        for component in self.components.values():
            component.resume_now()
        for component in self.components.values():
            if isinstance(component, ServiceComponent):
                component.service.destroy()
        for server in self.servers.values():
            await server.kill()
        if self.kube is not None:
            await self.kube.stop()
        await self._mounts.aclose()
        for proxy in self.proxies.values():
            await proxy.stop()
        self.network.__exit__()

    @property
    def watch(self) -> Watch:
        """All that was ever stored, as an observer saw it whom no proxy disturbs."""
        assert self._watch is not None, "the cell has not started"
        return self._watch

    @property
    def bus(self) -> NatsBus:
        """Connection of the observer."""
        return self.watch.bus

    def urls(self, client: str) -> list[str]:
        """URLs of the nats-servers for a client, through its proxies."""
        return [f"nats://{p.host.address}:{p.port}" for (name, _), p in self._nats_proxies() if name == client]

    def api_url(self, client: str) -> str:
        """URL of the API server for a client, through its proxy."""
        proxy = self.proxies[client, API_SERVER]
        return f"https://{proxy.host.address}:{proxy.port}"

    @property
    def gateway_url(self) -> str:
        """URL of the gateway, which no proxy disturbs."""
        return f"http://{self.network.host('gateway').address}:{GATEWAY_PORT}"

    @property
    def direct_urls(self) -> list[str]:
        """URLs of the nats-servers without proxies."""
        return [server.url for server in self.servers.values()]

    def service(self, name: str) -> ServiceComponent:
        """A service by its name."""
        component = self.components[name]
        assert isinstance(component, ServiceComponent)
        return component

    def logs(self) -> str:
        """Ends of all logs, for messages of failed runs."""
        return "".join(f"\n--- {name}\n{component.log()[-_TAIL_CHARS:]}" for name, component in self.components.items())

    async def until_stands(self) -> None:
        """Wait until the cluster is known and somebody decides.

        Raises:
            AssertionError: It takes too long; shows the logs.
        """

        async def stands() -> bool:
            try:
                nodes = await self.bus.read(StreamName.LATEST, filters=(self.bus.subjects.facts("node"),))
                return bool(nodes) and (await self.bus.state(StreamName.LEDGER)).last_seq > 0
            except TransientError:
                return False

        try:
            await until_true(stands, deadline_s=_SOON_S, what="the cell stands")
        except AssertionError as error:
            raise AssertionError(f"{error}{self.logs()}") from error

    def _make_servers(self) -> None:
        names = self.setup.nats
        routes = ", ".join(f'"nats://{self.network.host(name).address}:{_ROUTE_PORT}"' for name in names)
        for name in names:
            host = self.network.host(name)
            # Clients must not learn of ways that lead around the proxies.
            more = (
                f'server_name: "{name}"\ncluster {{ name: "chaos", listen: "{host.address}:{_ROUTE_PORT}",'
                f" routes: [{routes}], no_advertise: true }}"
            )
            server = EmbeddedServer(
                self.folder / name,
                port=NATS_PORT,
                sync="always",
                more=more if len(names) > 1 else "",
                start_deadline_s=_START_S,
                place=host.place,
            )
            self.disks[name] = Disk(server.store)
            self.servers[name] = server
            self.components[name] = NatsComponent(name, host, server)
        if self.setup.kube:
            self.kube = KubeServer(
                self.folder / "kube",
                users=dict.fromkeys(SERVICES, ()),
                controllers=_CONTROLLERS,
                start_deadline_s=_START_S,
            )
            self.kube.places[CONTROLLER_MANAGER] = self.network.host(API_SERVER).place
            for name in (ETCD, API_SERVER):
                host = self.network.host(name)
                self.kube.places[name] = host.place
                self.components[name] = KubeComponent(name, host, self.kube)

    def _make_proxies(self) -> None:
        clients = (*self.setup.services, USERS)
        for client, server in self.setup.ways:
            host = self.network.host(server)
            to = NATS_PORT if server in self.servers else self._api_port
            port = _PROXY_PORTS_FROM + clients.index(client)
            self.proxies[client, server] = Proxy(host, port, to, Random(self._random.random()))  # noqa: S311  # likewise

    @property
    def _api_port(self) -> int:
        assert self.kube is not None
        return int(self.kube.url.rpartition(":")[2])

    def _nats_proxies(self) -> list[tuple[tuple[str, str], Proxy]]:
        return [(way, proxy) for way, proxy in self.proxies.items() if way[1] in self.servers]

    async def start(self) -> None:
        """Start everything, and wait until the cell stands."""
        for disk in self.disks.values():
            await self._mounts.enter_async_context(disk)
        await start_all([self.components[name] for name in self.setup.nats])
        for proxy in self.proxies.values():
            await proxy.start()
        if self.kube is not None:
            await self.kube.start()
            await self._prepare_kubernetes(self.kube)
        bus = await NatsBus.connect(
            self.direct_urls, CELL, name="observer", inbox="_INBOX.person.observer", timeout_s=_SOON_S
        )
        self._watch = Watch(await self._stack.enter_async_context(bus))
        await until_true(self._has_streams, deadline_s=_SOON_S, what="the streams are there")
        self.watch.start()
        for name in self.setup.services:
            host = self.network.host(name)
            self.components[name] = ServiceComponent(name, host, self._service(name))
        await start_all([self.components[name] for name in self.setup.services])
        self._keeper = asyncio.get_running_loop().create_task(self._keep_alive(), name="keep alive")
        await self.until_stands()

    async def _has_streams(self) -> bool:
        try:
            await self.bus.ensure_streams(replicas=self.setup.servers)
        except (TransientError, FatalError):  # a cluster that has only just met refuses for a moment
            return False
        return True

    async def _prepare_kubernetes(self, kube: KubeServer) -> None:
        self.api = await self._stack.enter_async_context(KubeApi(kube))
        await apply_crds(self.api, crds_in(EXAMPLES / "crds"))
        for name in (NAMESPACE, "mindx-dl"):
            await self.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        for name in self.setup.on_kubernetes:
            await grant(self.api, name, name)

    def _service(self, name: str) -> Service:
        """A service, which reaches its servers through proxies only."""
        kind, _, label = name.partition("-")
        settings = dict(_SETTINGS.get(kind, {}))
        settings["bus"] = {"cell": CELL, "replicas": self.setup.servers}
        if kind == "dispatcher":
            settings["shards"] = self.setup.shards
            settings["decisions"] = {**_DECISIONS, "needs_health": bool(self.setup.kube)}
        elif kind == "scorer":
            settings |= {"shard": int(label), "shards": self.setup.shards}
        elif kind == "nodesim":
            file = self.folder / "topology.yaml"
            file.write_text(TOPOLOGY)
            settings["topology_file"] = file
            if self.setup.kube:
                settings["agents"] = _AGENTS
        if name in self.setup.on_kubernetes:
            settings["kube"] = {"kubeconfig": self._kubeconfig(name)}
        service = Service(
            self.folder,
            kind,
            url=",".join(self.urls(name)),
            cell=CELL,
            settings=settings,
            label=f"-{label}" if label else "",
            place=self.network.host(name).place,
        )
        clock = self.clocks[name] = SteppedClock(self.folder / f"clock-{name}")
        service.env.update(clock.env)
        return service

    def _kubeconfig(self, name: str) -> Path:
        assert self.kube is not None
        path = self.kube.write_kubeconfig(self.folder / f"kubeconfig-{name}", user=name)
        path.write_text(path.read_text().replace(self.kube.url, self.api_url(name)))
        return path

    async def _keep_alive(self) -> None:
        """Start what has ended by itself again, as a cluster does with its pods."""
        while True:
            for name, component in self.components.items():
                if component.is_down or component.is_running:
                    continue
                if isinstance(component, ServiceComponent):
                    code = component.service.returncode
                    assert code == UNREACHED, f"{name} ended with {code}\n{component.log()}"
                self.ended[name] += 1
                assert self.ended[name] < _STARTS_MAX, f"{name} does not stay up\n{component.log()}"
                await component.start()
            await pause(0.3)

    def check(self) -> None:
        """See that nothing has ended as it must not.

        Raises:
            AssertionError: Something has.
        """
        if self._keeper is not None and self._keeper.done():
            self._keeper.result()
