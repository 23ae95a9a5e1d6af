"""Leaf switches in words: what is missing for a gang, how its leaves were chosen, where it is, and states of leaves.

Source: docs/reference/switches.md, "Shared leaf states", "Partitions of idle nodes", "Policy 1.0", "Policy 2.0" and
"Single layer".
"""

from collections.abc import Callable, Mapping
from typing import Final

from berth.core.text import pluralize, ranges
from berth.core.topologies.layouts import LeafLayout, NearLeaf, UnfitWords, near_sentence
from berth.core.topologies.switches.limits import COLUMNS_MAX
from berth.core.topologies.switches.occupancy.leaf_bits import CROSS, EXCLUSIVE, NOT_NORMAL, SHARED, STATE, UNHEALTHY
from berth.schemas.refusal import SwitchLack

UNKNOWN: Final = "the leaf switches are not known: ConfigMap basic-tor-node-cm is not read yet, or has no leaf"
STATES: Final[Mapping[int, str]] = {0: "free", SHARED: "shared", EXCLUSIVE: "exclusive"}
"""State of a leaf by its number."""
_LEAVES_SHOWN: Final = 8
_RULES: Final[Mapping[str, str]] = {
    "best-fit": "best fit: of the leaves that can hold all of its pods, one that they fill best",
    "complete-leaves": "complete leaves: leaves of which every node is usable",
    "logical-switches": "logical switches: rows of nodes at different positions, so that their traffic does not meet on a"
    " link from the spine",
    "drained": "drained: free leaves, of which it takes all usable nodes",
    "drained-and-shared": "drained and shared: free leaves, of which it takes all usable nodes, and shared ones for the rest",
    "drained-and-opened": "drained and opened: free leaves, of which it takes all usable nodes, and for the rest a free one"
    " that becomes shared",
    "fallback": "fallback: any usable nodes, as the job is a common one and no other rule fits",
    "replacement": "replacement: nodes that match those of its other pods",
}
_BEST_OF_CLASSES: Final = (
    "best fit: of the leaves that can hold all of its pods, exclusive ones go first, then unhealthy shared, shared and free"
    " ones; of those alike, one that they fill best"
)


def rule_words(rule: str, policy: str) -> str:
    """How leaves were chosen, by the name of the rule; the name itself for an unknown rule."""
    return _BEST_OF_CLASSES if (rule, policy) == ("best-fit", "2.0") else _RULES.get(rule, rule)


def lack_words(lack: SwitchLack) -> str:
    """What is missing for a gang, as a sentence without a full stop."""
    return _LACKS.get(lack.rule, _open_places)(lack)


def state_words(state: int) -> str:
    """State byte of a leaf in words: free, shared or exclusive, with ``unhealthy`` before it where that applies."""
    words = STATES.get(state & STATE, STATES[SHARED])
    return f"unhealthy {words}" if state & UNHEALTHY else words


def bits_words(bits: int, policy: str) -> str:
    """State of a leaf under a policy, in words; empty for a policy without states.

    Args:
        bits: As :meth:`berth.core.topologies.switches.occupancy.leaf_states.LeafOccupancy.bits` gives them.
        policy: Current policy. Only 2.0 has states.
    """
    parts = [state_words(bits)] if policy == "2.0" else []
    if bits & CROSS:
        parts.append("cross jobs" if bits & NOT_NORMAL or policy != "1.0" else "cross jobs, all common")
    return ", ".join(parts)


def _one_leaf(lack: SwitchLack) -> str:
    head = f"needs {pluralize(lack.need, 'node')} under one leaf"
    if 0 < lack.places < lack.need:
        return f"{head}, and a leaf has {pluralize(lack.places, 'place')}"
    return f"{head}; {_best_leaf(lack)}"


def _leaf_size(lack: SwitchLack) -> str:
    pods = pluralize(lack.need, "pod")
    return f"{pods} {'is' if lack.need == 1 else 'are'} more than the {pluralize(lack.places, 'node')} below a leaf"


