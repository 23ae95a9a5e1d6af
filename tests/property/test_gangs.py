"""Events in any order: each pod is requested once, no pod is forgotten, and a restart changes nothing."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from berth.formats.kubernetes.objects import Pod
from berth.schemas.facts import JobSeen, MembersSeen, OutcomeSeen
from berth.schemas.intake import JobRequest
from berth.schemas.status import JobStatus, Phase
from berth.services.inventory.effects import Effect, PublishCancel, PublishMembers, PublishRequest
from berth.services.inventory.gang_collection import Gangs
from berth.services.inventory.gangs.settings import GangSettings
from tests.support.gang_world import a_group, a_pod

OVER = {"succeeded", "failed", "cancelled", "rejected"}
Action = tuple[str, int, int]


class Cell:
    """A dispatcher and a binder that do as they are told; facts are kept as the stream would keep them."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.gangs = Gangs(GangSettings())
        self.pods: dict[str, Pod] = {}
        self.serial = 0
        self.phases = {"pg-a": "Inqueue", "pg-b": "Inqueue"}
        self.generation = {"pg-a": 1, "pg-b": 1}
        """Counts how often a PodGroup was created under a name."""
        self.told: dict[str, MembersSeen] = {}
        self.jobs: dict[str, JobSeen] = {}
        self.statuses: dict[str, JobStatus] = {}
        self.outcomes: dict[str, OutcomeSeen] = {}
        self.uids: set[str] = set()
        self.restarted = False
        self.log: list[Effect] = []

    def groups(self) -> None:
        for name, phase in self.phases.items():
            self.gangs.set_group(a_group(name, least=3, phase=phase, uid=f"{name}-{self.generation[name]}"))

    def create_again(self, which: int) -> None:
        """A PodGroup is deleted and created again, which the watch shows as two events or as one."""
        name = ("pg-a", "pg-b")[which % 2]
        self.generation[name] += 1
        if which % 3:
            self.gangs.drop_group("ns", name)
            if which % 5 == 0:
                self.settle()
        self.groups()

    def add(self, which: int) -> None:
        self.serial += 1
        group = ("pg-a", "pg-b", "")[which % 3]
        # Half of them keep a name, as pods of Volcano jobs do; others get new ones, as those of Deployments do.
        name = f"{group or 'one'}-{which // 3 % 4}" if which % 2 else f"{group or 'one'}-x{self.serial}"
        if name in {pod.metadata.name for pod in self.pods.values()}:
            return
        env = {"VC_TASK_INDEX": str(which // 3 % 4)} if which % 2 else None
        pod = a_pod(name, uid=f"u{self.serial}", group=group, env=env, gates=["g"] if which % 11 == 0 else ())
        self.show(pod)

    def show(self, pod: Pod) -> None:
        self.pods[pod.metadata.uid] = pod
        self.gangs.set_pod(pod)

    def remove(self, which: int) -> None:
        if self.pods:
            uid = sorted(self.pods)[which % len(self.pods)]
            del self.pods[uid]
            self.gangs.drop_pod(uid)

    def finish(self, which: int) -> None:
        bound = sorted(uid for uid, pod in self.pods.items() if pod.spec.node_name)
        if bound:
            uid = bound[which % len(bound)]
            pod = self.pods[uid]
            phase = ("Running", "Succeeded", "Failed")[which % 3]
            self.show(
                a_pod(
                    pod.metadata.name,
                    uid=uid,
                    group=pod.metadata.annotation("scheduling.k8s.io/group-name"),
                    node="n",
                    phase=phase,
                )
            )

    def status(self, name: str, phase: Phase, attempt: int = 0) -> None:
        before = self.statuses.get(name)
        uid = self.jobs[name].uid
        kept = before.attempt if before is not None and before.uid == uid else 1
        self.statuses[name] = JobStatus("ns", name, uid, phase, 0, self.now_ms, attempt=attempt or kept)
        self.gangs.note_status(self.statuses[name])

    def open_jobs(self) -> list[str]:
        return sorted(
            name
            for name, job in self.jobs.items()
            if (status := self.statuses.get(name)) is not None and status.uid == job.uid and status.phase not in OVER
        )

    def decide(self, which: int) -> None:
        """Let a job go one step on."""
        names = self.open_jobs()
        if not names:
            return
        name = names[which % len(names)]
        status = self.statuses[name]
        match status.phase:
            case "waiting":
                self.status(name, ("placed", "placed", "placed", "rejected")[which % 4])
            case "placed":
                self.bind(name, whole=which % 4 != 0)
            case "ending":
                for uid in [*self.told[name].pod_uids] if name in self.told else []:
                    if uid in self.pods and self.pods[uid].spec.node_name:
                        del self.pods[uid]
                        self.gangs.drop_pod(uid)
                self.status(name, "waiting", status.attempt + 1)
            case _:
                self.status(name, "succeeded" if which % 2 else "failed")

    def bind(self, name: str, *, whole: bool) -> None:
        seen = self.told.get(name)
        job = self.jobs[name]
        if seen is None or seen.uid != job.uid:
            return
        pods = [uid for uid in seen.pod_uids if uid in self.pods]
        assert job.request is not None
        if len(pods) < job.request.min_available and whole:
            return
        for uid in pods if whole else pods[:1]:
            pod = self.pods[uid]
            group = pod.metadata.annotation("scheduling.k8s.io/group-name")
            self.show(a_pod(pod.metadata.name, uid=uid, group=group, node="n", phase="Pending"))
        attempt = self.statuses[name].attempt
        outcome = OutcomeSeen("ns", name, job.uid, attempt, "bound" if whole else "failed", bound=1)
        self.outcomes[name] = outcome
        self.gangs.note_outcome(outcome)
        self.status(name, "bound" if whole else "ending")

    def settle(self) -> None:
        effects = self.gangs.settle(self.now_ms)
        assert self.gangs.settle(self.now_ms) == []
        self.log += effects
        for effect in effects:
            self.perform(effect)
        self.check()

    def perform(self, effect: Effect) -> None:
        match effect:
            case PublishMembers(seen):
                if seen.pod_uids:
                    self.told[seen.job] = seen
                else:
                    self.told.pop(seen.job, None)
            case PublishRequest(request):
                self.publish(request)
            case PublishCancel(cancel):
                job = self.jobs.get(cancel.name)
                if job is not None and job.uid == cancel.uid and cancel.name in self.open_jobs():
                    self.status(cancel.name, "cancelled")
            case _:
                pass

    def publish(self, request: JobRequest) -> None:
        assert request.name not in self.open_jobs(), "a name is used once"
        again = request.uid in self.uids
        assert not again or self.restarted, "a uid is used once, as far as is remembered"
        self.uids.add(request.uid)
        self.jobs[request.name] = JobSeen(
            "ns", request.name, request.uid, "accepted", 1, at_ms=self.now_ms, request=request
        )
        self.gangs.note_job(self.jobs[request.name])
        self.status(request.name, "failed" if again else "waiting", 1)  # the ledger knows that such a job is over

    def check(self) -> None:
        """Each live pod without a node is told of exactly once; a request of a gang holds its minimum."""
        standing = [uid for seen in self.told.values() for uid in seen.pod_uids]
        assert len(standing) == len(set(standing)), "a pod stands in two places"
        for name in self.open_jobs():
            request = self.jobs[name].request
            assert request is not None
            pods = sum(task.replicas for task in request.tasks)
            assert pods == request.min_available
            assert pods in {1, 2, 3}
            self.check_owner(name)
            if name in {"podgroup.pg-a", "podgroup.pg-b"}:
                seen = self.told.get(name)
                assert seen is None or seen.uid == request.uid or seen.hold

    def check_owner(self, name: str) -> None:
        """What waits was requested for the PodGroup that has the name now."""
        seen = self.told.get(name)
        if seen is not None and seen.podgroup and self.statuses[name].phase == "waiting" and not seen.hold:
            assert seen.podgroup_uid == f"{seen.podgroup}-{self.generation[seen.podgroup]}"

    def quiet(self) -> None:
        """Let everything that is under way come to its end, and time pass."""
        for _ in range(12):
            for name in self.open_jobs():
                if self.statuses[name].phase in {"placed", "ending", "bound"}:
                    self.decide(self.open_jobs().index(name))
            self.settle()
            self.now_ms += 700_000

    def restart(self) -> None:
        self.restarted = True
        self.gangs = Gangs(GangSettings())
        told = sorted(self.told) if len(self.log) % 2 else []
        for name in told:
            self.gangs.restore(self.told[name], self.jobs.get(name))
        for job in self.jobs.values():
            self.gangs.note_job(job)
        for outcome in self.outcomes.values():
            self.gangs.note_outcome(outcome)
        for status in self.statuses.values():
            self.gangs.note_status(status)
        for name in sorted({*self.told} - {*told}):
            self.gangs.restore(self.told[name], self.jobs.get(name))
        self.groups()
        for pod in self.pods.values():
            self.gangs.set_pod(pod)


def run(actions: list[Action], *, restarts: bool = True) -> Cell:
    cell = Cell()
    cell.groups()
    cell.settle()
    for kind, which, seconds in actions:
        match kind:
            case "add":
                cell.add(which)
            case "remove":
                cell.remove(which)
            case "finish":
                cell.finish(which)
            case "decide":
                cell.decide(which)
            case "phase":
                name = ("pg-a", "pg-b")[which % 2]
                cell.phases[name] = ("Inqueue", "Pending", "Running")[which % 3]
                cell.groups()
            case "again":
                cell.create_again(which)
            case "restart" if restarts:
                cell.restart()
            case _:
                pass
        cell.now_ms += seconds * 1000
        if which % 3:
            cell.settle()
    cell.settle()
    return cell


ACTIONS: Any = st.lists(
    st.tuples(
        st.sampled_from(
            ["add", "add", "add", "add", "remove", "finish", "decide", "decide", "phase", "again", "restart", "wait"]
        ),
        st.integers(0, 1000),
        st.sampled_from([0, 0, 0, 1, 20, 40]),
    ),
    min_size=15,
    max_size=90,
)


@given(ACTIONS)
def test_each_pod_is_asked_for_once(actions: list[Action]) -> None:
    run(actions)  # it checks itself after every step


@given(ACTIONS)
def test_nobody_is_forgotten_once_all_is_quiet(actions: list[Action]) -> None:
    cell = run(actions, restarts=False)
    cell.phases = dict.fromkeys(cell.phases, "Inqueue")
    cell.groups()
    cell.quiet()
    told = {uid for seen in cell.told.values() for uid in seen.pod_uids}
    waiting = {uid for uid, pod in cell.pods.items() if not pod.spec.node_name}
    gangs_that_wait = {name for name in cell.open_jobs() if cell.statuses[name].phase == "waiting"}
    missing = waiting - told
    # Pods beyond the minimum wait for their gang's first request without a word of their own.
    assert all(
        any(name.startswith("podgroup.") for name in gangs_that_wait) or _first_is_closed(cell, uid) for uid in missing
    ), missing


def _first_is_closed(cell: Cell, uid: str) -> bool:
    group = cell.pods[uid].metadata.annotation("scheduling.k8s.io/group-name")
    return any(
        status.phase in {"rejected", "cancelled"} and name.startswith(f"podgroup.{group}")
        for name, status in cell.statuses.items()
    )


@given(ACTIONS)
def test_a_restart_leaves_what_is_open_as_it_was(actions: list[Action]) -> None:
    cell = run(actions)
    open_jobs = cell.open_jobs()
    before = {name: (cell.told[name].uid, cell.told[name].pods) for name in open_jobs if name in cell.told}
    whole = {name for name in before if all(uid in cell.pods for uid in cell.told[name].pod_uids)}
    cell.restart()
    cell.settle()
    after = {name: (cell.told[name].uid, cell.told[name].pods) for name in open_jobs if name in cell.told}
    for name in whole:
        request = cell.jobs[name].request
        assert request is not None
        if len(before[name][1]) == request.min_available:
            assert after.get(name) == before[name]


@given(ACTIONS)
def test_the_same_events_have_the_same_effects(actions: list[Action]) -> None:
    assert run(actions).log == run(actions).log
