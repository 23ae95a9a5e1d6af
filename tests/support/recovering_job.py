"""One job that recovers from faults, and what its status says."""

from berth.core.explain.job_status import status_of
from berth.schemas.facts import PodPhase
from berth.schemas.recovery import How, RecoveryStatus, Scope
from berth.schemas.status import JobStatus
from tests.support.recovering_gangs import Job, RecoveringGangs

P = PodPhase


class Recovering:
    """A job of three pods that runs."""

    def __init__(self) -> None:
        self.job = Job("j", 3, 2)
        self.world = RecoveringGangs([self.job])
        self.world.place(self.job, 0)
        self.bind()

    def bind(self) -> None:
        self.world.follow(self.job)
        for rank in range(3):
            self.world.bind(self.job, rank)
        self.world.publish(self.job)

    def nodes(self) -> list[str]:
        """Node of each rank in the ledger."""
        holding = self.world.holding(self.job)
        assert holding is not None
        return holding.placement.names()

    def end(self, *ranks: int) -> None:
        for rank in ranks:
            self.job.real[rank].phase = P.GONE
        self.world.publish(self.job)
        self.world.carry_out()

    def recover(self, *ranks: int, how: How = "grace", placed: bool = True, scope: Scope = "pod") -> None:
        assert self.world.recover(self.job, ranks, how, 3, placed=placed, scope=scope)

    @property
    def status(self) -> JobStatus:
        found = status_of(self.world.state, ("default", "j"), at_ms=99)
        assert found is not None
        return found

    @property
    def recovery(self) -> RecoveryStatus:
        found = self.status.recovery
        assert found is not None
        return found
