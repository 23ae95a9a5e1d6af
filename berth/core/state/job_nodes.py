"""Nodes on which jobs have chips, of jobs that others are placed near."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from berth.core.changes import JobKey
from berth.core.pod_shares import PodShare
from berth.core.state.ledger import LedgerFold
from berth.core.topologies.planning import Colocation
from berth.schemas.facts import JobSeen
from berth.schemas.placement import Placement

AttemptKey = tuple[str, int]


class JobNodes:
    """Nodes on which jobs have chips.

    Args:
        fold: The folded ledger.
        owned: What each rank of a held attempt owns.
        jobs: Jobs by name.
    """

    def __init__(
        self, fold: LedgerFold, owned: Callable[[AttemptKey], Sequence[PodShare]], jobs: Mapping[JobKey, JobSeen]
    ) -> None:
        self._fold = fold
        self._owned = owned
        self._jobs = jobs

    def colocation(self) -> Colocation:
        """These nodes, for topologies and for pods without chips."""
        return Colocation(self.of_placed, self.of_labels, self.of_job)

    def of_placed(self, is_such: Callable[[Placement], bool]) -> list[str]:
        """Nodes of the jobs whose placements are such, by name."""
        return self._nodes_of(key for key, one in self._fold.holdings.items() if is_such(one.placement))

    def of_labels(self, labels: Mapping[str, str]) -> list[str]:
        """Nodes of the jobs that carry all of some labels, by name."""
        held = self._fold.holdings.items()
        jobs = ((key, self._jobs.get((holding.namespace, holding.name))) for key, holding in held)
        return self._nodes_of(
            key for key, job in jobs if job and job.request and labels.items() <= job.request.labels.items()
        )

    def of_job(self, namespace: str, name: str) -> list[str]:
        """Nodes of the job with a name, by name."""
        held = self._fold.holdings.items()
        return self._nodes_of(key for key, one in held if (one.namespace, one.name) == (namespace, name))

    def _nodes_of(self, keys: Iterable[AttemptKey]) -> list[str]:
        return sorted({pod.node for key in keys for pod in self._owned(key) if pod.mask})
