"""Product catalogue: one entry per product form, with its chip rules, its nodes and what a job sets that asks for it.

A new product whose rules exist is one more :class:`Product` in :data:`PRODUCTS`; no other code changes. The rules that
an entry names are in ``berth.core.chips``, ``berth.core.topologies`` and ``berth.core.requests``. Forms that several
labels together decide (310 and 310P) are chosen in ``berth.core.chips.form_selection``.

Longer than 400 lines because the catalogue is one table.

Source: docs/reference/nodes-and-chips.md, "Product forms", "Selection of the form", "Validation of jobs",
"910A: two rings of 4", "A2 Box16: two rings of 8", "310 and 310P Duo by chip", "310P Duo, distributed" and "Cards";
docs/reference/kubernetes.md, "Node labels and annotations"; docs/reference/superpods.md, "Policies of SuperPoDs".
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from berth.products.model import (
    LABEL_CARD,
    LABEL_CHIP_MEMORY,
    LABEL_FAMILY,
    LABEL_SOFT_SHARE,
    LABEL_TYPE,
    RESOURCE_310,
    RESOURCE_310P,
    RESOURCE_910,
    RESOURCE_NPU,
    Form,
    NodeProduct,
    Product,
    SwitchPolicy,
    Variant,
    Weights,
)

RINGS_OF_4: Final = ((0, 2, 1, 3), (4, 0, 2, 1), (4, 4, 4, 4), (4, 4, 4, 0))
"""Row n - 1, column f - 1: class of a ring with f free chips for n chips, 0 is best, 4 is unusable. 910A: one chip
prefers rings with 1, 3, 2, 4 free; two prefer 2, 4, 3; four need 4; three never."""
RINGS_OF_8: Final = tuple(tuple(have - need if have >= need else 8 for have in range(1, 9)) for need in range(1, 9))
"""A2 Box16: the class is the number of chips left over in the ring."""
CARDS_OF_4: Final = ((0, 2, 1, 3), (4, 0, 1, 2), (4, 4, 0, 1), (4, 4, 4, 0))
"""310 in card mode."""
CARDS_OF_2: Final = ((0, 1), (2, 0))
"""310P Duo in card mode."""

_PAIRS: Final = Weights(base=512, affinity=16, free=16, asked=16)
_ONE_POD: Final = ("distributed", "true")
_DUO_CARD: Final = (LABEL_CARD, "card-300i-duo")
_TRAINING: Final[tuple[SwitchPolicy, ...]] = ("1.0",)
_A2: Final[tuple[SwitchPolicy, ...]] = ("1.0", "2.0", "single-layer")
_FAMILY_910: Final = {LABEL_FAMILY: "huawei-Ascend910"}
_FAMILY_NPU: Final = {LABEL_FAMILY: "huawei-npu"}
_TYPE_850: Final = {**_FAMILY_NPU, LABEL_TYPE: "850-Atlas-8p-8"}
_FAMILY_310P: Final = {LABEL_FAMILY: "huawei-Ascend310P"}
_SHARED: Final = {**_FAMILY_910, LABEL_SOFT_SHARE: "true", LABEL_CHIP_MEMORY: "64G"}


def _fullness(chips_max: int) -> Weights:
    """Weights of the default policy: health, then fewer free chips.

    Source: docs/reference/nodes-and-chips.md, "Default rule: fullness and health".
    """
    return Weights(base=100 * chips_max, unhealthy=100, free=1)


def _by_type(name: str, about: str, chips: int, kind: str, *, in_superpod: bool = False) -> NodeProduct:
    """Nodes of the 910 family, known by the label ``accelerator-type``."""
    labels = {LABEL_TYPE: kind, **_FAMILY_910}
    return NodeProduct(name, about, RESOURCE_910, chips, labels, {LABEL_TYPE: kind}, in_superpod=in_superpod)


def _by_policy(
    name: str, about: str, chips: int, policy: str, *, in_superpod: bool = False, rack_nodes: int = 0
) -> NodeProduct:
    """Nodes of the ``huawei.com/npu`` family, whose jobs must name the policy."""
    return NodeProduct(
        name, about, RESOURCE_NPU, chips, _FAMILY_NPU, policy=policy, in_superpod=in_superpod, rack_nodes=rack_nodes
    )


def _flat(name: str, title: str, chips: int, about: str) -> Product:
    """Chips without structure."""
    return Product(
        form=Form(name=name, title=title, chips_max=chips, weights=_fullness(chips)),
        policies=(name,),
        nodes=(_by_policy(name, about, chips, name),),
    )


def _mesh(name: str, title: str, chips: int, unit: int) -> Product:
    """Chips in meshes of four; ``unit`` is the weight of a free chip.

    Source: docs/reference/nodes-and-chips.md, "Meshes of 4".
    """
    return Product(
        form=Form(
            name=name,
            title=title,
            chips_max=chips,
            drops_network=True,
            check="average",
            rule="mesh",
            group_size=4,
            weights=Weights(base=unit * unit, affinity=unit * chips, free=unit, asked=unit),
            loose=Weights(base=chips * chips, free=chips, asked=chips),
            helped=True,
            together="in whole meshes of 4",
        ),
        policies=(name,),
        nodes=(_by_policy(name, "Atlas 350, meshes of four", chips, name),),
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
        together="in whole pairs",
    )


def _a3_superpod(name: str, chips: int, policy: str, kind: str, node: NodeProduct) -> Product:
    """SuperPoD of A3 nodes: chips in pairs, nodes in blocks."""
    return Product(
        form=Form(
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
            block_product="A3",
            block_annotations=True,
        ),
        is_a3=True,
        policies=(policy,),
        accelerator_types=(kind,),
        nodes=(node,),
    )


def _flat_superpod(name: str, title: str, variant: Variant, block_product: str, *, annotations: bool) -> Form:
    """SuperPoD of nodes with eight chips without structure."""
    return Form(
        name=name,
        title=title,
        chips_max=8,
        drops_network=True,
        check="blocks",
        weights=_fullness(8),
        variant=variant,
        block_product=block_product,
        block_annotations=annotations,
    )


PRODUCTS: Final[tuple[Product, ...]] = (
    Product(
        form=Form(
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
            switch_affinity=_TRAINING,
            together="in one ring",
        ),
        accelerator_types=("module",),
        nodes=(_by_type("module910x8", "Atlas 800 (9000/9010), two rings of four", 8, "module"),),
    ),
    Product(
        form=Form(
            name="half910x4",
            title="910A half, 4 chips",
            chips_max=4,
            forbidden=(3,),
            drops_network=True,
            weights=_fullness(4),
            switch_affinity=_TRAINING,
        ),
        policies=("chip4-node4",),
        accelerator_types=("half",),
        nodes=(_by_type("half910x4", "Atlas 800 with half the chips", 4, "half"),),
    ),
    Product(  # also for every accelerator-type with "card" in it
        form=Form(
            name="card910x2", title="300T card, 2 chips", chips_max=8, weights=_fullness(8), switch_affinity=_TRAINING
        ),
        policies=("chip1-node2",),
        nodes=(
            _by_type("card910x2", "Atlas 300T cards", 2, "card"),
            _by_type("card910bx2", "Atlas 300T A2 cards", 2, "card-910b-2"),
        ),
    ),
    Product(
        form=Form(
            name="module910bx8",
            title="A2, 8 chips in one full mesh",
            chips_max=8,
            drops_network=True,
            weights=_fullness(8),
            switch_affinity=_A2,
        ),
        policies=("chip8-node8",),
        accelerator_types=("module-910b-8", "850-Atlas-8p-8"),
        nodes=(
            _by_type("module910bx8", "Atlas 800T/800I A2, one full mesh", 8, "module-910b-8"),
            NodeProduct("module850x8", "Atlas 850", RESOURCE_NPU, 8, _TYPE_850, policy="chip8-node8"),
        ),
    ),
    Product(
        form=Form(
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
            switch_affinity=_A2,
            together="in one ring, or as pairs across the rings",
        ),
        policies=("chip8-node16",),
        accelerator_types=("module-910b-16",),
        nodes=(_by_type("module910bx16", "Atlas 200T/200I A2 Box16, two rings of eight", 16, "module-910b-16"),),
    ),
    Product(
        form=_a3("module910a3x16", "A3, 16 chips in pairs"),
        policies=("chip2-node16", "module-a3-16"),
        is_a3=True,
        accelerator_types=("module-a3-16",),
        nodes=(_by_type("module910a3x16", "Atlas 800T A3, pairs", 16, "module-a3-16"),),
    ),
    Product(
        form=_a3("module910a3x8", "A3, 8 chips in pairs"),
        is_a3=True,
        policies=("chip2-node8",),
        nodes=(
            NodeProduct(
                "module910a3x8", "Atlas A3 with eight chips, pairs", RESOURCE_910, 8, _FAMILY_910, policy="chip2-node8"
            ),
        ),
    ),
    _mesh("chip4-node8", "8 chips in meshes of 4", 8, 16),
    _mesh("chip4-node16", "16 chips in meshes of 4", 16, 64),
    _flat("chip1-node8", "8 chips, flat", 8, "eight chips without structure"),
    _flat("chip1-node16", "16 chips, flat", 16, "sixteen chips without structure"),
    Product(
        form=Form(
            name="310p",
            title="310P cards",
            chips_max=64,
            weights=_fullness(64),
            own_health_key=True,
            decisions=("310p-health-key",),
        ),
        nodes=(NodeProduct("310p", "Atlas 300I Pro or 300V cards", RESOURCE_310P, 8, _FAMILY_310P),),
    ),
    Product(
        form=Form(
            name="310p-duo-chip",
            title="310P Duo, chip by chip",
            chips_max=16,
            group_size=2,
            order="fullest-card",
            node_label=_DUO_CARD,
            one_pod_label=_ONE_POD,
            together="on whole cards",
        ),
        nodes=(
            NodeProduct(
                "310p-duo",
                "Atlas 300I Duo cards of two chips",
                RESOURCE_310P,
                8,
                labels={**_FAMILY_310P, LABEL_CARD: "card-300i-duo"},
                job_labels={"duo": "true"},
            ),
        ),
    ),
    Product(
        form=Form(
            name="310p-duo-chip-distributed",
            title="310P Duo, one distributed inference pod",
            chips_max=16,
            rule="duo",
            group_size=2,
            weights=Weights(base=128, affinity=8),
            helped=True,
            node_label=_DUO_CARD,
            one_pod_label=_ONE_POD,
        ),
    ),
    Product(
        form=Form(
            name="310p-duo-card",
            title="310P Duo, within one card of 2",
            chips_max=32,
            rule="group",
            group_size=2,
            classes=CARDS_OF_2,
            weights=Weights(base=16, affinity=8),
            helped=True,
            one_pod_label=_ONE_POD,
            together="on one card",
        ),
    ),
    Product(
        form=Form(
            name="310-chip",
            title="310, chip by chip",
            chips_max=64,
            group_size=4,
            order="fullest-card",
            weights=Weights(base=6400, free=1),
        ),
        nodes=(
            NodeProduct(
                "310", "Atlas 300I cards of four chips", RESOURCE_310, 16, labels={LABEL_FAMILY: "huawei-Ascend310"}
            ),
        ),
    ),
    Product(
        form=Form(
            name="310-card",
            title="310, within one card of 4",
            chips_max=64,
            rule="group",
            group_size=4,
            classes=CARDS_OF_4,
            weights=Weights(base=32, affinity=8),
            helped=True,
            together="on one card",
        ),
    ),
    Product(
        form=Form(
            name="chip1-softShareDev",
            title="chips that several pods share",
            chips_max=16,
            check="share",
            rule="share",
            decisions=("softshare-self-compare",),
        ),
        policies=("chip1-softShareDev",),
        nodes=(
            NodeProduct(
                "soft-share",
                "chips of 64 GB that several pods share by quota",
                RESOURCE_910,
                8,
                labels=_SHARED,
                policy="chip1-softShareDev",
            ),
        ),
    ),
    _a3_superpod(
        "module910a3x16-sp",
        16,
        "chip2-node16-sp",
        "module-a3-16-super-pod",
        _by_type("superpod910a3x16", "Atlas 900 A3 SuperPoD", 16, "module-a3-16-super-pod", in_superpod=True),
    ),
    _a3_superpod(
        "module910a3x8-sp",
        8,
        "chip2-node8-sp",
        "module-a3-8-super-pod",
        _by_type("superpod910a3x8", "Atlas 9000 A3 SuperPoD", 8, "module-a3-8-super-pod", in_superpod=True),
    ),
    Product(
        form=_flat_superpod("chip8-node8-sp", "850/950 SuperPoD", "850", "Atlas 850", annotations=True),
        policies=("chip8-node8-sp",),
        nodes=(_by_policy("superpod850x8", "Atlas 850 SuperPoD", 8, "chip8-node8-sp", in_superpod=True),),
    ),
    Product(
        form=_flat_superpod(
            "chip8-node8-ra64-sp", "950 SuperPoD in racks of 64", "rack", "Atlas 950", annotations=False
        ),
        policies=("chip8-node8-ra64-sp",),
        nodes=(
            _by_policy(
                "superpod950x8",
                "Atlas 950 SuperPoD with racks",
                8,
                "chip8-node8-ra64-sp",
                in_superpod=True,
                rack_nodes=8,
            ),
        ),
    ),
    Product(
        form=Form(
            name="multilevel",
            title="several network levels",
            chips_max=16,
            drops_network=True,
            check="levels",
            weights=_fullness(16),
            variant="levels",
        ),
        policies=("multilevel",),
    ),
)
"""Every product form that Berth places. A new product is one more entry at the end."""

FORMS: Final[Mapping[str, Form]] = MappingProxyType({entry.form.name: entry.form for entry in PRODUCTS})
"""Forms by name."""
POLICIES: Final[Mapping[str, str]] = MappingProxyType(
    {policy: entry.form.name for entry in PRODUCTS for policy in entry.policies}
)
"""Name of the form by the value of the annotation ``huawei.com/schedule_policy``."""
ACCELERATOR_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {kind: entry.form.name for entry in PRODUCTS for kind in entry.accelerator_types}
)
"""Name of the form by the node selector ``accelerator-type``, where its value does not contain ``card``."""
NODE_PRODUCTS: Final[Mapping[str, NodeProduct]] = MappingProxyType(
    {node.name: node for entry in PRODUCTS for node in entry.nodes}
)
"""Products of nodes by name."""
A3_NODES: Final = frozenset(node.name for entry in PRODUCTS if entry.is_a3 for node in entry.nodes)
"""Names of the products of A3 nodes."""
