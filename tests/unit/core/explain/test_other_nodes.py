"""Explanations: nodes that were not chosen, or that lack least."""

from collections.abc import AsyncIterator

import pytest

from berth.core.explain.explainer import explain_now
from berth.core.explain.model import Explanation
from berth.runtime.history import verdict_on
from tests.support.cells import Cell, a_job, a_node


@pytest.fixture
async def cell() -> AsyncIterator[Cell]:
    opened = await Cell().open()
    yield opened
    await opened.close()


async def told(cell: Cell) -> Explanation:
    """Explanation of the last verdict on the job ``job``."""
    kept = await verdict_on(cell.user, "uid-job", hint_seq=0)
    assert kept is not None
    found = explain_now(cell.dispatcher.state, kept.verdict, ledger_seq=kept.sequence)
    assert found is not None
    return found


async def test_a_choice_names_five_other_nodes_at_most(cell: Cell) -> None:
    await cell.nodes([a_node(name) for name in "abcdefgh"])
    await cell.submit(a_job("job", chips=2))
    await cell.turns(2)
    (choice,) = (await told(cell)).choices
    assert [other.node for other in choice.candidates] == ["b", "c", "d", "e", "f"]


async def test_a_node_that_must_change_less_is_nearer_than_one_that_must_change_more(cell: Cell) -> None:
    product = "310p-duo"
    await cell.nodes([a_node("a", product, labels={}), *(a_node(name, product, cordoned=True) for name in "bc")])
    await cell.submit(a_job("job", product=product))
    await cell.turns(2)
    found = await told(cell)
    assert [(near.node, near.reason) for near in found.nearest] == [
        ("b", "cordoned"),
        ("c", "cordoned"),
        ("a", "node_label"),
    ]
