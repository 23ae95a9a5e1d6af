"""When gangs last saved their work, by the annotation of their PodGroup or of the pod of rank 0."""

from typing import Any

import msgspec
import pytest

from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.objects import Condition, Pod, PodGroup
from berth.schemas.facts import PodsSeen
from berth.schemas.intake import CHECKPOINT_AT
from berth.schemas.units import rfc3339
from berth.services.inventory.pods.checkpoints import APART_MS
from tests.unit.services.inventory.pods.test_collection import World, a_pod, accepted

START_MS = 1_795_219_200_000
"""2026-11-21, when the pods were created."""
MINUTE_MS = 60_000


def at(minutes: float) -> str:
    """A time so long after the start, as it is written."""
    return rfc3339(START_MS + round(minutes * MINUTE_MS))


def ms(minutes: float) -> int:
    """The same time as facts have it."""
    return START_MS + round(minutes * MINUTE_MS)


def rank(number: int, stamp: str = "", *, attempt: int = 1, scheduled: str = "", **more: Any) -> Pod:  # noqa: ANN401 - whatever a pod has
    """Pod of a rank of job ``j`` in PodGroup ``pg``."""
    annotations = {"scheduling.k8s.io/group-name": "pg"} | ({CHECKPOINT_AT: stamp} if stamp else {})
    name = f"p{number}-{attempt}"
    pod = a_pod(name, job=("j", "u", attempt, number), annotations=annotations, created=at(0), **more)
    if not scheduled:
        return pod
    conditions = [Condition(type="PodScheduled", status="True", last_transition_time=scheduled)]
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=conditions))


def a_group(stamp: str = "", uid: str = "g") -> PodGroup:
    return PodGroup(
        metadata=Meta(name="pg", namespace="team", uid=uid, annotations={CHECKPOINT_AT: stamp} if stamp else None)
    )


class Gang(World):
    """A gang of two pods, an hour after its start."""

    def __init__(self, restored: list[PodsSeen] | None = None) -> None:
        super().__init__(restored)
        self.now_ms = ms(60)
        self.pods.note_job(accepted("j", "u", 2))
        self.put(rank(0), rank(1))
        if restored is None:
            self.facts()

    def stamp(self, pod: str = "", group: str = "") -> None:
        self.put(rank(0, pod))
        self.pods.checkpoints.set_group(a_group(group))

    def saved(self) -> list[int]:
        """The checkpoint of each fact that is due."""
        return [fact.checkpoint_ms for fact in self.facts()]

    def wrong(self) -> dict[tuple[str, str], str]:
        """Why stamps do not count, by kind and name of the object."""
        checkpoints = self.pods.checkpoints
        found = {}
        for uid, why in checkpoints.sentences().items():
            about = checkpoints.involved(uid)
            assert about is not None
            found[about.kind, about.name] = why
        return found


def test_a_gang_without_a_stamp_has_no_checkpoint() -> None:
    gang = Gang()
    gang.put(rank(1, at(30)))  # not the pod of rank 0
    assert (gang.saved(), gang.pods.next_due_ms(), gang.wrong()) == ([], None, {})


@pytest.mark.parametrize(
    ("pod", "group", "minutes"), [(at(30), "", 30), ("", at(40), 40), (at(30), at(40), 40), (at(50), at(40), 50)]
)
def test_the_later_stamp_of_pod_and_podgroup_counts(pod: str, group: str, minutes: int) -> None:
    gang = Gang()
    gang.stamp(pod, group)
    assert gang.saved() == [ms(minutes)]


@pytest.mark.parametrize(
    "text", ["2026-11-21T00:30:00.250Z", "2026-11-21T08:30:00.250+08:00", "2026-11-21T00:30:00.250000123Z"]
)
def test_a_stamp_is_a_time_of_rfc_3339(text: str) -> None:
    gang = Gang()
    gang.stamp(text)
    assert gang.saved() == [ms(30) + 250]


