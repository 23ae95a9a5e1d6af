"""Whether a queue lets a gang in: admission before it has pods, placement when it has.

Both are functions of what is given. Admission counts minima of gangs that stay, not what is held: a queue whose chips
others have borrowed could otherwise never ask for them back.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from berth.core.parity import Differences
from berth.core.queues.amounts import add, in_order, is_within, judged, plus, total
from berth.core.queues.charges import Holding, Usage
from berth.core.queues.shares import Shares
from berth.core.queues.tree import State, Tree, closing_of
from berth.schemas.queues.queue import Amounts
from berth.schemas.refusal import QueueCode, QueueRefusal

_CHILDREN_SHOWN = 5


class Ask(msgspec.Struct, frozen=True):
    """A gang that asks to be let in.

    Attributes:
        queue: Its queue.
        minimum: What its minimum counts for: for admission, and the whole gang for its placement.
        namespace: Its namespace; empty: not checked.
        priority: Its priority.
        may_displace: It may displace others some day: preemption is on, and its class does not forbid it.
        is_declared: Its minimum is declared, and not made from the requests of its pods.
    """

    queue: str
    minimum: Mapping[str, int]
    namespace: str = ""
    priority: int = 0
    may_displace: bool = False
    is_declared: bool = True


def queue_refusal(tree: Tree, queue: str, namespace: str) -> QueueRefusal | None:
    """Why a queue lets nobody in, or not those of a namespace; None if it may let them in."""
    if queue not in tree.queues:
        return QueueRefusal("no-such-queue", queue)
    if queue in tree.broken:
        return QueueRefusal("queue-not-valid", queue, tree.broken[queue])
    if queue in tree.children:
        below = tree.children[queue]
        more = f" and {len(below) - _CHILDREN_SHOWN} more" if len(below) > _CHILDREN_SHOWN else ""
        return QueueRefusal("queue-has-children", queue, ", ".join(below[:_CHILDREN_SHOWN]) + more)
    closing = closing_of(tree, queue)
    if closing is not None:
        return QueueRefusal("queue-closed", queue, _closed(tree, queue, closing.state, closing.by))
    allowed = tree.namespaces(queue)
    if namespace and allowed is not None and namespace not in allowed:
        return QueueRefusal("queue-not-for-namespace", queue, namespace=namespace)
    return None


def _closed(tree: Tree, queue: str, state: State, by: str) -> str:
    word = state.name.capitalize()
    if by == queue:
        return word
    return f"{word} (its {'parent' if tree.paths[queue][1] == by else 'ancestor'} {by} is {word})"


def placement_refusal(shares: Shares, usage: Usage, ask: Ask) -> QueueRefusal | None:
    """Why a gang may not be placed; None if its queue and all above have room for it.

    Args:
        shares: Limits.
        usage: What queues hold, gangs placed before it in this round included.
        ask: The gang.
    """
    refusal = queue_refusal(shares.tree, ask.queue, ask.namespace)
    if refusal is not None:
        return refusal
    return _short(shares, ask, usage.held, usage.leaving, usage.of_namespace)


class Minima:
    """What counts for admission: minima of gangs that stay, and of those that were admitted.

    A running gang stays unless the one that asks could displace it some day. It could if it may displace any, the
    running one is preemptable and not critical, and is in the same queue with a lower priority; or is in another one,
    which is reclaimable, is not within its entitlement, and the one that asks alone fits the entitlements of its own
    queue and of those above up to where the paths of both fork. What counts against the limit of a namespace in a queue
    is all of it. Gangs that are leaving count nowhere.

    An answer takes time by the depth of the tree and the priorities in the queue, not by the number of gangs.

    Args:
        shares: Limits and entitlements.
        counted: What the minima of running gangs amount to; it is changed.
        running: Returns these gangs; it is asked once, and only if one of them may make a difference.
    """

    def __init__(self, shares: Shares, counted: Usage, running: Callable[[], Sequence[Holding]]) -> None:
        self._shares = shares
        self._all = counted
        self._running = running
        self._displaceable: Usage | None = None
        """Gangs that others may displace, who borrow; None until somebody asks."""
        self._borrowing: dict[str, Amounts] = {}
        """Of these what gangs of each queue have, without the queues below it."""
        self._own: dict[str, dict[int, Amounts]] = {}
        """Gangs of each queue that those of higher priority may displace, by priority."""

    def admit(self, queue: str, minimum: Mapping[str, int], *, namespace: str = "") -> None:
        """Count a gang that was admitted and holds nothing yet, for those that come after it."""
        self._all.charge(queue, minimum, namespace=namespace)

    def refusal(self, ask: Ask) -> QueueRefusal | None:
        """Why a gang may not have pods yet; None if what counts leaves room for its minimum."""
        shares, tree = self._shares, self._shares.tree
        refusal = queue_refusal(tree, ask.queue, ask.namespace)
        if refusal is not None or not (ask.is_declared or tree.differs.minimum_from_pods):
            return refusal
        refusal = _short(shares, ask, self._all.held, _none, self._all.of_namespace)
        if refusal is not None and ask.may_displace and tree.differs.counts_what_stays:
            refusal = _short(shares, ask, self._staying(ask), _none, self._all.of_namespace)
        return None if refusal is None else msgspec.structs.replace(refusal, is_admission=True)

    def _staying(self, ask: Ask) -> Callable[[str, str], int]:
        """What counts against the limits of queues on the path of a gang that may displace others."""
        if self._displaceable is None:
            self._displaceable = self._found_displaceable()
        displaceable, path, counted = self._displaceable, self._shares.tree.paths[ask.queue], judged(ask.minimum)
        fitting = 0
        while fitting < len(path) - 1 and is_within(ask.minimum, self._shares.entitlements[path[fitting]], counted):
            fitting += 1
        own = self._borrowing.get(ask.queue, {})
        lower = total(amounts for priority, amounts in self._own.get(ask.queue, {}).items() if priority < ask.priority)

        def held(step: str, dimension: str) -> int:
            fork = path[min(path.index(step), fitting)]
            borrowed = displaceable.held(fork, dimension) - own.get(dimension, 0)
            return self._all.held(step, dimension) - lower.get(dimension, 0) - borrowed

        return held

    def _found_displaceable(self) -> Usage:
        tree, running = self._shares.tree, self._running()
        found, within = Usage(tree), gangs_within(self._shares, running)
        for gang in running:
            if gang.is_leaving or gang.is_critical or not gang.is_preemptable:
                continue
            minimum = _counted(gang, tree.differs)
            add(self._own.setdefault(gang.queue, {}).setdefault(gang.priority, {}), minimum)
            if gang.uid not in within and tree.is_reclaimable(gang.queue):
                found.charge(gang.queue, minimum)
                add(self._borrowing.setdefault(gang.queue, {}), minimum)
        return found


def minima_of(shares: Shares, running: Sequence[Holding]) -> Minima:
    """Minima of gangs that hold something.

    Args:
        shares: Limits and entitlements.
        running: The gangs.
    """
    counted = Usage(shares.tree)
    for gang in running:
        if not gang.is_leaving:
            counted.charge(gang.queue, _counted(gang, shares.tree.differs), namespace=gang.namespace)
    return Minima(shares, counted, lambda: running)


def _none(_: str, __: str) -> int:
    """Gangs that are leaving count nowhere."""
    return 0


def _short(
    shares: Shares,
    ask: Ask,
    held: Callable[[str, str], int],
    leaving: Callable[[str, str], int],
    of_namespace: Callable[[str, str, str], int],
) -> QueueRefusal | None:
    """The first queue from the gang's up that has no room for it, by the first dimension that is short there."""
    for step in shares.tree.paths[ask.queue]:
        limits, own_limits = shares.limits[step], shares.tree.queues[step].per_namespace
        if not limits and not own_limits:
            continue
        found: list[QueueRefusal] = []
        for dimension in in_order(ask.minimum):
            if dimension not in limits and dimension not in own_limits:
                continue
            aside = leaving(step, dimension)
            refusal = _over(limits, step, dimension, held(step, dimension) + aside, ask)
            if refusal is not None:
                found.append(msgspec.structs.replace(refusal, leaving=aside))
                continue
            own = of_namespace(step, ask.namespace, dimension)
            refusal = _over(own_limits, step, dimension, own, ask)
            if refusal is not None:
                found.append(msgspec.structs.replace(refusal, namespace=ask.namespace))
        if found:
            return msgspec.structs.replace(found[0], others=tuple(other.dimension for other in found[1:]))
    return None


