"""What users do: jobs of all kinds, pods, claims, requests, and everything wrong."""

from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from berth.schemas.envelope import encode
from berth.schemas.fault_facts import DrainSeen
from berth.schemas.intake import JobCancel
from tests.sim.kube import finished
from tests.sim.loop import SimLoop
from tests.sim.manifests import PRIORITIES, ascend_job, heavy_job, owned, pod, run_for, volcano_job
from tests.sim.queue_objects import in_a_queue
from tests.sim.stage import Stage
from tests.sim.storage import KINDS
from tests.sim.story import Event, Story
from tests.sim.wrong import BODIES, REQUESTS
from tests.support.cells import a_job
from tests.support.kube_rules import Tree

JOBS: Final = "/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs"
ASCEND_JOBS: Final = "/apis/mindxdl.gitee.com/v1/namespaces/ns/ascendjobs"
BATCH_JOBS: Final = "/apis/batch/v1/namespaces/ns/jobs"
REPLICA_SETS: Final = "/apis/apps/v1/namespaces/ns/replicasets"
GROUPS: Final = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups"
QUEUES: Final = "/apis/scheduling.volcano.sh/v1beta1/queues"
_AGAIN: Final = "-again-"
_TEND_S: Final = 1.0
"""How soon controllers see that a pod is deleted."""
PRIORITY_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
PODS: Final = "/api/v1/namespaces/ns/pods"
WRONG_FIELDS: Final[tuple[tuple[str, str], ...]] = (
    ("chips", "many"), ("chips", "99"), ("resource", "huawei.com/Ascend910-2c"), ("policy", "chip3-node5"),
    ("label", "subHealthyStrategy=hope"), ("label", "tor-affinity=hope"), ("label", "fault-scheduling=hope"),
    ("claim", "never-made"), ("least", "99"), ("note", "berth/run-for=soon"), ("note", "sp-block=many"),
)  # fmt: skip
"""What is wrong with a pod or with the PodGroup of one."""


