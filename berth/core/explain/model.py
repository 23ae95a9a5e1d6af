"""An explanation: a decision on a gang and the evidence for it, as data and in words."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from berth.core.expected.expectation import ExpectedStart
from berth.core.expected.expectation import sentences as expected_lines
from berth.core.explain.evidence import (
    Alternative,
    Candidate,
    Clock,
    NearDomain,
    NearNode,
    NodesAlike,
    Unblocking,
    holders_words,
    unblocking_lines,
)
from berth.core.explain.refusal_text import unfit_words
from berth.core.explain.request import RequestSummary, request_lines
from berth.core.text import pluralize, ranges
from berth.core.topologies.layouts import BlockLayout, Layouts, LeafLayout, Seat
from berth.core.topologies.registry import TOPOLOGIES
from berth.products.catalogue import FORMS

Outcome = Literal["placed", "waiting", "rejected"]
_RANKS_SHOWN: Final = 8
_CHIPS_MISSING: Final = frozenset({"shortage", "topology", "topology_helped"})
"""Reasons that do not mention health although unhealthy chips may be the cause."""


class Basis(msgspec.Struct, frozen=True):
    """The state and the settings that the decision is based on."""

    ledger_seq: int = 0
    """Record with the verdict; 0 for none."""
    facts_seq: int = 0
    at_ms: int = 0
    epoch: int = 0
    round: int = 0
    settings: dict[str, bool] = {}
    """Boolean settings of the epoch, by name."""
    missing_shards: list[int] = []
    is_current: bool = False
    """The history is no longer stored: scores and reasons are those of the current state, not of the decision."""
    values: dict[str, int | str] = {}
    """Other settings of the epoch, by name."""
    nodes: int = 0
    """Known nodes."""
    chips: int = 0
    """Chips of these nodes."""
    chips_free: int = 0
    """Healthy chips that no job held."""
    jobs_held: int = 0
    """Jobs that held resources."""


class Choice(msgspec.Struct, frozen=True):
    """Node of one pod.

    ``affinity`` is the class of the free chips: 0 is the best, and the value of forms without classes.
    """

    rank: int
    task: str
    node: str
    chips: list[int]
    score: int = 0
    free: int = 0
    affinity: int = 0
    runner_up: Alternative | None = None
    leaf: str = ""
    """Leaf switch of a planned pod; empty when score and name decided."""
    superpod: str = ""
    """SuperPoD, or group of level 1, of a planned pod; empty when score and name decided."""
    block: int = -1
    """Block of a planned pod; -1 for none."""
    candidates: list[Candidate] = []
    """The best other nodes at that moment, best first, then nodes that were better before the round used them. Empty
    for planned pods."""


class Explanation(msgspec.Struct):
    """A decision on a gang and the evidence for it."""

    namespace: str
    name: str
    uid: str
    outcome: Outcome
    basis: Basis
    attempt: int = 1
    form: str = ""
    title: str = ""
    because: str = ""
    pods: int = 0
    choices: list[Choice] = []
    is_confirmed: bool = True
    """Deciding again gave the same nodes."""
    sentence: str = ""
    nearest: list[NearNode] = []
    task: str = ""
    chips: int = 0
    """Chips of one pod of ``task``, which found no room."""
    since_ms: int = 0
    field: str = ""
    value: str = ""
    expected: str = ""
    setting: str = ""
    """Setting of the dispatcher that rejects the request."""
    switch: LeafLayout | None = None
    """For gangs with switch affinity, unless another scheduler placed them."""
    blocks: BlockLayout | None = None
    """For gangs with SuperPoD affinity, unless another scheduler placed them."""
    asked: RequestSummary | None = None
    code: str = ""
    """Code of the refusal while the job waits, or of its rejection."""
    ahead: str = ""
    """Job ahead of this one, as ``namespace/name``."""
    start_ms: int = 0
    """Start of the reservation for this job or for the job ahead; 0 for none."""
    domains: list[NearDomain] = []
    """Parts of the cluster with most room; for gangs without switch or SuperPoD affinity."""
    unblocking: Unblocking | None = None
    """Events after which the job fits, while it waits."""
    was_reserved: bool = False
    """The place was reserved before, and others have left it."""
    is_held: bool = False
    """Somebody holds the job; ``sentence`` says who, and nothing is said of what else it would wait for."""
    expected_start: ExpectedStart | None = None
    """When it is expected to start, while it waits; None if nobody asked."""
    fits: list[NodesAlike] = []
    """All nodes by whether they could take a pod of ``task`` now, while it waits; empty if nobody asked."""


def all_sentences(explanation: Explanation, *, is_over: bool = False, clock: Clock = str) -> list[str]:
    """The whole explanation in sentences: the decision, what would make room, the evidence, and the request.

    Args:
        explanation: The explanation.
        is_over: Whether the job has ended: it no longer waits, or has its place no more.
        clock: Formats a moment.
    """
    asked = request_lines(explanation.asked, clock) if explanation.asked is not None else []
    help_ = (
        unblocking_lines(explanation.unblocking, clock) if explanation.unblocking is not None and not is_over else []
    )
    answer, evidence = _answer(explanation, clock, is_over=is_over)
    return [*answer, *help_, *evidence, *asked, *_form_lines(explanation)]


def sentences(explanation: Explanation, *, is_over: bool = False, clock: Clock = str) -> list[str]:
    """The product form, the decision and the evidence, one sentence for each entry.

    Args:
        explanation: The explanation.
        is_over: Whether the job has ended: it no longer waits, or has its place no more.
        clock: Formats a moment.
    """
    answer, evidence = _answer(explanation, clock, is_over=is_over)
    return [*_form_lines(explanation), *answer, *evidence]


def _form_lines(explanation: Explanation) -> list[str]:
    if not explanation.form or not explanation.because:
        return []
    return [f"Product form {explanation.form} ({explanation.title}), because {explanation.because}."]


def _answer(explanation: Explanation, clock: Clock, *, is_over: bool) -> tuple[list[str], list[str]]:
    """The decision, and the evidence for it with what limits it."""
    answer: list[str] = []
    evidence: list[str] = []
    match explanation.outcome:
        case "placed":
            answer += _placed_lines(explanation, is_over=is_over)
        case "waiting":
            verb = "waited" if is_over else "waits"
            answer.append(
                f"It is {explanation.sentence}." if explanation.is_held else f"It {verb}: {explanation.sentence}."
            )
            if explanation.start_ms or (explanation.ahead and explanation.ahead not in explanation.sentence):
                answer.append(_ahead_words(explanation, clock))
            if explanation.expected_start is not None and not is_over and not explanation.is_held:
                answer += expected_lines(explanation.expected_start, clock, at_ms=explanation.basis.at_ms)
            evidence += _waiting_evidence(explanation, clock)
        case "rejected":
            answer.append(f"It was rejected: {explanation.sentence}.")
            if explanation.setting:
                answer.append(f"The setting {explanation.setting} of the dispatcher asks for this.")
    if explanation.basis.missing_shards:
        shards = ", ".join(map(str, explanation.basis.missing_shards))
        evidence.append(f"Scorers of shard {shards} did not answer; their nodes were not considered.")
    if explanation.basis.is_current and explanation.outcome != "waiting":
        evidence.append(
            "The history of this decision is no longer stored; scores and reasons are those of the current state."
        )
    return answer, evidence


def _placed_lines(explanation: Explanation, *, is_over: bool) -> list[str]:
    layouts = Layouts(explanation.switch, explanation.blocks)
    lines = [line for one in TOPOLOGIES for line in one.placed_lines(layouts, form=explanation.form)]
    if explanation.was_reserved:
        lines.append("Its place was reserved before, until others had left it.")
    verb = "was" if is_over else "is"
    lines += [_choice_words(rank, explanation, verb) for rank in range(min(len(explanation.choices), _RANKS_SHOWN))]
    if len(explanation.choices) > _RANKS_SHOWN:
        lines.append(f"{len(explanation.choices) - _RANKS_SHOWN} more ranks were chosen in the same way.")
    if not explanation.is_confirmed:
        lines.append("Deciding again does not give the same nodes.")
    return lines


def _waiting_evidence(explanation: Explanation, clock: Clock) -> list[str]:
    lines = [_near_words(near, explanation, clock) for near in explanation.nearest]
    lines += [domain.words(clock) for domain in explanation.domains]
    layouts = Layouts(explanation.switch, explanation.blocks)

    def unfit(nodes: Mapping[str, int]) -> str:
        return unfit_words(nodes, chips=explanation.chips, form=explanation.form)

    return lines + [line for one in TOPOLOGIES for line in one.waiting_lines(layouts, unfit)]


def _ahead_words(explanation: Explanation, clock: Clock) -> str:
    at = f" from about {clock(explanation.start_ms)} on" if explanation.start_ms else ""
    if not explanation.ahead:
        return f"Room is reserved for it{at}."
    if explanation.start_ms:
        return f"Room is reserved for {explanation.ahead}{at}, and this job would delay it."
    return f"{explanation.ahead} is ahead of it and waits as well."


def _choice_words(rank: int, explanation: Explanation, verb: str) -> str:
    choice = explanation.choices[rank]
    chips = f"chip{'s' if len(choice.chips) > 1 else ''} {ranges(choice.chips)}" if choice.chips else "no chips"
    head = f"Rank {choice.rank} ({choice.task}) {verb} on {choice.node}"
    free = f"{pluralize(choice.free, 'usable chip')} free before"
    seat, layouts = Seat(choice.leaf, choice.superpod, choice.block), Layouts(explanation.switch, explanation.blocks)
    for topology in TOPOLOGIES:
        planned = topology.seat_words(seat, layouts)
        if planned is not None:
            place, plan = planned
            return f"{head}{place}, {chips}, by {plan}: {free}."
    head += f", {chips}: {_score_words(choice, explanation, choice)}."
    alternative = choice.runner_up
    if alternative is None:
        return f"{head} No other node fits."
    words = f"{head} Runner-up {alternative.node}: {_score_words(alternative, explanation, choice)}; "
    match alternative.lost_by:
        case "score":
            words += f"its score is lower by {choice.score - alternative.score}"
        case "name":
            words += "equal; the first by name won"
        case "better" | "taken":
            words += _better_words(explanation.basis)
        case "reserved":
            words += "what is free there is reserved for another job"
    after = explanation.choices[rank + 1] if rank + 1 < len(explanation.choices) else None
    is_next = after is not None and after.node == alternative.node and not after.leaf
    return f"{words}; rank {rank + 1} takes it." if is_next else f"{words}."


def _better_words(basis: Basis) -> str:
    if basis.is_current:
        return "it is better in the current state"
    if basis.missing_shards:
        return "better, but of a scorer that did not answer"
    return "better by this calculation"


def _score_words(at: Choice | Alternative, explanation: Explanation, choice: Choice) -> str:
    form = FORMS.get(explanation.form)
    words = f"score {at.score}"
    if form is None or not choice.chips:
        return words
    if form.weights.affinity and form.rule != "count":
        words += f", affinity class {at.affinity}"
    return f"{words}, {at.free} usable chip{'' if at.free == 1 else 's'} free before"


def _near_words(near: NearNode, explanation: Explanation, clock: Clock) -> str:
    wrong = ", some of it unhealthy" if "unhealthy" in near.wrong and near.reason in _CHIPS_MISSING else ""
    holders = wrong + holders_words(near.holders, clock)
    chips = f"with {near.free} usable chip{'' if near.free == 1 else 's'} free, " if explanation.chips else ""
    return f"Near: {near.node}, {chips}{near.words}{holders}."
