"""A pod that is bound and deleted while the inventory lists: its chips are free again, and its job goes on."""

import pytest

from berth.runtime.bus.port import Stored
from berth.schemas.subjects import StreamName
from berth.services.inventory.pod_lookups import PodLookups
from tests.sim import run
from tests.sim.cell import CellSettings
from tests.sim.kube import finished
from tests.sim.run import live
from tests.sim.story import Event, Story
from tests.sim.users import JOBS, PODS
from tests.sim.world import World
from tests.support.kube_rules import Place, Tree

BLIND_S = 4.0


def a_job(replicas: int) -> Tree:
    """A Volcano job whose pods have four chips each and run for 20 s."""
    chips = {"huawei.com/Ascend910": "4"}
    container = {"name": "main", "image": "none:1", "resources": {"requests": chips, "limits": chips}}
    template = {
        "metadata": {"annotations": {"berth/run-for": "20s"}},
        "spec": {
            "schedulerName": "berth",
            "restartPolicy": "Never",
            "nodeSelector": {"accelerator-type": "module-910b-8"},
            "containers": [container],
        },
    }
    tasks = [{"name": "worker", "replicas": replicas, "template": template}]
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j0"},
        "spec": {"schedulerName": "berth", "minAvailable": replicas, "tasks": tasks},
    }


class BlindWorld(World):
    """The inventory lists from the first placement on, and a pod is deleted as soon as it is bound."""

    deleted = ""

    def _do_job(self, event: Event) -> None:
        self.cell.kube.put(JOBS, a_job(event.one))

    def _stored(self, name: str, stored: Stored) -> None:
        super()._stored(name, stored)
        inventory = self.cell.processes.get("inventory")
        is_first = name == self.user.subjects.stream(StreamName.LEDGER) and stored.sequence == 2
        if is_first and inventory is not None:
            for api in inventory.apis:
                api.expire_watches(blind_s=BLIND_S)

    def _changed(self, place: Place, old: Tree | None, new: Tree | None) -> None:
        super()._changed(place, old, new)
        if place.plural == "pods" and new is not None and new["spec"].get("nodeName") and not self.deleted:
            self.deleted = new["metadata"]["name"]
            self.later(0.0, self._remove, f"{PODS}/{self.deleted}")

    def _remove(self, path: str) -> None:
        finished(self.cell.kube.delete(path, grace_s=0))


@pytest.fixture
def worlds(monkeypatch: pytest.MonkeyPatch) -> list[BlindWorld]:
    """The worlds that are lived through, with a job of so many pods as the seed says."""
    made: list[BlindWorld] = []

    def world(*args: object) -> BlindWorld:
        made.append(BlindWorld(*args))  # type: ignore[arg-type]  # as run.live calls it
        return made[-1]

    def draw(seed: int) -> Story:
        return Story(0, CellSettings(dispatchers=1), (Event(3.0, "job", one=seed),))

    monkeypatch.setattr(run, "World", world)
    monkeypatch.setattr(run, "draw", draw)
    return made


@pytest.mark.parametrize("pods", [1, 3])
def test_its_chips_are_free_and_its_job_goes_on(worlds: list[BlindWorld], pods: int) -> None:
    lived = live(pods)
    assert (lived.kind, lived.details) == ("", "")
    (world,) = worlds
    assert world.deleted
    assert not world.observer.state.fold.holdings


def test_the_simulation_finds_an_inventory_that_does_not_ask_for_it(
    worlds: list[BlindWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PodLookups, "look", lambda *_: None)
    lived = live(3)
    assert lived.kind
    assert worlds[0].deleted
