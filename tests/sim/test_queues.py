"""Queues of stories: what is drawn, the rule that is computed anew, and faults of the product that are found by it."""

from collections import Counter
from collections.abc import Mapping
from random import Random

import msgspec
import pytest

from berth.core.explain import current_reasons
from berth.core.queues import admission
from berth.core.queues.charges import Usage
from berth.core.queues.tree import tree_of
from berth.core.state.queues import queue_index
from berth.formats.kubernetes import policies
from berth.formats.queues.queue_objects import queue_of_object
from berth.schemas.envelope import encode
from berth.schemas.queues.queue import CHIP, CPU, DEFAULT, ROOT, Queue
from berth.services.inventory.podgroups import queue_admission
from berth.services.inventory.podgroups.status import Why
from tests.sim import run
from tests.sim.cell import CellSettings
from tests.sim.loop import SimLoop
from tests.sim.manifests import pod
from tests.sim.queue_objects import WRONG, a_declared_queue, in_a_queue, volcano_queue
from tests.sim.queue_oracle import Charge, QueueOracle, is_in_force
from tests.sim.queue_watch import QUEUED
from tests.sim.story import QUEUES, Event, Story, draw, has_queues
from tests.sim.users import GROUPS, JOBS, PRIORITY_CLASSES
from tests.sim.world import World
from tests.support.cells import a_job
from tests.support.kube_rules import merged

NPU = "huawei.com/Ascend910"


def asked(queue: str, chips: int, namespace: str = "ns") -> Charge:
    return Charge(queue, namespace, {NPU: chips * CHIP})


def chips(count: int) -> dict[str, int]:
    return {NPU: count * CHIP}


def said(oracle: QueueOracle, charge: Charge) -> tuple[str, str]:
    why = oracle.why(charge)
    return ("", "") if why is None else (why.queue, why.text)


def test_a_share_of_the_seeds_has_queues_and_the_others_have_none_of_their_events() -> None:
    stories = {seed: draw(seed) for seed in range(200)}
    queued = [seed for seed in stories if has_queues(seed)]
    assert 30 < len(queued) < 70
    assert {stories[seed].queues for seed in queued} == {"volcano", "berth"}
    assert {stories[seed].settings.decisions["queues"] for seed in queued} == {0, 1, 2}
    assert {verb.verb for seed in queued for verb in stories[seed].events} >= set(QUEUES)
    others = [story for seed, story in stories.items() if seed not in queued]
    assert not any(event.verb in QUEUES for story in others for event in story.events)
    assert not any(story.queues or "queues" in story.settings.decisions for story in others)


def test_a_queue_that_is_drawn_is_read_from_its_object_as_it_is() -> None:
    for number in range(200):
        queue = msgspec.structs.replace(
            a_declared_queue([NPU], Random(number)),  # noqa: S311  # a simulation
            wrong=[],
            created=0,
        )
        found = queue_of_object(msgspec.convert(volcano_queue(queue), policies.Queue))
        assert found is not None
        weight = queue.weight or 1  # as Volcano takes it
        namespaces = sorted(queue.namespaces) if queue.namespaces is not None else None
        wanted = msgspec.structs.replace(queue, weight=weight, state=queue.state or "Open", namespaces=namespaces)
        assert found == wanted


@pytest.mark.parametrize("patch", WRONG, ids=str)
def test_a_wrong_field_makes_a_queue_not_valid(patch: dict[str, object]) -> None:
    body = merged(volcano_queue(Queue("qa")), patch)
    found = queue_of_object(msgspec.convert(body, policies.Queue))
    assert found is not None
    assert "qa" in tree_of([found]).broken


def test_a_job_names_its_queue_where_its_kind_does() -> None:
    dice = Random(1)  # noqa: S311  # a simulation
    seen: Counter[str] = Counter()
    for _ in range(50):
        job = in_a_queue({"kind": "Job", "spec": {"queue": "old"}}, dice)
        seen[job["spec"].get("queue", "none")] += 1
        policy = {"runPolicy": {"schedulingPolicy": {"minAvailable": 1}}}
        ascend = in_a_queue({"kind": "AscendJob", "spec": policy}, dice)
        assert ascend["spec"]["runPolicy"]["schedulingPolicy"].keys() == {"minAvailable", "queue"}
        pod = in_a_queue({"kind": "Pod", "metadata": {"annotations": {"a": "b"}}, "spec": {}}, dice)
        assert pod["metadata"]["annotations"]["a"] == "b"
    assert {"qa", "qb", "qc", DEFAULT, "none"} <= seen.keys()
    assert "old" not in seen


