"""What users do, and what happens to nodes: jobs, pods, requests, faults of chips, labels."""

from typing import Final

import msgspec

from berth.runtime.errors import TransientError
from berth.schemas.envelope import encode
from berth.schemas.fault_facts import DrainSeen
from berth.schemas.intake import JobCancel
from berth.schemas.simulation import BreakNode
from tests.sim.kube import finished
from tests.sim.stage import Stage
from tests.sim.story import PRODUCTS, SIZES, Event
from tests.support.cells import a_job
from tests.support.kube_rules import Tree

JOBS: Final = "/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs"
ASCEND_JOBS: Final = "/apis/mindxdl.gitee.com/v1/namespaces/ns/ascendjobs"
PODS: Final = "/api/v1/namespaces/ns/pods"
NODES: Final = "/api/v1/nodes"
LABELS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"fault-scheduling": "grace"},
    {"fault-scheduling": "force", "pod-rescheduling": "on"},
    {"fault-scheduling": "grace", "pod-rescheduling": "on", "subHealthyStrategy": "graceExit"},
)
FAULTS: Final = (
    ("chip", ""), ("chip", "SeparateNPU"), ("network", ""), ("node", "PreSeparateFault"), ("node", "SeparateFault"),
    ("kubelet", ""), ("container", ""), ("plugin", ""), ("recovering", ""), ("gone", ""),
)  # fmt: skip


