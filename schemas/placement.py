"""Placement: node and chips for each rank of a gang, as columns.

A placement is validated when it is created or decoded. Its columns are therefore always consistent, and a record with a
damaged placement does not decode.
"""

import functools
from typing import Final

from berth.schemas.columns import offsets, pack, pack_names, unpack, unpack_names
from berth.schemas.message import Part

_CHIPS: Final = 64
"""Most chips of a node: chip masks are ``<u8``."""
_SHARED_CHIPS: Final = 16
"""Most chips of a node that can be shared."""
_PERCENT: Final = 100
_POLICIES: Final = frozenset({"fixed-share", "elastic", "best-effort"})


class Share(Part, frozen=True):
    """Quota of one chip that each pod of a soft-share job takes.

    Source: docs/reference/nodes-and-chips.md, "Soft share".
    """

    aicore: int
    """Percent of the chip's cores, 1..100."""
    hbm_mib: int
    policy: str
    """fixed-share, elastic or best-effort."""


class Groups(Part, frozen=True):
    """Groups of a topology in which the planned pods of a gang are, such as leaf switches or SuperPoDs.

    Columns are empty or have one entry per rank: ``name_index`` and ``part_index`` ``<u2`` plus one into ``names`` and
    ``parts``, 0 for a rank in none; ``states`` ``<u1``. The topology says what they mean.
    """

    topology: str
    """``switches``, ``superpods``, ``racks`` or ``levels``."""
    policy: str = ""
    """Switches: ``1.0``, ``2.0`` or ``single-layer``. Otherwise the variant: ``a3``, ``850``, ``rack`` or ``levels``.
    Empty when adopted."""
    label: str = ""
    """Switches: value of the label ``tor-affinity``. SuperPoDs and racks: that of ``inferserviceid``. Empty without."""
    size: int = 0
    """Switches: pods with chips of the whole gang; fewer than 4 make a foundation-model job a padding job. Otherwise
    the nodes of a block."""
    names: list[str] = []
    """Leaf switches, physical SuperPoDs, or groups of the lowest level, in the order of the plan."""
    name_index: bytes = b""
    parts: list[int] = []
    """Ids of the logical SuperPoDs (blocks), ascending; none below switches."""
    rules: list[str] = []
    """Rule that chose the nodes of each block, parallel to ``parts``; switches: the rule that chose the leaves."""
    part_index: bytes = b""
    states: bytes = b""
    """Switches: state of the leaf of each rank: ``isSharedTor`` (0 free, 1 shared, 2 exclusive) plus 4 times
    ``isHealthy`` (0 healthy, 1 not). Those of an adopted gang are those of its annotations."""
    annotated: bool = False
    """They are written to the pods as annotations."""
    warning: str = ""
    """Why the policy does not support the job, in one sentence; empty when it does."""


class ClaimVolume(Part, frozen=True):
    """Volume of a PersistentVolumeClaim that is not bound when its pod is placed."""

    claim: str
    """Name of the claim, in the namespace of the gang."""
    uid: str
    """Uid of the claim."""
    rank: int
    """First rank of the gang that uses the claim; its volume can be used from the node of this rank."""
    volume: str = ""
    """Volume that the claim gets; empty: one is made for the node."""


class Run(Part, frozen=True, gc=False):
    """``pods`` equal pods, consecutive in rank order."""

    pods: int
    chips: int
    cpu_milli: int = 0
    memory_mib: int = 0


