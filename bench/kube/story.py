"""Events of a gang in a bench on Kubernetes: pods from a watch of the API server, everything else from the bus."""

import asyncio
import time
from typing import Final

from bench.arrivals import Arrivals
from berth.formats.kubernetes.lean import Lean, Meta
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Stored
from berth.runtime.kube.port import Change
from berth.schemas.envelope import DecodeError, body_of, open_envelope
from berth.schemas.facts import OutcomeSeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Round
from berth.schemas.subjects import StreamName

_DEADLINE_S: Final = 150.0


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class _Spec(Lean, frozen=True):
    node_name: str = ""


class PodLean(Lean, frozen=True):
    """The fields of a pod that are used here."""

    metadata: Meta = Meta()
    spec: _Spec = _Spec()


class Pods:
    """Pods of a watch: when they were created and bound, in ms since 1970 and by the performance counter in s."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._bound: dict[str, None] = {}
        self.made_ms: list[int] = []
        self.bound_ms: list[int] = []
        self.made_s: list[float] = []
        self.bound_s: list[float] = []
        self.changed = asyncio.Event()

    def replace(self, pods: list[PodLean]) -> None:
        """All pods."""
        listed = {pod.metadata.name for pod in pods}
        for name in [name for name in self._names if name not in listed]:
            self._drop(name)
        self.change([("ADDED", pod) for pod in pods])

    def change(self, changes: list[tuple[Change, PodLean]]) -> None:
        """Changes, oldest first."""
        at_ms, at_s = now_ms(), time.perf_counter()
        for what, pod in changes:
            name = pod.metadata.name
            if what == "DELETED":
                self._drop(name)
                continue
            if name not in self._names:
                self._names[name] = None
                self.made_ms.append(at_ms)
                self.made_s.append(at_s)
            if pod.spec.node_name and name not in self._bound:
                self._bound[name] = None
                self.bound_ms.append(at_ms)
                self.bound_s.append(at_s)
        self.changed.set()

    def _drop(self, name: str) -> None:
        self._names.pop(name, None)
        self._bound.pop(name, None)

    @property
    def count(self) -> int:
        """Count of existing pods."""
        return len(self._names)

    def forget_times(self) -> None:
        """Clear all recorded times."""
        for times in (self.made_ms, self.bound_ms, self.made_s, self.bound_s):
            times.clear()

    async def until_count(self, count: int) -> None:
        """Wait until that many pods exist."""
        async with asyncio.timeout(_DEADLINE_S):
            while self.count != count:
                self.changed.clear()
                await self.changed.wait()

    async def until_bound(self, count: int) -> None:
        """Wait until that many pods are bound since :meth:`forget_times`."""
        async with asyncio.timeout(_DEADLINE_S):
            while len(self.bound_ms) < count:
                self.changed.clear()
                await self.changed.wait()


class Story:
    """Events of jobs on the bus; times in ms since 1970."""

    def __init__(self, bus: NatsBus) -> None:
        self.asked: dict[str, int] = {}
        self.placed: dict[str, int] = {}
        self.bound: dict[str, int] = {}
        streams = (StreamName.INTAKE, StreamName.LEDGER, StreamName.FACTS)
        self._until = Arrivals(bus, *streams, take=self._take, deadline_s=_DEADLINE_S).until

    def _take(self, stored: Stored) -> None:
        try:
            envelope = open_envelope(stored.data)
            match envelope.kind:
                case JobRequest.KIND:
                    self.asked[body_of(envelope, JobRequest).name] = stored.at_ms
                case Round.KIND:
                    verdicts = body_of(envelope, Round).verdicts
                    self.placed.update((one.name, stored.at_ms) for one in verdicts if one.placement is not None)
                case OutcomeSeen.KIND:
                    self._bound(body_of(envelope, OutcomeSeen))
                case _:
                    return
        except DecodeError:
            return

    def _bound(self, outcome: OutcomeSeen) -> None:
        if outcome.state != "bound" or outcome.failures:
            raise RuntimeError(f"{outcome.name}: {outcome.state}, {outcome.failures[:1]}")
        self.bound[outcome.name] = outcome.at_ms

    async def until_placed(self, job: str) -> None:
        """Wait until a job is placed."""
        await self._until(lambda: job in self.placed)

    async def until_bound(self, job: str) -> None:
        """Wait until a job is bound."""
        await self._until(lambda: job in self.bound)
