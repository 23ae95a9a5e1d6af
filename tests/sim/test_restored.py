"""Pods that were bound after the backup: a restored ledger gives no place before it has adopted all of them."""

from pathlib import Path
from typing import Final

import msgspec
import pytest

from berth.services.dispatcher.ledger_guard import LedgerGuard
from berth.services.inventory.nodes.collection import Nodes
from berth.services.inventory.nodes.uses import Use
from berth.services.inventory.pods.collection import Pods
from berth.services.inventory.pods.foreign import QueueOf
from berth.services.inventory.usage.collection import Usage
from tests.sim.run import Lived, live
from tests.sim.story import Story

STORIES: Final = Path(__file__).with_name("stories")
WITH_PODS = "restored-with-pods", 129
"""The ledger is deleted and restored from a backup that does not know pods that run."""
SHORT = (3, 4, 5, 8, 9, 12, 13, 24, 28, 32, 37)
"""Events of it after which nothing happens for longer than pods wait for the verdict on their job."""
WITHOUT_CHIPS = "restored-with-plain-pods", 1325
"""The power fails and the ledger is restored; a pod without chips that it does not know runs all the time."""


def lived(named: tuple[str, int], events: tuple[int, ...] | None = None) -> Lived:
    """How a stored story goes, whose chance is that of a seed."""
    name, seed = named
    story = msgspec.json.decode((STORIES / f"{name}.json").read_bytes(), type=Story)
    return live(seed, events, change=lambda _: story)


@pytest.mark.parametrize("events", [SHORT, None])
def test_they_own_their_chips_when_places_are_given_and_when_the_cell_has_come_to_rest(
    events: tuple[int, ...] | None,
) -> None:
    found = lived(WITH_PODS, events)
    assert (found.kind, found.details) == ("", "")
    assert found.count["check: restores"]
    assert events or found.count["check: live pods when places are given"]


def test_a_dispatcher_that_does_not_wait_for_the_inventory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_: LedgerGuard) -> str:
        return ""

    monkeypatch.setattr(LedgerGuard, "obstacle", nothing)
    assert lived(WITH_PODS).kind == "places are given in a restored ledger before all pods are known"


def test_an_inventory_that_does_not_wait_for_pods_of_unknown_jobs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unseen(dict[str, int]):
        def __bool__(self) -> bool:
            return False

    made = Pods.__init__

    def init(self: Pods, nodes: Nodes, usage: Usage, queues: QueueOf, **times: int) -> None:
        made(self, nodes, usage, queues, **times)
        self.awaiting_job = Unseen()

    monkeypatch.setattr(Pods, "__init__", init)
    assert lived(WITH_PODS).kind == "places are given while a live pod does not own its chips"


def test_a_pod_without_chips_owns_nothing_and_the_fact_about_its_node_leaves_its_cpu_and_memory_out() -> None:
    found = lived(WITHOUT_CHIPS)
    assert (found.kind, found.details) == ("", "")
    assert found.count["check: pods without chips that the ledger does not know"]


def test_an_inventory_that_leaves_nothing_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    use = Nodes.use

    def nothing(self: Nodes, before: Use | None, after: Use | None) -> None:
        use(self, before and before._replace(counted=True), after and after._replace(counted=True))

    monkeypatch.setattr(Nodes, "use", nothing)
    assert lived(WITHOUT_CHIPS).kind == "places are given while nothing counts a live pod without chips"
