"""What is told of jobs and pods at work is compared with what is so, and what differs is found."""

from collections.abc import Mapping
from random import Random

import pytest

from berth.core.requests.job_validation import SHARE_HBM
from berth.formats.ascend.bind_annotations import annotations
from berth.formats.ascend.pod_annotations import ATTEMPT, JOB_UID, RANK
from berth.schemas.envelope import decode
from berth.schemas.status import JobStatus
from berth.services.binder import node_turns
from berth.services.dispatcher import views
from berth.services.inventory.podgroups import collection
from berth.services.inventory.podgroups.status import status_patch
from tests.sim.kube import finished
from tests.sim.manifests import pod
from tests.sim.run import live
from tests.sim.staged import staged
from tests.sim.steady import AT_WORK, STEADY, Truth, is_phase_right
from tests.sim.story import Event
from tests.sim.users import PODS
from tests.sim.world import World
from tests.sim.worlds import CLUSTERS
from tests.support.kube_rules import Tree

AT_S = 58.0
SHARED = next(number for number, cluster in enumerate(CLUSTERS) if cluster.name == "soft share beside A2")


class GroupWorld(World):
    """A PodGroup of pods that still run when everything is repaired."""

    def _do_pod(self, event: Event) -> None:
        self._group("group", event.one, event)
        ask = self.story.cluster.asks[event.two]
        for number in range(event.one):
            body: Tree = pod(f"p{number}", ask, Random(0), chips=ask.sizes[0])  # noqa: S311  # a simulation
            notes = {"berth/run-for": "40s", "scheduling.k8s.io/group-name": "group"}
            body["metadata"]["annotations"] |= notes
            finished(self.cell.kube.create(PODS, body))


@pytest.fixture
def worlds(monkeypatch: pytest.MonkeyPatch) -> list[GroupWorld]:
    """The worlds that are lived through; the seed is the number of the cluster."""
    return staged(monkeypatch, GroupWorld, lambda seed: (seed, Event(AT_S, "pod", one=2)))


@pytest.mark.parametrize("kind", [0, SHARED])
def test_jobs_at_work_are_compared(worlds: list[GroupWorld], kind: int) -> None:
    lived = live(kind, [0])
    assert (lived.kind, lived.details) == ("", "")
    assert [worlds[0].observer.count[name] > 0 for name in STEADY] == [True] * len(STEADY)
    assert (worlds[0].observer.count["bindings of shared chips"] == 2) == (kind == SHARED)


@pytest.mark.usefixtures("worlds")
def test_a_podgroup_that_never_runs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "phase_after", lambda group, _: group.status.phase)
    assert live(0, [0]).kind == "a PodGroup at work has a wrong phase"


@pytest.mark.usefixtures("worlds")
def test_a_podgroup_that_counts_no_pods_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def phase_alone(*args: object) -> dict[str, object]:
        found = status_patch(*args)  # type: ignore[arg-type]  # as the product calls it
        return {key: value for key, value in found.items() if key != "running"}

    monkeypatch.setattr(collection, "status_patch", phase_alone)
    assert live(0, [0]).kind == "a PodGroup counts other pods than there are"


@pytest.mark.usefixtures("worlds")
def test_a_status_that_is_not_stored_while_a_job_runs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    submit = views.Views._submit

    async def not_at_work(self: views.Views, batch: list[tuple[tuple[str, str], bytes]]) -> None:
        kept = [(key, data) for key, data in batch if decode(data, JobStatus).phase not in AT_WORK]
        if kept:
            await submit(self, kept)

    monkeypatch.setattr(views.Views, "_submit", not_at_work)
    assert live(0, [0]).kind in {"a job at work has no status", "the status of a job at work is another"}


@pytest.mark.usefixtures("worlds")
@pytest.mark.parametrize(
    ("kind", "lost", "wrong"),
    [
        (0, (JOB_UID, ATTEMPT, RANK), "a pod is bound and does not say which place it has"),
        (0, (RANK,), "a pod is bound and does not say which place it has"),
        (SHARED, (SHARE_HBM,), "a pod is bound with another share than the ledger says"),
    ],
)
def test_a_binding_that_lacks_annotations_is_found(
    monkeypatch: pytest.MonkeyPatch, kind: int, lost: tuple[str, ...], wrong: str
) -> None:
    def fewer(*args: object) -> Mapping[str, str]:
        found = annotations(*args)  # type: ignore[arg-type]  # as the product calls it
        return {key: value for key, value in found.items() if key not in lost}

    monkeypatch.setattr(node_turns, "annotations", fewer)
    assert live(kind, [0]).kind == wrong


@pytest.mark.parametrize(
    ("phase", "truth", "is_right"),
    [
        ("Running", Truth("u", 2, total=2, running=2, scheduled=2), True),
        ("Inqueue", Truth("u", 2, total=2, running=2, scheduled=2), False),
        ("Unknown", Truth("u", 2, total=2, running=1, failed=1, scheduled=1), True),
        ("Running", Truth("u", 2, total=2, running=1, failed=1, scheduled=1), False),
        ("Completed", Truth("u", 2, total=2, succeeded=2, scheduled=2), True),
        ("Running", Truth("u", 2, total=2, succeeded=2, scheduled=2), False),
        ("Running", Truth("u", 3, total=2, succeeded=2, scheduled=2), False),
        ("Completed", Truth("u", 2, total=2, succeeded=1, failed=1, scheduled=1), True),
        ("Running", Truth("u", 1, total=2, succeeded=1, failed=1, scheduled=1), False),
    ],
)
def test_the_phase_of_a_podgroup_follows_from_its_pods(phase: str, truth: Truth, *, is_right: bool) -> None:
    assert is_phase_right(phase, truth) is is_right