def _counted(gang: Holding, differs: Differences) -> Amounts:
    """What counts of a gang: its minimum. The reference counts nothing of one that declares none."""
    if gang.minimum is not None:
        return gang.minimum
    return gang.charge if differs.minimum_from_pods else {}


def _over(limits: Mapping[str, int], queue: str, dimension: str, held: int, ask: Ask) -> QueueRefusal | None:
    limit, asked = limits.get(dimension), ask.minimum[dimension]
    if limit is None or not asked or held + asked <= limit:
        return None
    code: QueueCode = "larger-than-capability" if asked > limit else "over-capability"
    return QueueRefusal(code, queue, dimension=dimension, held=held, limit=limit, asked=asked)


def gangs_within(shares: Shares, gangs: Iterable[Holding]) -> frozenset[str]:
    """Uids of gangs that are within the entitlement of their leaf queue; the others borrow.

    In each queue gangs are taken by priority, start and uid, each that still fits. Those that are leaving, of queues
    that are not valid or do not exist, or without any charge are never within.
    """
    taken: dict[str, Amounts] = {}
    found: set[str] = set()
    for gang in sorted(gangs, key=lambda one: (-one.priority, one.start, one.uid)):
        entitled, counted = shares.entitlements.get(gang.queue), judged(gang.charge)
        if entitled is None or gang.is_leaving or not counted:
            continue
        with_it = plus(taken.get(gang.queue, {}), gang.charge)
        if is_within(with_it, entitled, counted):
            taken[gang.queue] = with_it
            found.add(gang.uid)
    return frozenset(found)
