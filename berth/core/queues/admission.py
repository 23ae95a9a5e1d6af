"""Whether a queue lets a gang in: admission before it has pods, placement when it has.

Both are functions of what is given. Admission counts minima of gangs that stay, not what is held: a queue whose chips
others have borrowed could otherwise never ask for them back.
"""

from collections.abc import Iterable, Mapping

import msgspec

from berth.core.parity import Differences
from berth.core.queues.amounts import in_order, is_within, judged, plus
from berth.core.queues.charges import Holding, Usage
from berth.core.queues.refusals import Code, QueueRefusal
from berth.core.queues.shares import Shares
from berth.core.queues.tree import State, Tree, closing_of
from berth.schemas.queues.queue import Amounts

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
    minimum: Amounts
    namespace: str = ""
    priority: int = 0
    may_displace: bool = False
    is_declared: bool = True


def queue_refusal(tree: Tree, queue: str, namespace: str = "") -> QueueRefusal | None:
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
    return _short(shares, ask, usage)


def admission_refusal(
    shares: Shares, ask: Ask, running: Iterable[Holding], within: frozenset[str], before: Iterable[Holding] = ()
) -> QueueRefusal | None:
    """Why a gang may not have pods yet; None if minima of gangs that stay leave room for its own.

    Args:
        shares: Limits and entitlements.
        ask: The gang.
        running: Gangs that hold something.
        within: Those of them that are within the entitlement of their queue, see :func:`gangs_within`.
        before: Gangs that were admitted, hold nothing yet, and come before it in order, charged for their minima.
    """
    refusal = queue_refusal(shares.tree, ask.queue, ask.namespace)
    if refusal is not None or not (ask.is_declared or shares.tree.differs.minimum_from_pods):
        return refusal
    staying = Usage(shares.tree)
    for gang in before:
        staying.charge(gang.queue, gang.charge, namespace=gang.namespace)
    for gang in running:
        if stays(shares, gang, ask, is_within_entitlement=gang.uid in within):
            staying.charge(gang.queue, _counted(gang, shares.tree.differs), namespace=gang.namespace)
    refusal = _short(shares, ask, staying)
    return None if refusal is None else msgspec.structs.replace(refusal, is_admission=True)


def _short(shares: Shares, ask: Ask, counted: Usage) -> QueueRefusal | None:
    """The first queue from the gang's up that has no room for it, by the first dimension that is short there."""
    for step in shares.tree.paths[ask.queue]:
        found: list[QueueRefusal] = []
        for dimension in in_order(ask.minimum):
            leaving = counted.leaving(step, dimension)
            refusal = _over(shares.limits[step], step, dimension, counted.held(step, dimension) + leaving, ask)
            if refusal is not None:
                found.append(msgspec.structs.replace(refusal, leaving=leaving))
                continue
            held = counted.of_namespace(step, ask.namespace, dimension)
            refusal = _over(shares.tree.queues[step].per_namespace, step, dimension, held, ask)
            if refusal is not None:
                found.append(msgspec.structs.replace(refusal, namespace=ask.namespace))
        if found:
            return msgspec.structs.replace(found[0], others=tuple(other.dimension for other in found[1:]))
    return None


def _counted(gang: Holding, differs: Differences) -> Amounts:
    """What counts of a gang that stays: its minimum. The reference counts nothing of one that declares none."""
    if gang.minimum is not None:
        return gang.minimum
    return gang.charge if differs.minimum_from_pods else {}


def _over(limits: Mapping[str, int], queue: str, dimension: str, held: int, ask: Ask) -> QueueRefusal | None:
    limit, asked = limits.get(dimension), ask.minimum[dimension]
    if limit is None or not asked or held + asked <= limit:
        return None
    code: Code = "larger-than-capability" if asked > limit else "over-capability"
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


def stays(shares: Shares, gang: Holding, ask: Ask, *, is_within_entitlement: bool) -> bool:
    """Whether a running gang holds what it has against one that asks: the other could never displace it.

    Args:
        shares: Entitlements.
        gang: The running gang.
        ask: The gang that asks.
        is_within_entitlement: Whether the running gang is within the entitlement of its queue.
    """
    if gang.is_leaving or not shares.tree.differs.counts_what_stays:
        return not gang.is_leaving
    if gang.is_critical or not gang.is_preemptable or not ask.may_displace:
        return True
    if gang.queue == ask.queue:
        return gang.priority >= ask.priority
    if is_within_entitlement or not shares.tree.is_reclaimable(gang.queue):
        return True
    mine, _ = shares.tree.branches(ask.queue, gang.queue)
    return not all(is_within(ask.minimum, shares.entitlements[step], judged(ask.minimum)) for step in mine)
