"""Short texts of clusters, such as ``nodes=302,leaf=16,product=module910bx8``, and the cluster for a workload. Pure.

A text is read as a topology file of one entry; see :mod:`berth.formats.clusters.topology_file`.
"""

import math
from collections.abc import Iterable
from typing import Final

import msgspec

from berth.formats.ascend.tor_config import PLACES_MAX
from berth.formats.clusters.topology_file import parse_cluster
from berth.formats.whole_numbers import whole_number
from berth.formats.yaml_tree import is_dns_name, nearest
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.nodes import NodeDescription
from berth.schemas.workload import ClusterPlan, PlannedJob, Workload

NODES_MAX: Final = 100_000
"""Maximum number of nodes of a cluster from a text."""
KEYS: Final = ("nodes", "leaf", "superpod", "product", "prefix")
PRODUCT: Final = "module910bx8"
LEAF: Final = 16
"""Nodes below a leaf switch of a cluster for a workload."""
LOAD_PERCENT: Final = 70
"""Load of a cluster for a workload."""
TRACE_NODES: Final = {"kalos": 302, "philly": 64}
"""Nodes of the clusters for traces whose cluster is known. Kalos had this number; 64 give the jobs of Philly a load of
73 %."""
_PREFIX_CHARACTERS_MAX: Final = 200


class ClusterTextError(ValueError):
    """An invalid text of a cluster.

    Attributes:
        key: Key of the wrong value; empty for the whole text.
        value: The value.
        expected: Valid values.
    """

    def __init__(self, key: str, value: str, expected: str) -> None:
        super().__init__(f"cluster: {f'{key} is ' if key else ''}{value}, expected {expected}")
        self.key = key
        self.value = value
        self.expected = expected


def read_cluster(text: str, *, name: str = "") -> ClusterPlan:
    """Cluster of a topology file, or of a text.

    A text is, for example, ``nodes=302,leaf=16,superpod=48,product=module910bx8,prefix=node``.

    ``nodes`` is the number of nodes; ``leaf`` and ``superpod`` are the nodes below a leaf switch and in a SuperPoD
    (without: none); ``product`` is the product of the nodes (module910bx8); ``prefix`` is the beginning of their names
    (node).

    Args:
        text: The text. With a colon or a line break it is a topology file.
        name: Name of the cluster; empty: the text, or ``file``.

    Returns:
        The cluster. Faults of a topology file are omitted, with a note.

    Raises:
        ClusterTextError: A key is unknown, missing or repeated, or a value is wrong.
        TopologyError: The topology file is wrong.
    """
    if ":" in text or "\n" in text.strip():
        return _plan(text, name or "file")
    words = _words(text)
    return _plan(msgspec.json.encode(_document(words)).decode(), name or text.strip())


def _plan(text: str, name: str) -> ClusterPlan:
    cluster = parse_cluster(text)
    left_out = len(cluster.faults)
    return ClusterPlan(
        name=name,
        nodes=cluster.nodes,
        level=cluster.switches.level,
        places=cluster.switches.places,
        notes=[f"faults of the topology file that are left out: {left_out}"] if left_out else [],
    )


def _words(text: str) -> dict[str, str]:
    """Values by their keys.

    Raises:
        ClusterTextError: A part is not ``key=value``, or its key is unknown or repeated.
    """
    words: dict[str, str] = {}
    for part in text.strip().split(","):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not value:
            raise ClusterTextError("", repr(part), "key=value,key=value, such as nodes=302,leaf=16, or a topology file")
        if key not in KEYS:
            raise ClusterTextError(key, "an unknown key", nearest(key, KEYS))
        if key in words:
            raise ClusterTextError(key, "given twice", "each key once")
        words[key] = value
    if "nodes" not in words:
        raise ClusterTextError("nodes", "missing", f"a whole number from 1 to {NODES_MAX}")
    return words


