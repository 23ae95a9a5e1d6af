"""Progress of the binding of an attempt on a Kubernetes cluster. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from berth.schemas.facts import RankFailure
from berth.services.binder.cluster import BindResult, Gang
from berth.services.binder.members import Member

_FORBIDDEN_MAX_S: Final = 30.0
"""A request that is forbidden for this long is a failure. A server that has just started may not know the roles yet."""
_LEFT_OUT: Final = "not bound: the gang cannot be bound whole"


@dataclass(slots=True)
class Progress:
    """Progress of an attempt.

    Attributes:
        began_s: Time of the first try.
        gang: The attempt, as it was last tried.
        nodes: Node of each rank.
        chips: Chips of each rank, in the order of selection.
        notes: Annotations of each rank about its leaf switch and its SuperPoD.
        done: Ranks that are bound.
        failures: Ranks that cannot be bound, and the reasons.
        waiting_since_s: Time at which each waiting rank began to wait for its slot.
        lost: Uid of the former pod of a rank, until another pod takes the rank.
        unclear: Ranks that may or may not be bound.
        failing_since_s: Time of the first failure of each rank that recovers.
        has_claims: All claims of the gang are bound.
        forbidden_s: Time at which the server first forbade a request; None before.
    """

    began_s: float
    gang: Gang
    nodes: list[str]
    chips: list[tuple[int, ...]]
    notes: list[dict[str, str]]
    done: set[int] = field(default_factory=set)
    failures: dict[int, str] = field(default_factory=dict)
    waiting_since_s: dict[int, float] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    unclear: set[int] = field(default_factory=set)
    failing_since_s: dict[int, float] = field(default_factory=dict)
    has_claims: bool = False
    forbidden_s: float | None = None

    def is_outdated(self, gang: Gang) -> bool:
        """Whether an attempt has other places than when it was last tried."""
        last = self.gang
        return last.recovers != gang.recovers or last.steps != gang.steps or last.placement is not gang.placement

    def go_on(self, gang: Gang, nodes: list[str], chips: list[tuple[int, ...]], notes: list[dict[str, str]]) -> None:
        """Go on with other places: ranks that have got another one are not bound, and have not failed."""
        self.has_claims &= gang.step == self.gang.step
        for rank, step in gang.steps.items():
            if step != self.gang.steps.get(rank, 0):
                self.done.discard(rank)
                self.unclear.discard(rank)
                self.failures.pop(rank, None)
                self.waiting_since_s.pop(rank, None)
                self.lost.pop(rank, None)
                self.failing_since_s.pop(rank, None)
        self.gang, self.nodes, self.chips, self.notes = gang, nodes, chips, notes

    def missing(self, todo: Iterable[int], members: Mapping[int, Member]) -> list[int]:
        """Ranks of ``todo`` without a pod that could be bound."""
        return [rank for rank in todo if rank not in members or self.lost.get(rank) == members[rank].uid]

    def may_be_forbidden(self, now_s: float) -> bool:
        """Note a forbidden request; returns whether it may still be temporary."""
        if self.forbidden_s is None:
            self.forbidden_s = now_s
        return now_s < self.forbidden_s + _FORBIDDEN_MAX_S

    def result_of(self, ranks: Sequence[int]) -> BindResult:
        """Result for ranks that recover."""
        failures = [RankFailure(rank, self.failures[rank]) for rank in ranks if rank in self.failures]
        waiting = tuple(rank for rank in ranks if rank not in self.done and rank not in self.failures)
        return BindResult(len(ranks) - len(failures) - len(waiting), failures, waiting)

    def result(self, todo: Iterable[int]) -> BindResult:
        """Result for the ranks ``todo``, ascending."""
        failures = [RankFailure(rank, self.failures[rank]) for rank in sorted(self.failures)]
        maybe_bound = self.done | self.unclear  # an unclear rank counts as bound: its chips are not free
        if failures:
            rest = [rank for rank in todo if rank not in maybe_bound and rank not in self.failures]
            failures += [RankFailure(rank, _LEFT_OUT) for rank in rest]
        return BindResult(len(maybe_bound), failures)
