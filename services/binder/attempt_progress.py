"""How far the binding of an attempt on a Kubernetes cluster has come. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from berth.schemas.facts import RankFailure
from berth.services.binder.cluster import BindResult
from berth.services.binder.members import Member

_FORBIDDEN_MAX_S: Final = 30.0
"""What is forbidden for so long is a failure. A server that has just started has not loaded the roles for a moment."""
_LEFT_OUT: Final = "not bound: the gang cannot be bound whole"


@dataclass(slots=True)
class Progress:
    """How far an attempt has come.

    Attributes:
        began_s: When it was first taken up.
        nodes: Node of each rank.
        chips: Chips of each rank, in the order of picking.
        notes: Annotations of each rank for its leaf switch and its SuperPoD.
        done: Ranks that are bound.
        failures: Ranks that cannot be bound, and why.
        turns: When each rank that waits for its turn began to.
        lost: Uid of the pod that stood for a rank and is gone, until another one comes.
        unclear: Ranks of which it is not known whether they are bound.
        forbidden_s: When the server first forbade something; None while it has not.
    """

    began_s: float
    nodes: list[str]
    chips: list[tuple[int, ...]]
    notes: list[dict[str, str]]
    done: set[int] = field(default_factory=set)
    failures: dict[int, str] = field(default_factory=dict)
    turns: dict[int, float] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    unclear: set[int] = field(default_factory=set)
    forbidden_s: float | None = None

    def missing(self, todo: Iterable[int], members: Mapping[int, Member]) -> list[int]:
        """Ranks of ``todo`` for which there is no pod that could be bound."""
        return [rank for rank in todo if rank not in members or self.lost.get(rank) == members[rank].uid]

    def may_be_forbidden(self, now_s: float) -> bool:
        """Note that the server forbade something; returns whether that may still pass by itself."""
        if self.forbidden_s is None:
            self.forbidden_s = now_s
        return now_s < self.forbidden_s + _FORBIDDEN_MAX_S

    def result(self, todo: Iterable[int]) -> BindResult:
        """What came of the ranks ``todo``, ascending."""
        failures = [RankFailure(rank, self.failures[rank]) for rank in sorted(self.failures)]
        perhaps = self.done | self.unclear  # what may be bound counts: its chips are not free
        if failures:
            rest = [rank for rank in todo if rank not in perhaps and rank not in self.failures]
            failures += [RankFailure(rank, _LEFT_OUT) for rank in rest]
        return BindResult(len(perhaps), failures)