class Placement(Part, frozen=True):
    """Where every pod of a gang runs.

    ``nodes`` is a front-coded, sorted table of names; ``node_index`` one ``<u4`` per rank into it; ``chips`` one byte
    per chip in the order of picking, rank after rank, as many per rank as its run has.
    """

    nodes: bytes
    node_index: bytes
    runs: list[Run]
    chips: bytes
    resource: str = ""
    share: Share | None = None
    groups: list[Groups] = []
    """Of each topology by which its pods are placed, or in which they were adopted; each at most once."""
    claims: list[ClaimVolume] = []
    """Claims that have to be bound before the pods are, in the order of ranks, each once."""

    def __post_init__(self) -> None:
        """Check that the columns are consistent.

        Raises:
            ValueError: A column is damaged or does not have the length of the ranks, an index is outside its table, or
                a chip or a quota is impossible.
        """
        rows, rest = divmod(len(self.node_index), 4)
        if rest:
            raise ValueError(f"node_index: {len(self.node_index)} bytes are no whole number of ranks, 4 bytes each")
        names = len(_table(self.nodes))
        worst = max(unpack(self.node_index, 4), default=-1)
        if worst >= names:
            raise ValueError(f"node_index: {worst} is outside its table of {names} names")
        self._check_runs(rows)
        if self.share is not None:
            _check_share(self.share)
        for number, part in enumerate(self.groups):
            _check_groups(f"groups[{number}]", part, rows)
            if any(other.topology == part.topology for other in self.groups[:number]):
                raise ValueError(f"groups[{number}].topology: {part.topology!r} is there twice")
        for number, claim in enumerate(self.claims):
            if not 0 <= claim.rank < rows:
                raise ValueError(f"claims[{number}].rank: {claim.rank}, the placement has {rows} ranks")

    def _check_runs(self, rows: int) -> None:
        pods = taken = 0
        for number, run in enumerate(self.runs):
            if run.pods < 0 or not 0 <= run.chips <= _CHIPS or run.cpu_milli < 0 or run.memory_mib < 0:
                raise ValueError(f"runs[{number}]: expected numbers from 0, and at most {_CHIPS} chips a pod")
            pods += run.pods
            taken += run.pods * run.chips
        chips = self.chips
        if pods != rows:
            raise ValueError(f"node_index: {rows} ranks, the runs have {pods}")
        if taken != len(chips):
            raise ValueError(f"chips: {len(chips)} are held, the runs ask for {taken}")
        most = _CHIPS if self.share is None else _SHARED_CHIPS
        if max(chips, default=0) >= most:
            raise ValueError(f"chips: {max(chips)} is more than {most - 1}")
        start = 0
        for run in self.runs:
            end, width = start + run.pods * run.chips, run.chips
            if width > 1:
                picked = {chips[at : at + width] for at in range(start, end, width)}
                twice = sorted(list(pod) for pod in picked if len(set(pod)) < width)
                if twice:
                    raise ValueError(f"chips: {twice[0]} of one pod, each may be there once")
            start = end

    def names(self) -> list[str]:
        """Node of each rank."""
        table = _table(self.nodes)
        return [table[index] for index in unpack(self.node_index, 4)]

    def chips_by_rank(self) -> list[tuple[int, ...]]:
        """Chips of each rank, in the order of picking."""
        counts = [run.chips for run in self.runs for _ in range(run.pods)]
        starts = offsets(counts)
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
    groups: list[Groups] | None = None,
    claims: list[ClaimVolume] | None = None,
) -> Placement:
    """Columns of a placement given rank by rank.

    Args:
        names: Node of each rank.
        chips: Chips of each rank in the order of picking, each 0..63.
        runs: Equal pods in rank order; their pod counts add up to ``len(names)``.
        resource: Resource name of the chips.
        share: Quota of each pod, for soft share.
        groups: Its groups of topologies; None for none.
        claims: Claims to be bound first, with their volumes; None for none.

    Raises:
        ValueError: Names, chips and runs do not agree on the ranks, or see :meth:`Placement.__post_init__`.
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
        groups=groups or [],
        claims=claims or [],
    )


@functools.lru_cache(maxsize=64)
def _table(nodes: bytes) -> tuple[str, ...]:
    """Names of a table, cached: a placement is mostly read right after its validation."""
    return tuple(unpack_names(nodes))


def _check_share(share: Share) -> None:
    if not 0 <= share.aicore <= _PERCENT or share.hbm_mib < 0 or share.policy not in _POLICIES:
        raise ValueError(
            f"share: {share.aicore} percent, {share.hbm_mib} MiB, policy {share.policy!r}: expected 0 to {_PERCENT}, 0 or"
            f" more, and one of {', '.join(sorted(_POLICIES))}"
        )


def _check_groups(field: str, part: Groups, rows: int) -> None:
    if len(part.states) not in {0, rows}:
        raise ValueError(f"{field}.states: {len(part.states)} bytes, {rows} ranks need {rows} or none")
    if part.parts and len(part.rules) != len(part.parts):
        raise ValueError(f"{field}.rules: {len(part.rules)} for {len(part.parts)} parts")
    if part.parts and len(part.part_index) != len(part.name_index):
        have = f"{len(part.name_index)} bytes, part_index has {len(part.part_index)}"
        raise ValueError(f"{field}.name_index: {have}")
    _check_index(f"{field}.name_index", part.name_index, rows, len(part.names))
    _check_index(f"{field}.part_index", part.part_index, rows, len(part.parts))


def _check_index(field: str, column: bytes, rows: int, count: int) -> None:
    """Check that a ``<u2`` column of indexes plus one is as long as the ranks or empty, and inside its table.

    Raises:
        ValueError: The column has another length, or an index points outside the table.
    """
    if len(column) not in {0, 2 * rows}:
        raise ValueError(f"{field}: {len(column)} bytes, {rows} ranks need {2 * rows} or none")
    worst = max(unpack(column, 2), default=0)
    if worst > count:
        raise ValueError(f"{field}: {worst} is outside its table (at most {count})")
