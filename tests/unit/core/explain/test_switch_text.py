"""Words on leaf switches: every rule has some, and the page for operators explains it."""

import re
from pathlib import Path
from typing import get_args

import pytest

from berth.core.text import pluralize
from berth.core.topologies.switches.occupancy.leaf_bits import CROSS, EXCLUSIVE, NOT_NORMAL, SHARED, UNHEALTHY
from berth.core.topologies.switches.planner import Policy, Rule
from berth.core.topologies.switches.text import bits_words, lack_words, rule_words, state_words
from berth.schemas.refusal import SwitchLack

PAGE = (Path(__file__).parents[4] / "docs" / "leaf-switches.md").read_text("utf-8")


@pytest.mark.parametrize("rule", get_args(Rule))
def test_every_rule_has_words_that_begin_with_its_name_and_a_row_on_the_page(rule: str) -> None:
    name = rule.replace("-", " ")
    for policy in get_args(Policy):
        assert rule_words(rule, policy).startswith(f"{name}: ")
    assert f"\n| {name} | " in PAGE


def test_best_fit_goes_by_the_state_of_leaves_only_under_policy_2() -> None:
    words = {policy: "exclusive" in rule_words("best-fit", policy) for policy in get_args(Policy)}
    assert words == {"1.0": False, "2.0": True, "single-layer": False}


def test_a_rule_of_a_later_release_is_told_by_its_name() -> None:
    assert rule_words("by-moon", "1.0") == "by-moon"


@pytest.mark.parametrize(
    ("state", "words"),
    [(0, "free"), (SHARED, "shared"), (EXCLUSIVE, "exclusive"), (SHARED | UNHEALTHY, "unhealthy shared")],
)
def test_states_have_words_that_the_page_explains(state: int, words: str) -> None:
    assert state_words(state) == words
    assert bits_words(state | NOT_NORMAL, "2.0") == words
    assert bits_words(state | NOT_NORMAL, "1.0") == ""
    assert f"\n| {words} | " in PAGE


@pytest.mark.parametrize(
    ("policy", "bits", "words"),
    [
        ("1.0", CROSS, "cross jobs, all common"),
        ("1.0", CROSS | NOT_NORMAL, "cross jobs"),
        ("2.0", CROSS | EXCLUSIVE, "exclusive, cross jobs"),
        ("single-layer", CROSS | NOT_NORMAL, "cross jobs"),
    ],
)
def test_cross_jobs_are_told_under_every_policy(policy: str, bits: int, words: str) -> None:
    assert bits_words(bits, policy) == words


@pytest.mark.parametrize("rule", ["one-leaf", "leaf-size", "logical-switches", "idle-and-shared", "any-leaf", "open"])
@pytest.mark.parametrize("places", [4, 2_000])
@pytest.mark.parametrize("policy", get_args(Policy))
def test_thousands_have_separators(policy: str, rule: str, places: int) -> None:
    lack = SwitchLack(
        policy, rule, 1_500, 1_400, "leaf-7", 1_300, places, 1_200, 0, 1_100, 1_050, 1_040, 1_030, 1_020, 1_010
    )
    assert re.search(r"\d{4}", lack_words(lack)) is None


def test_numbers_go_with_their_nouns() -> None:
    assert [pluralize(count, noun) for noun in ("node", "leaf", "usable node", "logical switch") for count in (0, 1, 2)] == [
        "0 nodes", "1 node", "2 nodes", "0 leaves", "1 leaf", "2 leaves", "0 usable nodes", "1 usable node",
        "2 usable nodes", "0 logical switches", "1 logical switch", "2 logical switches",
    ]  # fmt: skip
