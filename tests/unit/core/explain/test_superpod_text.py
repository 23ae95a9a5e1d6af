"""Words on SuperPoDs: every phase and every lack has some."""

from pathlib import Path
from typing import get_args

import pytest

from berth.core.topologies.blocks.demand import Variant
from berth.core.topologies.blocks.model import Lack, Phase
from berth.core.topologies.blocks.text import (
    group_words,
    missing_blocks,
    phase_words,
)
from berth.core.topologies.layouts import blocks_words
from berth.core.topologies.registry import lack_words
from berth.schemas.refusal import BlockLack, Refusal

PAGE = (Path(__file__).parents[4] / "docs" / "logical-superpods.md").read_text("utf-8")


def words_on(lack: BlockLack) -> str:
    return lack_words(Refusal("no-blocks", blocks=lack))


@pytest.mark.parametrize("phase", get_args(Phase))
def test_every_phase_has_words_and_a_row_on_the_page(phase: str) -> None:
    for variant in get_args(Variant):
        found = phase_words(phase, variant)
        assert found.name
        assert found.why
        assert "{" not in found.why
        assert f"\n| {found.name} | " in PAGE


def test_the_queues_are_named_by_their_numbers() -> None:
    names = [phase_words(phase, "a3").name for phase in ("fits", "larger", "reserve", "pieces")]
    assert names == ["queue 1, fits", "queue 1, larger", "queue 2", "queue 3"]


def test_preferred_affinity_says_whether_fuller_or_emptier_superpods_go_first() -> None:
    assert phase_words("affinity", "a3").why.endswith("then fuller ones")
    assert phase_words("affinity", "a3", idlest=True).why.endswith("then emptier ones")


def test_an_inference_service_goes_by_racks_where_there_are_some() -> None:
    racks = {variant: phase_words("service", variant).why.startswith("racks") for variant in get_args(Variant)}
    assert racks == {"a3": False, "850": False, "rack": True}


def test_a_phase_of_a_later_release_is_told_by_its_name() -> None:
    assert phase_words("by-moon", "a3") == ("by-moon", "")


@pytest.mark.parametrize("rule", get_args(Lack))
def test_every_lack_has_words_of_its_own(rule: str) -> None:
    words = {words_on(BlockLack(other, 2, 1, 8, 16, 9)) for other in get_args(Lack)}
    assert len(words) == len(get_args(Lack))
    assert words_on(BlockLack(rule, 2, 1, 8, 16, 9)) in words


def test_blocks_are_missing_only_where_blocks_are_what_is_missing() -> None:
    told = {rule: missing_blocks(BlockLack(rule, 4, 1, 8, 32, 9)) for rule in get_args(Lack)}
    assert {rule for rule, blocks in told.items() if blocks} == {"blocks", "service", "affinity", "level"}
    assert told["blocks"] == 3
    assert missing_blocks(BlockLack("blocks", 1, 6, 8)) == 0


def test_groups_and_ids_of_blocks() -> None:
    assert [group_words(variant) for variant in ("a3", "levels")] == ["SuperPoD", "group"]
    assert [blocks_words(ids) for ids in ([], [3], [2, 0, 1], [5, 1, 5])] == ["", "block 3", "blocks 0-2", "blocks 1,5"]
