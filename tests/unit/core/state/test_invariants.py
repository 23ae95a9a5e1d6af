"""What the check of the state finds."""

import pytest

from berth.core.errors import InvariantError
from berth.core.state.invariants import check
from tests.support.gang_lifecycle import Life


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("used", "held chips are not those that the ledger gives"),
        ("releasing", "used and releasing at once"),
        ("free", "free is not healthy minus used"),
        ("cpu_free", "cpu does not add up"),
        ("memory_free", "memory does not add up"),
    ],
)
def test_a_node_that_says_otherwise_than_the_ledger_is_found(column: str, words: str) -> None:
    state = Life().state
    check(state)
    getattr(state.table, column)[state.table.row("b")] ^= 1
    with pytest.raises(InvariantError, match=f"node b: .*{words}"):
        check(state)
