"""Product forms as data: how many chips, how they are linked, what a pod may ask, what makes a node good.

A form is an entry of :data:`FORMS`; the rules that it names are written once, in ``affinity``, ``picking`` and ``jobs``.
A new product that uses known rules is a new entry here and nothing else.

Source: docs/reference/nodes-and-chips.md, "Product forms", "Selection of the form", "Validation of jobs" and
"Rules per product".
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

import msgspec

Rule = Literal["count", "group", "pairs", "mesh", "duo", "share"]
"""How chips must lie: any; in one group (or the whole node, or across two rings); in pairs; in meshes; in cards of two
for a distributed inference pod; shared."""

Check = Literal["sizes", "pairs", "average", "share", "blocks", "levels"]
"""How a job's chip counts are checked: each pod's size; pairs; the average a pod; the labels of soft share."""

Order = Literal["lowest", "fullest-card"]
"""Where chips may lie anywhere, which are taken: the lowest ids, or those on cards with the fewest free chips first."""


class Weights(msgspec.Struct, frozen=True):
    """Raw score of a node as a sum.

    ``base + health * H - unhealthy * U - affinity * class - free * f + asked * n``, with H the allocatable chips of the
    node, U its chips reported unhealthy, f its usable chips, n the chips asked, and the affinity class of the free mask
    (0 is best).
    """

    base: int = 0
    health: int = 0
    unhealthy: int = 0
    affinity: int = 0
    free: int = 0
    asked: int = 0


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """A product form.

    Attributes:
        name: Name in the table of docs/reference/nodes-and-chips.md, "Product forms".
        title: Words for people.
        chips_max: Longest list of free chips that is accepted, and the most that a pod may ask.
        chip_ids: Chip ids are below this; an id beyond it means that the node is another product.
        forbidden: Sizes that a pod may not ask.
        drops_network: Network-unhealthy chips are unusable for pods of a distributed job.
        check: How the job's chip counts are checked.
        rule: How chips must lie.
        group_size: Chips of a ring, pair, mesh or card; 0 where it does not matter.
        classes: Rule ``group``: row n-1 holds the affinity class of a group with 1, 2, .. free chips; a class equal to
            ``group_size`` means that the group cannot serve.
        whole: Rule ``group``: a pod of this size takes a node with exactly so many usable chips; 0 for none.
        cross: Rule ``group``: sizes above a ring may take as many chips from one ring as from the other.
        order: Rule ``count``: which chips are taken.
        weights: Raw score.
        loose: Rule ``mesh``: raw score for sizes that no mesh can keep together.
        helped: Freeing chips by preemption can cure a failure of the topology.
        node_label: Label and value that a node must carry.
        one_pod_label: Label and value with which a job may have one pod with chips only.
        strict_shape: The setting ``strict_job_shape`` applies: up to ``chips_max`` chips one pod, above it all of them.
        own_health_key: Unhealthy chips lower the score only outside ``reference_parity``; the reference looks at the
            list of another product.
        decisions: Documented decisions in which Berth departs from the reference for this form.
        variant: SuperPoD affinity: how nodes are chosen (``a3``, ``850``, ``rack``, ``levels``); empty without.
    """

    name: str
    title: str
    chips_max: int
    chip_ids: int = 64
    forbidden: tuple[int, ...] = ()
    drops_network: bool = False
    check: Check = "sizes"
    rule: Rule = "count"
    group_size: int = 0
    classes: tuple[tuple[int, ...], ...] = ()
    whole: int = 0
    cross: bool = False
    order: Order = "lowest"
    weights: Weights = Weights()
    loose: Weights = Weights()
    helped: bool = False
    node_label: tuple[str, str] | None = None
    one_pod_label: tuple[str, str] | None = None
    strict_shape: bool = False
    own_health_key: bool = False
    decisions: tuple[str, ...] = ()
    variant: str = ""

    def is_beyond(self, free: int) -> bool:
        """Whether a node with these free chips (a mask) is another product."""
        return free.bit_count() > self.chips_max or free >> self.chip_ids != 0


def _fullness(chips_max: int) -> Weights:
    """Weights of the default policy: health, then fewer free chips.

    Source: docs/reference/nodes-and-chips.md, "Default rule: fullness and health".
    """
    return Weights(base=100 * chips_max, unhealthy=100, free=1)


def _surplus(classes_of: int) -> tuple[tuple[int, ...], ...]:
    """Best-fit table: the class is the number of chips left over, ``classes_of`` where the group is too small."""
    sizes = range(1, classes_of + 1)
    return tuple(tuple(have - need if have >= need else classes_of for have in sizes) for need in sizes)


RINGS_OF_4: Final = ((0, 2, 1, 3), (4, 0, 2, 1), (4, 4, 4, 4), (4, 4, 4, 0))
"""HCCS rings of 910A: one chip prefers rings with 1, 3, 2, 4 free; two prefer 2, 4, 3; four need 4; three never.

