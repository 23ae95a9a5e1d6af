"""Refusals in words: why a job waits, in one sentence with numbers."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from berth.core.queues.refusals import text_of
from berth.core.text import pluralize
from berth.products.catalogue import FORMS
from berth.schemas.refusal import INTERNAL, LATE, OF_THE_NODE, ConstraintCount, NodeReason, ReasonCount, Refusal
from berth.schemas.units import rfc3339

_WORDS: Final[dict[NodeReason, str]] = {
    NodeReason.OTHER_RESOURCE: "have no chips of this resource",
    NodeReason.NOT_READY: "are not ready",
    NodeReason.CORDONED: "are cordoned",
    NodeReason.SELECTOR: "do not match the node selector or affinity",
    NodeReason.TAINT: "have a taint that the job does not tolerate",
    NodeReason.NODE_FAULT: "are faulty or take no new work",
    NodeReason.SUB_HEALTH: "are sub-healthy",
    NodeReason.CPU: "have too little cpu",
    NodeReason.MEMORY: "have too little memory",
    NodeReason.UNSTABLE: "report more free chips than Kubernetes counts",
    NodeReason.NO_CHIP_LIST: "report no free chips",
    NodeReason.TOO_MANY_CHIPS: "are of another product",
    NodeReason.SHORTAGE: "have fewer than {chips} free chips",
    NodeReason.TOPOLOGY: "have no {chips} free chips that belong together",
    NodeReason.TOPOLOGY_HELPED: "have no {chips} free chips that belong together",
    NodeReason.NODE_LABEL: "lack a label that the product form needs",
    NodeReason.QUOTA: "have no chip with room for the quota",
    NodeReason.SHARD_MISSING: "belong to a scorer that did not answer",
    NodeReason.UNKNOWN_PRODUCT: "are of an unknown product",
    NodeReason.HEALTH_UNKNOWN: "have no health report",
    NodeReason.NO_SUPERPOD: "are in no SuperPoD or rack that is known",
    NodeReason.NO_LEVEL: "lack labels of the levels that the job needs",
    NodeReason.PODS: "have as many pods as they take",
    NodeReason.RESOURCE: "have too little of another resource",
    NodeReason.PORT: "have a pod on a host port that the job needs",
    NodeReason.VOLUME: "have no access to a volume of the job",
    NodeReason.VOLUME_LIMIT: "have as many volumes of a driver as they take",
    NodeReason.AFFINITY: "are not near a pod that the required pod affinity asks for",
    NodeReason.ANTI_AFFINITY: "are near a pod that the required anti-affinity forbids",
    NodeReason.REPELLED: "are near a pod whose required anti-affinity forbids this one",
    NodeReason.SPREAD: "do not fit the topology spread",
    NodeReason.DRAINED: "are drained",
}
_OF_LABELS: Final = frozenset({NodeReason.SELECTOR, NodeReason.TAINT})
_NEEDS_LABELS: Final = {
    NodeReason.AFFINITY: "required pod affinity",
    NodeReason.SPREAD: "topology spread",
}
"""Constraints that exclude nodes without a label."""
_SINGULAR: Final = (
    ("are ", "is "),
    ("have ", "has "),
    ("do not ", "does not "),
    ("report ", "reports "),
    ("lack ", "lacks "),
    ("belong to ", "belongs to "),
)
_PLACE: Final = re.compile(r"\{(\w+)\}")
_ONE: Final = re.compile(r"\b1 (chip|node|pod)s\b")
_COUNTED: Final = frozenset({"too-large", "too-many"})
"""Refusals whose value is a count in words."""

Parts = Mapping[int, Sequence[tuple[int, str]]]
"""By reason: numbers of nodes, each with the end of a sentence about several."""
NO_PARTS: Final[Parts] = MappingProxyType({})
HIDDEN_JOB: Final = "a job of another namespace"
"""Instead of the name of a job that a reader may not see."""
"""Index of January in a year that begins with March."""


def sentence(refusal: Refusal, parts: Parts = NO_PARTS) -> str:
    """The refusal in one sentence.

    Args:
        refusal: The refusal.
        parts: Nodes of a reason that have words of their own: their number, and the end of a sentence about several.
    """
    if refusal.template:
        return _by_template(refusal)
    if refusal.queue is not None:
        return text_of(refusal.queue)
    if refusal.code == "behind":
        return f"waits behind {refusal.ahead}, which was first in the queue (queue_policy fifo)"
    if refusal.code == "reserved":
        since = f" from {rfc3339(refusal.start_ms)} on" if refusal.start_ms else ""
        return f"{_fitting(refusal)}, but room is reserved for {refusal.ahead}{since}, and this job would delay it"
    return with_start(_words(refusal, parts), refusal)


def _by_template(refusal: Refusal) -> str:
    """The sentence of a rule, with its numbers; what is no number of it stays as it is."""
    values = {"ahead": refusal.ahead, "node": refusal.node}
    for name, number in refusal.numbers.items():
        values[name] = rfc3339(number) if name.endswith("_ms") else f"{number:,}"
    return _singular(_PLACE.sub(lambda place: values.get(place[1], place[0]), refusal.template))


def without_past(refusal: Refusal, at_ms: int) -> Refusal:
    """A refusal without a start of a reservation that has passed by ``at_ms``."""
    return msgspec.structs.replace(refusal, start_ms=0) if 0 < refusal.start_ms <= at_ms else refusal


def with_start(words: str, refusal: Refusal) -> str:
    """Words about a refusal, with the start of its reservation if it has one."""
    return f"{words}; room is reserved for it from {rfc3339(refusal.start_ms)} on" if refusal.start_ms else words


def within(words: str, refusal: Refusal | None, namespace: str) -> str:
    """A sentence about a refusal, for all who may read a namespace: a job of another one has no name in it.

    Args:
        words: The sentence.
        refusal: What it is about; None for something else.
        namespace: The namespace.
    """
    if refusal is None or not refusal.ahead or refusal.ahead.partition("/")[0] == namespace:
        return words
    return without_name(words, refusal.ahead)


def without_name(words: str, job: str) -> str:
    """A sentence without the name of a job."""
    return words.replace(job, HIDDEN_JOB)


def unplaceable(refusal: Refusal | None) -> str:
    """Task that a refusal is about, if no node would take a pod of it as nodes are now, were nothing else to run there.

    That is so if labels or taints exclude the nodes that take pods at all.

    Args:
        refusal: Why a job waits; None if it has no refusal.
    """
    if refusal is None or refusal.nodes_fit:
        return ""
    reasons = {count.reason for count in refusal.counts}
    return refusal.task if reasons <= OF_THE_NODE and not reasons.isdisjoint(_OF_LABELS) else ""


def _singular(recorded: str) -> str:
    """A text with the noun of each 1 in the singular; texts in records have it in the plural."""
    return _ONE.sub(r"1 \1", recorded)


def _words(refusal: Refusal, parts: Parts) -> str:
    """What is wrong with the request, or missing for it."""
    if refusal.code == "no-room":
        return _no_room(refusal, parts)
    planned = _no_plan(refusal)
    if planned:
        return f"{planned}{_unfit(refusal, parts)}"
    if refusal.code == "larger-than-cluster":
        return _larger(refusal, parts)
    if refusal.code == "bind-failed":
        return f"its pods could not be bound in {refusal.value} attempt{'' if refusal.value == '1' else 's'}"
    if refusal.code in {INTERNAL, LATE}:
        return _not_tried(refusal)
    value = refusal.value if refusal.code in _COUNTED else repr(refusal.value)
    what = f"{refusal.field} is {value}" if refusal.field else refusal.code
    return f"{what}, expected {refusal.expected}" if refusal.expected else what


def _larger(refusal: Refusal, parts: Parts) -> str:
    """Chips that a job needs beyond those that there are."""
    expected = _singular(refusal.expected)
    has_none = bool(refusal.nodes_total) and not refusal.nodes_fit
    if has_none and {one.reason for one in refusal.counts} == {NodeReason.OTHER_RESOURCE}:
        return f"no node has such chips: {expected}"
    others = [f"{nodes:,} {_for(words, nodes)}" for nodes, words in parts.get(NodeReason.SELECTOR, ())]
    more = f"; of the other nodes, {', '.join(others)}" if others else ""
    return f"larger than the cluster: {refusal.field} is {refusal.value}; {expected}{more}"


def _not_tried(refusal: Refusal) -> str:
    """Why a gang was not decided."""
    if refusal.code == INTERNAL:
        return f"set aside: an error of Berth ended its decision ({refusal.value}); other jobs are not affected"
    return (
        f"left out: its {refusal.shapes} different tasks take longer to score than a round waits, and it is tried again"
        f" from {rfc3339(refusal.retry_ms)} on; tasks with equal requests and constraints count once"
    )


def reason_words(reason: int, *, nodes: int, chips: int, form: str) -> str:
    """Why ``nodes`` nodes do not fit, as the end of a sentence that begins with their number."""
    known = NodeReason(reason)
    together = FORMS[form].together if form in FORMS else ""
    if known in {NodeReason.TOPOLOGY, NodeReason.TOPOLOGY_HELPED} and together:
        words = f"have fewer than {chips} free chips {together}"
    else:
        words = _WORDS[known].format(chips=chips)
    if chips == 1:
        words = words.replace("1 free chips that belong together", "usable free chip")
        words = words.replace("1 free chips", "1 free chip")
    return _for(words, nodes)


def _for(words: str, nodes: int) -> str:
    """Words about several nodes, in the singular for one."""
    if nodes != 1:
        return words
    for plural, singular in _SINGULAR:
        if words.startswith(plural):
            words = singular + words.removeprefix(plural)
            break
    return words.replace(" or take ", " or takes ").replace("they take", "it takes")


def unfit_words(unfit: Mapping[str, int], *, chips: int, form: str) -> str:
    """Nodes that do not fit, by reason, as a list in words; empty without such nodes."""
    return ", ".join(
        f"{nodes:,} {reason_words(NodeReason[reason.upper()], nodes=nodes, chips=chips, form=form)}"
        for reason, nodes in unfit.items()
    )


def _no_plan(refusal: Refusal) -> str:
    """What is missing for a gang whatever the nodes are, or for its plan; empty for nothing."""
    if refusal.code == "no-claim":
        return f"claim {refusal.value}: expected {refusal.expected}"
    if refusal.code == "no-resource":
        return f"no node offers {refusal.value}; did you mean {refusal.expected}"
    # Planners are large, and services that tell few refusals need none.
    from berth.core.topologies.registry import lack_words  # noqa: PLC0415  # see the line above

    return lack_words(refusal)


def _no_room(refusal: Refusal, parts: Parts) -> str:
    if not refusal.nodes_total:
        return "no node is known yet"
    return f"{room_words(refusal)}{_counts(refusal, parts)}{_between_pods(refusal)}"


def room_words(refusal: Refusal) -> str:
    """How many nodes fit, after how many pods find room if some do."""
    head = _fitting(refusal)
    if refusal.nodes_fit or refusal.pods_have:
        find = "finds" if refusal.pods_have == 1 else "find"
        head = f"{refusal.pods_have:,} of {pluralize(refusal.pods_need, 'pod')} {find} room, and {head}"
    return head


def _between_pods(refusal: Refusal) -> str:
    """Constraints that exclude nodes only because of the pods of the gang that have found room; empty without any."""
    reasons = {count.reason for count in refusal.counts}
    found = [f"{one.nodes:,} {constraint_words(one)}" for one in refusal.constraints if one.reason not in reasons]
    return f"; with the pods that find room, {', '.join(found)}" if found else ""


def _unfit(refusal: Refusal, parts: Parts) -> str:
    """Why nodes do not fit, as a second clause of a refusal of a plan; empty when all fit."""
    if not refusal.nodes_total:
        return "; no node is known yet"
    if refusal.nodes_fit == refusal.nodes_total:
        return ""
    return f"; {_fitting(refusal)}{_counts(refusal, parts)}"


def _fitting(refusal: Refusal) -> str:
    total = refusal.nodes_total - _of_other_resource(refusal)
    noun = "node" if total == 1 else "nodes"
    verb = "fits" if 1 in {refusal.nodes_fit, total} else "fit"
    return f"{refusal.nodes_fit:,} of {total:,} {noun} {verb}"


def _of_other_resource(refusal: Refusal) -> int:
    """Nodes that a refusal leaves out, because they have no chips of the resource; 0 if there are no others."""
    others = sum(count.nodes for count in refusal.counts if count.reason == NodeReason.OTHER_RESOURCE)
    return others if others < refusal.nodes_total else 0


def _counts(refusal: Refusal, parts: Parts) -> str:
    """Nodes by reason in words: most nodes first, and last those that the job does not select."""
    without = NodeReason.OTHER_RESOURCE if _of_other_resource(refusal) else None
    counts = [count for count in refusal.counts if count.reason != without]
    ranked = sorted(counts, key=lambda one: (one.reason == NodeReason.SELECTOR, -one.nodes, one.reason))
    found = [words for count in ranked for words in _parts(count, refusal, parts)]
    return f": {', '.join(found)}" if found else ""


def _parts(count: ReasonCount, refusal: Refusal, parts: Parts) -> list[str]:
    """Nodes of a reason in words, those apart that have words of their own."""
    found: list[str] = []
    left = count.nodes
    for one in refusal.constraints:
        if one.reason == count.reason:
            found.append(f"{one.nodes:,} {constraint_words(one)}")
            left -= one.nodes
    for nodes, words in parts.get(count.reason, ()):
        if shown := min(nodes, left):
            found.append(f"{shown:,} {_for(words, shown)}")
            left -= shown
    return found + ([_count(ReasonCount(count.reason, left), refusal)] if left > 0 else [])


def constraint_words(count: ConstraintCount) -> str:
    """Why a constraint excludes nodes, as the end of a sentence that begins with their number."""
    reason, is_one = NodeReason(count.reason), count.nodes == 1
    listed, several = ", ".join(count.names), len(count.names) > 1
    if count.lacking == count.nodes:
        labels = f"one of the labels {listed}" if several else f"the label {listed}"
        return f"{'lacks' if is_one else 'lack'} {labels} of the {_NEEDS_LABELS.get(reason, 'constraint')}"
    if reason == NodeReason.RESOURCE:
        return _for(f"have too little {listed}", count.nodes)
    if reason == NodeReason.PORT:
        ports = f"one of the host ports {listed}" if several else f"host port {listed}"
        return _for(f"have a pod on {ports} that the job needs", count.nodes)
    lack = f", {count.lacking} {'lacks' if count.lacking == 1 else 'lack'} {'one' if several else 'it'}"
    return f"{_for(_WORDS[reason], count.nodes)} (topology key{'s' if several else ''} {listed}{lack if count.lacking else ''})"


def _count(count: ReasonCount, refusal: Refusal) -> str:
    return f"{count.nodes:,} {reason_words(count.reason, nodes=count.nodes, chips=refusal.chips, form=refusal.form)}"
