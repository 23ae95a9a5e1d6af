"""What is counted, and when: as much of it follows from the facts and the ledger, whatever happened before."""

import msgspec
import pytest

from berth.core.scheduling.scheduler import Scheduler
from berth.core.state.cell import State
from berth.schemas.constraints import Expression
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import PodPhase, PodsSeen
from berth.schemas.intake import Task
from berth.schemas.message import Message
from berth.schemas.pod_constraints import LabelSelector, PodConstraints, SpreadTerm
from berth.schemas.refusal import NodeReason
from berth.schemas.status import SnapshotBody
from berth.schemas.usage_facts import NamespaceSeen
from berth.schemas.volume_facts import ClaimSeen, StorageSeen, UnboundSeen
from tests.support.cells import a_job
from tests.support.constraint_worlds import OneNode, OnePod, usage_of
from tests.support.core_cells import SUBJECTS, CoreCell
from tests.support.load import pods_of
from tests.unit.core.constraints.test_constraints import APART, a_cell, a_task, in_zone, job, placed

LACKS_APP = LabelSelector((Expression("app", "DoesNotExist"),))


def loaded(cell: CoreCell) -> Scheduler:
    """A scheduler that begins at a snapshot of a cell."""
    state = State(keeps=True)
    found = state.load(decode(cell.state.dump(cell.scheduler.dump()), SnapshotBody))
    assert found.waiting is not None
    scheduler = Scheduler(state)
    scheduler.load(found.waiting, found.changes)
    return scheduler


def both_dump(cell: CoreCell, subject: str, fact: Message) -> tuple[bytes, bytes]:
    """Snapshots of a cell, and of one that was loaded from it, after the same fact."""
    other = loaded(cell)
    applied = other.state.apply_fact(subject, cell.state.facts_seq + 1, encode(fact))
    other.note(applied.changes)
    cell.fact(subject, fact)
    return cell.state.dump(cell.scheduler.dump()), other.state.dump(other.dump())


def phases(cell: CoreCell, name: str, phase: PodPhase) -> PodsSeen:
    """All pods of a placed job are in a phase."""
    holding = next(one for one in cell.state.fold.holdings.values() if one.name == name)
    return pods_of(holding, phase)


def a_kept_cell(**zones: str) -> CoreCell:
    """A cell that can be dumped."""
    return CoreCell(
        [in_zone(name, zone) for name, zone in zones.items()],
        keeps=True,
    )


def test_pods_without_labels_that_are_being_deleted_count_no_longer_for_spread() -> None:
    cell = a_kept_cell(a1="a", b1="b")
    assert placed(cell, "one", a_task()) == ["a1"]
    even = PodConstraints(spread=(SpreadTerm("zone", 1, LACKS_APP, by_affinity=False),))
    refusal = cell.refuse(job("two", Task("worker", 1, 1, node_selector={"zone": "a"}, constraints=even)))
    assert NodeReason.SPREAD in {count.reason for count in refusal.counts}
    subject = SUBJECTS.fact_pod("default", "one")
    mine, its = both_dump(cell, subject, phases(cell, "one", PodPhase.TERMINATING))
    assert mine == its
    assert [verdict.name for verdict in cell.decide() if verdict.placement] == ["two"]
    cell.fact(subject, phases(cell, "one", PodPhase.RUNNING))
    less = PodConstraints(spread=(SpreadTerm("zone", 2, LACKS_APP, by_affinity=False),))
    refusal = cell.refuse(job("three", Task("worker", 1, 1, node_selector={"zone": "a"}, constraints=less)))
    assert NodeReason.SPREAD in {count.reason for count in refusal.counts}


def test_the_revision_rises_with_changes_and_with_nothing_else() -> None:
    cell = a_kept_cell(a1="a", b1="b")
    assert placed(cell, "one", a_task(APART, app="a")) == ["a1"]
    nodes = [OneNode("a1"), OneNode("b1")]
    pods = SUBJECTS.fact_pod("default", "one")
    facts: list[tuple[str, Message, Message]] = [
        (SUBJECTS.fact_usage("all"), usage_of("all", nodes, [OnePod("a1")]), usage_of("all", nodes, [])),
        (SUBJECTS.fact_namespace("team"), NamespaceSeen("team", {"a": "b"}), NamespaceSeen("team", {"a": "c"})),
        (SUBJECTS.fact_storage("fast"), StorageSeen("fast", waits=True), StorageSeen("fast")),
        (
            SUBJECTS.fact_claim("default", "c"),
            ClaimSeen("default", "c", "u"),
            ClaimSeen("default", "c", "u", gone=True),
        ),
        (
            SUBJECTS.fact_unbound("default", "c"),
            UnboundSeen("default", "c", "u", ["a1"]),
            UnboundSeen("default", "c", "u"),
        ),
        (pods, phases(cell, "one", PodPhase.TERMINATING), phases(cell, "one", PodPhase.RUNNING)),
    ]
    for subject, *both in facts:
        for fact in both:
            before = cell.state.constraints.revision
            cell.fact(subject, fact)
            after = cell.state.constraints.revision
            assert after > before, f"{fact} is news"
            cell.fact(subject, msgspec.structs.replace(fact, at_ms=5))
            assert cell.state.constraints.revision == after, f"{fact} is none"


