"""Recoveries of a job in its history: what broke, what was kept, what moved where, and how long that took."""

from typing import Final

import msgspec

from berth.core.explain.recovery_text import duration_words
from berth.core.state.ledger import LedgerFold
from berth.core.text import numbered, pluralize, ranges
from berth.schemas.ledger import Round
from berth.schemas.recovery import How, Recovery, Scope
from berth.schemas.units import UnixMs

_MOVES_SHOWN: Final = 4


class PastRecovery(msgspec.Struct):
    """One recovery of a job: all its steps."""

    since_ms: UnixMs
    attempt: int
    kind: str
    cause: str
    scope: Scope
    """That of the last step."""
    how: How
    pods: int
    """Pods of the job."""
    steps: int = 0
    ranks: list[int] = []
    """Ranks of all steps, ascending."""
    nodes: dict[int, str] = {}
    """Node of each rank before the recovery."""
    moved: dict[int, str] = {}
    """Node of each of ``ranks`` now that it is over."""
    placed_ms: UnixMs = 0
    """Time of the record since which every rank is at its place; 0: not yet."""

    @property
    def sentence(self) -> str:
        """The recovery in one line."""
        if self.how == "mark":
            return f"{self.cause}; {pluralize(len(self.ranks), 'pod')} marked, nothing deleted"
        if self.how == "backup":
            return f"{self.cause}; the pod of rank {ranges(self.ranks)} runs on until it is marked"
        steps = f"; {self.steps} steps" if self.steps > 1 else ""
        return f"{self.cause}; {self._kept}{self._moves}{steps}; {duration_words(self.since_ms, self.placed_ms)}"

    @property
    def _kept(self) -> str:
        if self.scope == "job":
            return f"the whole job was restarted, {pluralize(self.pods, 'pod')}"
        kept = f"{self.pods - len(self.ranks)} of {pluralize(self.pods, 'pod')} kept"
        return f"{numbered('rank', self.ranks)} replaced, {kept}"

    @property
    def _moves(self) -> str:
        if not self.placed_ms:
            return ""
        moves = [
            (rank, self.nodes[rank], node) for rank, node in sorted(self.moved.items()) if self.nodes[rank] != node
        ]
        if not moves:
            return "; all on the nodes of before"
        shown = ", ".join(f"rank {rank} from {old} to {new}" for rank, old, new in moves[:_MOVES_SHOWN])
        more = len(moves) - _MOVES_SHOWN
        return f"; moved: {shown}{f' and {more} more' if more > 0 else ''}"


class RecoveryHistory:
    """Recoveries of one job, from the records in their order.

    Args:
        uid: The job.
    """

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self.found: list[PastRecovery] = []
        """The oldest first."""

    def before(self, record: Round, fold: LedgerFold) -> None:
        """Note the recoveries of a record that is folded next."""
        for recovery in record.recoveries:
            holding = fold.holdings.get((recovery.uid, recovery.attempt))
            if recovery.uid == self._uid and holding is not None:
                self._note(recovery, holding.placement.names())

    def _note(self, recovery: Recovery, names: list[str]) -> None:
        last = self.found[-1] if self.found else None
        if last is None or last.since_ms != recovery.since_ms or last.placed_ms:
            last = PastRecovery(
                recovery.since_ms,
                recovery.attempt,
                recovery.kind,
                recovery.cause,
                recovery.scope,
                recovery.how,
                pods=len(names),
                nodes=dict(enumerate(names)),
            )
            self.found.append(last)
        last.steps += 1
        last.scope = recovery.scope
        last.how = recovery.how if recovery.how != "place" else last.how
        last.ranks = sorted({*last.ranks, *recovery.ranks})

    def after(self, fold: LedgerFold) -> None:
        """Note whether the last recovery is over, once a record was folded."""
        gang = fold.gangs.get(self._uid)
        last = self.found[-1] if self.found else None
        if last is None or last.placed_ms or gang is None or gang.recovery is None or not gang.placed_ms:
            return
        holding = fold.holdings.get((self._uid, gang.attempt))
        if holding is not None and gang.recovery.since_ms == last.since_ms:
            names = holding.placement.names()
            last.placed_ms = gang.placed_ms
            last.moved = {rank: names[rank] for rank in last.ranks if rank < len(names)}
