"""Progress of the binding of an attempt on a Kubernetes cluster. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from berth.schemas.facts import RankFailure
from berth.services.binder.cluster import BindResult, Gang
from berth.services.binder.members import Member

_FACTS_S: Final = 1.0
"""Within this time facts show how nodes are."""
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
        refused: Reason for which the server last refused to bind a rank, and the time since which it refuses.
        is_checked: The pods of an attempt that follows another one were read.
        kept: Why the gang is not undone although ranks cannot be bound; empty where none was tried again for that.
        misfits: Ranks whose nodes do not take their pods any more, and why.
        misfit_since_s: Since when there are any; None while there are none.
        given_back: Some node did not take its pod any more.
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
    refused: dict[int, tuple[str, float]] = field(default_factory=dict)
    is_checked: bool = False
    kept: str = ""
    misfits: dict[int, str] = field(default_factory=dict)
    misfit_since_s: float | None = None
    given_back: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether some pod is bound, or may be."""
        return bool(self.done or self.unclear)

    def is_outdated(self, gang: Gang) -> bool:
        """Whether an attempt has other places than when it was last tried."""
        last = self.gang
        return last.recovers != gang.recovers or last.steps != gang.steps or last.placement is not gang.placement

    def go_on(self, gang: Gang, nodes: list[str], chips: list[tuple[int, ...]], notes: list[dict[str, str]]) -> None:
        """Go on with other places: ranks that have got another one are not bound, and have not failed."""
        self.has_claims &= gang.step == self.gang.step
        for rank, step in gang.steps.items():
            if step != self.gang.steps.get(rank, 0):
                for ranks in (self.done, self.unclear):
                    ranks.discard(rank)
                for noted in (self.failures, self.waiting_since_s, self.lost, self.failing_since_s, self.refused):
                    noted.pop(rank, None)
        self.gang, self.nodes, self.chips, self.notes = gang, nodes, chips, notes

    def missing(self, todo: Iterable[int], members: Mapping[int, Member]) -> list[int]:
        """Ranks of ``todo`` without a pod that could be bound."""
        return [rank for rank in todo if rank not in members or self.lost.get(rank) == members[rank].uid]

    def note_refusal(self, rank: int, reason: str, now_s: float) -> tuple[bool, float]:
        """Note that the server refuses to bind a rank; returns whether the reason is new, and since when it refuses."""
        before, since_s = self.refused.get(rank, ("", now_s))
        self.refused[rank] = (reason, since_s)
        return reason != before, since_s

    def note_misfits(self, found: Mapping[int, str], now_s: float) -> float:
        """Note which ranks are decided for nodes that do not take them any more.

        Args:
            found: Why the node of each rank does not take it; empty if it does. Ranks that may be bound, and those that
                failed otherwise, count as taken.
            now_s: The monotonic time.

        Returns:
            How long to wait, in seconds, so that facts tell the dispatcher the same before it decides anew.
        """
        kept = {rank: why for rank, why in self.misfits.items() if rank in self.failures}
        left_out = self.failures.keys() | self.unclear | self.done
        new = {rank: why for rank, why in found.items() if why and rank not in left_out}
        self.misfits = kept | new
        if not new:
            self.misfit_since_s = None
            return 0.0
        if self.misfit_since_s is None:
            self.misfit_since_s = now_s
        return max(self.misfit_since_s + _FACTS_S - now_s, 0.0)

    def try_all_again(self, now_s: float) -> None:
        """Begin again with all ranks that are not bound."""
        self.began_s = now_s
        self.failures.clear()
        self.refused.clear()
        self.waiting_since_s.clear()
        self.failing_since_s.clear()

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
        return BindResult(len(maybe_bound), failures, given_back=self.given_back)
