"""Queues as an observer sees them: what is declared, and whether places that are given are within limits."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from berth.core.requests.job_validation import SHARE_AICORE
from berth.core.state.cell import State
from berth.core.state.holdings.holding import Holding
from berth.core.state.records.entries import Folded
from berth.schemas.columns import unpack
from berth.schemas.envelope import decode
from berth.schemas.intake import JobRequest
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import CHIP, CPU, DEFAULT, MEMORY, Queue
from tests.sim.errors import Failure
from tests.sim.queue_oracle import Charge, QueueOracle, charges_of, is_in_force

QUEUED: Final = (
    "places in queues", "sums of queues", "reasons of queues", "PodGroups that wait for their queue", "planner, judged: its queue binds",
)  # fmt: skip
"""What must have been checked at least once in a run of many seeds."""
_ENDS: Final = frozenset({"bind-failed", "cancelled", "withdrawn", "vanished", "fault"})
"""Why attempts end whose pods are still there; queues are none of it."""
_SUBJECT: Final = ".fact.queue."


class QueueWatch:
    """See above.

    Args:
        count: How often each check was made.
        fail: Is told what is wrong, and its particulars.

    Attributes:
        declared: Queues by name.
    """

    def __init__(self, count: Counter[str], fail: Callable[[str, str], object]) -> None:
        self.declared: dict[str, Queue] = {}
        self._count = count
        self._fail = fail
        self._before: Mapping[tuple[str, int], Charge] | None = None

    def begin_again(self, facts: Iterable[tuple[str, bytes]]) -> None:
        """Begin with other facts, each with its subject."""
        self.declared.clear()
        for subject, data in facts:
            self.fact(subject, data)

    def fact(self, subject: str, data: bytes) -> None:
        """Take a fact, of whatever it is."""
        if _SUBJECT in subject:
            seen = decode(data, QueueSeen)
            self.declared.pop(seen.queue.name, None)
            if not seen.gone:
                self.declared[seen.queue.name] = seen.queue

    def oracle(self, state: State, charges: Iterable[Charge]) -> QueueOracle | None:
        """The queues with what is held; None where they do nothing, or what the reference does."""
        settings = state.fold.settings
        if not settings.queues or settings.reference_parity or not is_in_force(self.declared.values()):
            return None
        return QueueOracle(self.declared, state.queues.capacity(), charges)

    def now(self, state: State) -> QueueOracle | None:
        """The queues as they are."""
        return self.oracle(state, charges_of(state.fold).values()) if self.declared else None

    def before(self, state: State, *, is_new: bool) -> None:
        """Take note of what is held before a record; what was decided before a restore may have known other queues."""
        self._before = charges_of(state.fold) if is_new and self.declared else None

    def after(self, state: State, sequence: int, folded: Folded) -> None:
        """See that a record gives places only within limits, one after another, in queues that let their gangs in.

        Places that others have given, those of gangs that start anew on places that were held for them, and those that
        a restored ledger gives to pods that are bound already may be above a limit. Of these some chips may follow
        later, when an attempt that is over gives them back.
        """
        if self._before is None:
            return
        before, now = self._before, charges_of(state.fold)
        grown = {holding.key for holding in folded.moved if _has_what_pods_name(state, holding)}
        for key, one in now.items():
            was = before.get(key)
            if was is None or one.is_foreign or key[1] < 0 or key in grown:
                continue  # which chips a pod of another scheduler has may become known later
            if any(amount > was.amounts.get(name, 0) for name, amount in one.amounts.items()):
                self._fail("an attempt holds more than before", f"record {sequence}: {was}, now {one}")
        ends = {holding.ending for holding in folded.ending} - _ENDS
        if ends:
            self._fail("an attempt ends for an unknown reason", f"record {sequence}: {sorted(ends)}")
        bound = [holding.key for holding in folded.taken if state.pods_seen(holding) is not None]
        new = [holding.key for holding in folded.taken if not holding.foreign and holding.key in now]
        oracle = self.oracle(state, before.values()) if new else None
        for key in new if oracle is not None else ():
            assert oracle is not None
            charge, held = now[key], before.get((key[0], -1))
            oracle.charge(charge)
            if held is not None:
                oracle.charge(held, times=-1)
            elif key not in bound:
                self._see_place(state, oracle, f"record {sequence}: {key} {charge}", charge)
            job = state.jobs.get(state.name_of.get(key[0], ("", "")))
            if job is not None and job.request is not None and charge.queue != (job.request.queue or DEFAULT):
                self._fail("a place is charged to another queue", f"{key} {charge}, asked {job.request.queue}")

    def _see_place(self, state: State, oracle: QueueOracle, who: str, charge: Charge) -> None:
        """See that a place may be given, which is charged already."""
        self._count["places in queues"] += 1
        why = oracle.shut(charge.queue, charge.namespace) or oracle.over(charge)
        if why is not None:
            self._fail("a place is given that a queue forbids", f"{who}: {why.text}, at {state.facts_seq}")

    def see_sums(self, state: State) -> None:
        """See that limits, what is not valid and what each queue holds are as computed anew.

        Raises:
            Failure: They are not.
        """
        oracle, shares = self.now(state), state.queues.shares()
        if oracle is None:
            return
        assert shares is not None
        usage = state.queues.usage(shares.tree)
        self._count["sums of queues"] += 1
        broken = sorted(oracle.queues.keys() - oracle.paths.keys())
        if sorted(shares.tree.broken) != broken:
            raise Failure("other queues are not valid", f"{dict(shares.tree.broken)}, expected {broken}")
        if shares.limits != oracle.limits:
            raise Failure("other limits of queues", f"{shares.limits}, expected {oracle.limits}")
        for name in oracle.queues:
            wanted = oracle.held(name)
            found = {one: usage.held(name, one) + usage.leaving(name, one) for one in {*wanted, *shares.capacity}}
            if any(amount != wanted.get(one, 0) for one, amount in found.items()):
                raise Failure("a queue holds something else", f"{name}: {found}, expected {dict(wanted)}")


def charge_of(request: JobRequest) -> Charge:
    """What a gang would hold."""
    quota = int(request.labels.get(SHARE_AICORE, 0))
    amounts: dict[str, int] = {}
    for task in request.tasks:
        chips = (quota or task.chips * CHIP) if task.chips else 0
        for name, amount in ((CPU, task.cpu_milli), (MEMORY, task.memory_mib), (request.resource, chips)):
            if amount:
                amounts[name] = amounts.get(name, 0) + amount * task.replicas
    return Charge(request.queue or DEFAULT, request.namespace, amounts)


def _has_what_pods_name(state: State, holding: Holding) -> bool:
    """Whether an attempt owns no other chips than its pods name."""
    seen = state.pods_seen(holding)
    named: dict[int, int] = {}
    if seen is not None:
        named = dict(zip(unpack(seen.rank, 4), unpack(seen.chips, 8), strict=True))
    return not any(pod.mask & ~named.get(rank, 0) for rank, pod in enumerate(state.owned(holding.key)))
