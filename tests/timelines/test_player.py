"""What the player of timelines finds, on timelines made for it."""

from typing import Any

import pytest

from tests.sim.kube import finished
from tests.timelines.player import Player
from tests.timelines.recording import Header, Line, Timeline, Tree

CHIPS = "huawei.com/Ascend910"
NAME = "made"


def pod(name: str, *, run_for: str = "forever", **spec: Any) -> Tree:  # noqa: ANN401 - any field of a pod's spec
    resources = {"limits": {CHIPS: "8"}, "requests": {"cpu": "1", "memory": "1Gi", CHIPS: "8"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAME, "uid": "ignored", "annotations": {"berth/run-for": run_for}},
        "spec": {
            "schedulerName": "volcano",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"accelerator-type": "module-910b-8"},
            "containers": [{"name": "main", "image": "none:1", "resources": resources}],
            **spec,
        },
        "status": {"phase": "Pending"},
    }


def line(t: int, actor: str, via: str, verb: str, name: str = "one", **fields: Any) -> Line:  # noqa: ANN401 - as above
    """A line about a pod; each name has a uid of its own."""
    return Line(t, "", actor, via, verb, "Pod", f"{NAME}/{name}", f"uid-{len(name):03}", **fields)


MADE = line(100, "user", "create", "added", object=pod("one"))
BOUND = line(300, "scheduler/vc-scheduler", "create binding", "modified", patch={"spec": {"nodeName": "b-3"}})
RUNS = line(900, "kubelet", "patch status", "modified", patch={"status": {"phase": "Running"}})
DELETED = (
    line(4000, "user", "delete", "modified", patch={"metadata": {"deletionTimestamp": "2026-11-28T00:00:00Z"}}),
    line(4600, "kubelet", "delete", "deleted"),
)
LATER = Line(3500, mark="user: looks")


def played(*lines: Line, speed: float = 1.0, seed: int = 0) -> list[str]:
    return Player(Timeline(NAME, Header(1, NAME, "made for a test"), list(lines)), speed=speed, seed=seed).play()


@pytest.mark.parametrize(("speed", "seed"), [(1.0, 0), (5.0, 1), (0.2, 2)])
def test_a_cell_that_does_as_recorded_differs_in_nothing(speed: float, seed: int) -> None:
    assert played(MADE, BOUND, RUNS, LATER, *DELETED, speed=speed, seed=seed) == []


def test_a_pod_that_waits_in_the_recording_must_wait() -> None:
    assert played(MADE, LATER, *DELETED) == ["before user: looks: pods of one: 1 Running instead of 1 waiting"]


def test_a_pod_that_is_bound_in_the_recording_must_be_bound() -> None:
    nowhere = line(100, "user", "create", "added", object=pod("one", nodeSelector={"accelerator-type": "none"}))
    assert played(nowhere, BOUND, RUNS, LATER, *DELETED) == [
        "Pod one is not bound",
        "Pod one is not Running",
        "before user: looks: pods of one: 1 waiting instead of 1 Running",
    ]


def test_pods_that_are_left_are_told() -> None:
    found = played(MADE, BOUND, RUNS)
    assert [one.partition(":")[0] for one in found] == ["at the end", "at the end"]
    assert found[1].endswith(" is running")


def test_what_follows_a_binding_waits_for_the_cells_own() -> None:
    """The second pod is made as an answer to the first one's end, which comes after 3 s, not after the recorded 1 s."""
    first = line(100, "user", "create", "added", object=pod("one", run_for="3s"))
    ended = line(1300, "kubelet", "patch status", "modified", patch={"status": {"phase": "Succeeded"}})
    second = line(1400, "user", "create", "added", "four", object=pod("four", nodeSelector={"none": "none"}))
    gone = [
        line(1500, "user", "delete", verb, name, patch={"metadata": {}})
        for name in ("one", "four")
        for verb in ("modified", "deleted")
    ]
    player = Player(
        Timeline(NAME, Header(1, NAME, "made for a test"), [first, BOUND, RUNS, ended, second, *gone]),
        speed=5.0,
        seed=0,
    )
    assert player.play() == []
    assert player._scene._loop.now_s > 11.0, "8 s until the services work, and 3 s"


def test_a_pod_that_somebody_else_deletes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    player = Player(Timeline(NAME, Header(1, NAME, "made for a test"), [MADE, BOUND, RUNS]), speed=1.0, seed=0)

    async def delete(_: str) -> None:
        finished(player._scene.kube.delete(f"/api/v1/namespaces/{NAME}/pods/one", grace_s=1))

    monkeypatch.setattr(player, "_compare", delete)
    assert player.play() == ["Pod one is deleted, and nobody of the recording does it"]
