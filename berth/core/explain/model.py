"""An explanation: a decision on a gang and its grounds, as data and in words."""

from typing import Final, Literal

import msgspec

from berth.core.explain import superpod_layout, switch_layout
from berth.core.explain.evidence import (
    Candidate,
    Clock,
    NearDomain,
    NearNode,
    Rival,
    Unblocking,
    holders_words,
    unblocking_lines,
)
from berth.core.explain.request import Asked, asked_lines
from berth.core.explain.superpod_layout import BlockLayout, seat_words
from berth.core.explain.switch_layout import LeafLayout
from berth.core.explain.text import pluralize
from berth.products.catalogue import FORMS

Outcome = Literal["placed", "waiting", "rejected"]
_RANKS_TOLD: Final = 8
_CHIPS_MISSING: Final = frozenset({"shortage", "topology", "topology_helped"})
"""Reasons of nodes that say nothing of health, though it may be what is behind them."""


class Basis(msgspec.Struct, frozen=True):
    """What the decision rested on."""

    ledger_seq: int = 0
    """Record that holds the verdict; 0 when there is none."""
    facts_seq: int = 0
    at_ms: int = 0
    epoch: int = 0
    round: int = 0
    settings: dict[str, bool] = {}
    """Switches of the epoch, by name."""
    missing_shards: list[int] = []
    is_current: bool = False
    """The history is no longer kept: scores and reasons are those of the state now, not of the decision."""
    values: dict[str, int | str] = {}
    """The other settings of the epoch, by name."""
    nodes: int = 0
    """Nodes that were known."""
    chips: int = 0
    """Chips that they had."""
    chips_free: int = 0
    """Those of them that were healthy and nobody held."""
    jobs_held: int = 0
    """Jobs that held something."""


class Choice(msgspec.Struct, frozen=True):
    """Where one pod went. ``affinity`` is the class of the free chips, 0 the best; 0 where the form has no classes."""

    rank: int
    task: str
    node: str
    chips: list[int]
    score: int = 0
    free: int = 0
    affinity: int = 0
    runner_up: Rival | None = None
    leaf: str = ""
    """Leaf switch by whose plan the pod got its node; empty where score and name decided."""
    superpod: str = ""
    """SuperPoD, or group of level 1, of the block by whose plan it got its node; empty likewise."""
    block: int = -1
    """That block; -1 for none."""
    candidates: list[Candidate] = []
    """The best other nodes at that moment, the best first, then those that were better until others of the round took of them; where
    score and name decided."""


class Explanation(msgspec.Struct):
    """A decision on a gang and its grounds."""

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
    """Chips a pod of ``task``, which found no room."""
    since_ms: int = 0
    field: str = ""
    value: str = ""
    expected: str = ""
    setting: str = ""
    """Setting of the dispatcher without which the request would have been taken."""
    switch: LeafLayout | None = None
    """For gangs with switch affinity, unless another scheduler placed them."""
    blocks: BlockLayout | None = None
    """For gangs with SuperPoD affinity, unless another scheduler placed them."""
    asked: Asked | None = None
    code: str = ""
    """Code of the refusal, while it waits or when it was turned away."""
    ahead: str = ""
    """Job, as ``namespace/name``, that goes before this one."""
    start_ms: int = 0
    """Moment from which on room is reserved, for this job or for the one that is ahead; 0 without."""
    domains: list[NearDomain] = []
    """Parts of the cluster that come closest; for gangs without switch or SuperPoD affinity."""
    unblocking: Unblocking | None = None
    """What would help, while it waits."""


def all_sentences(told: Explanation, *, is_over: bool = False, clock: Clock = str) -> list[str]:
    """The whole explanation in words: what was asked, what was decided and why, and what would help.

    Args:
        told: The explanation.
        is_over: Whether the job waits no longer, because it was cancelled.
        clock: How a moment is written.
    """
    asked = asked_lines(told.asked, clock) if told.asked is not None else []
    help_ = unblocking_lines(told.unblocking, clock) if told.unblocking is not None and not is_over else []
    return [*asked, *sentences(told, is_over=is_over, clock=clock), *help_]


