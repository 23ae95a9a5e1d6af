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


async def told(cell: Cell, *, with_nodes: bool = False) -> Explanation:
    """Explanation of the last verdict on the job ``job``."""
    kept = await verdict_on(cell.user, "uid-job", hint_seq=0)
    assert kept is not None
    found = explain_now(cell.dispatcher.state, kept.verdict, ledger_seq=kept.sequence, with_nodes=with_nodes)
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


async def test_a_job_that_waits_knows_of_each_node_if_it_could_take_a_pod_now(cell: Cell) -> None:
    await cell.nodes([a_node("a"), a_node("b"), a_node("c"), a_node("d", ready=False)])
    on_b = {"accelerator-type": "module-910b-8", "kubernetes.io/hostname": "b"}
    await cell.submit(a_job("holds", chips=6, node_selector=on_b))
    await cell.turns(2)
    await cell.submit(a_job("job", chips=8, replicas=3))
    await cell.turns(2)
    found = await told(cell, with_nodes=True)
    assert [(one.reason, one.words, one.nodes) for one in found.fits] == [
        ("fits", "", ["a", "c"]),
        ("not_ready", "is not ready", ["d"]),
        ("shortage", "has fewer than 8 free chips", ["b"]),
    ]
    assert found.task == "worker"
    assert (await told(cell)).fits == []
