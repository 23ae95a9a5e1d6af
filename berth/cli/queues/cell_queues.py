"""Queues of a cell: what is declared, what it means there, and what runs and waits in each."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from berth.core.parity import differs
from berth.core.queues.charges import Usage
from berth.core.queues.shares import Shares, shares_of
from berth.core.queues.tree import Tree, is_tree, tree_of
from berth.core.state.cell import State
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import DEFAULT


class QueueJobs(NamedTuple):
    """Jobs of a queue, each ``namespace/name`` in order.

    Attributes:
        running: Those that have places.
        waiting: Those that wait for places.
        oldest_ms: Since when the oldest of these waits; 0 without.
    """

    running: list[str]
    waiting: list[str]
    oldest_ms: int = 0


NO_JOBS = QueueJobs([], [])


class CellQueues(NamedTuple):
    """Queues of a cell, whether or not the cell applies them.

    Attributes:
        declared: What is declared, by name of the queue.
        shares: Their tree, limits and entitlements.
        usage: What the jobs of each queue hold, with those below it.
        jobs: Jobs by name of their queue, which need not exist.
        below: Jobs of each queue and of those below it; queues without are missing.
        setting: What queues do in the cell, see ``decisions.queues``.
        most: Most queues that are valid, see ``decisions.queues_max``.
    """

    declared: Mapping[str, QueueSeen]
    shares: Shares
    usage: Usage
    jobs: Mapping[str, QueueJobs]
    below: Mapping[str, QueueJobs]
    setting: int
    most: int

    @property
    def tree(self) -> Tree:
        """The queues."""
        return self.shares.tree

    @property
    def are_objects(self) -> bool:
        """Whether they are objects of Kubernetes."""
        return any(fact.source == "kubernetes" for fact in self.declared.values())

    def why_not_applied(self, changed: Iterable[QueueSeen] = ()) -> str:
        """Why queues do nothing in the cell; empty where they do.

        Args:
            changed: Facts that were stored since.
        """
        facts = {**self.declared, **{fact.queue.name: fact for fact in changed}}
        if not is_tree(fact.queue for fact in facts.values() if not fact.gone):
            return "no queue with amounts is declared, so queues do nothing; declare some with: berth queues apply FILE"
        if not self.setting:
            return "the cell does not apply queues: setting decisions.queues of the dispatcher is 0, expected 1 or 2"
        return ""


def queues_of(state: State) -> CellQueues:
    """Queues of a cell at a state."""
    settings = state.fold.settings
    declared = dict(state.queues.declared)
    tree = tree_of((fact.queue for fact in declared.values()), most=settings.queues_max, differs=differs(settings))
    jobs = _jobs(state)
    return CellQueues(
        declared,
        shares_of(tree, state.queues.capacity()),
        state.queues.usage(tree),
        jobs,
        _below(tree, jobs),
        settings.queues,
        settings.queues_max,
    )


def _below(tree: Tree, jobs: Mapping[str, QueueJobs]) -> dict[str, QueueJobs]:
    parts: dict[str, list[QueueJobs]] = {}
    for queue, own in jobs.items():
        for step in tree.charged(queue):
            parts.setdefault(step, []).append(own)
    return {
        name: QueueJobs(
            sorted(job for one in found for job in one.running),
            sorted(job for one in found for job in one.waiting),
            min((one.oldest_ms for one in found if one.oldest_ms), default=0),
        )
        for name, found in parts.items()
    }


def _jobs(state: State) -> dict[str, QueueJobs]:
    running: dict[str, set[str]] = {}
    waiting: dict[str, dict[str, int]] = {}
    for holding in state.fold.holdings.values():
        running.setdefault(holding.queue or DEFAULT, set()).add(f"{holding.namespace}/{holding.name}")
    for job in state.jobs.values():
        gang = state.fold.gangs.get(job.uid)
        if job.state == "accepted" and job.request is not None and (gang is None or gang.phase == "waiting"):
            waiting.setdefault(job.request.queue, {})[f"{job.namespace}/{job.name}"] = job.at_ms
    return {
        queue: QueueJobs(
            sorted(running.get(queue, ())),
            sorted(waiting.get(queue, ())),
            min(waiting.get(queue, {}).values(), default=0),
        )
        for queue in sorted(running.keys() | waiting.keys())
    }
