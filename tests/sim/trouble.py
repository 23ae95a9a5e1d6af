"""What breaks: processes, networks, servers, clocks."""

from typing import Final

import msgspec

from berth.schemas.subjects import StreamName
from tests.sim.cell import CLUSTER
from tests.sim.stage import Stage
from tests.sim.story import Event

STREAMS: Final = (StreamName.LEDGER, StreamName.FACTS, StreamName.STATUS, StreamName.LEASE, StreamName.INTAKE)
QUEUES: Final = ("skip", "fifo", "easy", "conservative")


class Trouble(Stage):
    """See above."""

    # Processes.

    def _do_kill(self, event: Event) -> None:
        name = self.service_of(event)
        self.cell.kill(name)
        self.later(event.for_s, self.cell.start, name)

    def _do_blackout(self, event: Event) -> None:
        """All services die at once, and come back one after another."""
        for number, name in enumerate(name for name in self.cell.names if name != CLUSTER):
            self.cell.kill(name, "blackout")
            self.later(0.1 + event.for_s * (event.two >> number & 1), self.cell.start, name)

    def _do_fuse(self, event: Event) -> None:
        """A process dies after some callbacks, at whatever it awaits then."""
        process = self.cell.processes.get(self.service_of(event))
        if process is not None:
            process.lane.fuse = 1 + event.two % 60

    def _do_point(self, event: Event) -> None:
        """A process dies at a fault point."""
        is_binder = event.one % 3 == 0
        names = (
            ("bind", "outcome", "volume", "unbound", "leave", "mark")
            if is_binder
            else ("lease", "epoch", "fact", "append", "status", "snapshot", "purge", "dead", "expire")
        )
        point = f"{names[event.two % len(names)]}.{('before', 'after')[event.one // 3 % 2]}"
        for name, process in list(self.cell.processes.items()):
            if name.startswith("binder" if is_binder else "dispatcher"):
                process.faults.fatal = (point, 1 + event.two // 7 % 3)

    def _do_restart(self, event: Event) -> None:
        """A process is asked to end, and started again."""
        name = self.service_of(event)
        self.cell.stop(name)
        self.later(event.for_s + 1, self.cell.start, name)

    def _do_pause(self, event: Event) -> None:
        process = self.cell.processes.get(self.service_of(event))
        if process is not None:
            process.pause()
            self.later(event.for_s, process.resume)

    def _do_settings(self, event: Event) -> None:
        """Dispatchers and scorers are started again with other settings and another number of shards."""
        cell = self.cell
        old = [name for name in cell.names if name.startswith(("dispatcher", "scorer"))]
        decisions = {**cell.settings.decisions, "queue_policy": QUEUES[event.two % len(QUEUES)]}
        cell.settings = msgspec.structs.replace(cell.settings, shards=event.one % 4, decisions=decisions)
        for name in old:
            cell.kill(name, "other settings")
        for name in cell.names:
            if name.startswith(("dispatcher", "scorer")):
                self.later(0.2, cell.start, name)

    def _do_level(self, event: Event) -> None:
        """Dispatchers are started again, and queues do something else."""
        cell = self.cell
        decisions = {**cell.settings.decisions, "queues": (1, 2, 2, 0)[event.two % 4]}
        cell.settings = msgspec.structs.replace(cell.settings, decisions=decisions)
        for name in [name for name in cell.names if name.startswith("dispatcher")]:
            cell.kill(name, "other settings")
            self.later(0.2, cell.start, name)

    # Networks and servers.

    def _do_cut(self, event: Event) -> None:
        process = self.cell.processes.get(self.service_of(event))
        if process is not None:
            for connection in process.connections:
                connection.cut(event.for_s)

    def _do_hold(self, event: Event) -> None:
        """What a process sends arrives later."""
        self._hold(event, "outgoing")

    def _do_deafen(self, event: Event) -> None:
        """What a process is sent arrives later."""
        self._hold(event, "incoming")

    def _hold(self, event: Event, direction: str) -> None:
        process = self.cell.processes.get(self.service_of(event))
        if process is not None:
            connections = [*process.buses, *(process.apis if event.two % 2 else ())]
            for connection in connections:
                getattr(connection, direction).held_until_s = self.loop.now_s + event.for_s

    def _do_unheard(self, event: Event) -> None:
        """Answers to some writes are lost."""
        process = self.cell.processes.get(self.service_of(event))
        if process is not None:
            for connection in process.connections:
                connection.lose_replies = 1 + event.two % 3

    def _do_consumers(self, event: Event) -> None:
        process = self.cell.processes.get(self.service_of(event))
        if process is not None:
            for bus in process.buses:
                bus.lose_consumers()

    def _do_lag(self, event: Event) -> None:
        self.cell.server.lag_s = event.for_s
        self.later(3 * event.for_s, setattr, self.cell.server, "lag_s", 0.0)

    def _do_leaderless(self, event: Event) -> None:
        """The stream's leader is elected anew."""
        name = self.user.subjects.stream(STREAMS[event.one % len(STREAMS)])
        self.cell.server.silent_until_s[name] = self.loop.now_s + min(event.for_s, 7.0)

    def _do_stuck_lease(self, event: Event) -> None:
        """No server leads the stream of leases before it is deleted; with one replica, until the server is back."""
        if self.cell.settings.replicas == 1:
            self._do_leaderless(msgspec.structs.replace(event, one=STREAMS.index(StreamName.LEASE)))
        else:
            self.cell.server.stuck.add(self.user.subjects.stream(StreamName.LEASE))

    def _do_server(self, event: Event) -> None:
        """The bus's server is killed and comes back."""
        server = self.cell.server
        server.is_down = True
        for process in self.cell.processes.values():
            for bus in process.buses:
                bus.cut(event.for_s)
        self.user.cut(event.for_s)

        def back() -> None:
            if server.is_down:  # otherwise somebody has started it meanwhile, and clients are connected
                server.is_down = False
                server.forget_views(1 + event.two % 8)

        self.later(event.for_s, back)

    def _do_busy(self, event: Event) -> None:
        self._weather(event, busy=0.3 + event.two % 7 / 10)

    def _do_failing(self, event: Event) -> None:
        self._weather(event, failing=0.2 + event.two % 4 / 10)

    def _do_conflicts(self, event: Event) -> None:
        self._weather(event, conflicting=0.5)

    def _do_denying(self, event: Event) -> None:
        self._weather(event, denying=0.3 + event.two % 7 / 10)

    def _do_hanging(self, event: Event) -> None:
        self._weather(event, hanging=1.0)

    def _weather(self, event: Event, **shares: float) -> None:
        kube = self.cell.kube
        kube.weather = msgspec.structs.replace(kube.weather, **shares)
        self.later(event.for_s, self._clear, tuple(shares))

    def _clear(self, names: tuple[str, ...]) -> None:
        kube = self.cell.kube
        kube.weather = msgspec.structs.replace(kube.weather, **dict.fromkeys(names, 0.0))

    def _do_expire(self, event: Event) -> None:
        process = self.cell.processes.get((CLUSTER, "inventory", "binder", "summary", "health")[event.one % 5])
        if process is not None:
            for api in process.apis:
                api.expire_watches()

    def _do_blind(self, event: Event) -> None:
        """Watches expire, and the lists that follow take long."""
        process = self.cell.processes.get(("inventory", "inventory", "binder", "summary", CLUSTER)[event.one % 5])
        if process is not None:
            for api in process.apis:
                api.expire_watches(blind_s=event.for_s)

    def _do_kube_down(self, event: Event) -> None:
        self.cell.kube.is_down = True
        self.later(event.for_s, self._kube_up)

    def _kube_up(self) -> None:
        self.cell.kube.is_down = False

    def _do_clock(self, event: Event) -> None:
        """The clock of a machine is set."""
        names = [name for name in self.cell.clocks if name not in {"bus", "kube", CLUSTER}]
        step_s = (-30.0, -1.0, 1.0, 30.0, 600.0)[event.two % 5]
        if names:
            self.cell.clocks[names[event.one % len(names)]].advance(step_s)