class Users(Stage):
    """See above."""

    jobs = pods = requests = ascend_jobs = 0
    """How many were made."""

    # Users.

    def _do_again(self, event: Event) -> None:
        """A user deletes a job and makes another one with its name at once, or soon."""
        if self.jobs:
            self._do_end(event)
            body = self._job(event.one % self.jobs, event)
            self.later(0.0 if event.two % 2 else event.for_s, self._put_job, body)

    def _put_job(self, body: Tree) -> None:
        if not any(one["metadata"]["name"] == body["metadata"]["name"] for one in self.cell.kube.objects(JOBS)):
            self.cell.kube.put(JOBS, body)

    def _do_remove(self, event: Event) -> None:
        """A user deletes a pod, with or without its time to end; its controller may make another one."""
        pods = [pod["metadata"]["name"] for pod in self.cell.kube.objects(PODS)]
        if pods:
            path = f"{PODS}/{pods[event.one % len(pods)]}"
            finished(self.cell.kube.delete(path, grace_s=0 if event.two % 2 else None))

    def _do_job(self, event: Event) -> None:
        """A Volcano job; some have label that let them recover from faults."""
        number, self.jobs = self.jobs, self.jobs + 1
        self.cell.kube.put(JOBS, self._job(number, event))

    def _job(self, number: int, event: Event) -> Tree:
        sizes = SIZES[self.story.kind]
        chips = sizes[event.two % len(sizes)]
        replicas = (1, 1, 2, 3, 4)[event.one % 5]
        labels = LABELS[event.two // 7 % len(LABELS)]
        annotations = {"berth/run-for": f"{(3, 10, 30)[event.one // 5 % 3]}s"}
        return {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {
                "name": f"j{number}",
                "annotations": annotations,
                "labels": {"framework": "pytorch", **labels},
            },
            "spec": {
                "schedulerName": "berth",
                "minAvailable": replicas,
                "tasks": [
                    {
                        "name": "worker",
                        "replicas": replicas,
                        "template": {
                            "metadata": {"annotations": annotations, "labels": dict(self.product.job_labels)},
                            "spec": self._spec(chips),
                        },
                    }
                ],
            },
        }

    def _spec(self, chips: int) -> Tree:
        resources: Tree = {"requests": {"cpu": "1", "memory": "1Gi"}}
        if chips:
            resources = {
                "requests": {**resources["requests"], self.product.resource: str(chips)},
                "limits": {self.product.resource: str(chips)},
            }
        return {
            "schedulerName": "berth",
            "restartPolicy": "Never",
            "nodeSelector": dict(self.product.selector),
            "containers": [{"name": "main", "image": "registry.example/none:1", "resources": resources}],
        }

    def _do_pod(self, event: Event) -> None:
        """A pod of its own, with or without chips."""
        number, self.pods = self.pods, self.pods + 1
        sizes = (0, *SIZES[self.story.kind])
        metadata = {
            "name": f"p{number}",
            "annotations": {"berth/run-for": "8s"},
            "labels": dict(self.product.job_labels),
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": self._spec(sizes[event.one % len(sizes)]),
        }
        finished(self.cell.kube.create(PODS, body))

    def _do_end(self, event: Event) -> None:
        """A user deletes a job."""
        if self.jobs and (name := f"j{event.one % self.jobs}") in {
            found["metadata"]["name"] for found in self.cell.kube.objects(JOBS)
        }:
            self.cell.kube.confirm(f"{JOBS}/{name}")

    def _do_cancel(self, event: Event) -> None:
        """A user cancels a job by the command line."""
        if self.jobs:
            name = f"vcjob.j{event.one % self.jobs}"
            self.say(self.user.subjects.intake_cancel("ns", name), encode(JobCancel("ns", name, "")))

    def _do_ascend(self, event: Event) -> None:
        """An AscendJob; its labels let it recover from faults, or not."""
        number, self.ascend_jobs = self.ascend_jobs, self.ascend_jobs + 1
        workers = event.one % 3
        template = {
            "metadata": {
                "annotations": {"berth/run-for": f"{(5, 15, 30)[event.one // 5 % 3]}s"},
                "labels": dict(self.product.job_labels),
            },
            "spec": self._spec(SIZES[self.story.kind][-1]),
        }
        specs = {"Master": {"replicas": 1, "restartPolicy": "Never", "template": template}}
        if workers:
            specs["Worker"] = {"replicas": workers, "restartPolicy": "Never", "template": template}
        body = {
            "apiVersion": "mindxdl.gitee.com/v1",
            "kind": "AscendJob",
            "metadata": {"name": f"a{number}", "labels": LABELS[event.two % len(LABELS)]},
            "spec": {
                "schedulerName": "berth",
                "runPolicy": {"schedulingPolicy": {"minAvailable": workers + 1}},
                "replicaSpecs": specs,
            },
        }
        self.cell.kube.put(ASCEND_JOBS, body)

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
        """A request without pods, as the command line makes it."""
        number, self.requests = self.requests, self.requests + 1
        sizes = SIZES[self.story.kind]
        product = PRODUCTS[self.story.kind]
        job = a_job(f"r{number}", chips=sizes[event.one % len(sizes)], replicas=1 + event.two % 3, product=product)
        job = msgspec.structs.replace(job, namespace="ns")
        self.say(self.user.subjects.intake_request("ns", job.name), encode(job))

    def _do_rubbish(self, event: Event) -> None:
        """Something that is no request."""
        self.say(self.user.subjects.intake_request("ns", f"x{event.one}"), b"no request at all")

    # The cluster.

    def _do_break(self, event: Event) -> None:
        fault, level = FAULTS[event.two % len(FAULTS)]
        chips = [event.one // 7 % self.product.chips] if fault in {"chip", "network", "recovering"} else []
        wish = BreakNode(
            node=self.nodes[event.one % len(self.nodes)],
            fault=fault,
            chips=chips,
            level=level,
            lasts_ms=round(event.for_s * 1000) + 500,
        )
        self.loop.create_task(self._break(wish), context=self.loop.main.context)

    async def _break(self, wish: BreakNode) -> None:
        try:
            await self.user.request(self.user.subjects.sim("break"), encode(wish), timeout_s=5.0)
        except TransientError:
            return  # the cluster or the connection is away: nothing breaks

    def _do_cordon(self, event: Event) -> None:
        name = self.nodes[event.one % len(self.nodes)]
        self.patch_node(name, {"spec": {"unschedulable": True}})
        self.later(event.for_s, self.patch_node, name, {"spec": {"unschedulable": None}})

    def _do_relabel(self, event: Event) -> None:
        """A label of a node goes, and comes back."""
        name = self.nodes[event.one % len(self.nodes)]
        labels = dict(self.product.labels) | dict(self.product.selector)
        key = sorted(labels)[event.two % len(labels)]
        self.patch_node(name, {"metadata": {"labels": {key: "other"}}})
        self.later(event.for_s, self.patch_node, name, {"metadata": {"labels": {key: labels[key]}}})

    def patch_node(self, name: str, patch: Tree) -> None:
        """Change a node, if it is there."""
        if any(found["metadata"]["name"] == name for found in self.cell.kube.objects(NODES)):
            finished(self.cell.kube.patch(f"{NODES}/{name}", patch))
