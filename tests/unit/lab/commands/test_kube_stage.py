"""The stage of the demo on an API server in memory, the forms of its jobs, and the story of jobs of others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from berth.cli.app import call
from berth.cli.output import CommandError
from berth.core.state.ledger import Folded, GangRecord
from berth.lab.commands.kube_stage import ASCEND, BATCH, NAMESPACE, POD, VOLCANO, KubeStage, form_of
from berth.lab.commands.stage import jobs_of
from berth.lab.commands.story import Story
from berth.runtime.errors import AmbiguousError, TransientError
from berth.schemas.intake import JobRequest, Task
from berth.schemas.refusal import Refusal
from tests.support.clock import ManualClock
from tests.support.fake_kube import FakeKube
from tests.support.waiting import until

GROUPS = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{NAMESPACE}/podgroups"
JOBS = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{NAMESPACE}/jobs"


class QuickClock(ManualClock):
    """Each look at it takes five seconds."""

    def monotonic_s(self) -> float:
        self.advance(5.0)
        return super().monotonic_s()


def request(name: str = "j", *, pods: int = 2, priority: int = 0, resource: str = "huawei.com/Ascend910") -> JobRequest:
    return JobRequest("default", name, "", resource, [Task("worker", pods, 4)], priority=priority)


def group(name: str, job: str, phase: str, message: str = "") -> dict[str, object]:
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": job, "uid": "u", "controller": True}
    conditions = [{"type": "Unschedulable", "status": "True", "message": message}] if message else []
    metadata = {"namespace": NAMESPACE, "name": name, "ownerReferences": [owner]}
    return {"metadata": metadata, "status": {"phase": phase, "conditions": conditions}}


def record(name: str, uid: str, phase: str) -> Folded:
    refusal = Refusal("larger-than-cluster", "tasks", "9", "less") if phase == "waiting" else None
    return Folded(gangs=[GangRecord(NAMESPACE, name, uid, phase=phase, refusal=refusal)])


@asynccontextmanager
async def watching(stage: KubeStage) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(stage.watch())
        yield
        task.cancel()


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube(clock=ManualClock())


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
def stage(kube: FakeKube, story: Story) -> KubeStage:
    return KubeStage(kube, ManualClock(), story)


def test_the_jobs_of_the_demo_have_all_forms() -> None:
    forms = {job.name: form_of(job) for job in jobs_of("demo-jobs.yaml")}
    names = ("ring-1", "a3-2x8", "serve", "resnet", "a2-40x8", "infer-1", "infer-4x2", "vnpu")
    assert [forms[name] for name in names] == [VOLCANO, ASCEND, BATCH, VOLCANO, BATCH, POD, VOLCANO, POD]


async def test_jobs_become_objects_with_the_classes_that_they_need(
    kube: FakeKube, stage: KubeStage, story: Story
) -> None:
    await stage.open()
    await stage.send([request("a", priority=100), request("b", priority=100), request("p", pods=1)])
    assert [found["metadata"]["name"] for found in kube.objects(JOBS)] == ["a", "b", "p"]
    (found,) = kube.objects("/apis/scheduling.k8s.io/v1/priorityclasses")
    assert (found["metadata"]["name"], found["value"]) == ("berth-100", 100)
    assert kube.object("/api/v1/namespaces/berth-demo")
    assert [(tale.name, tale.job, tale.fate) for tale in story.tales] == [
        ("a", "vcjob.a", "sent"),
        ("b", "vcjob.b", "sent"),
        ("p", "vcjob.p", "sent"),
    ]


async def test_a_name_in_use_is_turned_away_in_the_words_of_the_server(stage: KubeStage, story: Story) -> None:
    await stage.send([request()])
    await stage.send([request(pods=1)])
    assert [(tale.asks, tale.fate) for tale in story.tales] == [("2 x 4", "sent"), ("1 x 4", "rejected")]
    assert "already exists" in story.tales[1].reason
    assert story.tales[1].is_well


async def test_a_server_that_does_not_answer_is_asked_again(kube: FakeKube, stage: KubeStage, story: Story) -> None:
    kube.fail(TransientError("busy"), method="POST", part="/jobs", times=1)
    kube.fail(AmbiguousError("broken off"), method="POST", part="/jobs", times=1, landed=True)
    await stage.send([request()])
    assert [tale.fate for tale in story.tales] == ["sent"]
    assert len(kube.objects(JOBS)) == 1


async def test_a_pending_group_tells_why_its_job_waits(kube: FakeKube, stage: KubeStage, story: Story) -> None:
    await stage.send([request()])
    async with watching(stage):
        kube.put(GROUPS, group("j-u", "j", "Pending"))
        kube.put(GROUPS, group("j-u", "j", "Pending", "asks for 8 chips, 4 are free"))
        await until(lambda: story.fate_of("j") == "waiting", deadline_s=5, what="the reason")
        assert story.tales[0].waited_for == "asks for 8 chips, 4 are free"
        story.take_record(record("vcjob.j", "u1", "placed"))
        kube.put(GROUPS, group("j-u", "j", "Pending", "another"))
        await until(lambda: len(kube.objects(GROUPS)) == 1, deadline_s=5, what="the group")
    assert (story.tales[0].uid, story.tales[0].reason) == ("u1", "asks for 8 chips, 4 are free")


async def test_a_job_is_cancelled_by_deleting_it_and_is_over_when_its_group_is_gone(
    kube: FakeKube, stage: KubeStage, story: Story
) -> None:
    await stage.send([request()])
    kube.put(GROUPS, group("j-u", "j", "Pending", "a reason"))
    async with watching(stage):
        await until(lambda: story.fate_of("j") == "waiting", deadline_s=5, what="the group")
        await stage.cancel("j")
        assert kube.objects(JOBS) == []
        assert story.fate_of("j") == "waiting"
        kube.confirm(f"{GROUPS}/j-u")
        await until(lambda: story.fate_of("j") == "cancelled", deadline_s=5, what="the end of the group")
    await stage.cancel("j")
    assert [call.path for call in kube.calls if call.method == "DELETE"] == [f"{JOBS}/j"]


async def test_a_job_is_cancelled_before_anybody_has_seen_it(stage: KubeStage, story: Story) -> None:
    await stage.send([request()])
    await stage.cancel("j")
    assert story.fate_of("j") == "cancelled"


async def test_a_name_is_free_again_once_its_job_is_deleted(kube: FakeKube, stage: KubeStage, story: Story) -> None:
    await stage.send([request()])
    story.take_record(record("vcjob.j", "u1", "succeeded"))
    await stage.send_again([request(pods=1)])
    story.take_record(record("vcjob.j", "u2", "waiting"))
    assert [(tale.uid, tale.asks, tale.fate) for tale in story.tales] == [
        ("u1", "2 x 4", "succeeded"),
        ("u2", "1 x 4", "too large"),
    ]
    assert len(kube.objects(JOBS)) == 1


async def test_the_sight_counts_what_is_left(kube: FakeKube, stage: KubeStage) -> None:
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    kube.put(pods, {"metadata": {"namespace": NAMESPACE, "name": "p"}, "spec": {"nodeName": "n"}})
    kube.put(pods, {"metadata": {"namespace": NAMESPACE, "name": "q"}, "spec": {}})
    maps = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    for name in ("job-summary-j", "other"):
        kube.put(maps, {"metadata": {"namespace": NAMESPACE, "name": name}})
    for name, phase in (("a", "Completed"), ("b", "Inqueue"), ("c", "Completed")):
        kube.put(GROUPS, group(name, name, phase))
    sight = await stage.sight()
    assert sight is not None
    assert (sight.pods_bound, sight.pods_waiting, sight.summaries) == (1, 1, 1)
    assert sight.podgroups == {"Completed": 2, "Inqueue": 1}


async def test_what_stays_after_it_was_deleted_is_told(kube: FakeKube, story: Story) -> None:
    stage = KubeStage(kube, QuickClock(), story)
    await stage.send([request("p", pods=1, resource="huawei.com/Ascend310P")])
    pod = kube.object(f"/api/v1/namespaces/{NAMESPACE}/pods/p")
    pod["spec"]["nodeName"] = "n"
    kube.put(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
    with pytest.raises(CommandError, match="is still there 20 s after"):
        await stage.send_again([request("p", pods=1, resource="huawei.com/Ascend310P")])


def test_a_story_knows_a_job_of_another_uid_by_its_name_only_once_somebody_asks_for_it() -> None:
    story = Story()
    story.sent(request(), at_ms=1, job="vcjob.j")
    story.take_record(record("vcjob.other", "u0", "succeeded"))
    assert story.fate_of("j") == "sent"
    story.taken_back("j")
    story.take_record(record("vcjob.j", "u1", "vanished"))
    assert (story.tales[0].uid, story.tales[0].fate) == ("u1", "cancelled")


def test_without_the_programs_of_kubernetes_the_way_to_them_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert call(["demo", "--kubernetes"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "make kube-assets" in err