def test_a_new_stamp_is_published_once_in_thirty_seconds_and_the_last_one_wins() -> None:
    gang = Gang()
    gang.stamp(at(60))
    assert gang.saved() == [ms(60)]
    for second in range(1, 30):
        gang.now_ms = ms(60) + second * 1000
        gang.stamp(rfc3339(gang.now_ms))
        assert (gang.saved(), gang.pods.next_due_ms()) == ([], ms(60) + APART_MS)
    gang.now_ms = ms(60) + APART_MS
    assert gang.saved() == [ms(60) + 29_000]
    gang.now_ms += APART_MS
    assert (gang.saved(), gang.pods.next_due_ms()) == ([], None)


def test_other_changes_do_not_wait_for_a_stamp_and_bring_none_early() -> None:
    gang = Gang()
    gang.stamp(at(60))
    gang.saved()
    gang.now_ms += 1_000
    gang.stamp(at(60 + 1 / 60))
    gang.put(rank(1, phase="Succeeded"))
    assert gang.saved() == [ms(60)]
    gang.now_ms += APART_MS
    assert gang.saved() == [ms(60) + 1_000]


def test_a_clock_that_is_set_back_delays_no_stamp_for_long() -> None:
    gang = Gang()
    gang.stamp(at(60))
    gang.saved()
    gang.now_ms = ms(50)
    gang.stamp(at(45))
    assert gang.saved() == [ms(45)]


@pytest.mark.parametrize(
    "text", ["yesterday", "1795248000", "2026-11-21", "2026-11-21T00:30:00", "2026-11-21 00:30:00Z", "2026-13-01T00:00:00Z", "20261121T003000Z", "x" * 9_000]
)  # fmt: skip
def test_a_stamp_that_cannot_be_read_is_named_on_its_object(text: str) -> None:
    gang = Gang()
    gang.stamp(text, text)
    assert gang.saved() == []
    assert gang.wrong().keys() == {("Pod", "p0-1"), ("PodGroup", "pg")}
    why = gang.wrong()["PodGroup", "pg"]
    assert why.startswith(f"annotation berth/checkpoint-at is '{text[:80]}")
    assert why.endswith("': expected a time of RFC 3339 such as 2026-11-21T01:00:00Z")
    assert len(why) < 250
    gang.now_ms += APART_MS
    gang.stamp(at(30))
    assert (gang.saved(), gang.wrong()) == ([ms(30)], {})


def test_a_stamp_in_the_future_is_ignored_also_when_its_time_has_come() -> None:
    gang = Gang()
    gang.stamp(at(61))
    assert gang.saved() == []
    expected = "annotation berth/checkpoint-at is '2026-11-21T01:01:00Z': expected no time in the future, it is"
    assert gang.wrong() == {("Pod", "p0-1"): f"{expected} 2026-11-21T01:00:00Z"}
    gang.now_ms = ms(90)
    gang.put(rank(1, phase="Succeeded"))
    assert gang.saved() == [0]
    gang.stamp(at(80))
    assert (gang.saved(), gang.wrong()) == ([ms(80)], {})


def test_a_node_whose_clock_is_a_little_ahead_stamps_now() -> None:
    gang = Gang()
    gang.stamp(at(60.5))
    assert (gang.saved(), gang.wrong()) == ([ms(60)], {})


@pytest.mark.parametrize("text", [at(-1), "0001-01-01T00:00:00Z", "1969-07-20T20:17:40Z"])
def test_a_stamp_from_before_the_start_is_ignored(text: str) -> None:
    gang = Gang()
    gang.stamp(text)
    assert gang.saved() == []
    expected = "expected no time before 2026-11-21T00:00:00Z, the start of its pods"
    assert gang.wrong() == {("Pod", "p0-1"): f"annotation berth/checkpoint-at is '{text}': {expected}"}


def test_the_start_is_when_the_first_pod_got_its_node() -> None:
    gang = Gang()
    gang.put(rank(0, at(15), scheduled=at(20)), rank(1, scheduled=at(10)))
    assert [fact.checkpoint_ms for fact in gang.facts()] == [ms(15)]
    other = Gang()
    other.put(rank(0, at(5), scheduled=at(20)), rank(1, scheduled=at(10)))
    assert (other.saved(), len(other.wrong())) == ([], 1)


