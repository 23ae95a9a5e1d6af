"""Histories as data: the way a cell is, the steps that happen to it, and how both are drawn from a seed."""

import itertools
import random
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from berth.products.catalogue import NODE_PRODUCTS
from tests.fuzz.families import FAMILIES, LEVELS
from tests.fuzz.fault_draws import RECOVERING, TRAIT, draw_fault_settings
from tests.fuzz.settings import draw_settings

NUMBER_MAX: Final = 9_999
"""Largest number of a step."""
STEPS_MAX: Final = 70
_NUMBER: Final = re.compile("[0-9]+")
_RANGES: Final = re.compile("[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")

WEIGHTS: Final[dict[str, int]] = {
    "submit": 34,
    "update": 4,
    "cancel": 5,
    "seize": 3,
    "bury": 3,
    "pods": 22,
    "stray": 3,
    "outcome": 6,
    "foreign": 5,
    "health": 8,
    "node": 8,
    "topology": 4,
    "usage": 10,
    "namespace": 3,
    "storage": 5,
    "timer": 4,
    "turn": 6,
    "silence": 3,
    "epoch": 2,
    "garbage": 1,
    "group": 5,
    "replacement": 5,
    "drain": 5,
    "break": 0,
    "follow": 0,
    "repair": 0,
    "pause": 0,
}
"""What may happen, and how often where everything does."""
ALWAYS: Final = ("submit", "pods", "turn", "timer")
"""What happens in every history."""
_WITH_FAULTS: Final = ("group", "replacement", "pods", "outcome", "health", "node", "timer")
"""What happens in every history with faults."""
_OFTEN: Final = {"health": 3, "replacement": 3, "pods": 2, "outcome": 2}
"""How much more often in them than in others."""
_RECOVERING: Final = {"submit": 16, "break": 16, "follow": 26, "repair": 5, "pause": 10, "turn": 4, "group": 2}
"""How often something happens in histories of gangs that run and recover; all else is rare in them."""
_RARELY: Final = 2
"""How often, at most."""
_AROUND: Final = {"usage": 3, "namespace": 3, "storage": 4, "pods": 2}
"""What happens in every history whose jobs have constraints, and how much more often than in others."""
_AROUND_TRAITS: Final = frozenset({"constraints", "usage"})
VERBS: Final = tuple(verb for verb, weight in WEIGHTS.items() for _ in range(weight))


class Step(msgspec.Struct, frozen=True):
    """Something that happens; what the numbers mean depends on ``verb`` and on what there is.

    Attributes:
        verb: One of :data:`WEIGHTS`, ``queue``, ``steer`` or ``waiting``.
        one: Who.
        two: What.
        three: Seed of everything else about it.
        turns: Turns of the decider afterwards.
    """

    verb: str
    one: int = 0
    two: int = 0
    three: int = 0
    turns: int = 1


class Way(msgspec.Struct, frozen=True):
    """How a cell is.

    Attributes:
        families: Families of nodes, in turn.
        nodes: How many nodes.
        groups: SuperPoDs, leaf switches and racks, at most.
        traits: Features of health, nodes, jobs and pods that are there.
        settings: Fields of the decisions' configuration, epoch by epoch in turn.
        shards: Number of shards that a cell with silent ones has.
    """

    families: tuple[str, ...]
    nodes: int
    groups: int
    traits: tuple[str, ...]
    settings: tuple[dict[str, Any], ...]
    shards: int = 3


TRAITS: Final = (
    "withheld",
    "unhealthy",
    "network",
    "levels-of-health",
    "leaves",
    "tor",
    "trees",
    "superpods-change",
    "selectors",
    "demand",
    "many-tasks",
    "flaws",
    "uids",
    "run-times",
    "priorities",
    "network-lost",
    "share-labels",
    "aliens",
    "broken",
    "plain-jobs",
    "constraints",
    "usage",
    "volumes",
    TRAIT,
)
"""Features that a history may have besides its verbs; :data:`RECOVERING` is drawn alone."""
_BESIDE: Final[dict[tuple[str, ...], float]] = {
    ("leaves", "tor"): 0.35,
    ("trees",): 0.25,
    ("plain-jobs",): 0.2,
    ("many-tasks",): 0.25,
    ("constraints", "usage"): 0.3,
    ("simple",): 0.2,
    ("volumes",): 0.15,
    ("priorities",): 0.2,
    ("demand",): 0.15,
    ("run-times",): 0.15,
    ("selectors",): 0.1,
    ("uids",): 0.1,
    ("broken",): 0.05,
}
"""Features that histories of recoveries have besides, and how often."""


_ROOMY: Final = ("module910bx8", "module910bx16", "chip1-node8", "card910x2", "soft-share", "310p", "module910a3x16")
"""Families of nodes of which most jobs find room."""


class History(msgspec.Struct, frozen=True):
    """A way and what happens."""

    way: Way
    steps: tuple[Step, ...]

    def only(self, kept: Iterable[int]) -> "History":
        """The same with some of its steps."""
        return History(self.way, tuple(self.steps[index] for index in kept))


