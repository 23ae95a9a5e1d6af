"""Annotations of leaf states: written as two numbers, read back without regard to what makes no sense."""

import pytest

from berth.core.topologies.switches.annotations import switch_annotations
from berth.formats.ascend.switch_annotations import state_of


@pytest.mark.parametrize("state", [0, 1, 2, 4, 5, 6])
def test_what_is_written_is_read_back(state: int) -> None:
    assert state_of(switch_annotations(state, "leaf-a")) == state


def test_only_a_shared_leaf_is_named() -> None:
    assert switch_annotations(5, "leaf-a") == {"isSharedTor": "1", "isHealthy": "1", "sharedTorIp": "leaf-a"}
    assert switch_annotations(2, "leaf-a") == {"isSharedTor": "2", "isHealthy": "0"}
    assert switch_annotations(0, "leaf-a") == {"isSharedTor": "0", "isHealthy": "0"}


@pytest.mark.parametrize("text", ["", "x", "-1", "3", "1.0", " 1", "9" * 30])
def test_what_is_no_state_counts_as_free(text: str) -> None:
    assert state_of({"isSharedTor": text, "isHealthy": "0"}) == 0


def test_only_one_is_unhealthy() -> None:
    assert state_of({"isHealthy": "1"}) == 4
    assert state_of({"isSharedTor": "2", "isHealthy": "2"}) == 2
