"""Disruption budgets of the cluster: which of them the end of a gang would break. Pure.

A search for jobs that end for others prefers those that break none. Whoever evicts single pods asks the API server.

Source: Kubernetes, policy/v1 PodDisruptionBudget.
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from berth.core.constraints.selectors import selects
from berth.formats.kubernetes.pod_terms import selection_of
from berth.formats.kubernetes.policies import DisruptionBudget
from berth.formats.kubernetes.wrong_fields import WrongFieldError
from berth.schemas.facts import PodPhase
from berth.schemas.pod_constraints import LabelSelector
from berth.services.inventory.pod_rows import PodRow

Name: TypeAlias = tuple[str, str]
"""Namespace, and name of a job or a budget."""


class _Budget(NamedTuple):
    """A budget.

    Attributes:
        pods: What selects its pods; None selects nothing.
        spare: How many more of them may go now.
    """

    pods: LabelSelector | None
    spare: int


class Budgets:
    """All budgets, and the jobs whose pods they count."""

    def __init__(self) -> None:
        self._budgets: dict[str, dict[str, _Budget]] = {}
        """By namespace and name."""
        self._jobs_of: dict[Name, dict[Name, None]] = {}
        """Jobs whose pods a budget counts."""
        self._changed: dict[Name, None] = {}
        """Jobs for which another answer is possible."""
        self._namespaces: dict[str, None] = {}
        """Namespaces in which it is possible for each job: a budget counts other pods than before."""

    def replace(self, objects: Iterable[DisruptionBudget]) -> None:
        """Take all budgets."""
        gone = {(namespace, name) for namespace, found in self._budgets.items() for name in found}
        for one in objects:
            gone.discard((one.metadata.namespace, one.metadata.name))
            self.put(one)
        for namespace, name in sorted(gone):
            self._drop(namespace, name)

    def put(self, found: DisruptionBudget) -> None:
        """Take the current state of a budget; one whose selector is invalid counts no pods."""
        meta = found.metadata
        try:
            pods = selection_of("spec.selector", found.spec.selector)
        except WrongFieldError:
            pods = None
        after = _Budget(pods, found.status.disruptions_allowed)
        budgets = self._budgets.setdefault(meta.namespace, {})
        before = budgets.get(meta.name)
        budgets[meta.name] = after
        if before is None or before.pods != after.pods:
            self._namespaces[meta.namespace] = None
        elif before != after:
            self._changed.update(self._jobs_of.get((meta.namespace, meta.name), ()))

    def drop(self, found: DisruptionBudget) -> None:
        """Take that a budget is gone."""
        self._drop(found.metadata.namespace, found.metadata.name)

    def take_due(self, jobs: Iterable[Name]) -> dict[Name, None]:
        """Those of these jobs for which :meth:`broken_by` may have another answer than before."""
        if not (self._changed or self._namespaces):
            return {}
        found = {job: None for job in jobs if job in self._changed or job[0] in self._namespaces}
        self._changed, self._namespaces = {}, {}
        return found

    def broken_by(self, job: Name, rows: Iterable[PodRow]) -> list[str]:
        """Budgets that do not allow that all these pods of a job go at once: ``namespace/name``, sorted."""
        namespace = job[0]
        budgets = self._budgets.get(namespace)
        if not budgets:
            return []
        live = [row.labels for row in rows if row.is_live and row.phase != PodPhase.TERMINATING]
        broken: list[str] = []
        for name in sorted(budgets):
            budget = budgets[name]
            counted = sum(selects(budget.pods, labels) for labels in live)
            if counted:
                self._jobs_of.setdefault((namespace, name), {})[job] = None
            if counted > budget.spare:
                broken.append(f"{namespace}/{name}")
        return broken

    def forget(self, job: Name) -> None:
        """Forget a job without pods."""
        for name in self._budgets.get(job[0], ()):
            self._jobs_of.get((job[0], name), {}).pop(job, None)

    def _drop(self, namespace: str, name: str) -> None:
        budgets = self._budgets.get(namespace, {})
        if budgets.pop(name, None) is None:
            return
        if not budgets:
            del self._budgets[namespace]
        self._changed.update(self._jobs_of.pop((namespace, name), ()))
