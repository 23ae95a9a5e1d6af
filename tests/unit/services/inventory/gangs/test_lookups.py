"""Results of lookups: they are kept as long as somebody uses them."""

from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.port import GangKey, OwnerKey
from berth.services.inventory.gangs.lookups import Lookups

OWNER = OwnerKey("ReplicaSet", "ns", "web")
GANG, OTHER = GangKey("replicaset", "ns", "web", "u"), GangKey("podgroup", "ns", "pg")


def test_a_result_that_nobody_uses_is_forgotten() -> None:
    """Else each owner that ever was would be kept, and a later one of its name would be taken for it."""
    lookups = Lookups(again_ms=1_000)
    for gang in (GANG, OTHER):
        lookups.use(gang, OWNER)
    assert lookups.ask(GANG) == OWNER
    lookups.answer(OWNER, OwnerFacts(kind="ReplicaSet", replicas=3))
    lookups.use(GANG, None)
    assert lookups.lookup(OTHER, 0).is_known, "another gang uses it"
    lookups.use(OTHER, None)
    lookups.use(GANG, OWNER)
    assert not lookups.lookup(GANG, 0).is_known