def _logical_switches(lack: SwitchLack) -> str:
    usable = f"{pluralize(lack.have, 'usable node')} on {pluralize(lack.leaves, 'leaf')}{_excluded(lack)}"
    if not lack.rows:
        need = pluralize(lack.need, "node")
        head = f"needs {need} under one leaf, or at as many positions; {_best_leaf(lack)}"
        return f"{head}; {_too_large(lack) or f'the positions of {usable} are fewer'}"
    parts = [f"{pluralize(lack.rows, 'complete logical switch')} of {pluralize(lack.places, 'node')}"]
    if lack.rest:
        parts.append(f"{pluralize(lack.rest, 'node')} of another")
    head = f"needs {' and '.join(parts)}"
    if lack.places > COLUMNS_MAX:
        return f"{head}; {_too_large(lack)}"
    ones = "1 complete one" if lack.rows_have == 1 else f"{lack.rows_have:,} complete ones"
    if lack.rows_have < lack.rows:
        return f"{head}; {ones} can be made of {usable}"
    return f"{head}; {ones} can be made of {usable}, but no further one with {pluralize(lack.rest, 'node')}"


def _idle_and_shared(lack: SwitchLack) -> str:
    below_one = lack.need < lack.places
    head = f"needs {pluralize(lack.need, 'node')} {'under one leaf, or ' if below_one else ''}on free leaves"
    best = f" {_best_leaf(lack)};" if below_one else ""
    return (
        f"{head} and on as many shared ones as a job may use;{best} free leaves have {lack.idle:,} and the best shared ones"
        f" {lack.shared:,}"
    )


def _any_leaf(lack: SwitchLack) -> str:
    head = f"needs {pluralize(lack.need, 'node')} on any leaves"
    if lack.policy == "1.0":
        return f"{head}; it can use {lack.have:,} on {pluralize(lack.leaves, 'leaf')}{_excluded(lack)}"
    return f"{head}; the leaves that are open to it have {lack.have:,}"


def _open_places(lack: SwitchLack) -> str:
    return f"needs {pluralize(lack.need, 'node')}; the places that are open to it have {lack.have:,}"


def _best_leaf(lack: SwitchLack) -> str:
    return f"the best leaf, {lack.leaf}, has {lack.leaf_have:,}" if lack.leaf_have else "no leaf has a usable one"


def _excluded(lack: SwitchLack) -> str:
    if not lack.barred:
        return ""
    return (
        f", {lack.barred:,} of them excluded because of cross jobs"
        if lack.leaves > 1
        else ", excluded because of cross jobs"
    )


def _too_large(lack: SwitchLack) -> str:
    if lack.places <= COLUMNS_MAX:
        return ""
    return f"leaves of {lack.places:,} places make no logical switches, {COLUMNS_MAX} is the most"


_LACKS: Final[Mapping[str, Callable[[SwitchLack], str]]] = {
    "one-leaf": _one_leaf,
    "leaf-size": _leaf_size,
    "logical-switches": _logical_switches,
    "idle-and-shared": _idle_and_shared,
    "any-leaf": _any_leaf,
}


def placed_lines(layout: LeafLayout) -> list[str]:
    """Rule, leaves and warning of a placed gang, one sentence for each entry."""
    policy = "of a single layer" if layout.policy == "single-layer" else layout.policy
    job = f"{layout.kind} job of {pluralize(layout.pods, 'pod')}"
    lines = [f"Switch affinity {policy} chose the leaves for a {job} by {layout.words}."]
    if layout.missed:
        lines.append(f"By the other rules it {layout.missed}.")
    parts = [
        f"{part.leaf} (rank{'' if part.pods == 1 else 's'} {ranges(part.ranks)}"
        + (f", {part.state})" if part.state else ")")
        for part in layout.leaves[:_LEAVES_SHOWN]
    ]
    more = len(layout.leaves) - len(parts)
    rest = f" and {pluralize(more, 'more leaf')}" if more else ""
    lines.append(f"It is below {', '.join(parts)}{rest}.")
    if layout.warning:
        lines.append(f"Warning: {layout.warning}.")
    return lines


def near_words(near: NearLeaf, unfit_words: UnfitWords) -> str:
    """One of the nearest leaves, in a sentence."""
    state = f" ({near.state})" if near.state else ""
    lacks = f", {near.lacks} too few" if near.lacks else ""
    words = f"Near: leaf {near.leaf}{state}, {near.usable:,} of {pluralize(near.places, 'node')} usable{lacks}"
    return near_sentence(words, unfit_words(near.unfit), [job.words() for job in near.jobs])
