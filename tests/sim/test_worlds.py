"""What stories are made of: clusters, jobs, wrong requests, volumes, and pods that finalizers keep."""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import get_args

import pytest

from berth.core.requests.job_validation import ValidJob
from berth.core.requests.job_validation import validate as validated
from berth.core.state.admission import Holder, Receipt, admit
from berth.formats.clusters.topology_file import parse_cluster
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest
from berth.schemas.refusal import Code
from berth.services.dispatcher.config import DecisionConfig
from tests.sim.clock import SimClock
from tests.sim.kube import SimKube, finished
from tests.sim.loop import SimLoop
from tests.sim.storage import CLAIMS, PODS, SimStorage
from tests.sim.story import UNREACHED, draw
from tests.sim.worlds import CLUSTERS, Cluster
from tests.sim.wrong import BODIES, REQUESTS
from tests.support.cells import a_job
from tests.support.stand_in_provisioner import SELECTED, mounting

ACCEPTED = frozenset(
    {
        "a policy that is none",
        "a gang above the cluster",
        "a claim that is not there",
        "a resource with a slip of the pen",
        "another namespace",
    }
)
"""What is wrong with these shows later, or only on their subject."""
NO_MESSAGE = frozenset({"an operator that is none"})


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda one: one.name)
def test_a_cluster_has_nodes_for_what_its_jobs_ask_for(cluster: Cluster) -> None:
    products = {node.product for node in parse_cluster(cluster.topology).nodes}
    settings = DecisionConfig(**cluster.decisions).to_settings()
    for ask in cluster.asks:
        assert ask.product in products
        valid = [
            validated(
                a_job(
                    "j",
                    product=ask.product,
                    chips=size,
                    replicas=pods,
                    labels=ask.all_labels,
                    annotations=ask.all_annotations,
                ),
                settings,
            )
            for size in ask.sizes
            for pods in ask.pods
        ]
        assert any(isinstance(one, ValidJob) for one in valid), valid


def test_every_cluster_is_in_some_story() -> None:
    assert {draw(seed).kind for seed in range(300)} == set(range(len(CLUSTERS)))


@pytest.mark.parametrize("name", REQUESTS)
def test_a_wrong_request_is_wrong(name: str) -> None:
    wrong = encode(REQUESTS[name](a_job("j", namespace="ns")))
    if name in NO_MESSAGE:
        with pytest.raises(DecodeError):
            decode(wrong, JobRequest)
        return
    settings = DecisionConfig().to_settings()
    seen = admit(decode(wrong, JobRequest), Receipt(1, 0, 0), Holder(), settings)
    assert (seen.refusal is None) == (name in ACCEPTED), seen.refusal


def test_wrong_requests_have_every_refusal_that_a_request_can_have() -> None:
    settings = DecisionConfig().to_settings()
    codes = set()
    for name, wrong in REQUESTS.items():
        if name not in NO_MESSAGE:
            seen: JobSeen = admit(wrong(a_job("j", namespace="ns")), Receipt(1, 0, 0), Holder(), settings)
            codes.add(seen.refusal.code if seen.refusal is not None else "")
    assert codes == {
        "", "invalid-request", "invalid-argument", "not-enough-pods", "unsupported-policy", "unsupported-vnpu",
        "job-shape", "larger-than-round", "too-large",
    }  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_what_is_no_request_does_not_decode(body: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(body, JobRequest)


def test_refusals_that_must_not_be_are_codes() -> None:
    assert set(UNREACHED) <= set(get_args(Code))


class Shelf:
    """An API server with controllers of volumes, on a loop of its own."""

    def __init__(self) -> None:
        self.loop = SimLoop(1)
        self.kube = SimKube(self.loop, SimClock(self.loop), Random(1))  # noqa: S311  # a simulation
        self.storage = SimStorage(self.loop, self.kube, Random(1))  # noqa: S311  # a simulation
        self.kube.on_change = self.storage.changed
        self.storage.begin(["a", "b"])

    def pass_time(self) -> None:
        """Let five seconds pass."""

        async def wait() -> None:
            await asyncio.sleep(5)

        self.loop.run_until_complete(wait())

    def phase(self, name: str) -> str:
        found = self.kube.object(f"{CLAIMS}/{name}")
        phase: str = found["status"]["phase"]
        return phase

    def select(self, name: str, node: str) -> None:
        patch = {"metadata": {"annotations": {SELECTED: node}}}
        finished(self.kube.patch(f"{CLAIMS}/{name}", patch))


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    """A shelf whose loop is closed in the end."""
    made = Shelf()
    yield made
    made.loop.close()


def test_a_claim_gets_a_volume_once_a_node_is_selected_and_the_provisioner_may_refuse(shelf: Shelf) -> None:
    shelf.storage.refuses = 1.0
    shelf.storage.claim("c", "made")
    shelf.storage.claim("n", "now")
    shelf.pass_time()
    assert (shelf.phase("c"), shelf.phase("n")) == ("Pending", "Bound")
    shelf.select("c", "b")
    shelf.pass_time()
    found = shelf.kube.object(f"{CLAIMS}/c")
    assert (found["status"]["phase"], SELECTED in found["metadata"]["annotations"]) == ("Pending", False)
    shelf.storage.refuses = 0.0
    shelf.select("c", "b")
    shelf.pass_time()
    assert shelf.phase("c") == "Bound"


def test_a_claim_stays_as_long_as_a_pod_uses_it(shelf: Shelf) -> None:
    shelf.storage.claim("n", "now")
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "a", **mounting("n")}}
    shelf.kube.put(PODS, pod)
    shelf.pass_time()
    shelf.storage.unclaim("n")
    shelf.pass_time()
    assert shelf.storage.names() == ["n"]
    assert "deletionTimestamp" in shelf.kube.object(f"{CLAIMS}/n")["metadata"]
    shelf.kube.confirm(f"{PODS}/p")
    shelf.pass_time()
    assert shelf.storage.names() == []


def test_a_pod_with_a_finalizer_stays_until_it_is_taken_away(shelf: Shelf) -> None:
    path = f"{PODS}/p"
    shelf.kube.put(PODS, {"metadata": {"name": "p", "finalizers": ["sim/held"]}, "spec": {"nodeName": "a"}})
    finished(shelf.kube.delete(path, grace_s=0))
    finished(shelf.kube.delete(path, grace_s=0))
    assert "deletionTimestamp" in shelf.kube.object(path)["metadata"]
    shelf.kube.release(path)
    assert shelf.kube.objects(PODS) == []