def test_the_rule_that_is_computed_anew_knows_limits_guarantees_and_namespaces() -> None:
    declared = [
        Queue("lab", capability=chips(24)),
        Queue("qa", parent="lab", guarantee=chips(8), per_namespace=chips(4)),
        Queue("qb", parent="lab"),
        Queue("qc", namespaces=["others"]),
    ]
    held = [asked("qb", 8), Charge("lab", "ns", {NPU: 4 * CHIP, CPU: 1_000}), asked("gone", 2)]
    oracle = QueueOracle({queue.name: queue for queue in declared}, chips(64), held)
    assert oracle.limits["qb"] == chips(16)
    assert oracle.limits["qa"] == chips(24)
    assert oracle.limits["qc"] == chips(64), "some queue has a guarantee, so the queues share what the nodes have"
    assert said(oracle, asked("qb", 8)) == ("", "")
    assert said(oracle, asked("qb", 9)) == ("qb", f"queue qb holds 8 of 16 {NPU}")
    assert said(oracle, asked("qb", 17)) == ("qb", f"the job asks for 17 {NPU}, queue qb may never hold more than")
    assert said(oracle, asked("qa", 5)) == (
        "qa",
        f"the job asks for 5 {NPU}, namespace ns in queue qa may never hold more than",
    )
    oracle.charge(asked("qb", 10))
    assert said(oracle, asked("qa", 4)) == ("lab", f"queue lab holds 22 of 24 {NPU}")
    assert said(oracle, asked("lab", 1)) == ("lab", "queue lab has child queues")
    assert said(oracle, asked("qc", 1)) == ("qc", "queue qc is not for jobs of namespace ns")
    assert said(oracle, asked("missing", 1)) == ("missing", "queue missing does not exist")


def test_the_rule_that_is_computed_anew_knows_what_is_not_valid_and_what_is_closed() -> None:
    declared = [
        Queue("qa", parent="qb"),
        Queue("qb", parent="qa"),
        Queue("qc", weight=0),
        Queue("lab", state="Closing"),
        Queue("small", parent="lab"),
        Queue(ROOT, capability={NPU: 1}),
    ]
    oracle = QueueOracle({queue.name: queue for queue in declared}, {})
    for name in ("qa", "qb", "qc"):
        assert said(oracle, asked(name, 1)) == (name, f"queue {name} is not valid")
    assert said(oracle, asked("small", 1)) == ("small", "queue small is Closing")
    assert said(oracle, asked(DEFAULT, 99)) == ("", ""), "wrong fields of root do not count"
    assert not is_in_force([Queue(ROOT), Queue(DEFAULT, state="Open")])
    assert is_in_force([Queue(DEFAULT, state="Closed")])


class Directed(World):
    """Two jobs of a queue in which one has room, and one each of queues that are closed, small, and small at first.

    So are requests without pods, which nobody has to admit.
    """

    def begin_queues(self) -> None:
        small = [Queue(name, capability=chips(4)) for name in ("qc", "qd")]
        for queue in (Queue("qa", capability=chips(8)), Queue("qb", state="Closed"), *small):
            self._put_queue(queue)

    def _do_job(self, event: Event) -> None:
        for number, (queue, size) in enumerate((("qa", 8), ("qa", 8), ("qb", 1), ("qc", 8), ("qd", 8))):
            body = pod("p", self.story.cluster.asks[0], Random(0), chips=size)  # noqa: S311  # a simulation
            body["metadata"]["annotations"] |= {"berth/run-for": "10s"}
            task = {"name": "worker", "replicas": 1, "template": body}
            spec = {"schedulerName": "berth", "minAvailable": 1, "queue": queue, "tasks": [task]}
            self.cell.kube.put(JOBS, {"metadata": {"name": f"j{number}"}, "spec": spec})
            ask = self.story.cluster.asks[0]
            alone = a_job(f"t{number}", chips=size, product=ask.product, labels=ask.all_labels, queue=queue)
            self.say(self.user.subjects.intake_request("default", alone.name), encode(alone))
        self.later(event.for_s, self._put_queue, Queue("qc", capability=chips(8)))


