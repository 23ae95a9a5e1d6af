"""Claims in use or deleted, limits of volumes that became smaller, and jobs larger than the cluster."""

import msgspec

from berth.schemas.intake import Task
from berth.schemas.refusal import NodeReason
from berth.schemas.volume_facts import ClaimSeen, VolumeSeen
from tests.support.constraint_worlds import HOST, OneNode, OnePod, usage_of
from tests.unit.core.constraints.test_constraints import a_cell, a_task, job, nodes_of, placed, reasons
from tests.unit.core.constraints.test_volumes import LOCAL, PENDING, WAITS, ZONES, limited, needs, on, say


def test_a_claim_that_is_being_deleted_takes_no_further_pod_although_others_use_it() -> None:
    cell = a_cell({"a1": "a"})
    say(cell, WAITS, PENDING)
    assert placed(cell, "one", a_task(needs())) == ["a1"]
    say(cell, msgspec.structs.replace(PENDING, deleting=True))
    assert reasons(cell, "two", a_task(needs())) == {NodeReason.VOLUME: 1}
    say(cell, PENDING)
    assert nodes_of(*cell.decide()) == ["a1"]


def test_a_claim_that_takes_the_volume_that_another_was_thought_to_have_wakes_those_who_wait_for_that_one() -> None:
    cell = a_cell(ZONES)
    claims = [ClaimSeen("default", f"c{size}", f"c{size}", storage_class="local", size=size) for size in (5, 10)]
    say(cell, LOCAL, *claims, VolumeSeen("v1", affinity=on(host="a1"), storage_class="local", size=10))
    say(cell, VolumeSeen("v2", storage_class="local", size=20))
    there = [OnePod("a1", constraints=needs("c10"))]
    say(cell, usage_of("all", [OneNode(name) for name in ZONES], there))
    at_b1 = Task("worker", 1, 1, node_selector={"zone": "b"}, constraints=needs("c10"))
    assert NodeReason.VOLUME in reasons(cell, "two", at_b1)
    at_a1 = Task("worker", 1, 1, node_selector={HOST: "a1"}, constraints=needs("c5"))
    cell.ask(job("three", at_a1))
    assert [verdict.name for verdict in cell.decide() if verdict.placement] == ["three"]
    assert [verdict.name for verdict in cell.decide() if verdict.placement] == ["two"]


def test_a_pod_that_brings_no_new_volume_is_not_refused_for_a_limit_that_has_become_smaller() -> None:
    cell = a_cell({"a1": "a"})
    usage = usage_of("all", [OneNode("a1")], ())
    claims = [msgspec.structs.replace(PENDING, name=name) for name in ("c1", "c2")]
    say(cell, WAITS, *claims, limited(usage, 2))
    assert placed(cell, "one", a_task(needs("c1", "c2"))) == ["a1"]
    say(cell, limited(usage, 1))
    assert placed(cell, "two", a_task(needs("c1"))) == ["a1"]
    say(cell, msgspec.structs.replace(PENDING, name="c3"))
    assert reasons(cell, "three", a_task(needs("c1", "c3"))) == {NodeReason.VOLUME_LIMIT: 1}


def test_a_job_that_is_larger_than_the_cluster_is_refused_for_that_whatever_its_claims_are() -> None:
    cell = a_cell(ZONES, queue_policy="fifo")
    say(cell, WAITS)
    assert cell.refuse(job("large", a_task(needs(), replicas=4, chips=8))).code == "larger-than-cluster"
    assert cell.decide() == [], "it blocks no other, so nobody looks at it again"
    assert placed(cell, "small", a_task()) == ["a1"]
