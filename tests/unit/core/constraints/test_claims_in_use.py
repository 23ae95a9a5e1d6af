"""Claims that pods use already: one that is being deleted, and volumes above a limit that has become smaller."""

import msgspec

from berth.schemas.refusal import NodeReason
from tests.support.constraint_worlds import OneNode, usage_of
from tests.unit.core.constraints.test_constraints import a_cell, a_task, nodes_of, placed, reasons
from tests.unit.core.constraints.test_volumes import PENDING, WAITS, limited, needs, say


def test_a_claim_that_is_being_deleted_takes_no_further_pod_although_others_use_it() -> None:
    cell = a_cell({"a1": "a"})
    say(cell, WAITS, PENDING)
    assert placed(cell, "one", a_task(needs())) == ["a1"]
    say(cell, msgspec.structs.replace(PENDING, deleting=True))
    assert reasons(cell, "two", a_task(needs())) == {NodeReason.VOLUME: 1}
    say(cell, PENDING)
    assert nodes_of(*cell.decide()) == ["a1"]


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
