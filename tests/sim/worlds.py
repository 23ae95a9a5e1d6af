"""Clusters of stories: their nodes, how jobs ask for them, and the settings that belong to them."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from berth.products.catalogue import NODE_PRODUCTS
from berth.products.model import ANNOTATION_POLICY, NodeProduct

TOR_AFFINITY: Final = "tor-affinity"
_SHARE: Final = "huawei.com/scheduler.softShareDev."
_LEVELS: Final = '{"default": {"level1": {"label": "rack", "reservedNode": 1}, "level2": {"label": "row"}}}'


class Ask(NamedTuple):
    """How a job asks for chips.

    Attributes:
        product: Product of the nodes, see :data:`berth.products.catalogue.NODE_PRODUCTS`.
        sizes: Chips of a pod that make sense, smallest first.
        labels: Of the job, beside those of the product.
        annotations: Likewise.
        pods: Numbers of pods that make sense.
        policy: Value of the annotation that names the product form, if it is not that of the product.
        is_switched: Whether leaf switches are above the nodes.
    """

    product: str
    sizes: tuple[int, ...]
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    pods: tuple[int, ...] = (1, 1, 2, 3, 4)
    policy: str = ""
    is_switched: bool = False

    @property
    def node(self) -> NodeProduct:
        """The product."""
        return NODE_PRODUCTS[self.product]

    @property
    def all_labels(self) -> dict[str, str]:
        """Labels of a job."""
        return {**self.node.job_labels, **self.labels}

    @property
    def all_annotations(self) -> dict[str, str]:
        """Annotations of a job."""
        policy = self.policy or self.node.policy
        return {**({ANNOTATION_POLICY: policy} if policy else {}), **self.annotations}


class Cluster(NamedTuple):
    """A cluster.

    Attributes:
        name: For people.
        nodes: Entries of the list of nodes in the topology file.
        asks: How jobs ask for its nodes.
        decisions: Settings of decisions that belong to it.
        switches: Entry ``switches`` of the topology file.
    """

    name: str
    nodes: tuple[str, ...]
    asks: tuple[Ask, ...]
    decisions: Mapping[str, Any] = {}
    switches: str = ""

    @property
    def topology(self) -> str:
        """Text of the topology file."""
        nodes = "".join(f"  - {node}\n" for node in self.nodes)
        switches = f"switches: {self.switches}\n" if self.switches else ""
        return f"apiVersion: berth/v1\nkind: Cluster\nnodes:\n{nodes}{switches}"


_A2: Final = Ask("module910bx8", (1, 2, 4, 8), is_switched=True)
_A3: Final = Ask("module910a3x16", (2, 4, 8, 16))
_SOFT: Final = {"super-pod-affinity": "soft"}

CLUSTERS: Final = (
    Cluster(
        "A2 below small leaves",
        ('{product: module910bx8, count: 4, name: "a2-{index}", leaf: {size: 2}}',),
        (_A2,),
    ),
    Cluster(
        "A2 below large leaves",
        ('{product: module910bx8, count: 8, name: "a2-{index}", leaf: {size: 4}}',),
        (_A2._replace(pods=(1, 2, 3, 4, 6)),),
        {"nslb_version": "2.0"},
    ),
    Cluster(
        "A3",
        ('{product: module910a3x16, count: 6, name: "a3-{index}", superpod: {size: 3}}',),
        (_A3,),
    ),
    Cluster(
        "A2 without leaves",
        ('{product: module910bx8, count: 3, name: "a2-{index}"}',),
        (_A2,),
    ),
    Cluster(
        "910A below leaves",
        ('{product: module910x8, count: 5, name: "a1-{index}", leaf: {size: 2}}',),
        (Ask("module910x8", (1, 2, 4, 8, 8), pods=(1, 1, 2, 4, 5), is_switched=True),),
    ),
    Cluster(
        "A3 SuperPoDs",
        ('{product: superpod910a3x16, count: 6, name: "sp-{index}", superpod: {size: 3}}',),
        (
            Ask("superpod910a3x16", (16,), annotations={"sp-block": "32"}, pods=(2, 4, 4)),
            Ask("superpod910a3x16", (16,), annotations={"sp-block": "16"}, pods=(1, 2, 3)),
            Ask("superpod910a3x16", (8, 16), labels=_SOFT, annotations={"sp-block": "16"}, pods=(1, 2, 5)),
        ),
        {"super_pod_size": 3, "reserve_nodes": 1},
    ),
    Cluster(
        "950 in racks",
        ('{product: superpod950x8, count: 8, name: "r-{index}", superpod: {size: 8}, rack: {size: 4}}',),
        (
            Ask("superpod950x8", (8,), annotations={"sp-block": "16"}, pods=(2, 4)),
            Ask("superpod950x8", (8,), annotations={"sp-block": "32", "ra-block": "16"}, pods=(4, 8)),
            Ask("superpod950x8", (8,), labels=_SOFT, annotations={"sp-block": "8"}, pods=(1, 3)),
        ),
        {"super_pod_size": 8, "reserve_nodes": 1},
    ),
    Cluster(
        "850 SuperPoDs beside 850",
        (
            '{product: superpod850x8, count: 4, name: "f-{index}", superpod: {size: 2}}',
            '{product: module850x8, count: 2, name: "e-{index}", leaf: {size: 2}}',
        ),
        (
            Ask("superpod850x8", (8,), annotations={"sp-block": "16"}, pods=(2, 4)),
            Ask("module850x8", (1, 4, 8), pods=(1, 2)),
        ),
        {"super_pod_size": 2, "reserve_nodes": 0},
    ),
    Cluster(
        "levels",
        (
            '{product: superpod910a3x16, count: 3, name: "l-{index}", superpod: "0", labels: {rack: "0", row: "0"}}',
            '{product: superpod910a3x16, count: 3, name: "m-{index}", superpod: "1", labels: {rack: "1", row: "0"}}',
        ),
        (
            Ask(
                "superpod910a3x16",
                (16,),
                annotations={"huawei.com/affinity-config": "level1=2,level2=4"},
                pods=(4,),
                policy="multilevel",
            ),
            Ask(
                "superpod910a3x16",
                (16,),
                annotations={"huawei.com/affinity-config": "level1=1"},
                pods=(1, 2, 3),
                policy="multilevel",
            ),
        ),
        {"resource_levels": _LEVELS, "super_pod_size": 3, "reserve_nodes": 1},
    ),
    Cluster(
        "soft share beside A2",
        (
            '{product: soft-share, count: 2, name: "s-{index}"}',
            '{product: module910bx8, count: 2, name: "a2-{index}", leaf: {size: 2}}',
        ),
        (
            Ask(
                "soft-share",
                (1, 1, 2),
                labels={f"{_SHARE}aicoreQuota": "40", f"{_SHARE}hbmQuota": "20000", f"{_SHARE}policy": "fixed-share"},
            ),
            Ask(
                "soft-share",
                (1,),
                labels={f"{_SHARE}aicoreQuota": "50", f"{_SHARE}hbmQuota": "30000", f"{_SHARE}policy": "elastic"},
            ),
            _A2,
        ),
    ),
    Cluster(
        "inference cards",
        (
            '{product: 310p-duo, count: 2, name: "d-{index}"}',
            '{product: 310p, count: 2, name: "p-{index}"}',
            '{product: "310", count: 1, name: "i-{index}"}',
        ),
        (
            Ask("310p-duo", (1, 2, 4)),
            Ask("310p-duo", (2, 4, 8), labels={"distributed": "true"}, pods=(1,)),
            Ask("310p-duo", (1, 2), labels={"npu-310-strategy": "card"}),
            Ask("310p", (1, 4, 8)),
            Ask("310", (1, 4, 8)),
        ),
    ),
    Cluster(
        "a single layer of leaves",
        ('{product: module910bx8, count: 6, name: "a2-{index}", leaf: {size: 3}}',),
        (_A2,),
        switches="{level: single_layer}",
    ),
    Cluster(
        "several products",
        (
            '{product: module910bx16, count: 2, name: "b-{index}", leaf: {size: 2}}',
            '{product: module910a3x16, count: 2, name: "a3-{index}", superpod: {size: 2}}',
            '{product: half910x4, count: 1, name: "h-{index}"}',
            '{product: card910x2, count: 1, name: "c-{index}"}',
            '{product: chip4-node8, count: 1, name: "m-{index}"}',
        ),
        (
            Ask("module910bx16", (1, 4, 8, 12, 16), is_switched=True),
            _A3,
            Ask("half910x4", (1, 2, 4), pods=(1, 2)),
            Ask("card910x2", (1, 2), pods=(1, 2)),
            Ask("chip4-node8", (1, 2, 4, 8), pods=(1, 2)),
        ),
    ),
)
COMMON: Final = 4
"""The first so many are drawn as often as all others together."""
