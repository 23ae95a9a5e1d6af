"""A cell in which a bystander places jobs one after the other, however it submits them."""

from collections.abc import Mapping
from typing import Final

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Follower, Gap, Stored
from berth.runtime.clock import SystemClock
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.ledger import Epoch
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.support.processes import Service
from tests.support.waiting import until

TENANT: Final = "tenant"
"""Identity and namespace of the tenant that sends much."""
BYSTANDER: Final = "bystander"
"""Identity and namespace of the other one."""
DECENT: Final = tuple(f"decent-{number}" for number in range(4))
"""Tenants that stay within their bounds together where one alone does not."""
CLUSTER: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 24, name: "a2-{index:02}"}
  - {product: module910x8, count: 8, name: "a1-{index:02}"}
"""
"""Nodes for which the tenants ask, and those on which the bystander's jobs run: places are not what they lack."""
_PLACED_S: Final = 60.0
_HAS_PLACE: Final = frozenset({"placed", "bound", "running", "succeeded"})


class MeasuredCell:
    """A cell that runs.

    Args:
        bus: A connection to the cell, with all rights.
        running: Its services.
    """

    def __init__(self, bus: NatsBus, running: Mapping[str, Service]) -> None:
        self.bus = bus
        self._running = running
        self._placed: dict[str, float] = {}
        self._number = 0
        self._clock = SystemClock()

    async def submit(self, name: str) -> str:
        """Submit a job as the bystander does; returns the name of its request."""
        raise NotImplementedError

    async def follow(self) -> Follower:
        """Note from now on when jobs of the bystander have their places, until the follower is stopped."""
        end = (await self.bus.state(StreamName.STATUS)).last_seq
        return self.bus.follow(
            StreamName.STATUS,
            on_message=self._note,
            on_gap=_fail,
            start_seq=end + 1,
            filters=[f"{self.bus.subjects.root}status.{BYSTANDER}.*"],
        )

    def _note(self, stored: Stored) -> None:
        try:
            status = decode(stored.data, JobStatus)
        except DecodeError:
            return
        if status.phase in _HAS_PLACE:
            self._placed.setdefault(status.name, self._clock.monotonic_s())

    async def place_one(self) -> float:
        """Submit a job as the bystander does; seconds until it has its place."""
        self._number += 1
        began_s = self._clock.monotonic_s()
        name = await self.submit(f"job-{self._number}")
        await until(lambda: name in self._placed, deadline_s=_PLACED_S, what=f"{name} of the bystander has a place")
        return self._placed.pop(name) - began_s

    async def leaders(self) -> int:
        """How often a dispatcher became leader."""
        records = await self.bus.read(StreamName.LEDGER)
        return sum(1 for stored in records if b"ledger.epoch" in stored.data[:32] and _is_epoch(stored))

    def check_whole(self) -> None:
        """See that every service runs as it was started.

        Raises:
            AssertionError: One has ended; shows its log.
        """
        for name, service in self._running.items():
            assert service.is_running, f"{name} ended with {service.returncode}\n{service.log()}"


def _is_epoch(stored: Stored) -> bool:
    try:
        decode(stored.data, Epoch)
    except DecodeError:
        return False
    return True


def _fail(gap: Gap) -> None:
    raise AssertionError(f"statuses were lost: {gap}")
