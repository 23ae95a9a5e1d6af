"""The order in which pods, PodGroups and owners are seen does not matter to what is requested."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from berth.formats.kubernetes.workloads.port import OwnerKey
from berth.schemas.columns import unpack
from berth.schemas.intake import JobRequest
from berth.services.inventory.effects import PublishMembers, PublishRequest, ReadOwner
from berth.services.inventory.gang_collection import Gangs
from berth.services.inventory.gangs.settings import GangSettings
from tests.support.gang_world import a_group, a_pod, facts_of

SETTLE_MS = 200
KINDS = ("lone", "group", "job", "loose", "lws", "unknown")
WHOLE = ("group", "job", "lws")
"""Kinds whose pods start together, and whose number is known."""


def spec_of(pods: int, *, indexed: bool) -> dict[str, Any]:
    mode = "Indexed" if indexed else "NonIndexed"
    return {"parallelism": pods, "completions": pods, "completionMode": mode}


class Cluster:
    """Gangs, and what they ask for; owners are read as soon as the gangs want to."""

    def __init__(self, sizes: list[tuple[str, int]]) -> None:
        self.sizes = sizes
        self.gangs = Gangs(GangSettings(), settle_ms=SETTLE_MS)
        self.now_ms = 1_000_000
        self.requests: dict[str, JobRequest] = {}
        self.members: dict[str, tuple[str, dict[int, str]]] = {}

    def see(self, number: int, which: int) -> None:
        """See an object of a gang: 0 is its PodGroup, pods count from 1."""
        kind, size = self.sizes[number]
        name = f"{kind}-{number}"
        if which == 0:
            owner = ("kubeflow.org/v1", "PyTorchJob", name, "pt") if kind == "unknown" else None
            if kind in {"group", "unknown"}:
                self.gangs.set_group(a_group(name, least=size, owner=owner))
            return
        controller = ("batch/v1", "Job", name, f"uid-{name}") if kind in {"job", "loose"} else None
        labels = {"batch.kubernetes.io/job-completion-index": str(which - 1)} if kind == "job" else {}
        annotations = {}
        if kind == "lws":
            labels = {
                "leaderworkerset.sigs.k8s.io/name": name,
                "leaderworkerset.sigs.k8s.io/group-key": "k",
                "leaderworkerset.sigs.k8s.io/worker-index": str(which - 1),
            }
            annotations = {"leaderworkerset.sigs.k8s.io/size": str(size)}
        group = name if kind in {"group", "unknown"} else ""
        self.gangs.set_pod(
            a_pod(f"{name}-{which}", group=group, owner=controller, labels=labels, annotations=annotations)
        )

    def settle(self, pause_ms: int) -> None:
        self.now_ms += pause_ms
        again = True
        while again:
            again = False
            for effect in self.gangs.settle(self.now_ms):
                match effect:
                    case PublishMembers(seen):
                        ranks = dict(zip(unpack(seen.rank, 4), seen.pods, strict=True))
                        self.members[seen.job] = (seen.uid, ranks)
                    case PublishRequest(request):
                        self.requests[request.name] = request
                    case ReadOwner(owner):
                        self._read(owner)
                        again = True
                    case _:
                        pass

    def _read(self, owner: OwnerKey) -> None:
        kind, number = owner.name.split("-")
        size = self.sizes[int(number)][1]
        self.gangs.set_owner(owner, facts_of(owner, spec_of(size, indexed=kind == "job")))

    def events(self) -> list[tuple[int, int]]:
        found = []
        for number, (kind, size) in enumerate(self.sizes):
            found += [(number, which) for which in range((1 if kind == "lone" else size) + 1)]
        return found


def asked(sizes: list[tuple[str, int]], order: list[tuple[int, int]], pauses_ms: list[int]) -> Cluster:
    """A cluster in which all is there."""
    cluster = Cluster(sizes)
    for (number, which), pause_ms in zip(order, pauses_ms, strict=True):
        cluster.see(number, which)
        cluster.settle(pause_ms)
    for _ in range(8):
        cluster.settle(SETTLE_MS)
    return cluster


@given(st.data())
def test_the_order_of_events_does_not_matter(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 5)), min_size=1, max_size=4))
    plain = Cluster(sizes).events()
    order = data.draw(st.permutations(plain))
    # Where more pods may always come, only what comes within the settle time is seen together.
    is_open = any(kind in {"loose", "unknown"} for kind, _ in sizes)
    longest_ms = (SETTLE_MS - 1) // len(order) if is_open else 5 * SETTLE_MS
    pauses_ms = data.draw(st.lists(st.integers(0, longest_ms), min_size=len(order), max_size=len(order)))
    found = asked(sizes, list(order), pauses_ms)
    expected = asked(sizes, plain, [0] * len(plain))
    assert (found.requests, found.members) == (expected.requests, expected.members)
    pods = sorted(one.min_available for one in found.requests.values() if one.name.split("-")[0].endswith(WHOLE))
    assert pods == sorted(size for kind, size in sizes if kind in WHOLE), "none below what will be there"
