"""Jobs of one name are found without a look at all pods."""

from _collections_abc import dict_values
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from berth.services.summary.views import PodView
from tests.unit.services.summary.test_job_summaries import Desk, a_group, a_pod


class Scanned(dict[str, PodView]):
    """Counts how often all pods are looked at."""

    scans = 0

    def values(self) -> "dict_values[str, PodView]":
        self.scans += 1
        return super().values()


def test_the_end_of_a_job_does_not_look_at_all_pods() -> None:
    desk = Desk()
    pods = desk.book._pods = Scanned()
    desk.at(10, *(a_group(uid=f"u-{number}", kind=f"Kind{number}") for number in range(20)), a_pod(0), a_pod(1))
    before = pods.scans
    for number in range(20):
        desk.book.drop_group(("team-a", f"llm-u-{number}"))
        desk.at(11 + number)
    assert desk.data()["job_id"] == "u-llm", "the last one of this name"
    assert pods.scans == before


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 2)), max_size=30))
def test_jobs_of_one_name_are_known_whatever_comes_and_goes(steps: list[tuple[bool, int, int]]) -> None:
    desk = Desk()
    for is_there, which, owner in steps:
        if is_there and which < 2:
            desk.book.set_pod(a_pod(which, owner=f"u-{owner}"))
        elif is_there:
            desk.book.set_group(a_group(uid=f"u-{owner}"))
        elif which < 2:
            desk.book.drop_pod(f"u-llm-{which}-1")
        else:
            desk.book.drop_group(("team-a", f"llm-u-{owner}"))
        jobs = [view.job for view in desk.book._pods.values()] + [view.job for view in desk.book._groups.values()]
        counted = Counter((job.namespace, job.name, job.uid) for job in jobs)
        found = {(*place, uid): count for place, counts in desk.book._named.items() for uid, count in counts.items()}
        assert found == counted
        assert all(desk.book._named.values())
