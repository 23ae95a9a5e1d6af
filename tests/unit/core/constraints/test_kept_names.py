"""Keys and labels that jobs name, one after another without end: what is kept of them is bounded."""

from berth.core.constraints import topology
from berth.core.constraints.topology import Topology
from berth.core.constraints.usage_index import TermIndex
from berth.schemas.constraints import Expression
from berth.schemas.pod_constraints import LabelSelector, PodTerm
from tests.unit.core.constraints.test_constraints import a_cell


def test_values_of_few_topology_keys_are_kept() -> None:
    cell = a_cell({"a1": "a", "b1": "b"})
    found = Topology(cell.state.table)
    before = found.values("zone").tolist()
    for number in range(2 * topology._KEYS_MAX):
        assert found.values(f"key-{number}").tolist() == [-1, -1]
    assert len(found._values) <= topology._KEYS_MAX
    assert found.values("zone").tolist() == before == [0, 1]


def test_terms_that_are_gone_leave_nothing() -> None:
    found = TermIndex()
    selectors = [
        LabelSelector((Expression("app", "In", ("a", "b", "a")),)),
        LabelSelector((Expression("app", "Exists", ()),)),
    ]
    terms = [PodTerm("zone", selector, namespaces=("team",)) for selector in selectors]
    for sign in (1, -1):
        for term in terms:
            assert found.add(term, sign)
    assert (found.counts, found._by_pair) == ({}, {})
