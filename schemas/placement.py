"""Placement: node and chips for each rank of a gang, as columns."""

from schemas.columns import offsets, pack, pack_names, unpack, unpack_names
from schemas.message import Part


class Share(Part, frozen=True):
    """Quota of one chip that each pod of a soft-share job takes.

    Source: specification, node and chip, section 8.9.
    """

    aicore: int
    """Percent of the chip's cores, 1..100."""
    hbm_mib: int
    policy: str
    """fixed-share, elastic or best-effort."""


class SwitchPart(Part, frozen=True):
    """How a gang with switch affinity lies below leaf switches.

    Columns have one entry a rank: ``leaf_index`` ``<u2`` into ``leaves`` plus one, 0 for a rank that was not placed by leaf;
    ``states`` ``<u1``, what is said of the rank's leaf: ``isSharedTor`` (0 free, 1 shared, 2 exclusive) plus 4 times
    ``isHealthy`` (0 healthy, 1 not). An adopted gang has no leaves and says what its annotations said.
    """

    tor_affinity: str
    """Value of the label: ``normal-schema`` or ``large-model-schema``."""
    pods: int
    """Pods with chips of the whole gang; fewer than 4 make a foundation-model job a padding job."""
    policy: str = ""
    """``1.0``, ``2.0`` or ``single-layer``; empty when adopted."""
    rule: str = ""
    """Rule that chose the leaves, such as ``best-fit``."""
    leaves: list[str] = []
    """Leaves in the order of the plan."""
    leaf_index: bytes = b""
    states: bytes = b""
    annotated: bool = False
    """The states are written to the pods as annotations."""
    warning: str = ""
    """Why the job is outside what the policy supports, in one sentence; empty when it is inside."""


class BlockPart(Part, frozen=True):
    """How a gang with SuperPoD affinity lies in logical SuperPoDs (blocks), and these in physical ones.

    Columns have one entry a rank: ``block_index`` and ``superpod_index`` ``<u2`` plus one into ``blocks`` and ``superpods``,
    0 for a rank that belongs to no block.
    """

    variant: str
    """``a3``, ``850``, ``rack``, ``levels``, ``service`` or ``mindie``."""
    size: int
    """Nodes of a block."""
    blocks: list[int] = []
    """Ids of the blocks, ascending."""
    phases: list[str] = []
    """Which rule gave each block its nodes, parallel to ``blocks``."""
    superpods: list[str] = []
    """Physical SuperPoDs, or groups of the lowest level, in the order of the plan."""
    block_index: bytes = b""
    superpod_index: bytes = b""
    annotated: bool = False
    """Pods are told ``super-pod-id`` and ``super-pod-rank``."""
    service: str = ""
    """Label ``inferserviceid``; empty without."""


class Run(Part, frozen=True, gc=False):
    """``pods`` equal pods that follow one another in rank order."""

    pods: int
    chips: int
    cpu_milli: int = 0
    memory_mib: int = 0


class Placement(Part, frozen=True):
    """Where every pod of a gang runs.

    ``nodes`` is a front-coded, sorted table of names; ``node_index`` one ``<u4`` a rank into it; ``chips`` one byte a
    chip in the order of picking, rank after rank, as many a rank as its run says.
    """

    nodes: bytes
    node_index: bytes
    runs: list[Run]
    chips: bytes
    resource: str = ""
    share: Share | None = None
    switch: SwitchPart | None = None
    """For gangs with switch affinity."""
    block: BlockPart | None = None
    """For gangs with SuperPoD affinity."""

    def names(self) -> list[str]:
        """Node of each rank.

        Raises:
            ValueError: A column is damaged, or an index points outside the table of names.
        """
        table = unpack_names(self.nodes)
        indexes = unpack(self.node_index, 4)
        if indexes and max(indexes) >= len(table):
            raise ValueError(f"placement names node {max(indexes)} of {len(table)}")
        return [table[index] for index in indexes]

    def chips_by_rank(self) -> list[tuple[int, ...]]:
        """Chips of each rank, in the order of picking.

        Raises:
            ValueError: The runs ask for more or fewer chips than there are.
        """
        counts = [run.chips for run in self.runs for _ in range(run.pods)]
        starts = offsets(counts)
        if starts[-1] != len(self.chips):
            raise ValueError(f"placement holds {len(self.chips)} chips, its runs ask for {starts[-1]}")
        return [tuple(self.chips[start : starts[rank + 1]]) for rank, start in enumerate(starts[:-1])]

    def pods(self) -> int:
        """Number of ranks."""
        return len(self.node_index) // 4


def placement_of(
    names: list[str],
    chips: list[tuple[int, ...]],
    runs: list[Run],
    *,
    resource: str,
    share: Share | None = None,
    switch: SwitchPart | None = None,
    block: BlockPart | None = None,
) -> Placement:
    """Columns of a placement given rank by rank.

    Args:
        names: Node of each rank.
        chips: Chips of each rank in the order of picking, each 0..63.
        runs: Equal pods in rank order; their pod counts add up to ``len(names)``.
        resource: Resource name of the chips.
        share: Quota a pod, for soft share.
        switch: How it lies below leaf switches.
        block: How it lies in SuperPoDs.

    Raises:
        ValueError: Names, chips and runs do not agree on the ranks, or a chip is not 0..255.
    """
    if [len(picked) for picked in chips] != [run.chips for run in runs for _ in range(run.pods)]:
        raise ValueError("chips of the ranks are not those of the runs")
    if len(names) != len(chips):
        raise ValueError(f"{len(names)} nodes for {len(chips)} ranks of the runs")
    table = sorted(set(names))
    index = {name: position for position, name in enumerate(table)}
    return Placement(
        nodes=pack_names(table),
        node_index=pack([index[name] for name in names], 4),
        runs=runs,
        chips=b"".join(map(bytes, chips)),
        resource=resource,
        share=share,
        switch=switch,
        block=block,
    )
