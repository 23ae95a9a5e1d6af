"""Blocks of inference: beside siblings, by what is free, by what is preferred; ties, and what is missing."""

import numpy as np
import pytest

from berth.core.topologies.blocks.demand import Variant
from berth.core.topologies.blocks.model import BlockDemand, BlockPlan, BlockRules, CandidatePool, NoBlocks, pool_of
from berth.core.topologies.blocks.request import Inference, inference_of
from berth.core.topologies.superpods.inference import AffinityPreference
from tests.support.inference_plans import plan_mindie, plan_service
from tests.support.superpods import a_pool, grants_of, nodes_of


def counts(*free: int) -> CandidatePool:
    """SuperPoDs with so many candidates; the nodes of SuperPoD 1 are 10, 11, ..."""
    return a_pool(" ".join(str(10 * pod + node) for pod, some in enumerate(free) for node in range(some)))


def words(found: BlockPlan | NoBlocks) -> str:
    """SuperPoD of each block, in their order; or what is missing."""
    if isinstance(found, NoBlocks):
        return f"{found.lack}: {found.blocks_need} of {found.blocks_have}, {found.nodes_need} of {found.nodes_have}"
    return " ".join(str(allocation.pod) for allocation in found.allocations)


def service(pool: CandidatePool, replicas: int, *hosts: str, block: int = 2, soft: bool = False) -> str:
    return words(plan_service(pool, BlockDemand("a3", block, replicas, soft=soft), hosts))


def mindie(
    pool: CandidatePool,
    replicas: int,
    *,
    idlest: bool = False,
    matching: tuple[int, ...] | None = None,
    reserve: int = 2,
) -> str:
    preference = AffinityPreference(idlest, None if matching is None else np.array(matching, np.int64))
    return words(plan_mindie(pool, BlockDemand("a3", 2, replicas), BlockRules(reserve=reserve), preference))


class TestService:
    def test_siblings_come_before_free_nodes(self) -> None:
        assert service(counts(6, 4, 3), 4, "1") == "1 1"
        assert service(counts(6, 4, 3), 8, "1") == "1 1 0 0"

    def test_among_siblings_the_one_with_more_free_nodes(self) -> None:
        assert service(counts(9, 4, 5), 6, "1", "2") == "2 1 2"

    def test_without_siblings_the_one_with_most_free_nodes_and_then_beside_that_block(self) -> None:
        assert service(counts(5, 7), 6) == "1 1 1"
        assert service(counts(5, 7), 8) == "1 1 1 0"

    def test_ties_go_to_the_first(self) -> None:
        assert service(counts(4, 4, 4), 6) == "0 0 1"
        assert service(counts(4, 4, 4), 6, "1", "2") == "1 2 1"

    def test_a_host_without_room_for_a_block_plays_no_part(self) -> None:
        assert service(counts(4, 1), 2, "1", "9") == "0"

    @pytest.mark.parametrize("soft", [False, True])
    def test_blocks_are_whole(self, *, soft: bool) -> None:
        assert service(counts(3, 3, 3), 8, soft=soft) == "service: 4 of 3, 8 of 9"

    def test_too_few_nodes(self) -> None:
        assert service(counts(3, 3), 8) == "nodes: 4 of 2, 8 of 6"

    def test_ranks_follow_the_blocks(self) -> None:
        found = plan_service(counts(2, 6), BlockDemand("850", 2, 6), ["0"])
        assert isinstance(found, BlockPlan)
        assert nodes_of(found) == "00 01 10 11 12 13"
        assert grants_of(found) == "0:0x2 service, 1:1x2 service, 2:1x2 service"

    def test_one_pod_goes_where_the_fewest_chips_are_idle(self) -> None:
        rows = np.arange(3, dtype=np.int64)
        pool = pool_of(["0", "1"], np.array([0, 0, 1]), rows, idle=np.array([8, 8, 4]))
        assert service(pool, 1, block=1) == "1"
        assert service(pool, 1, "0", block=1) == "1"


class TestMindie:
    def test_the_fuller_first_unless_the_idler_is_asked_for(self) -> None:
        assert mindie(counts(9, 4), 2) == "1"
        assert mindie(counts(4, 9), 2, idlest=True) == "1"

    def test_the_reserve_is_kept_while_another_can_give(self) -> None:
        assert mindie(counts(3, 9), 2) == "1"
        assert mindie(counts(3, 9), 2, reserve=1) == "0"
        assert mindie(counts(4, 9), 10) == "0 1 1 1 0"

    def test_preferred_pods_come_before_what_is_free_and_behind_the_reserve(self) -> None:
        assert mindie(counts(9, 6, 4), 2, matching=(0, 3, 0)) == "1"
        assert mindie(counts(9, 6, 3), 2, matching=(0, 1, 5)) == "1"

    def test_a_block_makes_its_superpod_preferred(self) -> None:
        assert mindie(counts(8, 8), 4, idlest=True) == "0 1"
        assert mindie(counts(8, 8), 4, idlest=True, matching=(0, 0)) == "0 0"

    def test_blocks_are_whole(self) -> None:
        assert mindie(counts(3, 3), 6, reserve=0) == "blocks: 3 of 2, 6 of 6"

    def test_too_few_nodes(self) -> None:
        assert mindie(counts(3), 4) == "nodes: 2 of 1, 4 of 3"

    def test_a_refusal_names_the_superpods_that_come_closest(self) -> None:
        found = plan_mindie(
            counts(3, 0, 5), BlockDemand("a3", 4, 8), BlockRules(), AffinityPreference(idlest=False, matching=None)
        )
        assert isinstance(found, NoBlocks)
        assert [(near.superpod, near.free, near.blocks) for near in found.closest] == [("2", 5, 1), ("0", 3, 0)]


@pytest.mark.parametrize(
    ("labels", "variant", "expected"),
    [
        ({"inferserviceid": "s"}, "a3", "service"),
        ({"inferserviceid": "s", "app": "a", "jobID": "j"}, "850", "service"),
        ({"inferserviceid": ""}, "a3", None),
        ({"app": "a", "jobID": "j"}, "a3", "mindie"),
        ({"app": "a", "jobID": "j"}, "850", None),
        ({"app": "a"}, "a3", None),
        ({}, "a3", None),
    ],
)
def test_labels_say_which_way(labels: dict[str, str], variant: Variant, expected: Inference | None) -> None:
    assert inference_of(labels, variant) == expected
