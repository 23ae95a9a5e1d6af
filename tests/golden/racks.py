"""Family ``superpod_rack``: which racks a job gets."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from berth.core.superpod_jobs import BlockRequest, BlockShape, Pods, check_blocks
from berth.core.superpod_rack import Racks, Take, all_of, decisions_of, place
from berth.core.superpod_rack_service import place_service
from berth.core.superpod_terms import NoBlocks, Rules, Want, Yard, superpod_key, yard_of
from berth.core.superpods import candidates
from schemas.ledger import Settings
from tests.golden.harness import Answer, Line, differ

UB_MEMORY: Final = "ubmemory scene"
"""Note of a line whose job shares memory over the unified bus."""
SOFT: Final = "soft"


def compare_rack(line: Line, settings: Settings) -> Answer:
    """One arriving job."""
    if not line["stable"]:
        return Answer(skipped=("unstable",))
    shape = check_blocks(request_of(line))
    if not isinstance(shape, BlockShape):
        return Answer(differ("ok", line["result"]["ok"], got=False))
    yard = yard_of_line(line)
    want = Want(
        "rack",
        shape.block,
        shape.replicas,
        soft=line["affinity"] == SOFT,
        rack_block=shape.rack_block,
        ub_memory=line.get("note") == UB_MEMORY,
    )
    rules = Rules(line["reserve"], line["super_pod_size"], settings.reference_parity)
    serves = line.get("infer", {}).get("inferserviceid")
    found = place_service(yard, want, ()) if serves else place(Racks(candidates(yard, want)), all_of(want), rules)
    return Answer(differences_of(line, yard, found), active=() if serves else decisions_of(yard, want, rules))


def request_of(line: Line) -> BlockRequest:
    """What the job of a line says."""
    return BlockRequest(
        "rack",
        line["chips_per_pod"],
        str(line["sp_block_npu"]),
        [Pods(line["tasks"], line["chips_per_pod"])],
        line["super_pod_size"],
        str(line["ra_block_npu"]),
        line.get("note") == UB_MEMORY,
    )


def yard_of_line(line: Line) -> Yard:
    """SuperPoDs of a line."""
    superpods = sorted(line["super_pods"], key=lambda superpod: superpod_key(str(superpod["id"])))
    found = [
        (index, superpod["racks"][node], node)
        for index, superpod in enumerate(superpods)
        for node in superpod["free_nodes"]
    ]
    pods, racks = (np.array([node[field] for node in sorted(found)], np.int64) for field in (0, 1))
    ids = [str(superpod["id"]) for superpod in superpods]
    return yard_of(ids, pods, np.arange(len(found)), racks=racks)


def differences_of(line: Line, yard: Yard, found: Sequence[Take] | NoBlocks) -> tuple[tuple[str, str], ...]:
    """What is not as expected."""
    expected: Mapping[str, Any] = line["result"]
    differences = [*differ("ok", expected["ok"], not isinstance(found, NoBlocks))]
    if not isinstance(found, NoBlocks) and expected["ok"]:
        pods = np.repeat(np.arange(len(yard.ids)), yard.counts).tolist()
        rack_of = dict(zip(yard.rows.tolist(), zip(pods, yard.racks.tolist(), strict=True), strict=True))
        free = Counter(rack_of.values())
        taken = Counter(rack_of[row] for take in found for row in take.rows.tolist())
        got = [[free[rack], nodes] for rack, nodes in taken.items()]
        differences += differ("by_rack", sorted(line["canonical"]["by_rack"], key=str), sorted(got, key=str))
    return tuple(differences)