def _document(words: dict[str, str]) -> dict[str, object]:
    """Topology file for a text.

    Raises:
        ClusterTextError: A value is wrong.
    """
    nodes = _number(words, "nodes", NODES_MAX)
    product = words.get("product", PRODUCT)
    if product not in NODE_PRODUCTS:
        raise ClusterTextError("product", repr(product), nearest(product, NODE_PRODUCTS))
    if NODE_PRODUCTS[product].in_superpod and "superpod" not in words:
        raise ClusterTextError("superpod", "missing", f"the nodes of a SuperPoD, to which nodes of {product} belong")
    prefix = words.get("prefix", "node")
    if len(prefix) > _PREFIX_CHARACTERS_MAX or not is_dns_name(f"{prefix}-0"):
        raise ClusterTextError("prefix", repr(prefix), "lower-case letters, digits, inner '-' and '.'")
    entry: dict[str, object] = {"product": product, "count": nodes, "name": f"{prefix}-{_index(nodes)}"}
    if "leaf" in words:
        size = _number(words, "leaf", PLACES_MAX)
        entry["leaf"] = {"size": size, "name": f"leaf-{_index(-(-nodes // size))}"}
    if "superpod" in words:
        entry["superpod"] = {"size": _number(words, "superpod", NODES_MAX)}
    return {"apiVersion": "berth/v1", "kind": "Cluster", "nodes": [entry]}


def _number(words: dict[str, str], key: str, most: int) -> int:
    """Number of a key.

    Raises:
        ClusterTextError: It is not a number, or out of bounds.
    """
    number = whole_number(words[key], most=most)
    if not number:
        raise ClusterTextError(key, repr(words[key]), f"a whole number from 1 to {most}")
    return number


def _index(count: int) -> str:
    """Pattern of numbers from 0, as wide as the largest; at least two digits, so names of small clusters sort too."""
    return f"{{index:0{max(2, len(str(count - 1)))}}}"


def default_cluster(workload: Workload, *, product: str = PRODUCT) -> str:
    """Text of a cluster for a workload.

    Kalos and Philly have the clusters of :data:`TRACE_NODES`. Others get the number of nodes with a load of about
    :data:`LOAD_PERCENT` percent, at least the nodes of their largest job, and at most those of all jobs together.

    Raises:
        ClusterTextError: The product is unknown, or the nodes would be more than :data:`NODES_MAX`.
    """
    if product not in NODE_PRODUCTS:
        raise ClusterTextError("product", repr(product), nearest(product, NODE_PRODUCTS))
    nodes = TRACE_NODES.get(workload.name) or _fitting_nodes(workload, NODE_PRODUCTS[product].chips)
    if nodes > NODES_MAX:
        raise ClusterTextError("nodes", f"{nodes}, as the workload needs,", f"at most {NODES_MAX}")
    return f"nodes={nodes},leaf={LEAF},product={product}"


def _fitting_nodes(workload: Workload, node_chips: int) -> int:
    taken = [_nodes_of(job, node_chips) for job in workload.jobs]
    span_ms = _span_ms(workload)
    wanted = math.ceil(100 * _chip_ms(workload) / (LOAD_PERCENT * node_chips * span_ms)) if span_ms else sum(taken)
    return max(1, max(taken, default=1), min(wanted, sum(taken)))


def _nodes_of(job: PlannedJob, node_chips: int) -> int:
    """Nodes that a job needs if each of its pods has a separate node, as with switch affinity."""
    return sum(task.replicas for task in job.request.tasks if 0 < task.chips <= node_chips)


def chips_of(job: PlannedJob) -> int:
    """Chips of a job."""
    return sum(task.replicas * task.chips for task in job.request.tasks)


def offered_load(workload: Workload, nodes: Iterable[NodeDescription]) -> float:
    """Ratio of the chip time of a workload to the chip time of the nodes between the first and the last arrival.

    1 is full load; 0 if all jobs arrive together, or the nodes have no chips.
    """
    chips = sum(node.whole_chips for node in nodes)
    room = chips * _span_ms(workload)
    return _chip_ms(workload) / room if room else 0.0


def _chip_ms(workload: Workload) -> int:
    return sum(chips_of(job) * job.run_ms for job in workload.jobs)


def _span_ms(workload: Workload) -> int:
    return workload.jobs[-1].at_ms - workload.jobs[0].at_ms if workload.jobs else 0