class Users(Stage):
    """See above."""

    jobs = pods = requests = ascend_jobs = 0
    """How many were made."""

    def __init__(self, loop: SimLoop, seed: int, story: Story) -> None:
        super().__init__(loop, seed, story)
        self._bodies: dict[str, list[Tree]] = {}
        """Pods of each owner (uid) whose controller makes them again."""

    def queued(self, body: Tree, event: Event) -> Tree:
        """A job, PodGroup or pod that names a queue, in stories with queues."""
        chance = Random(f"{event} queue")  # noqa: S311  # a simulation
        return in_a_queue(body, chance) if self.story.queues else body

    # Jobs.

    def _do_again(self, event: Event) -> None:
        """A user deletes a job and makes another one with its name at once, or soon."""
        if self.jobs:
            self._do_end(event)
            body = volcano_job(f"j{event.one % self.jobs}", self.ask_of(event), event.dice)
            self.later(0.0 if event.two % 2 else event.for_s, self._put_job, self.queued(body, event))

    def _put_job(self, body: Tree) -> None:
        if not any(one["metadata"]["name"] == body["metadata"]["name"] for one in self.cell.kube.objects(JOBS)):
            self.cell.kube.put(JOBS, body)

    def _do_job(self, event: Event) -> None:
        """A Volcano job; some have labels that let them recover from faults."""
        number, self.jobs = self.jobs, self.jobs + 1
        self.cell.kube.put(JOBS, self.queued(volcano_job(f"j{number}", self.ask_of(event), event.dice), event))

    def _do_heavy(self, event: Event) -> None:
        """A Volcano job of so many different tasks that a round may not score all of them."""
        number, self.jobs = self.jobs, self.jobs + 1
        self.cell.kube.put(JOBS, self.queued(heavy_job(f"j{number}", self.ask_of(event), event.dice), event))

    def _do_end(self, event: Event) -> None:
        """A user deletes a job."""
        if self.jobs and (name := f"j{event.one % self.jobs}") in {
            found["metadata"]["name"] for found in self.cell.kube.objects(JOBS)
        }:
            self.cell.kube.confirm(f"{JOBS}/{name}")

    def _do_cancel(self, event: Event) -> None:
        """A user cancels a job by the command line."""
        names = [
            *(f"vcjob.j{number}" for number in range(self.jobs)),
            *(f"acjob.a{number}" for number in range(self.ascend_jobs)),
            *(f"r{number}" for number in range(self.requests)),
        ]
        if names:
            name = names[event.one % len(names)]
            self.say(self.user.subjects.intake_cancel("ns", name), encode(JobCancel("ns", name, "")))

    def _do_ascend(self, event: Event) -> None:
        """An AscendJob."""
        number, self.ascend_jobs = self.ascend_jobs, self.ascend_jobs + 1
        body = ascend_job(f"a{number}", self.ask_of(event), event.dice)
        self.cell.kube.put(ASCEND_JOBS, self.queued(body, event))

    # Pods.

    def _do_pod(self, event: Event) -> None:
        """A pod of its own, or pods of a PodGroup, which nobody makes anew; or those of a Job or a ReplicaSet."""
        dice, ask = event.dice, self.ask_of(event)
        name, count = self._pod_name(), dice.choice((1, 2, 3))
        bodies = [
            self.queued(pod(f"{name}-{index}" if count > 1 else name, ask, dice), event) for index in range(count)
        ]
        kind = dice.choice(("pod", "group", "Job", "ReplicaSet")) if count > 1 else "pod"
        if kind == "group":
            least = dice.randrange(1, count + 1)
            self._group(name, least, event)
            bodies = [_noted(body, "scheduling.k8s.io/group-name", name) for body in bodies]
        elif kind == "Job":
            made = self.cell.kube.put(
                BATCH_JOBS, {"metadata": {"name": name}, "spec": {"parallelism": count, "completions": count}}
            )
            bodies = self._controlled([owned(body, "Job", "batch/v1", made) for body in bodies], made)
        elif kind == "ReplicaSet":
            made = self.cell.kube.put(REPLICA_SETS, {"metadata": {"name": name}, "spec": {"replicas": count}})
            bodies = self._controlled([owned(body, "ReplicaSet", "apps/v1", made) for body in bodies], made)
        for body in bodies:
            finished(self.cell.kube.create(PODS, body))

    def _controlled(self, bodies: list[Tree], owner: Tree) -> list[Tree]:
        """Pods that the controller of their owner makes again when they are deleted."""
        if not self._bodies:
            self.later(_TEND_S, self._tend)
        self._bodies[owner["metadata"]["uid"]] = bodies
        return bodies

    def _tend(self) -> None:
        """Make pods again that were deleted and whose owner is there; those that have ended stay."""
        kube = self.cell.kube
        owners = {found["metadata"]["uid"] for path in (BATCH_JOBS, REPLICA_SETS) for found in kube.objects(path)}
        names = {found["metadata"]["name"].partition(_AGAIN)[0] for found in kube.objects(PODS)}
        for uid, bodies in self._bodies.items():
            for body in bodies if uid in owners else ():
                name = body["metadata"]["name"]
                if name not in names:
                    self.pods += 1
                    again = {**body, "metadata": {**body["metadata"], "name": f"{name}{_AGAIN}{self.pods}"}}
                    finished(kube.create(PODS, again))
        self.later(_TEND_S, self._tend)

    def _pod_name(self) -> str:
        number, self.pods = self.pods, self.pods + 1
        return f"p{number}"

    def _group(self, name: str, least: int, event: Event) -> None:
        spec = {"minMember": least, "queue": "default"}
        body: Tree = {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Pending"}}
        self.cell.kube.put(GROUPS, self.queued(body, event))

    def _do_remove(self, event: Event) -> None:
        """A user deletes a pod, with or without its time to end; its controller may make another one."""
        names = [found["metadata"]["name"] for found in self.cell.kube.objects(PODS)]
        if names:
            path = f"{PODS}/{names[event.one % len(names)]}"
            finished(self.cell.kube.delete(path, grace_s=0 if event.two % 2 else None))

    def _do_claim(self, event: Event) -> None:
        """Claims, and a pod or a job that uses them: before they are there, or afterwards."""
        dice, ask = event.dice, self.ask_of(event)
        name = self._pod_name()
        claims = [f"c{event.one % 4}-{number}" for number in range(dice.choice((1, 1, 2)))]
        for claim in claims:
            late_s = event.for_s if dice.random() < 0.2 else 0.0
            self.later(late_s, self.storage.claim, claim, dice.choice(KINDS))
        if dice.random() < 0.3:
            number, self.jobs = self.jobs, self.jobs + 1
            self.cell.kube.put(JOBS, self.queued(volcano_job(f"j{number}", ask, dice, claims=claims), event))
        else:
            finished(self.cell.kube.create(PODS, self.queued(pod(name, ask, dice, claims=claims), event)))

    def _do_unclaim(self, event: Event) -> None:
        """A user deletes a claim; it stays as long as pods use it."""
        names = self.storage.names()
        if names:
            self.storage.unclaim(names[event.one % len(names)])

    def _do_annotate(self, event: Event) -> None:
        """Somebody writes labels and annotations of pods and PodGroups that steer faults, or takes a label away."""
        kube, dice = self.cell.kube, event.dice
        path, patch = dice.choice(
            (
                (PODS, {"labels": {"fault-type": "Separate"}}),
                (PODS, {"labels": {"fault-type": None}}),
                (PODS, {"annotations": {"inHotSwitchFlow": "true", "needOperatorOpe": "create"}}),
                (PODS, {"annotations": {"needVolcanoOpe": "delete"}, "labels": {"fault-type": "SubHealth"}}),
                (GROUPS, {"labels": {"fault-scheduling": "force"}}),
                (GROUPS, {"labels": {"process-recover-enable": "pause"}}),
                (GROUPS, {"labels": {"process-recover-enable": "on"}}),
                (GROUPS, {"labels": {"pod-rescheduling": None}}),
            )
        )
        names = [found["metadata"]["name"] for found in kube.objects(path)]
        if names:
            finished(kube.patch(f"{path}/{names[event.one % len(names)]}", {"metadata": patch}))

    def _do_policy(self, event: Event) -> None:
        """An administrator changes a queue or a priority."""
        kube, dice = self.cell.kube, event.dice
        if dice.random() < 0.5:
            state = dice.choice(("Open", "Closed"))
            capability = {"cpu": "2", "huawei.com/Ascend910": "4"} if dice.random() < 0.5 else {}
            body = {"metadata": {"name": "small"}, "spec": {"capability": capability}, "status": {"state": state}}
            kube.put(QUEUES, body)
        else:
            name = dice.choice(sorted(PRIORITIES))
            kube.put(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": dice.choice((-5, 0, 2000))})

    def begin_policies(self) -> None:
        """Make what administrators have made before."""
        for name, value in PRIORITIES.items():
            self.cell.kube.put(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        body = {"metadata": {"name": "small"}, "spec": {"capability": {"cpu": "2"}}, "status": {"state": "Open"}}
        self.cell.kube.put(QUEUES, body)

    # Requests.

    def _do_drain(self, event: Event) -> None:
        """A user drains a node, and takes it back."""
        name = self.nodes[event.one % len(self.nodes)]
        subject = self.user.subjects.fact_drain("node", name)
        now_ms = self.cell.clocks["bus"].now_ms()
        self.say(
            subject, encode(DrainSeen("node", name, since_ms=now_ms, grace_ms=3_000 * (event.two % 3), at_ms=now_ms))
        )
        self.later(2 * event.for_s, self.undrain, name)

    def undrain(self, name: str) -> None:
        """Take a drain back."""
        gone = DrainSeen("node", name, gone=True, at_ms=self.cell.clocks["bus"].now_ms())
        self.say(self.user.subjects.fact_drain("node", name), encode(gone))

    def _do_request(self, event: Event) -> None:
        """A request without pods, as the command line makes it; some have the name or the uid of another one."""
        dice, ask = event.dice, self.ask_of(event)
        number = self.requests
        if number and dice.random() < 0.4:
            number = dice.randrange(number)
        else:
            self.requests += 1
        uid = f"uid-{dice.randrange(self.requests)}" if dice.random() < 0.2 else dice.choice(("", f"uid-r{number}"))
        job = a_job(
            f"r{number}",
            chips=dice.choice(ask.sizes),
            replicas=dice.choice(ask.pods),
            product=ask.product,
            namespace="ns",
            uid=uid,
            labels=ask.all_labels,
            annotations=ask.all_annotations,
            run_ms=dice.choice((0, 3_000, 20_000)),
            priority=dice.choice((0, 0, 5)),
        )
        self.say(self.user.subjects.intake_request("ns", job.name), encode(job))

    def _do_wrong(self, event: Event) -> None:
        """Something is wrong: some requests, a pod or a PodGroup."""
        dice = event.dice
        if dice.random() < 0.5:
            for name in dice.sample(list(REQUESTS), 3):
                self._ask_wrongly(event, name)
            return
        name, (what, value) = self._pod_name(), dice.choice(WRONG_FIELDS)
        body = pod(name, self.ask_of(event), dice, chips=1)
        wrongs: dict[str, Callable[[Tree, str], None]] = {
            "chips": _wrong_chips,
            "resource": _wrong_resource,
            "policy": lambda found, text: _wrong_note(found, f"huawei.com/schedule_policy={text}"),
            "label": _wrong_label,
            "claim": _wrong_claim,
            "note": _wrong_note,
        }
        if what == "least":
            self._group(name, int(value), event)
            body = _noted(body, "scheduling.k8s.io/group-name", name)
        else:
            wrongs[what](body, value)
        finished(self.cell.kube.create(PODS, body))

    def _ask_wrongly(self, event: Event, what: str) -> None:
        number, self.requests = self.requests, self.requests + 1
        ask = self.ask_of(event)
        job = a_job(f"r{number}", chips=ask.sizes[0], product=ask.product, namespace="ns")
        self.say(self.user.subjects.intake_request("ns", job.name), _encoded(REQUESTS[what](job)))

    def _do_rubbish(self, event: Event) -> None:
        """Something that is no request."""
        self.say(self.user.subjects.intake_request("ns", f"x{event.one}"), BODIES[event.two % len(BODIES)])


def _encoded(job: msgspec.Struct) -> bytes:
    return encode(job)  # type: ignore[arg-type]  # also what no client could make


def _noted(body: Tree, key: str, value: str) -> Tree:
    meta = body["metadata"]
    return {**body, "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), key: value}}}


def _wrong_note(body: Tree, text: str) -> None:
    key, _, value = text.partition("=")
    body["metadata"]["annotations"][key] = value


def _wrong_label(body: Tree, text: str) -> None:
    key, _, value = text.partition("=")
    body["metadata"]["labels"][key] = value


def _wrong_claim(body: Tree, name: str) -> None:
    body["spec"]["volumes"] = [{"name": name, "persistentVolumeClaim": {"claimName": name}}]


def _wrong_chips(body: Tree, count: str) -> None:
    resources = body["spec"]["containers"][0]["resources"]
    for part in ("requests", "limits"):
        for key in [key for key in resources[part] if "/" in key]:
            resources[part][key] = count


def _wrong_resource(body: Tree, name: str) -> None:
    resources = body["spec"]["containers"][0]["resources"]
    for part in ("requests", "limits"):
        for key in [key for key in resources[part] if "/" in key]:
            resources[part][name] = resources[part].pop(key)


__all__ = ["GROUPS", "JOBS", "PODS", "Users", "run_for"]
