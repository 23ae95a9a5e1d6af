"""Whether a whole set of gangs may end for a preemptor: entitlements and limits, once all of them are gone.

A set is judged as a whole. What is allowed never depends on the order in which its gangs were picked.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from berth.core.preemption.model import Candidate, Preemptor
from berth.core.queues.admission import queue_refusal
from berth.core.queues.amounts import in_order, judged
from berth.core.queues.charges import Usage
from berth.core.queues.shares import Shares
from berth.schemas.queues.queue import Amounts


class _Need(NamedTuple):
    """How much of a dimension a queue must get back for the preemptor to start."""

    queue: str
    dimension: str
    amount: int
    namespace: str = ""
    """Only from gangs of this namespace; empty: from any."""


class _Paths(NamedTuple):
    """Queues that a candidate counts in."""

    charged: tuple[str, ...]
    mine: int
    """How many queues of the preemptor's path are below the lowest one that both have; 0 for its own queue."""
    theirs: tuple[str, ...]
    """Queues of the candidate's path that are."""


class Legality:
    """A growing and shrinking set of gangs that end for a preemptor.

    Args:
        preemptor: The preemptor.
        shares: Limits and entitlements; None where queues do nothing.
        usage: What queues hold; None without shares.
        evictions_left: Evictions that each queue has left in this hour; a queue that is missing has any number.
    """

    def __init__(
        self,
        preemptor: Preemptor,
        shares: Shares | None,
        usage: Usage | None,
        evictions_left: Mapping[str, int] | None = None,
    ) -> None:
        self._preemptor = preemptor
        self._shares, self._usage = shares, usage
        self._evictions_left = dict(evictions_left or {})
        self._paths: dict[str, _Paths] = {}
        self._gone: dict[tuple[str, str], Amounts] = {}
        """What the set gives back, by queue (all namespaces, and each)."""
        self._reclaimed: dict[str, dict[str, int]] = {}
        """The part of it that is reclaimed, by queue."""
        self._others: dict[Candidate, _Paths] = {}
        gang = preemptor.gang
        self._charge = gang.charge
        self._judged = judged(gang.charge)
        self.is_open = True
        """Whether the queue of the preemptor lets anybody in."""
        self._limits: list[_Need] = []
        self._entitled: list[list[_Need]] = []
        if shares is not None and usage is not None:
            self.is_open = queue_refusal(shares.tree, gang.queue, gang.namespace) is None
            if self.is_open:
                self._note_needs(shares, usage)

    def _note_needs(self, shares: Shares, usage: Usage) -> None:
        gang, charge = self._preemptor.gang, self._charge
        path = shares.tree.paths[gang.queue]
        for step in path:
            limits, own = shares.limits[step], shares.tree.queues[step].per_namespace
            entitled = shares.entitlements[step]
            for name in in_order(charge):
                asked = usage.held(step, name) + usage.leaving(step, name) + charge[name]
                if name in limits and charge[name]:
                    self._limits.append(_Need(step, name, asked - limits[name]))
                if name in own and charge[name]:
                    held = usage.of_namespace(step, gang.namespace, name) + charge[name]
                    self._limits.append(_Need(step, name, held - own[name], gang.namespace))
            self._entitled.append(
                [
                    _Need(step, name, usage.held(step, name) + charge[name] - entitled.get(name, 0))
                    for name in self._judged
                ]
            )
        del self._entitled[-1 if len(path) > 1 else len(path) :]  # all queues have the root above them
        self._limits = [need for need in self._limits if need.amount > 0]

    def helpers(self, candidates: Sequence[Candidate]) -> list[int]:
        """Numbers of candidates that help wherever they run: a limit or an entitlement binds above them.

        Of each queue the cheapest ones count, that together hold twice what is needed.

        Args:
            candidates: All of them, the cheapest first.
        """
        found_needs = (need for need in itertools.chain(self._limits, *self._entitled) if need.amount > 0)
        needs = list(dict.fromkeys(found_needs))  # a limit may be the entitlement
        if self._shares is None or not needs:
            return []
        found: list[int] = []
        left: dict[tuple[str, _Need], int] = {}
        for number, one in enumerate(candidates):
            queue, charged = one.gang.counted.queue, self._paths_of(one).charged
            helps = False
            for need in needs:
                amount = one.charge.get(need.dimension, 0) if need.queue in charged else 0
                if amount and left.setdefault((queue, need), 2 * need.amount) > 0:
                    left[queue, need] -= amount
                    helps = True
            if helps:
                found.append(number)
        return found

    def bound_by(self, one: Candidate) -> int:
        """How many queues from that of the preemptor up bind it to their entitlements if a candidate is in the set."""
        return 0 if self._preemptor.is_critical else self._paths_of(one).mine

    def add(self, one: Candidate) -> None:
        """Let a candidate end."""
        self._change(one, 1)

    def remove(self, one: Candidate) -> None:
        """Let a candidate stay that is in the set."""
        self._change(one, -1)

    def _change(self, one: Candidate, times: int) -> None:
        if self._shares is None:
            return
        counted, paths = one.gang.counted, self._paths_of(one)
        if counted.queue in self._evictions_left:
            self._evictions_left[counted.queue] -= times
        if times < 0:
            self._others.pop(one, None)
        elif not one.is_own:
            self._others[one] = paths
        for step in paths.charged:
            _count(self._gone.setdefault((step, ""), {}), one.charge, times)
            if counted.namespace:
                _count(self._gone.setdefault((step, counted.namespace), {}), one.charge, times)
            if not one.is_own:
                _count(self._reclaimed.setdefault(step, {}), one.charge, times)

    def _paths_of(self, one: Candidate) -> _Paths:
        queue = one.gang.counted.queue
        found = self._paths.get(queue)
        if found is None and self._shares is not None:
            tree = self._shares.tree
            mine, theirs = tree.branches(self._preemptor.gang.queue, queue)
            if queue not in tree.paths:  # it is due nothing, and takes nothing back
                mine, theirs = (), ()
            found = self._paths[queue] = _Paths(tree.charged(queue), len(mine), theirs)
        return found or _Paths((), 0, ())

    def is_allowed(self) -> bool:
        """Whether the set may end as a whole, and lets the preemptor start."""
        if not self.is_open:
            return False
        return self.is_kept() and all(map(self._is_met, self._limits)) and self._is_within()

    def has_room(self) -> bool:
        """Whether the limits let the preemptor start once the set is gone."""
        return self.is_open and all(map(self._is_met, self._limits))

    def is_kept(self) -> bool:
        """Whether more gangs may make the set one that is allowed: nothing is taken from a queue that it is due."""
        if any(left < 0 for left in self._evictions_left.values()):
            return False
        return self._preemptor.is_critical or all(self._borrows(one, paths) for one, paths in self._others.items())

    def _is_met(self, need: _Need) -> bool:
        return self._gone.get((need.queue, need.namespace), {}).get(need.dimension, 0) >= need.amount

    def _is_within(self) -> bool:
        """Whether the preemptor stays within the entitlements up to where it gets something back.

        One that was ever evicted by reclaim preempts in its own queue only within the entitlement of that: else gangs
        of two queues could displace each other forever.
        """
        if self._shares is None or self._preemptor.is_critical:
            return True
        steps = max((paths.mine for paths in self._others.values()), default=0)
        if self._preemptor.was_reclaimed and not self._others:
            steps = 1
        return all(self._is_met(need) for needs in self._entitled[:steps] for need in needs)

    def _borrows(self, one: Candidate, paths: _Paths) -> bool:
        """Whether a reclaimed gang's queues would have more than they are due if all others of the set were gone."""
        shares, usage = self._shares, self._usage
        if shares is None or usage is None:
            return True
        charge = one.charge
        held = [name for name in self._judged if charge.get(name)]
        for step in paths.theirs:
            entitled, reclaimed = shares.entitlements.get(step, {}), self._reclaimed[step]
            if not any(
                usage.held(step, name) - reclaimed[name] + charge[name] > entitled.get(name, 0) for name in held
            ):
                return False
        return True


def _count(sums: Amounts, charge: Mapping[str, int], times: int) -> None:
    for dimension, amount in charge.items():
        sums[dimension] = sums.get(dimension, 0) + amount * times