def test_a_stamp_that_is_taken_away_or_wrong_leaves_the_last_one() -> None:
    gang = Gang()
    gang.stamp(at(30))
    gang.saved()
    for text in ("", "soon", at(500)):
        gang.now_ms += APART_MS
        gang.stamp(text)
        assert gang.saved() == []
    gang.now_ms += APART_MS
    gang.stamp(at(20))  # a person takes back what the last one said
    assert gang.saved() == [ms(20)]


def test_a_pod_of_rank_0_that_is_made_anew_keeps_what_the_gang_saved() -> None:
    gang = Gang()
    gang.stamp(at(30))
    gang.saved()
    gang.now_ms += APART_MS
    gang.pods.remove("uid-p0-1")
    assert gang.saved() == [ms(30)]
    gang.put(rank(0, uid="uid-anew", scheduled=at(60)))
    assert gang.saved() == [ms(30)]


def test_another_attempt_begins_without_a_checkpoint() -> None:
    gang = Gang()
    gang.stamp(group=at(30))
    gang.saved()
    gang.now_ms = ms(90)
    for number in (0, 1):
        gang.pods.remove(f"uid-p{number}-1")
    gang.facts()
    gang.put(*(rank(number, attempt=2, scheduled=at(70)) for number in (0, 1)))
    assert [(fact.attempt, fact.checkpoint_ms) for fact in gang.facts()] == [(2, 0)]
    assert gang.wrong().keys() == {("PodGroup", "pg")}
    gang.now_ms += APART_MS
    gang.stamp(group=at(80))
    assert ([fact.checkpoint_ms for fact in gang.facts()], gang.wrong()) == ([ms(80)], {})


def test_a_restart_goes_on_with_what_was_published_and_no_earlier() -> None:
    gang = Gang()
    gang.stamp(at(30))
    facts = gang.facts()
    again = Gang(facts)
    assert again.saved() == []
    again.now_ms = ms(60) + 10_000
    again.stamp(at(60))
    assert (again.saved(), again.pods.next_due_ms()) == ([], ms(60) + APART_MS)
    again.now_ms = ms(60) + APART_MS
    assert again.saved() == [ms(60)]


def test_a_podgroup_that_is_gone_says_nothing_any_more() -> None:
    gang = Gang()
    gang.stamp(group="soon")
    gang.saved()
    assert gang.wrong().keys() == {("PodGroup", "pg")}
    gang.pods.checkpoints.replace_groups([])
    gang.now_ms += APART_MS
    assert (gang.saved(), gang.wrong()) == ([], {})
    gang.now_ms += APART_MS
    gang.stamp(group="later")
    gang.saved()
    gang.now_ms += APART_MS
    gang.pods.checkpoints.drop_group("team", "pg")
    assert (gang.saved(), gang.wrong()) == ([], {})


def test_a_podgroup_that_was_there_before_its_pods_counts() -> None:
    world = World()
    world.now_ms = ms(60)
    world.pods.checkpoints.replace_groups([a_group(at(30))])
    world.pods.note_job(accepted("j", "u", 2))
    world.put(rank(0), rank(1))
    assert [fact.checkpoint_ms for fact in world.facts()] == [ms(30)]


def test_a_stamp_that_counts_for_one_job_of_a_podgroup_is_not_wrong() -> None:
    gang = Gang()
    gang.pods.note_job(accepted("late", "v", 1))
    annotations = {"scheduling.k8s.io/group-name": "pg"}
    gang.put(a_pod("late", job=("late", "v", 1, 0), annotations=annotations, created=at(50)))
    gang.facts()
    gang.stamp(group=at(40))
    assert [(fact.gang, fact.checkpoint_ms) for fact in gang.facts()] == [("j", ms(40))]
    assert gang.wrong() == {}


def test_what_is_said_of_a_gang_ends_with_its_pods() -> None:
    gang = Gang()
    gang.stamp("soon")
    gang.facts()
    for number in (0, 1):
        gang.put(rank(number, phase="Succeeded"))
    gang.facts()
    for number in (0, 1):
        gang.pods.remove(f"uid-p{number}-1")
    gang.facts()
    assert (gang.wrong(), gang.pods.next_due_ms()) == ({}, None)
