"""Clusters in a few words, such as ``nodes=302,leaf=16,product=module910bx8``, and the cluster that fits a workload. Pure.

The words stand for a topology file of one entry and are read as one; see :mod:`berth.formats.clusters.topology_file`.
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
"""Most nodes of a cluster in words."""
KEYS: Final = ("nodes", "leaf", "superpod", "product", "prefix")
PRODUCT: Final = "module910bx8"
LEAF: Final = 16
"""Nodes below a leaf switch of a cluster that fits a workload."""
LOAD_PERCENT: Final = 70
"""Load that a cluster is to have which fits a workload."""
TRACE_NODES: Final = {"kalos": 302, "philly": 64}
"""Nodes of the clusters for traces whose cluster is known. Kalos had so many; 64 give Philly's jobs a load of 73 %."""
_PREFIX_CHARACTERS_MAX: Final = 200


class ClusterWordsError(ValueError):
    """Words that describe no cluster.

    Attributes:
        key: Word before the ``=``; empty for the words as a whole.
        value: What stands there.
        expected: What would be right.
    """

    def __init__(self, key: str, value: str, expected: str) -> None:
        super().__init__(f"cluster: {f'{key} is ' if key else ''}{value}, expected {expected}")
        self.key = key
        self.value = value
        self.expected = expected


def read_cluster(text: str, *, name: str = "") -> ClusterPlan:
    """Cluster of a topology file's text, or of words such as ``nodes=302,leaf=16,superpod=48,product=module910bx8,prefix=node``.

    ``nodes`` is the number of nodes; ``leaf`` and ``superpod`` how many stand below a leaf switch and in a SuperPoD (none
    without); ``product`` their form (module910bx8); ``prefix`` what their names start with (node).

    Args:
        text: Text or words. A text with a colon or a line break is a topology file.
        name: Name of the cluster; empty: the words, or ``file``.

    Returns:
        Faults of a topology file are left out, and the notes say so.

    Raises:
        ClusterWordsError: A word is unknown, missing, given twice or wrong.
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
        ClusterWordsError: A part is no ``key=value``, or its key is unknown or given twice.
    """
    words: dict[str, str] = {}
    for part in text.strip().split(","):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not value:
            raise ClusterWordsError(
                "", repr(part), "key=value,key=value, such as nodes=302,leaf=16, or a topology file"
            )
        if key not in KEYS:
            raise ClusterWordsError(key, "an unknown key", nearest(key, KEYS))
        if key in words:
            raise ClusterWordsError(key, "given twice", "each key once")
        words[key] = value
    if "nodes" not in words:
        raise ClusterWordsError("nodes", "missing", f"a whole number from 1 to {NODES_MAX}")
    return words


def _document(words: dict[str, str]) -> dict[str, object]:
    """Topology file of the words.

    Raises:
        ClusterWordsError: A value is wrong.
    """
    nodes = _number(words, "nodes", NODES_MAX)
    product = words.get("product", PRODUCT)
    if product not in NODE_PRODUCTS:
        raise ClusterWordsError("product", repr(product), nearest(product, NODE_PRODUCTS))
    if NODE_PRODUCTS[product].in_superpod and "superpod" not in words:
        raise ClusterWordsError("superpod", "missing", f"the nodes of a SuperPoD, to which nodes of {product} belong")
    prefix = words.get("prefix", "node")
    if len(prefix) > _PREFIX_CHARACTERS_MAX or not is_dns_name(f"{prefix}-0"):
        raise ClusterWordsError("prefix", repr(prefix), "lower-case letters, digits, inner '-' and '.'")
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
        ClusterWordsError: It is none, or out of bounds.
    """
    number = whole_number(words[key], most=most)
    if not number:
        raise ClusterWordsError(key, repr(words[key]), f"a whole number from 1 to {most}")
    return number


def _index(count: int) -> str:
    """Pattern of numbers from 0, as wide as the largest; at least two digits, so that names of small clusters sort too."""
    return f"{{index:0{max(2, len(str(count - 1)))}}}"


def default_cluster(workload: Workload, *, product: str = PRODUCT) -> str:
    """Words of a cluster that fits a workload.

    Kalos and Philly have the clusters of :data:`TRACE_NODES`. Others have as many nodes as give a load of about
    :data:`LOAD_PERCENT` percent, but room for their largest job, and no more than all their jobs together take.

    Raises:
        ClusterWordsError: The product is unknown, or the nodes would be more than :data:`NODES_MAX`.
    """
    if product not in NODE_PRODUCTS:
        raise ClusterWordsError("product", repr(product), nearest(product, NODE_PRODUCTS))
    nodes = TRACE_NODES.get(workload.name) or _fitting_nodes(workload, NODE_PRODUCTS[product].chips)
    if nodes > NODES_MAX:
        raise ClusterWordsError("nodes", f"{nodes}, as the workload needs,", f"at most {NODES_MAX}")
    return f"nodes={nodes},leaf={LEAF},product={product}"


def _fitting_nodes(workload: Workload, node_chips: int) -> int:
    taken = [_nodes_of(job, node_chips) for job in workload.jobs]
    span_ms = _span_ms(workload)
    wanted = math.ceil(100 * _chip_ms(workload) / (LOAD_PERCENT * node_chips * span_ms)) if span_ms else sum(taken)
    return max(1, max(taken, default=1), min(wanted, sum(taken)))


def _nodes_of(job: PlannedJob, node_chips: int) -> int:
    """Nodes that a job needs where each of its pods has a node of its own, as switch affinity asks."""
    return sum(task.replicas for task in job.request.tasks if 0 < task.chips <= node_chips)


def chips_of(job: PlannedJob) -> int:
    """Chips that a job asks for."""
    return sum(task.replicas * task.chips for task in job.request.tasks)


def offered_load(workload: Workload, nodes: Iterable[NodeDescription]) -> float:
    """Chip time that a workload asks over the chip time that nodes have between the first arrival and the last.

    1 is all of it; 0 where all jobs come at once, or the nodes have no chips.
    """
    chips = sum(node.whole_chips for node in nodes)
    room = chips * _span_ms(workload)
    return _chip_ms(workload) / room if room else 0.0


def larger_than(workload: Workload, nodes: Iterable[NodeDescription]) -> list[PlannedJob]:
    """Jobs that ask for more chips than all the nodes have, or for more in one pod than any node has, by arrival."""
    have = [node.whole_chips for node in nodes]
    total, most = sum(have), max(have, default=0)
    return [
        job
        for job in workload.jobs
        if chips_of(job) > total or max((task.chips for task in job.request.tasks), default=0) > most
    ]


def _chip_ms(workload: Workload) -> int:
    return sum(chips_of(job) * job.run_ms for job in workload.jobs)


def _span_ms(workload: Workload) -> int:
    return workload.jobs[-1].at_ms - workload.jobs[0].at_ms if workload.jobs else 0
