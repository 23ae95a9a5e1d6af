"""Family ``queues_ours``: limits, entitlements, order, admission and victims as an independent model has them."""

from collections.abc import Sequence

from berth.core.queues.admission import Ask, gangs_within, minima_of, placement_refusal
from berth.core.queues.charges import Holding, Usage
from berth.core.queues.order import Ratio, borrowed_of, leaves_in_order, share_of
from berth.core.queues.shares import Shares, shares_of
from berth.core.queues.tree import tree_of
from berth.schemas.ledger import Settings
from berth.schemas.queues.queue import DEFAULT
from berth.schemas.refusal import QueueRefusal
from tests.golden.harness import Answer, Differences, Line, differ
from tests.golden.queue_lines import amounts_of, queue_of, whole
from tests.golden.queue_victims import victim_differences

OVER = "over-capability"
LARGER = "larger-than-capability"
"""A limit below what is asked for has a code of its own; the model says the other one, with the same numbers."""


def compare_queues_ours(line: Line, _settings: Settings) -> Answer:
    """One state of a cell, and one gang that asks to be let in. The model knows Berth's own rules, so both runs do."""
    result = line["result"]
    tree = tree_of(map(queue_of, line["queues"]))
    shares = shares_of(tree, amounts_of(line["capacity"]))
    names = [queue["name"] for queue in line["queues"]]
    gangs = [_holding(gang) for gang in line["gangs"]]
    usage = Usage(tree, gangs)
    within = gangs_within(shares, gangs)
    differences = differ("broken", sorted(result["broken"]), sorted(tree.broken))
    differences += differ("state", result["state"], {name: tree.states[name].name.capitalize() for name in names})
    valid = [name for name in names if name in tree.paths]
    differences += differ("limits", result["limits"], {name: whole(shares.limits[name]) for name in valid})
    got = {name: whole(shares.entitlements[name]) for name in valid}
    differences += differ("entitlements", result["entitlements"], got)
    leaves = [name for name in leaves_in_order(shares, usage) if name != DEFAULT]
    differences += differ("order", result["order"], leaves)
    for field, got_of in (("share", share_of), ("borrowed", borrowed_of)):
        expected = {name: _fraction(parts) for name, parts in result[field].items()}
        differences += differ(field, expected, {name: got_of(shares, usage, name) for name in leaves})
    differences += differ("within", sorted(result["within"]), sorted(within))
    return Answer(differences + _refusals(line, shares, gangs) + victim_differences(line, shares, gangs))


def _fraction(parts: Sequence[int] | None) -> object:
    """A share of a line as a ratio; what is none stays as it is."""
    return Ratio(*parts) if parts and len(parts) == len(("numerator", "denominator")) else parts


def _holding(gang: Line) -> Holding:
    return Holding(
        gang["uid"],
        gang["queue"],
        amounts_of(gang["charge"]),
        minimum=amounts_of(gang["minimum"]) or None,
        priority=gang["priority"],
        start=gang["start"],
        is_leaving=gang["leaving"],
        is_preemptable=gang["preemptable"],
        is_critical=gang["critical"],
    )


def _refusals(line: Line, shares: Shares, gangs: Sequence[Holding]) -> Differences:
    asking, result = line["preemptor"], line["result"]
    ask = Ask(
        asking["queue"],
        amounts_of(asking["request"]),
        priority=asking["priority"],
        may_displace=not asking["never"],
    )
    admission = minima_of(shares, gangs).refusal(ask)
    placement = placement_refusal(shares, Usage(shares.tree, gangs), ask)
    return _differ("admission", result["admission"], admission) + _differ("placement", result["placement"], placement)


def _differ(field: str, expected: Sequence[object], refusal: QueueRefusal | None) -> Differences:
    if refusal is None:
        return differ(field, list(expected), [True, None])
    code = OVER if refusal.code == LARGER and refusal.asked > refusal.limit else refusal.code
    got: list[object] = [code]
    if refusal.dimension:
        numbers = ({refusal.dimension: number} for number in (refusal.held, refusal.limit, refusal.asked))
        got += [refusal.queue, refusal.dimension, *(whole(number)[refusal.dimension] for number in numbers)]
    said = list(expected)
    if not refusal.dimension and isinstance(said[-1], list):
        said[-1] = said[-1][:1]  # its other words are of the model's own
    return differ(field, said, [False, got])