class Quota(World):
    """Three jobs of 8 chips in a queue of 16, while the nodes have room for all; the last one has a higher priority."""

    groups: Mapping[str, tuple[str, str]]
    """Phase of each PodGroup, and why it waits, while the first ones run."""

    def begin_queues(self) -> None:
        self._put_queue(Queue("qa", capability=chips(16)))

    def _do_job(self, event: Event) -> None:
        self.cell.kube.put(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 10})
        for number, priority in enumerate(("", "", "high")):
            body = pod("p", self.story.cluster.asks[0], Random(0), chips=8)  # noqa: S311  # a simulation
            body["metadata"]["annotations"] |= {"berth/run-for": "60s"}
            task = {"name": "worker", "replicas": 1, "template": body}
            spec = {"schedulerName": "berth", "minAvailable": 1, "queue": "qa", "tasks": [task]}
            spec |= {"priorityClassName": priority} if priority else {}
            self.cell.kube.put(JOBS, {"metadata": {"name": f"j{number}"}, "spec": spec})
        self.later(event.for_s, self._look)

    def _look(self) -> None:
        found: dict[str, tuple[str, str]] = {}
        for group in self.cell.kube.objects(GROUPS):
            status = group["status"]
            said = [one["message"] for one in status.get("conditions") or () if one["type"] == "Unschedulable"]
            found[group["metadata"]["name"][:2]] = (status["phase"], "; ".join(said))
        self.groups = found


@pytest.mark.parametrize("shards", [0, 1, 3])
def test_a_quota_admits_two_podgroups_and_the_third_stays_pending(monkeypatch: pytest.MonkeyPatch, shards: int) -> None:
    made: list[Quota] = []

    def quota(loop: SimLoop, seed: int, story: Story) -> Quota:
        made.append(Quota(loop, seed, story))
        return made[-1]

    settings = CellSettings(dispatchers=1, shards=shards, decisions={"queues": 2}, queues=True)
    monkeypatch.setattr(run, "World", quota)
    monkeypatch.setattr(run, "draw", lambda _: Story(0, settings, (Event(20.0, "job", for_s=30.0),), "volcano"))
    lived = run.live(0, [0])
    assert (lived.kind, lived.details) == ("", "")
    groups = made[0].groups
    assert [groups[name][0] for name in ("j0", "j1", "j2")].count("Running") == 2
    (name,) = [name for name, (phase, _) in groups.items() if phase == "Pending"]
    assert groups[name][1] == f"gangs of queue qa need at least 16 of 16 {NPU}; the job asks for 8"
    assert name != "j2", "the highest priority is first"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> list[Directed]:
    """The world that is lived through, which is not made yet."""
    made: list[Directed] = []

    def directed(loop: SimLoop, seed: int, story: Story) -> Directed:
        made.append(Directed(loop, seed, story))
        return made[-1]

    settings = CellSettings(dispatchers=1, decisions={"queues": 1}, queues=True)
    story = Story(0, settings, (Event(20.0, "job", for_s=20.0),), "volcano")
    monkeypatch.setattr(run, "World", directed)
    monkeypatch.setattr(run, "draw", lambda _: story)
    return made


def test_what_queues_do_is_checked(world: list[Directed]) -> None:
    lived = run.live(0, [0])
    assert (lived.kind, lived.details) == ("", "")
    assert [name for name in QUEUED if not world[0].observer.count[name]] == []


FAULTS: Mapping[str, tuple[object, str, object, str]] = {
    "no limit binds": (admission, "_over", None, "a place is given that a queue forbids"),
    "closed queues let jobs in": (admission, "closing_of", None, "a place is given that a queue forbids"),
    "a queue that changes wakes nobody": (queue_index, "keys_of_change", {}, "a gang waits that could be placed"),
    "a job that ends wakes nobody": (queue_index, "keys_of_less", (), "a gang waits that could be placed"),
    "no PodGroup is admitted": (
        queue_admission.QueueAdmission, "verdict", Why("JobEnqueueFailed", "no"), "a PodGroup is not admitted, and its queue lets it in",
    ),
    "a PodGroup says nothing": (queue_admission, "text_of", "no", "a PodGroup does not name the queue that keeps it"),
    "sums are wrong": (Usage, "leaving", 1, "a queue holds something else"),
    "reasons are those of the record": (current_reasons, "sentence", "no room", "a job says why it waited before"),
}  # fmt: skip
"""A function of the product and what it returns instead, and what is found."""


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_product_is_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    where, function, result, kind = FAULTS[name]
    monkeypatch.setattr(where, function, lambda *_: result)
    assert run.live(0, [0]).kind == kind
