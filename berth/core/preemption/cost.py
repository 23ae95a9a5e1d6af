"""Cost of a set of victims: what is lost by the end of gangs, the higher levels first."""

from collections.abc import Iterable, Sequence

from berth.core.preemption.model import Candidate, Cost, Level


class Prices:
    """Compares sets of candidates of one preemptor.

    Args:
        candidates: All of them.

    Attributes:
        ranks: Rank of each level, the lowest 0.
    """

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        levels = sorted({one.level for one in candidates})
        self.ranks: dict[Level, int] = {level: index for index, level in enumerate(levels)}

    def of(self, victims: Sequence[Candidate]) -> Cost:
        """Cost of a set."""
        lost = [0] * len(self.ranks)
        for one in victims:
            lost[-1 - self.ranks[one.level]] += one.lost
        return Cost(
            len({budget for one in victims for budget in one.gang.budgets}),
            tuple(lost),
            len(victims),
            sum(one.gang.restarts for one in victims),
            tuple(sorted(one.gang.counted.uid for one in victims)),
        )