def sentences(told: Explanation, *, is_over: bool = False, clock: Clock = str) -> list[str]:
    """What was decided and why, one sentence an entry.

    Args:
        told: The explanation.
        is_over: Whether the job waits no longer, because it was cancelled.
        clock: How a moment is written.
    """
    lines = []
    if told.form and told.because:
        lines.append(f"Product form {told.form} ({told.title}), because {told.because}.")
    match told.outcome:
        case "placed":
            lines += switch_layout.placed_lines(told.switch) if told.switch is not None else []
            lines += superpod_layout.placed_lines(told.blocks, form=told.form) if told.blocks is not None else []
            lines += [_choice_words(rank, told) for rank in range(min(len(told.choices), _RANKS_TOLD))]
            if len(told.choices) > _RANKS_TOLD:
                lines.append(f"{len(told.choices) - _RANKS_TOLD} more ranks were chosen in the same way.")
            if not told.is_confirmed:
                lines.append("Deciding again does not give the same nodes.")
        case "waiting":
            lines += _waiting_lines(told, clock, is_over=is_over)
        case "rejected":
            lines.append(f"It was turned away: {told.sentence}.")
            if told.setting:
                lines.append(f"The setting {told.setting} of the dispatcher asks for this.")
    if told.basis.missing_shards:
        shards = ", ".join(map(str, told.basis.missing_shards))
        lines.append(f"Scorers of shard {shards} did not answer; their nodes were out.")
    if told.basis.is_current:
        lines.append("The history of this decision is no longer kept; scores and reasons are those of the state now.")
    return lines


def _waiting_lines(told: Explanation, clock: Clock, *, is_over: bool) -> list[str]:
    lines = [f"It {'waited' if is_over else 'waits'}: {told.sentence}."]
    if told.start_ms or (told.ahead and told.ahead not in told.sentence):
        lines.append(_ahead_words(told, clock))
    lines += [_near_words(near, told, clock) for near in told.nearest]
    lines += [domain.words(clock) for domain in told.domains]
    if told.switch is not None:
        lines += switch_layout.waiting_lines(told.switch, chips=told.chips, form=told.form)
    if told.blocks is not None:
        lines += superpod_layout.waiting_lines(told.blocks, chips=told.chips, form=told.form)
    return lines


def _ahead_words(told: Explanation, clock: Clock) -> str:
    at = f" from about {clock(told.start_ms)} on" if told.start_ms else ""
    if not told.ahead:
        return f"Room is reserved for it{at}."
    if told.start_ms:
        return f"Room is reserved for {told.ahead}{at}, and this job would delay it."
    return f"{told.ahead} goes before it and waits as well."


def _choice_words(rank: int, told: Explanation) -> str:
    choice = told.choices[rank]
    chips = (
        f"chip{'s' if len(choice.chips) > 1 else ''} {', '.join(map(str, choice.chips))}"
        if choice.chips
        else "no chips"
    )
    head = f"Rank {choice.rank} ({choice.task}) is on {choice.node}"
    free = f"{pluralize(choice.free, 'usable chip')} free before"
    if choice.leaf:
        return f"{head} below {choice.leaf}, {chips}, by leaf plan: {free}."
    if choice.superpod:
        variant = told.blocks.variant if told.blocks is not None else ""
        seat = seat_words(choice.block, choice.superpod, variant)
        return f"{head} ({seat}), {chips}, by block plan: {free}."
    head += f", {chips}: {_standing_words(choice, told)}."
    rival = choice.runner_up
    if rival is None:
        return f"{head} No other node fits."
    words = f"{head} Runner-up {rival.node}: {_standing_words(rival, told)}; "
    match rival.lost_by:
        case "score":
            words += f"its score is lower by {choice.score - rival.score}"
        case "name":
            words += "equal score, and its name comes later"
        case "better" | "taken":
            words += _better_words(told.basis)
    after = told.choices[rank + 1] if rank + 1 < len(told.choices) else None
    is_next = after is not None and after.node == rival.node and not after.leaf
    return f"{words}; rank {rank + 1} takes it." if is_next else f"{words}."


def _better_words(basis: Basis) -> str:
    if basis.is_current:
        return "in the state of now it would be the better one"
    if basis.missing_shards:
        return "better, but of a scorer that did not answer"
    return "better by this calculation"


def _standing_words(at: Choice | Rival, told: Explanation) -> str:
    form = FORMS.get(told.form)
    words = f"score {at.score}"
    if form is None:
        return words
    if form.weights.affinity and form.rule != "count":
        words += f", affinity class {at.affinity}"
    return f"{words}, {at.free} usable chip{'' if at.free == 1 else 's'} free before"


def _near_words(near: NearNode, told: Explanation, clock: Clock) -> str:
    wrong = ", some of it unhealthy" if "unhealthy" in near.wrong and near.reason in _CHIPS_MISSING else ""
    holders = wrong + holders_words(near.holders, clock)
    chips = f"with {near.free} usable chip{'' if near.free == 1 else 's'} free, " if told.chips else ""
    return f"Near: {near.node}, {chips}{near.words}{holders}."
