"""Jobs for which Kubernetes makes PodGroups of its own, as it does where the gate WorkloadWithJob is on."""

from collections.abc import Iterator
from typing import Any

import pytest

from berth.lab.servers.kube_server import KubeServer
from tests.support.kube_cells import a_spec
from tests.support.kustomize import Tree
from tests.support.prepared_server import CRDS, USERS, Prepared, native_gangs, prepare, served
from tests.support.real_controllers import JOBSET
from tests.support.real_workloads import Workloads

pytestmark = pytest.mark.timeout(120)
RELEASE = JOBSET


@pytest.fixture(scope="module")
def kube_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """A server whose controller of Jobs makes PodGroups."""
    folder = tmp_path_factory.mktemp("kube")
    own = native_gangs("WorkloadWithJob")
    server = KubeServer(folder, users=dict.fromkeys(USERS, ()), start_deadline_s=50, **own)
    yield from served(server)


@pytest.fixture(scope="module")
def kube_prepared(kube_server: KubeServer) -> Prepared:
    return prepare(kube_server, folders=CRDS[:1])


def a_job(pods: int, **spec: Any) -> Tree:  # noqa: ANN401  # fields of its spec
    template = {"spec": a_spec(2)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "llm"},
        "spec": {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": template, **spec},
    }


async def test_an_indexed_job_is_one_gang_in_order_of_its_indexes(workloads: Workloads) -> None:
    body = a_job(12)
    await workloads.make(body)
    pods = await workloads.until_whole(*[f"llm-{number}-" for number in range(12)])
    assert all(pod["spec"]["schedulingGroup"]["podGroupName"] for pod in pods)
    await workloads.end(body)


async def test_a_pod_of_an_indexed_job_that_fails_comes_back_with_its_rank(workloads: Workloads) -> None:
    body = a_job(4)
    await workloads.make(body)
    before = await workloads.until_whole(*[f"llm-{number}-" for number in range(4)])
    await workloads.fail(before[2])
    were = [*before[:2], before[3]]
    await workloads.until_whole(*[f"llm-{number}-" for number in range(4)], without=before[2:3], were=were)
    await workloads.end(body)


async def test_the_jobs_of_a_set_are_one_gang_all_the_same(workloads: Workloads) -> None:
    spec = {"parallelism": 2, "completions": 2, "template": {"spec": a_spec(8)}}
    leader = {"name": "leader", "template": {"spec": spec | {"parallelism": 1, "completions": 1}}}
    workers = {"name": "workers", "replicas": 2, "template": {"spec": spec}}
    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "llm"},
        "spec": {"replicatedJobs": [leader, workers]},
    }
    await workloads.make(body)
    names = [f"llm-workers-{job}-{index}-" for job in range(2) for index in range(2)]
    await workloads.until_whole("llm-leader-0-0-", *names)
    await workloads.end(body)
