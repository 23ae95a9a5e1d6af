"""Decided claims: what the placements of the ledger say of claims that were not bound when they were made."""

from collections.abc import Callable, Iterable

from berth.core.constraints.volume_choices import DecidedClaim
from berth.core.constraints.volumes import Volumes
from berth.core.copies import copied
from berth.core.state.ledger import Holding, LedgerFold
from berth.schemas.usage_facts import ClaimName


class DecidedClaims:
    """Claims of the attempts that hold their nodes.

    Args:
        fold: The folded ledger.
        row_of: Row of a node.
        volumes: Facts about volumes.
    """

    def __init__(self, fold: LedgerFold, row_of: Callable[[str], int], volumes: Volumes) -> None:
        self._fold = fold
        self._row_of = row_of
        self._volumes = volumes
        self._holdings: dict[tuple[str, int], Holding] = {}
        self._decided: tuple[DecidedClaim, ...] | None = ()
        """None when the holdings have changed since."""

    def fork(self, fold: LedgerFold) -> "DecidedClaims":
        """A copy for a copy of the fold, which is changed alone."""
        return copied(self, _fold=fold, _holdings=self._holdings.copy())

    def __contains__(self, key: object) -> bool:
        """Whether an attempt holds claims."""
        return key in self._holdings

    def begin(self, keys: Iterable[tuple[str, int]]) -> None:
        """Note these attempts, and no others."""
        self._holdings, self._decided = {}, ()
        for key in keys:
            self.note(key)

    def note(self, key: tuple[str, int]) -> bool:
        """Note what an attempt holds now; returns whether it gives back volumes."""
        holding = self._fold.holdings.get(key)
        if holding is not None and holding.claims():
            self._holdings[key] = holding
            self._decided = None
            return False
        if self._holdings.pop(key, None) is None:
            return False
        self._decided = None
        return True

    def all(self) -> tuple[DecidedClaim, ...]:
        """What placements say, the oldest first."""
        if self._decided is None:
            found: list[DecidedClaim] = []
            for holding in sorted(self._holdings.values(), key=lambda one: (one.ledger_seq, *one.key)):
                for one, node in holding.claims():
                    name = ClaimName(holding.namespace, one.claim)
                    found.append(DecidedClaim(name, one.uid, one.volume, self._row_of(node)))
            self._decided = tuple(found)
        return self._decided

    def failures_of(self, holding: Holding) -> int:
        """With how many nodes and volumes the claims of an attempt could not be bound, as far as that counts now."""
        found = 0
        for claim, _ in holding.claims():
            failure = self._volumes.failure(ClaimName(holding.namespace, claim.claim))
            if failure is not None and failure.uid == claim.uid:
                found += len(failure.nodes) + len(failure.volumes)
        return found
