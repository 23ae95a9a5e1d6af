"""What every plan below leaf switches has to keep, and what documented decisions demand in the place of the reference.

All of it is stated anew from the reference page and looks at nothing but a line, so that it shares no code with
production.

Source: docs/reference/switches.md, "Shared leaf states", "Policy 2.0", "Ranks, scores and annotations",
"Partial replacement" and "Rebuilding leaf states".
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tests.golden.harness import Differences, Line, differ

Said = Mapping[str, Mapping[str, int]]
"""States of leaves, by name, as a line has them."""
FREE: Final = {"isSharedTor": "0", "isHealthy": "0"}
"""What a pod says of a leaf that is free and healthy."""
NO_ONE_LEAF: Final = "tor check failed not enough resource for fill job"
NO_ROOM_IN_LEAF: Final = "tor check failed not enough resource for job"
TOO_MANY_PODS: Final = "job's task number is bigger than torCount"
NOTHING_LEFT: Final = "no candidate node"
WRONG_POSITION: Final = "node sliceId is not meet task require"
OTHER_LEAF: Final = "not below the leaf of the pods that live"
"""Text for nodes that the reference does not turn down: decision on row 13."""
UNKNOWN_NODE: Final = "node is not in tor node list by not get tor"
_IDLE: Final = {"isSharedTor": 0, "isHealthy": 0}
_LADDER: Final = tuple(
    {"isSharedTor": state, "isHealthy": health} for state, health in ((2, 0), (1, 1), (1, 0), (0, 0))
)
"""Classes of leaves, in the order in which 2.0 looks for one leaf."""


class Scenery(NamedTuple):
    """Leaves of a line and the nodes that its job may take.

    Attributes:
        places: Nodes below a whole leaf.
        names: Leaves in their order.
        nodes: Nodes of each leaf, in theirs.
        leaf_of: Leaf of each node, as an index.
        slice_of: Position of each node.
        candidates: Nodes that the job may take; some may be below no leaf.
    """

    places: int
    names: Sequence[str]
    nodes: Sequence[Sequence[str]]
    leaf_of: Mapping[str, int]
    slice_of: Mapping[str, int]
    candidates: frozenset[str]

    def free(self, leaf: int) -> list[str]:
        """Candidates of a leaf, in its order."""
        return [node for node in self.nodes[leaf] if node in self.candidates]

    def leaves_of(self, nodes: Iterable[str]) -> set[int]:
        """Leaves above some nodes."""
        return {self.leaf_of[node] for node in nodes if node in self.leaf_of}

    def ranked(self, nodes: Iterable[str]) -> list[str]:
        """Nodes of one leaf by position."""
        return sorted(nodes, key=self.slice_of.__getitem__)


def scenery_of(line: Line, candidates: Iterable[str]) -> Scenery:
    """Leaves of a line."""
    leaf_of: dict[str, int] = {}
    slice_of: dict[str, int] = {}
    for index, leaf in enumerate(line["topology"]):
        slices = leaf.get("slice_ids") or range(len(leaf["nodes"]))
        for node, position in zip(leaf["nodes"], slices, strict=True):
            leaf_of[node], slice_of[node] = index, position
    names = [leaf["switch"] for leaf in line["topology"]]
    nodes = [leaf["nodes"] for leaf in line["topology"]]
    return Scenery(line["tor_count"], names, nodes, leaf_of, slice_of, frozenset(candidates))


def plan_faults(scenery: Scenery, nodes: Sequence[str], pods: int) -> Differences:
    """Every pod has a node of its own, which is a candidate below some leaf."""
    faults = differ("plan", pods, len(nodes), "pods with a node")
    faults += differ("plan", len(nodes), len(set(nodes)), "different nodes")
    strangers = sorted(node for node in set(nodes) if node not in scenery.candidates or node not in scenery.leaf_of)
    return faults + differ("plan", [], strangers, "nodes that are no candidates")


def word_faults(scenery: Scenery, words: Mapping[str, Mapping[str, str]], after: Mapping[str, int]) -> Differences:
    """Pods say of their leaf what it is after the plan; or all say that it is free, as pods below one leaf do."""
    if all(word == FREE for word in words.values()):
        return ()
    faults: Differences = ()
    for node, word in words.items():
        name = scenery.names[scenery.leaf_of[node]]
        state = after.get(name, 0)
        wanted = {"isSharedTor": str(state & 3), "isHealthy": str(state >> 2)}
        wanted |= {"sharedTorIp": name} if state & 3 == 1 else {}
        faults += differ("plan", wanted, dict(word), f"words of {node}")
    return faults


def shared_faults(scenery: Scenery, nodes: Iterable[str], after: Mapping[str, int], most: int) -> Differences:
    """A job is below no more shared leaves than the setting allows.

    Source: docs/reference/switches.md, "Jobs and policies" and "Replacement in 2.0".

    Args:
        scenery: Leaves.
        nodes: Nodes of all its pods.
        after: States of leaves after the plan.
        most: Setting ``shared-tor-num``.
    """
    shared = [scenery.names[leaf] for leaf in sorted(scenery.leaves_of(nodes))]
    shared = [name for name in shared if after.get(name, 0) & 3 == 1]
    return () if len(shared) <= most else (("plan", f"shared leaves are {shared}, at most {most}"),)


def merged_states(jobs: Iterable[Mapping[str, Any]], scenery: Scenery) -> dict[str, int]:
    """State bytes of leaves that are not free and healthy, from what pods say, in any order and from their decision on.

    Decisions order-free-merge and busy-from-decision: unhealthy if any says so; shared if unhealthy or any says shared.
    """
    said: dict[int, set[str]] = {}
    ill: set[int] = set()
    for job in jobs:
        for node in job["nodes"]:
            word = job["annotations"].get(node, {})
            if node in scenery.leaf_of:
                said.setdefault(scenery.leaf_of[node], set()).add(word.get("isSharedTor", ""))
                if word.get("isHealthy") == "1":
                    ill.add(scenery.leaf_of[node])
    states = {
        leaf: 5 if leaf in ill else 1 if "1" in words else 2 if "2" in words else 0 for leaf, words in said.items()
    }
    return {scenery.names[leaf]: state for leaf, state in states.items() if state}


def on_one_leaf(scenery: Scenery, expected: Mapping[str, Any], pods: int) -> Mapping[str, Any]:
    """What a padding job of a leaf's size or more gets: a place below one leaf, or none (decision fill-crosses-leaf).

    Args:
        scenery: Leaves and candidates.
        expected: The reference's answer, which stands if it stays below one leaf.
        pods: Pods of the job.
    """
    if expected["ok"] and len(scenery.leaves_of(expected["chosen_nodes"])) == 1:
        return expected
    before: Said = expected.get("switch_before", {})
    free = {leaf: scenery.free(leaf) for leaf in range(len(scenery.names))}
    fitting = [leaf for leaf, nodes in free.items() if len(nodes) >= pods]
    for cell in _LADDER:
        alike = [leaf for leaf in fitting if before.get(scenery.names[leaf], _IDLE) == cell]
        if alike:
            nodes = scenery.ranked(free[min(alike, key=lambda leaf: len(free[leaf]))][:pods])
            words = dict.fromkeys(nodes, FREE)
            found = {"ok": True, "error": "", "chosen_nodes": nodes, "pod_annotations": words}
            return {**found, "switch_before": before, "switch_after": before}
    return {"ok": False, "error": NO_ONE_LEAF, "switch_before": before}


def free_words(_scenery: Scenery, expected: Mapping[str, Any], _pods: int = 0) -> Mapping[str, Any]:
    """Pods of 1.0 say that their leaf is free and healthy (decision annotations-in-1.0)."""
    words = dict.fromkeys(expected.get("chosen_nodes", ()), FREE)
    return {**expected, "pod_annotations": words} if expected["ok"] else expected


def below_own_leaf(
    scenery: Scenery, expected: Mapping[str, Any], alive: Sequence[str], ranks: Sequence[int]
) -> Mapping[str, Any]:
    """Where lost pods go without a spine: below the leaf of those that live (decision survivors-leaf).

    Of several leaves with pods the one with the fewest candidates that are enough, the last of those alike. Nodes are
    numbered by position, a pod whose rank is such a number gets that node, any other the first by name.
    """
    own = scenery.leaves_of(alive)
    if not own:
        return expected
    rejected = {node: OTHER_LEAF for node in scenery.candidates if scenery.leaf_of.get(node, -1) not in own}
    rejected |= {node: UNKNOWN_NODE for node in scenery.candidates if node not in scenery.leaf_of}
    refused = {"ok": False, "rejected": rejected}
    if len(rejected) == len(scenery.candidates):
        return {**refused, "error": NOTHING_LEFT}
    if len(alive) + len(ranks) > scenery.places:
        return {**refused, "error": TOO_MANY_PODS}
    fitting = [leaf for leaf in sorted(own) if len(scenery.free(leaf)) >= len(ranks)]
    if not fitting:
        return {**refused, "error": NO_ROOM_IN_LEAF}
    leaf = min(fitting, key=lambda leaf: (len(scenery.free(leaf)), -leaf))
    numbered = scenery.ranked(scenery.free(leaf)[: len(ranks)])
    left = set(numbered)
    chosen: list[str] = []
    for rank in ranks:
        by_number = numbered[rank] if rank < len(numbered) and numbered[rank] in left else None
        chosen.append(by_number or min(left))
        left.discard(chosen[-1])
    return {"ok": True, "error": "", "rejected": rejected, "chosen_nodes": chosen, "pod_annotations": {}}


def at_lacking_positions(
    scenery: Scenery, alive: Sequence[str], ranks: Sequence[int], crossed: set[int]
) -> tuple[Mapping[str, Any], Counter[int], int]:
    """Where lost pods of 1.0 may go: positions with fewer pods than the gang would have at most (slice-of-lost-pod).

    Args:
        scenery: Leaves and candidates.
        alive: Nodes of the pods that live.
        ranks: Ranks of the pods to be placed.
        crossed: Leaves that another job crosses.

    Returns:
        What is expected but for the nodes, pods that live at each position, and how many a position may have.
    """
    used = Counter(scenery.slice_of[node] for node in alive if node in scenery.slice_of)
    most = -(-(len(alive) + len(ranks)) // scenery.places)
    rejected = {node: UNKNOWN_NODE for node in scenery.candidates if node not in scenery.leaf_of}
    room = Counter[int]()
    for node in scenery.candidates & scenery.leaf_of.keys():
        if scenery.leaf_of[node] in crossed or used[scenery.slice_of[node]] >= most:
            rejected[node] = WRONG_POSITION
        else:
            room[scenery.slice_of[node]] += 1
    has_room = sum(min(nodes, most - used[position]) for position, nodes in room.items()) >= len(ranks)
    return {"ok": has_room, "error": "" if has_room else NOTHING_LEFT, "rejected": rejected}, used, most


def position_faults(
    scenery: Scenery, rejected: Iterable[str], used: Counter[int], most: int, nodes: Sequence[str]
) -> Differences:
    """One pod after the other goes to the position with the fewest pods that has a node left."""
    left = set(scenery.candidates.difference(rejected))
    pods, faults = used.copy(), differ("plan", [], sorted(set(nodes).difference(left)), "nodes that were turned down")
    for node in nodes:
        fewest = min((pods[scenery.slice_of[other]] for other in left), default=most)
        position = scenery.slice_of[node]
        faults += differ("plan", fewest, pods[position], f"pods at the position of {node}")
        pods[position] += 1
        left.discard(node)
    return faults + differ(
        "plan", [], [at for at, number in pods.items() if number > max(most, used[at])], "too many at"
    )


def crossed_leaves(jobs: Iterable[Mapping[str, Any]], scenery: Scenery) -> set[int]:
    """Leaves with a pod of a job that has another pod elsewhere, from its decision on."""
    return {
        leaf
        for job in jobs
        for leaf in scenery.leaves_of(job["nodes"])
        if scenery.leaves_of(job["nodes"]) != {leaf} or not scenery.leaf_of.keys() >= set(job["nodes"])
    }


def tier_faults(
    scenery: Scenery, alive: Sequence[str], after: Mapping[str, int], nodes: Sequence[str], rejected: Iterable[str]
) -> Differences:
    """Lost pods of 2.0 go below own exclusive leaves, then own shared ones, then new ones (deterministic-scores).

    Own leaves are used up before new ones are, and inside a tier the first node by name goes first.
    """
    own = scenery.leaves_of(alive)

    def key(node: str) -> tuple[bool, bool, str]:
        leaf = scenery.leaf_of[node]
        return leaf not in own, after.get(scenery.names[leaf], 0) & 3 == 1, node

    faults = differ("plan", sorted(nodes, key=key), list(nodes), "nodes by tier")
    open_own = {node for leaf in own for node in scenery.free(leaf)}.difference(rejected)
    taken_own = [node for node in nodes if scenery.leaf_of[node] in own]
    wanted = sorted(open_own, key=key)[: len(nodes)]
    return faults + differ("plan", wanted, taken_own, "nodes of own leaves")