def draw_way(chance: random.Random) -> Way:
    """A way: few nodes, some features, so that some histories are pure and some are mixed."""
    families = tuple(chance.choice(FAMILIES) for _ in range(chance.choice((1, 1, 2, 2, 3))))
    density = chance.choice((0.2, 0.5, 0.8, 1.0))
    traits = tuple(trait for trait in TRAITS if chance.random() < density)
    if chance.random() < 0.3:
        traits = tuple(dict.fromkeys((*traits, "leaves", "tor")))
    if chance.random() < 0.4:  # constraints leave few nodes: what else does is rare, and nodes are alike
        families = families[:1] if chance.random() < 0.3 else (chance.choice(_ROOMY),)
        rare = chance.choice((0.0, 0.1, 0.3))
        few = [trait for trait in traits if chance.random() < rare]
        more = [trait for trait in ("plain-jobs", "volumes", "simple", "simple") if chance.random() < 0.6]
        traits = tuple(dict.fromkeys((*few, "constraints", "usage", *more)))
    if TRAIT in traits and chance.random() < 0.5:  # where pods fail and leave, less of all else happens
        traits = tuple(one for one in traits if one != TRAIT)
    if TRAIT in traits and chance.random() < 0.7:
        traits = tuple(dict.fromkeys((*(one for one in traits if one != "flaws"), "unhealthy", "levels-of-health")))
    if chance.random() < 0.3:
        families = families[:1] if chance.random() < 0.8 else families[:2]
        beside = (some for some, often in _BESIDE.items() if chance.random() < often)
        traits = tuple(dict.fromkeys((TRAIT, RECOVERING, *itertools.chain.from_iterable(beside))))
    is_tree = "trees" in traits
    levels = LEVELS if is_tree else ""
    in_superpods = any(NODE_PRODUCTS[family].in_superpod for family in families)
    first = draw_settings(chance, levels=levels, in_superpods=in_superpods)
    others = [
        first if chance.random() < 0.3 else draw_settings(chance, levels=levels, in_superpods=in_superpods)
        for _ in range(2)
    ]
    settings = [first, *others[: chance.choice((0, 1, 2))]]
    if TRAIT in traits:  # faults are handled in all epochs: none may withdraw the version of their records
        settings = [fields | draw_fault_settings(chance) for fields in settings]
    return Way(
        families=families,
        nodes=chance.choice((8, 10, 12, 16, 18))
        if RECOVERING in traits
        else chance.choice((3, 4, 5, 6, 8, 10, 12))
        if not in_superpods
        else chance.choice((4, 6, 8, 12, 18)),
        groups=chance.choice((1, 2, 2, 3, 4)),
        traits=traits,
        settings=tuple(settings),
        shards=chance.choice((1, 2, 3, 8)),
    )


def draw_steps(way: Way, chance: random.Random) -> tuple[Step, ...]:
    """What happens in a cell that is so."""
    density = chance.choice((0.3, 0.6, 1.0))
    has_around = set(way.traits) >= _AROUND_TRAITS
    always = (*ALWAYS, *_AROUND) if has_around else ALWAYS
    if TRAIT in way.traits:
        always = tuple(dict.fromkeys((*always, *_WITH_FAULTS)))
    verbs = [verb for verb in WEIGHTS if verb in always or chance.random() < density]
    if has_around and chance.random() < 0.7:
        verbs = [verb for verb in verbs if verb != "silence"]  # it keeps all jobs out for long
    weights = [WEIGHTS[verb] * (_AROUND[verb] if has_around and verb in _AROUND else 1) for verb in verbs]
    count = chance.choice((10, 20, 30, 40, 40, 50, STEPS_MAX) if "simple" not in way.traits else (40, STEPS_MAX))
    if TRAIT in way.traits:
        weights = [weight * _OFTEN.get(verb, 1) for verb, weight in zip(verbs, weights, strict=True)]
        count = max(count, 40)
    if RECOVERING in way.traits:
        verbs = list(WEIGHTS)
        weights = [_RECOVERING.get(verb, min(_RARELY, WEIGHTS[verb]) * chance.choice((0, 0, 1))) for verb in verbs]
        count = max(count, STEPS_MAX)
    drawn = chance.choices(verbs, weights, k=count)
    turns = chance.choice(((1,), (0, 1, 1, 2), (0, 0, 0, 1, 3)))
    return tuple(
        Step(
            verb,
            chance.randint(0, NUMBER_MAX),
            chance.randint(0, NUMBER_MAX),
            chance.randint(0, NUMBER_MAX),
            chance.choice(turns),
        )
        for verb in drawn
    )


def ranges_of(numbers: Sequence[int]) -> str:
    """Ascending numbers in few words, such as ``0-3,7``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1][-1:] = [parts[-1][0], number] if len(parts[-1]) == 1 else [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def numbers_of(ranges: str) -> list[int]:
    """Numbers that :func:`ranges_of` wrote.

    Raises:
        ValueError: It is not of that form.
    """
    found: list[int] = []
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def kept_of(ranges: str, count: int) -> list[int]:
    """Numbers that a command names, of a history that has so many; ``none`` for none of them.

    Raises:
        ValueError: It is not of that form, or the history does not have them.
    """
    if ranges == "none":
        return []
    if not _RANGES.fullmatch(ranges):
        raise ValueError(f"{ranges!r}: expected numbers such as 0-3,9, or none")
    last = max(map(int, _NUMBER.findall(ranges)))
    if last >= count:
        raise ValueError(
            f"{ranges!r}: there is no {last}; the seed has {count} now, from 0 on. The command is of another code"
        )
    return numbers_of(ranges)
