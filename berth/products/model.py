"""Parts of a catalogue entry: chip rules of a product form, what its nodes look like, and how a job asks for it.

Source: docs/reference/nodes-and-chips.md, "Resource names", "Product forms", "Selection of the form" and "Soft share";
docs/reference/kubernetes.md, "Node labels and annotations".
"""

from typing import Final, Literal

import msgspec

RESOURCE_910: Final = "huawei.com/Ascend910"
RESOURCE_NPU: Final = "huawei.com/npu"
RESOURCE_310P: Final = "huawei.com/Ascend310P"
RESOURCE_310: Final = "huawei.com/Ascend310"

LABEL_TYPE: Final = "accelerator-type"
"""Label of a node, and node selector of a job, that names the product."""
LABEL_FAMILY: Final = "accelerator"
LABEL_CARD: Final = "infer-card-type"
LABEL_CHIP_MEMORY: Final = "mind-cluster/npu-chip-memory"
LABEL_SOFT_SHARE: Final = "huawei.com/scheduler.chip1softsharedev.enable"
MIN_AVAILABLE: Final = "huawei.com/schedule_minAvailable"
"""Annotation of a job: pods that must start together."""
SKIP_PLUGIN: Final = "huawei.com/skip-ascend-plugin"
"""Annotation that allows pods without chips; its value is ``enabled``."""
ANNOTATION_POLICY: Final = "huawei.com/schedule_policy"
"""Annotation of a job that names the product form."""
SUPER_POD_ID: Final = "super-pod-id"
"""Annotation of a placed pod: the physical SuperPoD of its node."""
SUPER_POD_RANK: Final = "super-pod-rank"
"""Annotation of a placed pod: the number of its block (the logical SuperPoD) in the job."""
IS_SHARED: Final = "isSharedTor"
"""Annotation of a placed pod, of the leaf switch above its node: 0 free, 1 shared, 2 exclusive."""
IS_HEALTHY: Final = "isHealthy"
"""As above: 0 healthy, 1 unhealthy."""
SHARED_IP: Final = "sharedTorIp"
"""As above: name of the leaf; only if it is shared."""

Rule = Literal["count", "group", "pairs", "mesh", "duo", "share"]
"""How the chips of a pod must be linked.

``count``: any chips. ``group``: chips of one HCCS ring or card, or the whole node, or equal parts of two rings.
``pairs``: whole pairs. ``mesh``: whole meshes. ``duo``: cards of two, for a distributed inference pod. ``share``: parts
of chips.
"""

Check = Literal["sizes", "pairs", "average", "share", "blocks", "levels"]
"""How the chip counts of a job are checked.

``sizes``: the size of each pod. ``pairs``: pairs. ``average``: the average per pod. ``share``: the labels of soft
share. ``blocks``, ``levels``: together with the SuperPoD blocks or the levels that the job asks for.
"""

Order = Literal["lowest", "fullest-card"]
"""Which chips rule ``count`` takes: the lowest ids, or those on the cards with the fewest free chips."""

Variant = Literal["", "a3", "850", "rack", "levels"]
"""How nodes of a gang are chosen in SuperPoDs or groups of levels; empty for a form without. The values are on the
wire."""

SwitchPolicy = Literal["1.0", "2.0", "single-layer"]
"""Policy of switch affinity (NSLB 1.0, NSLB 2.0, single layer of leaf switches)."""


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
    """Rules of a product form.

    Attributes:
        name: Name of the form in refusals, offers and records.
        title: Name for people. The part before the first comma is the product.
        chips_max: Longest list of free chips that is accepted, and the most that a pod may ask.
        chip_ids: Chip ids are below this; an id beyond it means that the node is another product.
        forbidden: Sizes that a pod may not ask.
        drops_network: Network-unhealthy chips are unusable for pods of a distributed job.
        check: How the job's chip counts are checked.
        rule: How the chips of a pod must be linked.
        group_size: Chips of a ring, pair, mesh or card; 0 where it does not matter.
        classes: Rule ``group``: row n-1 holds the affinity class of a group with 1, 2, .. free chips for a pod of n
            chips; a class equal to ``group_size`` means that the group cannot serve.
        whole: Rule ``group``: a pod of this size takes a node with exactly so many usable chips; 0 for none.
        cross: Rule ``group``: sizes above a ring may take as many chips from one ring as from the other.
        order: Rule ``count``: which chips are taken.
        weights: Raw score.
        loose: Rule ``mesh``: raw score for sizes that no mesh can keep together.
        helped: Preemption that frees chips can cure a topology failure.
        node_label: Label and value that a node must carry.
        one_pod_label: Label and value with which a job may have one pod with chips only.
        strict_shape: The setting ``strict_job_shape`` applies: up to ``chips_max`` chips one pod, above it all of them.
        own_health_key: Unhealthy chips lower the score by decision 310p-health-key; the reference reads the
            list of another product.
        decisions: Documented decisions in which Berth departs from the reference for this form.
        variant: How nodes are chosen in SuperPoDs or groups of levels; empty for a form without.
        block_product: Product in text about SuperPoDs; empty: the variant.
        block_annotations: Pods carry the annotations of their SuperPoD and block.
        switch_affinity: Policies of switch affinity that support the form.
        together: End of the refusal "have fewer than n free chips", such as ``in one ring``; empty: a general text.
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
    variant: Variant = ""
    block_product: str = ""
    block_annotations: bool = False
    switch_affinity: tuple[SwitchPolicy, ...] = ()
    together: str = ""

    def is_beyond(self, free: int) -> bool:
        """Whether a node with these free chips (a mask) is another product."""
        return free.bit_count() > self.chips_max or free >> self.chip_ids != 0


class NodeProduct(msgspec.Struct, frozen=True):
    """Nodes of a product: what they carry, and what a job sets that asks for them.

    Attributes:
        name: Name in topology files and facts.
        about: Hardware, for people.
        resource: Resource name of the chips.
        chips: Chips of a node.
        labels: Labels of the nodes, as the administrator and the device plug-in set them.
        selector: Node selector of a job that asks for the product.
        policy: Value of the annotation ``huawei.com/schedule_policy`` of such a job; empty for none.
        job_labels: Labels of such a job.
        in_superpod: The nodes belong to a SuperPoD.
        rack_nodes: Nodes of a rack inside a SuperPoD; 0 for a product without racks.
    """

    name: str
    about: str
    resource: str
    chips: int
    labels: dict[str, str]
    selector: dict[str, str] = {}
    policy: str = ""
    job_labels: dict[str, str] = {}
    in_superpod: bool = False
    rack_nodes: int = 0


class Product(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the catalogue.

    Attributes:
        form: Rules for jobs of the product.
        policies: Values of the annotation ``huawei.com/schedule_policy`` that lead to the form.
        accelerator_types: Values of the node selector ``accelerator-type`` that lead to it.
        nodes: Nodes whose jobs get the form; empty where the nodes are those of another entry.
        is_a3: The nodes are of the A3 generation, whose device plug-in reports switches.
    """

    form: Form
    policies: tuple[str, ...] = ()
    accelerator_types: tuple[str, ...] = ()
    nodes: tuple[NodeProduct, ...] = ()
    is_a3: bool = False
