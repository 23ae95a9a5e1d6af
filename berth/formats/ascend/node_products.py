"""Product forms of nodes as data: what a node of the form carries, and how a job asks for it.

The names are those of the reference page; the labels are the ones that the admin and the device plugin set on real
nodes. Forms that lie about size do not exist here: ``chips`` is what a node of the form has.

Source: docs/reference/nodes-and-chips.md, "Resource names", "Product forms", "Selection of the form" and "Soft share";
docs/reference/kubernetes.md, "Node labels and annotations"; docs/reference/superpods.md, "Policies of SuperPoDs".
"""

from typing import Final

import msgspec

RESOURCE_910: Final = "huawei.com/Ascend910"
RESOURCE_NPU: Final = "huawei.com/npu"
RESOURCE_310P: Final = "huawei.com/Ascend310P"
RESOURCE_310: Final = "huawei.com/Ascend310"

LABEL_TYPE: Final = "accelerator-type"
LABEL_FAMILY: Final = "accelerator"
LABEL_CARD: Final = "infer-card-type"
LABEL_CHIP_MEMORY: Final = "mind-cluster/npu-chip-memory"
LABEL_SOFT_SHARE: Final = "huawei.com/scheduler.chip1softsharedev.enable"
ANNOTATION_POLICY: Final = "huawei.com/schedule_policy"


class NodeProduct(msgspec.Struct, frozen=True, kw_only=True):
    """A product form.

    Attributes:
        name: Its name in files.
        about: Hardware that has this form, for people.
        resource: Resource name of its chips.
        chips: Chips a node has.
        labels: Labels of its nodes.
        selector: Node selector by which a job asks for the form.
        policy: Value of the annotation ``huawei.com/schedule_policy`` by which a job asks for it; empty for none.
        job_labels: Labels by which a job asks for it.
        in_superpod: Its nodes belong to a SuperPoD.
        rack_nodes: Nodes of a rack inside a SuperPoD; 0 for a form without racks.
    """

    name: str
    about: str
    resource: str
    chips: int
    labels: dict[str, str] = {}
    selector: dict[str, str] = {}
    policy: str = ""
    job_labels: dict[str, str] = {}
    in_superpod: bool = False
    rack_nodes: int = 0


def _by_type(
    name: str, about: str, chips: int, kind: str, *, policy: str = "", in_superpod: bool = False
) -> NodeProduct:
    """Form of the 910 family, known by the label ``accelerator-type``."""
    return NodeProduct(
        name=name,
        about=about,
        resource=RESOURCE_910,
        chips=chips,
        labels={LABEL_TYPE: kind, LABEL_FAMILY: "huawei-Ascend910"},
        selector={LABEL_TYPE: kind},
        policy=policy,
        in_superpod=in_superpod,
    )


def _by_policy(
    name: str,
    about: str,
    chips: int,
    policy: str,
    *,
    labels: dict[str, str] | None = None,
    in_superpod: bool = False,
    rack_nodes: int = 0,
) -> NodeProduct:
    """Form of the ``huawei.com/npu`` family, where a job must name the policy."""
    return NodeProduct(
        name=name,
        about=about,
        resource=RESOURCE_NPU,
        chips=chips,
        labels={LABEL_FAMILY: "huawei-npu", **(labels or {})},
        policy=policy,
        in_superpod=in_superpod,
        rack_nodes=rack_nodes,
    )


_PRODUCTS: Final = (
    _by_type("module910x8", "Atlas 800 (9000/9010), two rings of four", 8, "module"),
    _by_type("half910x4", "Atlas 800 with half the chips", 4, "half"),
    _by_type("card910x2", "Atlas 300T cards", 2, "card"),
    _by_type("card910bx2", "Atlas 300T A2 cards", 2, "card-910b-2"),
    _by_type("module910bx8", "Atlas 800T/800I A2, one full mesh", 8, "module-910b-8"),
    _by_type("module910bx16", "Atlas 200T/200I A2 Box16, two rings of eight", 16, "module-910b-16"),
    _by_type("module910a3x16", "Atlas 800T A3, pairs", 16, "module-a3-16"),
    NodeProduct(
        name="module910a3x8",
        about="Atlas A3 with eight chips, pairs",
        resource=RESOURCE_910,
        chips=8,
        labels={LABEL_FAMILY: "huawei-Ascend910"},
        policy="chip2-node8",
    ),
    _by_type("superpod910a3x16", "Atlas 900 A3 SuperPoD", 16, "module-a3-16-super-pod", in_superpod=True),
    _by_type("superpod910a3x8", "Atlas 9000 A3 SuperPoD", 8, "module-a3-8-super-pod", in_superpod=True),
    _by_policy("superpod850x8", "Atlas 850 SuperPoD", 8, "chip8-node8-sp", in_superpod=True),
    _by_policy(
        "superpod950x8", "Atlas 950 SuperPoD with racks", 8, "chip8-node8-ra64-sp", in_superpod=True, rack_nodes=8
    ),
    _by_policy("module850x8", "Atlas 850", 8, "chip8-node8", labels={LABEL_TYPE: "850-Atlas-8p-8"}),
    _by_policy("chip4-node8", "Atlas 350, meshes of four", 8, "chip4-node8"),
    _by_policy("chip4-node16", "Atlas 350, meshes of four", 16, "chip4-node16"),
    _by_policy("chip1-node8", "eight chips without structure", 8, "chip1-node8"),
    _by_policy("chip1-node16", "sixteen chips without structure", 16, "chip1-node16"),
    NodeProduct(
        name="310p",
        about="Atlas 300I Pro or 300V cards",
        resource=RESOURCE_310P,
        chips=8,
        labels={LABEL_FAMILY: "huawei-Ascend310P"},
    ),
    NodeProduct(
        name="310p-duo",
        about="Atlas 300I Duo cards of two chips",
        resource=RESOURCE_310P,
        chips=8,
        labels={LABEL_FAMILY: "huawei-Ascend310P", LABEL_CARD: "card-300i-duo"},
        job_labels={"duo": "true"},
    ),
    NodeProduct(
        name="310",
        about="Atlas 300I cards of four chips",
        resource=RESOURCE_310,
        chips=16,
        labels={LABEL_FAMILY: "huawei-Ascend310"},
    ),
    NodeProduct(
        name="soft-share",
        about="chips of 64 GB that several pods share by quota",
        resource=RESOURCE_910,
        chips=8,
        labels={LABEL_FAMILY: "huawei-Ascend910", LABEL_SOFT_SHARE: "true", LABEL_CHIP_MEMORY: "64G"},
        policy="chip1-softShareDev",
    ),
)

NODE_PRODUCTS: Final[dict[str, NodeProduct]] = {product.name: product for product in _PRODUCTS}
"""Every form by name."""
