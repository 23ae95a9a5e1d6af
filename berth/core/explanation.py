"""An explanation: a decision on a gang and its grounds, as data and in words."""

from typing import Final, Literal

import msgspec

from berth.core.products import FORMS

Outcome = Literal["placed", "waiting", "rejected"]
LostBy = Literal["score", "name", "better"]
"""Lower score; equal score and a later name; it is the better one: see ``Basis`` for what can make it so."""

_RANKS_TOLD: Final = 8


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


class Rival(msgspec.Struct, frozen=True):
    """The best other node for a pod, and why it was not taken."""

    node: str
    score: int
    free: int
    """Chips there that the pod could have used."""
    affinity: int
    lost_by: LostBy


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


class NearNode(msgspec.Struct, frozen=True):
    """A node that lacks little."""

    node: str
    free: int
    reason: str
    words: str
    held_by: list[str] = []
    """Jobs that hold chips there, as ``namespace/name``."""


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


def sentences(told: Explanation, *, is_over: bool = False) -> list[str]:
    """The explanation in words, one sentence an entry; times are left to the reader's clock.

    Args:
        told: The explanation.
        is_over: Whether the job waits no longer, because it was cancelled.
    """
    lines = []
    if told.form and told.because:
        lines.append(f"Product form {told.form} ({told.title}), because {told.because}.")
    match told.outcome:
        case "placed":
            lines += [_choice_words(rank, told) for rank in range(min(len(told.choices), _RANKS_TOLD))]
            if len(told.choices) > _RANKS_TOLD:
                lines.append(f"{len(told.choices) - _RANKS_TOLD} more ranks were chosen in the same way.")
            if not told.is_confirmed:
                lines.append("Deciding again does not give the same nodes.")
        case "waiting":
            lines.append(f"It {'waited' if is_over else 'waits'}: {told.sentence}.")
            lines += [_near_words(near, told) for near in told.nearest]
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


def _choice_words(rank: int, told: Explanation) -> str:
    choice = told.choices[rank]
    chips = (
        f"chip{'s' if len(choice.chips) > 1 else ''} {', '.join(map(str, choice.chips))}"
        if choice.chips
        else "no chips"
    )
    head = f"Rank {choice.rank} ({choice.task}) is on {choice.node}, {chips}: {_standing_words(choice, told)}."
    rival = choice.runner_up
    if rival is None:
        return f"{head} No other node fits."
    words = f"{head} Runner-up {rival.node}: {_standing_words(rival, told)}; "
    match rival.lost_by:
        case "score":
            words += f"its score is lower by {choice.score - rival.score}"
        case "name":
            words += "equal score, and its name comes later"
        case "better":
            words += _better_words(told.basis)
    is_next = rank + 1 < len(told.choices) and told.choices[rank + 1].node == rival.node
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


def _near_words(near: NearNode, told: Explanation) -> str:
    holders = f"; chips there are held by {', '.join(near.held_by)}" if near.held_by else ""
    chips = f"with {near.free} usable chip{'' if near.free == 1 else 's'} free, " if told.chips else ""
    return f"Near: {near.node}, {chips}{near.words}{holders}."
