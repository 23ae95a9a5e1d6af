"""What is written as an object of Kubernetes is accepted by the server, and means the same when read from there."""

import msgspec

from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.pod_spec import PodSpec
from berth.formats.kubernetes.pods import pod_requirements
from berth.formats.manifests.writer import write_batch_job
from berth.schemas.constraints import Expression, Term
from berth.schemas.intake import JobRequest, Task
from berth.schemas.pod_constraints import (
    HostPort,
    LabelSelector,
    PodConstraints,
    PodTerm,
    PreferredNodes,
    PreferredPods,
    SpreadTerm,
)
from tests.support.kube_api import KubeApi

APP = LabelSelector((Expression("app", "In", ("a", "b")), Expression("tier", "Exists")))
EVERY = PodConstraints(
    affinity=(PodTerm("zone", APP, ("left", "right")),),
    anti_affinity=(PodTerm("rack", LabelSelector(), ("left",)), PodTerm("zone", APP, (), LabelSelector())),
    spread=(SpreadTerm("zone", 2, APP, 3, by_affinity=False, by_taints=True), SpreadTerm("rack", 1)),
    ports=(HostPort(80), HostPort(443, "UDP", "10.0.0.1")),
    resources=(("ephemeral-storage", 1 << 20), ("hugepages-2Mi", 4 << 20), ("rdma/hca", 2)),
    claims=("data", "model"),
    preferred_nodes=(PreferredNodes(7, Term((Expression("disk", "In", ("ssd",)), Expression("size", "Gt", ("4",))))),),
    preferred_near=(PreferredPods(9, PodTerm("zone", APP, ("left",))),),
    preferred_apart=(PreferredPods(3, PodTerm("rack", APP, ("left",))),),
    preferred_spread=(SpreadTerm("rack", 1, APP),),
)


async def test_labels_and_constraints_of_a_template_are_kept(kube_api: KubeApi, namespace: str) -> None:
    task = Task("work", 2, 1, cpu_milli=500, labels={"app": "a"}, constraints=EVERY)
    job = write_batch_job(JobRequest(namespace, "whole", "", "huawei.com/Ascend910", [task], labels={"team": "x"}))
    job["spec"]["suspend"] = True
    stored = await kube_api.post(f"/apis/batch/v1/namespaces/{namespace}/jobs", job)
    template = stored["spec"]["template"]
    labels = template["metadata"]["labels"]
    ask = pod_requirements(msgspec.convert(template["spec"], PodSpec), Meta(namespace=namespace, labels=labels))
    assert ask.wrong == ""
    assert ask.constraints == EVERY
    assert {"app": "a", "team": "x"}.items() <= labels.items()