Source: docs/reference/nodes-and-chips.md, "910A: two rings of 4".
"""
RINGS_OF_8: Final = _surplus(8)
"""HCCS rings of A2 Box16: the fewest chips left over in the ring.

Source: docs/reference/nodes-and-chips.md, "A2 Box16: two rings of 8".
"""
CARDS_OF_4: Final = ((0, 2, 1, 3), (4, 0, 1, 2), (4, 4, 0, 1), (4, 4, 4, 0))
"""310 in card mode.

Source: docs/reference/nodes-and-chips.md, "Cards".
"""
CARDS_OF_2: Final = ((0, 1), (2, 0))
"""310P Duo in card mode.

Source: docs/reference/nodes-and-chips.md, "Cards".
"""

_PAIRS: Final = Weights(base=512, affinity=16, free=16, asked=16)
_ONE_POD: Final = ("distributed", "true")


def _mesh(name: str, title: str, chips_max: int, unit: int) -> Form:
    """A 4-mesh form; ``unit`` is the weight of a free chip.

    Source: docs/reference/nodes-and-chips.md, "Meshes of 4".
    """
    return Form(
        name=name,
        title=title,
        chips_max=chips_max,
        drops_network=True,
        check="average",
        rule="mesh",
        group_size=4,
        weights=Weights(base=unit * unit, affinity=unit * chips_max, free=unit, asked=unit),
        loose=Weights(base=chips_max * chips_max, free=chips_max, asked=chips_max),
        helped=True,
    )


def _entries() -> tuple[Form, ...]:
    return (
        Form(
            name="module910x8",
            title="910A module, 8 chips in two rings",
            chips_max=8,
            chip_ids=8,
            forbidden=(3, 5, 6, 7),
            drops_network=True,
            rule="group",
            group_size=4,
            classes=RINGS_OF_4,
            whole=8,
            weights=Weights(base=8, health=32, affinity=8, free=1),
            strict_shape=True,
        ),
        Form(
            name="half910x4",
            title="910A half, 4 chips",
            chips_max=4,
            forbidden=(3,),
            drops_network=True,
            weights=_fullness(4),
        ),
        Form(name="card910x2", title="300T card, 2 chips", chips_max=8, weights=_fullness(8)),
        Form(
            name="module910bx8",
            title="A2, 8 chips in one full mesh",
            chips_max=8,
            drops_network=True,
            weights=_fullness(8),
        ),
        Form(
            name="module910bx16",
            title="A2 Box16, 16 chips in two rings",
            chips_max=16,
            chip_ids=16,
            forbidden=(9, 11, 13, 15),
            drops_network=True,
            rule="group",
            group_size=8,
            classes=RINGS_OF_8,
            whole=16,
            cross=True,
            weights=Weights(base=16, health=16, affinity=16, free=1),
        ),
        _a3("module910a3x16", "A3, 16 chips in pairs"),
        _a3("module910a3x8", "A3, 8 chips in pairs"),
        _mesh("chip4-node8", "8 chips in meshes of 4", 8, 16),
        _mesh("chip4-node16", "16 chips in meshes of 4", 16, 64),
        Form(name="chip1-node8", title="8 chips, flat", chips_max=8, weights=_fullness(8)),
        Form(name="chip1-node16", title="16 chips, flat", chips_max=16, weights=_fullness(16)),
        *_inference(),
        Form(
            name="chip1-softShareDev",
            title="chips that several pods share",
            chips_max=16,
            check="share",
            rule="share",
            decisions=("softshare-self-compare",),
        ),
        *_superpods(),
    )


def _a3(name: str, title: str) -> Form:
    """A3 in pairs. The 8-chip form has the same chip rules, its maximum included.

    Source: docs/reference/nodes-and-chips.md, "A3: pairs".
    """
    return Form(
        name=name,
        title=title,
        chips_max=16,
        chip_ids=16,
        drops_network=True,
        check="pairs",
        rule="pairs",
        group_size=2,
        weights=_PAIRS,
        decisions=("a3-early-stop", "a3-pair-choice"),
    )


def _inference() -> tuple[Form, ...]:
    """310P and 310.

    Source: docs/reference/nodes-and-chips.md, "Default rule: fullness and health", "310 and 310P Duo by chip",
    "310P Duo, distributed" and "Cards".
    """
    duo_label = ("infer-card-type", "card-300i-duo")
    return (
        Form(
            name="310p",
            title="310P cards",
            chips_max=64,
            weights=_fullness(64),
            own_health_key=True,
            decisions=("310p-health-key",),
        ),
        Form(
            name="310p-duo-chip",
            title="310P Duo, chip by chip",
            chips_max=16,
            group_size=2,
            order="fullest-card",
            node_label=duo_label,
            one_pod_label=_ONE_POD,
        ),
        Form(
            name="310p-duo-chip-distributed",
            title="310P Duo, one distributed inference pod",
            chips_max=16,
            rule="duo",
            group_size=2,
            weights=Weights(base=128, affinity=8),
            helped=True,
            node_label=duo_label,
            one_pod_label=_ONE_POD,
        ),
        Form(
            name="310p-duo-card",
            title="310P Duo, within one card of 2",
            chips_max=32,
            rule="group",
            group_size=2,
            classes=CARDS_OF_2,
            weights=Weights(base=16, affinity=8),
            helped=True,
            one_pod_label=_ONE_POD,
        ),
        Form(
            name="310-chip",
            title="310, chip by chip",
            chips_max=64,
            group_size=4,
            order="fullest-card",
            weights=Weights(base=6400, free=1),
        ),
        Form(
            name="310-card",
            title="310, within one card of 4",
            chips_max=64,
            rule="group",
            group_size=4,
            classes=CARDS_OF_4,
            weights=Weights(base=32, affinity=8),
            helped=True,
        ),
    )


def _superpods() -> tuple[Form, ...]:
    """Forms of SuperPoDs and of several levels: chips as on the plain product, nodes in blocks.

    Source: docs/reference/superpods.md, "Policies of SuperPoDs".
    """
    flat = Form(
        name="chip8-node8-sp",
        title="850/950 SuperPoD",
        chips_max=8,
        drops_network=True,
        check="blocks",
        weights=_fullness(8),
        variant="850",
    )
    return (
        _a3_superpod("module910a3x16-sp", 16),
        _a3_superpod("module910a3x8-sp", 8),
        flat,
        msgspec.structs.replace(flat, name="chip8-node8-ra64-sp", title="950 SuperPoD in racks of 64", variant="rack"),
        msgspec.structs.replace(
            flat,
            name="multilevel",
            title="several network levels",
            chips_max=16,
            check="levels",
            weights=_fullness(16),
            variant="levels",
        ),
    )


def _a3_superpod(name: str, chips: int) -> Form:
    return Form(
        name=name,
        title=f"A3 SuperPoD, {chips} chips a node",
        chips_max=chips,
        chip_ids=16,
        drops_network=True,
        check="blocks",
        rule="pairs",
        group_size=2,
        weights=_PAIRS,
        variant="a3",
    )


FORMS: Final[Mapping[str, Form]] = MappingProxyType({form.name: form for form in _entries()})
"""Every known product form by name."""
