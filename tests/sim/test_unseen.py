"""A pod that is bound and deleted while the inventory lists: its chips are free again, and the others run on."""

import pytest

from berth.runtime.bus.port import Stored
from berth.schemas.subjects import StreamName
from berth.services.inventory.watching.pod_lookups import PodLookups
from tests.sim.kube import finished
from tests.sim.run import live
from tests.sim.staged import staged
from tests.sim.story import Event
from tests.sim.users import PODS
from tests.sim.world import World
from tests.support.kube_rules import Place, Tree

BLIND_S = 4.0


def a_pod(name: str) -> Tree:
    """A pod of a PodGroup; it has a node of its own and runs for 20 s. Nobody makes it anew."""
    chips = {"huawei.com/Ascend910": "8"}
    container = {"name": "main", "image": "none:1", "resources": {"requests": chips, "limits": chips}}
    return {
        "metadata": {
            "name": name,
            "annotations": {"berth/run-for": "20s", "scheduling.k8s.io/group-name": "group"},
        },
        "spec": {
            "schedulerName": "berth",
            "restartPolicy": "Never",
            "nodeSelector": {"accelerator-type": "module-910b-8"},
            "containers": [container],
        },
    }


class BlindWorld(World):
    """The inventory lists from the first placement on, and a pod is deleted when all pods are bound."""

    deleted = ""
    bound = 0

    def _do_pod(self, event: Event) -> None:
        self._group("group", event.one, event)
        for number in range(event.one):
            finished(self.cell.kube.create(PODS, a_pod(f"p{number}")))

    def _stored(self, name: str, stored: Stored) -> None:
        super()._stored(name, stored)
        inventory = self.cell.processes.get("inventory")
        is_first = name == self.user.subjects.stream(StreamName.LEDGER) and stored.sequence == 2
        if is_first and inventory is not None:
            for api in inventory.apis:
                api.expire_watches(blind_s=BLIND_S)

    def _changed(self, place: Place, old: Tree | None, new: Tree | None) -> None:
        super()._changed(place, old, new)
        if place.plural == "pods" and old is not None and new is not None:
            self.bound += not old["spec"].get("nodeName") and bool(new["spec"].get("nodeName"))
        if self.bound == self.story.events[0].one and not self.deleted:
            self.deleted = place.name
            self.later(0.1, self._remove, f"{PODS}/{self.deleted}")

    def _remove(self, path: str) -> None:
        finished(self.cell.kube.delete(path, grace_s=0))


@pytest.fixture
def worlds(monkeypatch: pytest.MonkeyPatch) -> list[BlindWorld]:
    """The worlds that are lived through, with as many pods as the seed says."""
    return staged(monkeypatch, BlindWorld, lambda seed: (0, Event(3.0, "pod", one=seed)))


@pytest.mark.parametrize("pods", [1, 3])
def test_its_chips_are_free_and_the_others_run_to_their_end(worlds: list[BlindWorld], pods: int) -> None:
    lived = live(pods)
    assert (lived.kind, lived.details) == ("", "")
    (world,) = worlds
    assert world.deleted
    assert not world.observer.state.fold.holdings


def test_the_simulation_finds_an_inventory_that_does_not_ask_for_it(
    worlds: list[BlindWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PodLookups, "note_outcome", lambda *_: None)
    lived = live(3)
    assert worlds[0].deleted
    assert lived.kind == "the cell does not come to rest"
