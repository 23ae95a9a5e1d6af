"""What queues say of a gang, computed anew: which let it in, and how much of what they may hold is left.

Nothing here is the product's rule: an error in it would otherwise make the leader, its readers and the replay agree on
something wrong. Read are the facts about queues, what attempts hold, and what the nodes have. Where a cell follows the
reference (``reference_parity``) nothing is judged.

Source: docs/queues.md, "What is not valid", "Limits", "Charges", "Admission and placement".
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from berth.core.state.ledger import LedgerFold
from berth.schemas.placement import Placement
from berth.schemas.queues.queue import CPU, DEFAULT, MEMORY, ROOT, Queue

Amounts = Mapping[str, int]
_DEPTH: Final = 16
_WEIGHT_MAX: Final = 65_535
_CHIP: Final = 100
_OPEN: Final = frozenset({"", "Open"})
_STATES: Final = frozenset({"", "Open", "Closing", "Closed", "Unknown"})


class Charge(NamedTuple):
    """What somebody holds.

    Attributes:
        queue: To which it is charged.
        namespace: Whose it is.
        amounts: By dimension.
        is_foreign: Another scheduler placed it.
    """

    queue: str
    namespace: str
    amounts: Amounts
    is_foreign: bool = False


class Why(NamedTuple):
    """Why a queue does not let a gang in.

    Attributes:
        queue: The queue that binds; that of the gang, or one above.
        text: Sentence, as far as it names the queue and its numbers.
    """

    queue: str
    text: str


class QueueOracle:
    """Queues at one moment.

    Args:
        queues: Those that are declared, by name.
        capacity: What the nodes have, by dimension.
        charges: What is held.
    """

    def __init__(self, queues: Mapping[str, Queue], capacity: Amounts, charges: Iterable[Charge] = ()) -> None:
        self.queues = {ROOT: Queue(ROOT), DEFAULT: Queue(DEFAULT), **queues}
        if _is_wrong(self.queues[ROOT]):
            state = self.queues[ROOT].state
            self.queues[ROOT] = Queue(ROOT, state=state if state in _STATES else "")
        self._children: dict[str, list[str]] = {}
        self.paths = {name: path for name in sorted(self.queues) if (path := self._path(name))}
        for name, path in self.paths.items():
            if name != ROOT:
                self._children.setdefault(path[1], []).append(name)
        self.limits = {ROOT: dict(self.queues[ROOT].capability)}
        self._limit(ROOT, self._shared(capacity))
        self._held: dict[str, Counter[str]] = {}
        self._in_namespace: dict[tuple[str, str], Counter[str]] = {}
        for charge in charges:
            self.charge(charge)

    def charge(self, charge: Charge, *, times: int = 1) -> None:
        """Count what somebody holds, or with ``times`` -1 holds no longer."""
        amounts = {name: amount * times for name, amount in charge.amounts.items()}
        for step in self._charged(charge.queue):
            self._held.setdefault(step, Counter()).update(amounts)
            self._in_namespace.setdefault((step, charge.namespace), Counter()).update(amounts)

    def held(self, queue: str) -> Amounts:
        """What a queue holds with those below it."""
        return self._held.get(queue, {})

    def shut(self, queue: str, namespace: str) -> Why | None:
        """Why a queue lets nobody of a namespace in, whatever is held; None if it may."""
        if queue not in self.queues:
            return Why(queue, f"queue {queue} does not exist")
        if queue not in self.paths:
            return Why(queue, f"queue {queue} is not valid")
        if queue in self._children:
            return Why(queue, f"queue {queue} has child queues")
        path = self.paths[queue]
        states = {self.queues[step].state for step in path} - _OPEN
        if states:
            return Why(queue, f"queue {queue} is {'Closing' if states == {'Closing'} else 'Closed'}")
        for step in path:
            allowed = self.queues[step].namespaces
            if allowed is not None and namespace not in allowed:
                return Why(queue, f"queue {queue} is not for jobs of namespace {namespace}")
        return None

    def why(self, asked: Charge) -> Why | None:
        """Why its queue does not let a gang in; None if it does."""
        return self.shut(asked.queue, asked.namespace) or next(self._short(asked), None)

    def over(self, asked: Charge) -> Why | None:
        """What is above a limit, of what has been charged, on the path of one that was charged last."""
        return next(self._short(asked, is_charged=True), None)

    def is_fifo(self, queue: str) -> bool:
        """Whether nothing of a queue is tried behind one that is refused."""
        return queue in self.queues and self.queues[queue].is_fifo

    def _short(self, asked: Charge, *, is_charged: bool = False) -> Iterator[Why]:
        for step in self.paths[asked.queue]:
            limits, own = self.limits[step], self.queues[step].per_namespace
            for dimension in sorted(asked.amounts):
                more = asked.amounts[dimension]
                held = self._held.get(step, Counter())[dimension]
                spaced = self._in_namespace.get((step, asked.namespace), Counter())[dimension]
                for who, used, most in (
                    (f"queue {step}", held, limits.get(dimension)),
                    (f"namespace {asked.namespace} in queue {step}", spaced, own.get(dimension)),
                ):
                    if most is not None and more and used + (0 if is_charged else more) > most:
                        yield Why(step, _text(who, dimension, used, most, more))

    def _path(self, name: str) -> tuple[str, ...]:
        """Path of a valid queue to the root; empty for one that is not valid."""
        path: list[str] = []
        while name != ROOT:
            if name in path or name not in self.queues or _is_wrong(self.queues[name]):
                return ()
            path.append(name)
            name = self.queues[name].parent or ROOT
        return (*path, ROOT) if len(path) < _DEPTH else ()

    def _charged(self, name: str) -> tuple[str, ...]:
        """Queues to which what a queue holds is charged: as far as its path reaches, and the root."""
        reached: list[str] = []
        while name != ROOT and name in self.queues and name not in reached:
            reached.append(name)
            name = self.queues[name].parent or ROOT
        return (*reached, ROOT)

    def _shared(self, capacity: Amounts) -> dict[str, int]:
        """What the children of the root share."""
        shared = dict(self.limits[ROOT])
        for dimension, amount in capacity.items():
            if any(self.queues[name].guarantee.get(dimension) for name in self.paths):
                shared[dimension] = min(amount, shared.get(dimension, amount))
        return shared

    def _limit(self, parent: str, above: Amounts) -> None:
        children = self._children.get(parent, ())
        for child in children:
            found = dict(self.queues[child].capability)
            for dimension, most in above.items():
                others = sum(self.queues[one].guarantee.get(dimension, 0) for one in children)
                bound = min(most, max(0, most - others) + self.queues[child].guarantee.get(dimension, 0))
                found[dimension] = min(bound, found.get(dimension, bound))
            self.limits[child] = found
            self._limit(child, found)


def is_in_force(queues: Iterable[Queue]) -> bool:
    """Whether queues do anything: somebody declares one besides those that every cluster has, or says more of these."""
    return any(
        one.name not in {ROOT, DEFAULT}
        or bool(one.capability or one.guarantee or one.deserved or one.per_namespace)
        or one.namespaces is not None
        or one.state not in _OPEN
        for one in queues
    )


def charges_of(fold: LedgerFold) -> dict[tuple[str, int], Charge]:
    """What attempts hold, by uid and attempt, and what is held for gangs that start anew, with attempt -1."""
    found: dict[tuple[str, int], Charge] = {}
    for key, holding in fold.holdings.items():
        if holding.foreign and not holding.queue:
            continue  # nobody is charged for pods of which no PodGroup says whose they are
        ended = set(holding.gone) - set(holding.unplaced)
        ranks = [rank for rank in range(holding.placement.pods()) if rank not in ended]
        amounts = _amounts(holding.placement, ranks)
        found[key] = Charge(holding.queue or DEFAULT, holding.namespace, amounts, holding.foreign)
    for uid, held in fold.held.items():
        found[uid, -1] = Charge(held.queue or DEFAULT, held.namespace, _amounts(held.placement, held.ranks))
    return found


def _amounts(placement: Placement, ranks: Iterable[int]) -> Amounts:
    """What some ranks hold."""
    each = [run for run in placement.runs for _ in range(run.pods)]
    found: Counter[str] = Counter()
    for run in (each[rank] for rank in ranks):
        found.update({CPU: run.cpu_milli, MEMORY: run.memory_mib})
        if run.chips:
            quota = placement.share.aicore if placement.share is not None else 0
            found[placement.resource] += quota or run.chips * _CHIP
    return {dimension: amount for dimension, amount in found.items() if amount}


def _is_wrong(queue: Queue) -> bool:
    """Whether a field of a queue is wrong."""
    parts = (queue.capability, queue.guarantee, queue.deserved, queue.per_namespace)
    amounts = [pair for part in parts for pair in part.items()]
    return (
        bool(queue.wrong)
        or not 1 <= queue.weight <= _WEIGHT_MAX
        or queue.priority < 0
        or queue.state not in _STATES
        or any(amount < 0 or (name not in {CPU, MEMORY} and amount % _CHIP) for name, amount in amounts)
    )


def _text(who: str, dimension: str, held: int, most: int, asked: int) -> str:
    """What a refusal says; without what is leaving, which stands between the two parts."""
    if asked > most:
        return f"the job asks for {_number(dimension, asked)} {dimension}, {who} may never hold more than"
    return f"{who} holds {_number(dimension, held)} of {_number(dimension, most)} {dimension}"


def _number(dimension: str, amount: int) -> str:
    """An amount as people write it."""
    if dimension == MEMORY:
        unit = 0
        while amount and amount % 1024 == 0 and unit < 4:  # the last unit
            amount, unit = amount // 1024, unit + 1
        return f"{amount}{('Mi', 'Gi', 'Ti', 'Pi', 'Ei')[unit]}"
    size = 1000 if dimension == CPU else _CHIP
    return f"{amount / size:,.3f}".rstrip("0").rstrip(".")
