"""A volume that is reserved for a claim by name: as for kube-scheduler, the claim gets this one or a new one."""

import msgspec

from berth.schemas.usage_facts import ClaimName
from berth.schemas.volume_facts import VolumeSeen
from tests.unit.core.constraints.test_constraints import a_cell, a_task, placed
from tests.unit.core.constraints.test_volumes import LOCAL, PENDING, ZONES, local, needs, say

CLAIM = msgspec.structs.replace(PENDING, storage_class="local", access=["ReadWriteOnce"])


def kept(node: str, size: int = 10, *, claim_uid: str = "") -> VolumeSeen:
    claim = ClaimName("default", "data")
    return msgspec.structs.replace(local("kept", node, size), claim=claim, claim_uid=claim_uid)


def chosen(*volumes: VolumeSeen) -> str:
    cell = a_cell(ZONES)
    say(cell, LOCAL, CLAIM, *volumes)
    return " ".join(placed(cell, "job", a_task(needs())))


def test_its_access_modes_do_not_count_and_no_other_volume_is_given() -> None:
    free = msgspec.structs.replace(local("free", "a1"), access=["ReadWriteOnce"])
    assert chosen(free) == "a1"
    assert chosen(free, kept("b1", 20)) == "b1"
    assert chosen(free, kept("b1", claim_uid="c1")) == "b1"


def test_one_that_is_too_small_or_of_another_claim_does_not_count() -> None:
    free = msgspec.structs.replace(local("free", "a1"), access=["ReadWriteOnce"])
    assert chosen(free, kept("b1", 5)) == "a1"
    assert chosen(free, kept("b1", claim_uid="another")) == "a1"
