"""Lines of SuperPoD families through everything that decides: request, form, shapes, scoring, round, placement.

The families compare the functions that plan; this holds that a job gets in a round what these functions say.
"""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

import pytest

from berth.core.chips.soft_share_table import SoftShareTable
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.round_demand import candidate_counts
from berth.core.placement.scoring import Scorer
from berth.core.requests.gangs import gang_of
from berth.core.topologies.planning import Colocation
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.columns import unpack
from berth.schemas.facts import JobSeen
from berth.schemas.ledger import Settings
from berth.schemas.placement import Placement
from tests.golden.families import FAMILIES
from tests.golden.folder import DATA, vectors_folder
from tests.golden.harness import DEFAULTS, Line, family_of, judge, read_lines, vector_files
from tests.golden.live_plans import PRODUCTS, free_of, request_of, table_of
from tests.support.placed_parts import the_block


def placed(line: Line) -> Placement | None:
    """What a round gives to the job of a line."""
    settings = Settings(super_pod_size=line["super_pod_size"], reserve_nodes=line["reserve"])
    table, request = table_of(line), request_of(line)
    seen = JobSeen("default", "j", "u", "accepted", intake_seq=1, accepted_seq=1, request=request)
    gang = gang_of(seen, request, attempt=1, settings=settings)
    scorer = Scorer(table, SoftShareTable(table), settings)
    asks = candidate_counts([gang])
    hosts = line.get("infer", {}).get("super_pods_already_hosting_service") or []
    beside = [superpod["nodes"][0] for superpod in line["super_pods"] if superpod["id"] in hosts]
    colocation = Colocation(lambda _: beside)
    views = {shape: scorer.candidates(shape, count) for shape, count in asks.items()}
    return PlacementRound(scorer, views, asks, colocation=colocation).choose([gang]).verdicts[0].placement


def by_phys(line: Line, placement: Placement) -> list[list[int]]:
    """Candidates, nodes taken, blocks, sub-healthy nodes taken, of each SuperPoD that gives nodes."""
    chips, sick = NODE_PRODUCTS[PRODUCTS[line["policy"]][0]].chips, set(line.get("sub_healthy", ()))
    free = [free_of(superpod, chips) for superpod in line["super_pods"]]
    home = {name: index for index, names in enumerate(free) for name in names}
    taken, ill, blocks = Counter[int](), Counter[int](), defaultdict[int, set[int]](set)
    for name, block in zip(placement.names(), unpack(the_block(placement).block_index, 2), strict=True):
        taken[home[name]] += 1
        ill[home[name]] += name in sick
        blocks[home[name]].add(block)
    return sorted(
        (
            [sum(n >= line["chips_per_pod"] for n in free[pod].values()), taken[pod], len(blocks[pod]), ill[pod]]
            for pod in taken
        ),
        key=str,
    )


def by_rack(line: Line, placement: Placement) -> list[list[int]]:
    """Candidates and nodes taken of each rack that gives nodes."""
    chips = NODE_PRODUCTS[PRODUCTS[line["policy"]][0]].chips
    rack = {
        name: (pod["id"], pod["racks"][name])
        for pod in line["super_pods"]
        for name, number in free_of(pod, chips).items()
        if number >= line["chips_per_pod"]
    }
    free, taken = Counter(rack.values()), Counter(rack[name] for name in placement.names())
    return sorted(([free[cell], nodes] for cell, nodes in taken.items()), key=str)


FAMILIES_HERE: Final = ("superpod", "superpod_infer", "superpod_rack")
FILES: Final = [
    path
    for folder in (DATA, vectors_folder())
    if folder.is_dir()
    for path in vector_files(folder)
    if family_of(path) in FAMILIES_HERE
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_round_gives_what_the_planning_functions_say(path: Path) -> None:
    family, compared = family_of(path), 0
    for line in read_lines(path):
        judged = judge(FAMILIES[family], line, DEFAULTS)
        if judged.skipped or "D-1" in judged.decided:
            continue
        placement = placed(line)
        assert (placement is not None) == line["result"]["ok"], line["id"]
        if placement is not None and line["stable"]:
            canonical, form = line["canonical"], by_rack if family == "superpod_rack" else by_phys
            assert form(line, placement) == sorted(canonical[form.__name__], key=str), line["id"]
        compared += 1
    assert compared
