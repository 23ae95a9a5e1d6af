"""Records of restarts: whatever happens, the limits hold, the newest stays, and a restart reads what was written."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from berth.formats.ascend.reschedule_reasons import (
    PODS_MAX,
    RECORDS_MAX,
    ROUNDS_MAX,
    JobRestarts,
    PodReason,
    Restart,
    Restarts,
    fitted,
    read_restarts,
    restart_of,
    text_of,
    with_restart,
)

NAMES = st.text(st.characters(codec="utf-8"), max_size=30)
PODS = st.lists(st.builds(PodReason, reason=NAMES, pod=NAMES, node=NAMES, rank=NAMES), max_size=PODS_MAX + 3)
EVENTS = st.lists(st.tuples(st.sampled_from(["a/x", "a/y", "b/x", "é/\u2028"]), PODS), max_size=60)


def played(events: list[tuple[str, list[PodReason]]]) -> Restarts:
    found: Restarts = {}
    for at_s, (key, pods) in enumerate(events):
        found[key] = with_restart(found.get(key), key, restart_of(at_s, f"I{at_s}", pods))
    return found


def without_oldest(job: JobRestarts, count: int) -> list[Restart]:
    listed = job.restarts or []
    return listed[: max(1, len(listed) - count)]


@given(EVENTS)
def test_records_are_the_newest_in_order_and_all_restarts_count(events: list[tuple[str, list[PodReason]]]) -> None:
    found = played(events)
    for key, job in found.items():
        times = [at_s for at_s, (name, _) in enumerate(events) if name == key]
        assert job.total == len(times)
        assert [one.at_s for one in job.restarts or ()] == times[::-1][:RECORDS_MAX]
        for one in job.restarts or ():
            assert one.pods == events[one.at_s][1][:PODS_MAX]
    assert read_restarts(text_of(found)) == found


@given(EVENTS, st.integers(0, 6_000))
def test_what_does_not_fit_loses_the_oldest_of_each_job(events: list[tuple[str, list[PodReason]]], most: int) -> None:
    before = played(events)
    found, text = fitted(before, bytes_max=most)
    assert text == text_of(found)
    assert found.keys() == before.keys()
    cuts = [len(before[key].restarts or ()) - len(found[key].restarts or ()) for key in found]
    rounds = max(cuts, default=0)
    assert rounds <= ROUNDS_MAX
    for key, job in found.items():
        listed, all_ = job.restarts or [], before[key].restarts or []
        assert listed == all_[: len(listed)]
        assert len(listed) == max(1, len(all_) - rounds)
        assert job.total == before[key].total
    fits = len(text.encode()) <= most
    assert fits or all(len(job.restarts or ()) == 1 for job in found.values())
    if rounds:  # one round fewer was not enough
        fewer = {
            key: msgspec.structs.replace(job, restarts=without_oldest(job, rounds - 1)) for key, job in before.items()
        }
        assert len(text_of(fewer).encode()) > most