@pytest.mark.parametrize("fact", [NamespaceSeen("default", {"team": "x"}), StorageSeen("fast", waits=True)])
def test_nothing_is_counted_any_more_once_no_job_has_constraints(fact: NamespaceSeen | StorageSeen) -> None:
    cell = a_kept_cell(a1="a")
    placed(cell, "one", a_task(APART, app="a"))
    cell.ask(job("one", a_task(app="a")))
    kind = SUBJECTS.fact_namespace if isinstance(fact, NamespaceSeen) else SUBJECTS.fact_storage
    mine, its = both_dump(cell, kind(fact.name), fact)
    assert mine == its
    assert cell.state.constraints.view.is_idle
    assert placed(cell, "two", a_task(app="a")) == ["a1"]


def test_nothing_is_counted_any_more_once_no_fact_tells_of_usage() -> None:
    cell = a_kept_cell(a1="a")
    say = [OneNode("a1", {"zone": "a"}, 0)]
    cell.fact(SUBJECTS.fact_usage("all"), usage_of("all", say, []))
    assert cell.refuse(job("one", a_task())).counts
    mine, its = both_dump(cell, SUBJECTS.fact_usage("all"), usage_of("all", [], []))
    assert mine == its
    assert cell.state.constraints.view.is_idle
    assert [verdict.name for verdict in cell.decide() if verdict.placement] == ["one"]


def test_a_reservation_is_found_behind_many_nodes_that_take_no_further_pod() -> None:
    names = [f"a{number}" for number in range(9)]
    cell = a_cell(dict.fromkeys(names, "a"), queue_policy="easy", reserve_chips=1)
    nodes = [OneNode(name, pods_max=110 if name == "a8" else 0) for name in names]
    cell.fact(SUBJECTS.fact_usage("all"), usage_of("all", nodes, []))
    cell.place(a_job("first", chips=8, run_ms=500))
    refusal = cell.refuse(a_job("second", chips=8))
    assert (refusal.code, refusal.start_ms) == ("no-room", cell.now_ms + 500)


def test_a_round_asks_at_once_for_enough_candidates_behind_nodes_that_take_no_further_pod() -> None:
    names = [f"a{number}" for number in range(9)]
    cell = a_cell(dict.fromkeys(names, "a"))
    nodes = [OneNode(name, pods_max=110 if name == "a8" else 0) for name in names]
    cell.fact(SUBJECTS.fact_usage("all"), usage_of("all", nodes, []))
    cell.ask(a_job("first"), msgspec.structs.replace(a_job("second"), tasks=[Task("worker", 1, 2)]))
    opening = cell.scheduler.open(cell.now_ms).opening
    assert opening is not None
    assert list(opening.asks.values()) == [9, 10]


RDMA = PodConstraints(resources=(("rdma/hca", 2),))


def test_a_node_that_one_domain_no_longer_tells_has_what_the_other_one_tells() -> None:
    cell = a_kept_cell(a1="a", b1="b")
    for domain, count in (("one", 1), ("two", 3)):
        nodes = [OneNode("a1", resources={"rdma/hca": count}), OneNode("b1")]
        cell.fact(SUBJECTS.fact_usage(domain), usage_of(domain, nodes, []))
    refusal = cell.refuse(job("one", a_task(RDMA)))
    assert [(count.reason, count.nodes) for count in refusal.counts] == [(NodeReason.RESOURCE, 2)]
    cell.fact(SUBJECTS.fact_usage("one"), usage_of("one", [OneNode("b1")], []))
    assert [verdict.name for verdict in cell.decide() if verdict.placement] == ["one"]


def test_a_resource_that_one_domain_no_longer_limits_is_what_the_other_one_tells() -> None:
    cell = a_kept_cell(a1="a")
    for domain, count in (("one", 1), ("two", 3)):
        cell.fact(SUBJECTS.fact_usage(domain), usage_of(domain, [OneNode("a1", resources={"rdma/hca": count})], []))
    cell.refuse(job("one", a_task(RDMA)))
    cell.fact(SUBJECTS.fact_usage("one"), usage_of("one", [OneNode("a1")], []))
    assert [verdict.name for verdict in cell.decide() if verdict.placement] == ["one"]


def test_once_nobody_tells_what_nodes_have_resources_are_asked_for_no_longer() -> None:
    cell = a_kept_cell(a1="a", b1="b")
    cell.fact(SUBJECTS.fact_usage("all"), usage_of("all", [OneNode("a1")], []))
    cell.ask(job("one", Task("worker", 1, 1, node_selector={"zone": "b"}, constraints=RDMA)))
    (refused,) = cell.decide()
    assert refused.refusal is not None
    cell.fact(SUBJECTS.fact_usage("all"), usage_of("all", [], []))
    assert [verdict.name for verdict in cell.decide() if verdict.placement] == ["one"]
