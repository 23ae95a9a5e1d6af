import pytest

from berth.formats.ascend.free_list import FreeList, looked_again, refreshed, with_report


def lists(free: str, update_s: int, unhealthy: str = "") -> FreeList:
    return FreeList(tuple(free), frozenset(unhealthy), update_s)


BEFORE = lists("abcd", 100, "x")


@pytest.mark.parametrize(
    ("report", "idle", "shown"),
    [
        (lists("abcdef", 100), 4, "abcd"),  # no newer
        (lists("abcdef", 99), 4, "abcd"),
        (lists("abcdef", 111), 4, "abcdef"),  # more than 10 s newer
        (lists("abcdef", 110), 4, "abcd"),  # 10 s are not more than 10
        (lists("", 101), 4, ""),  # an empty one is taken whole
        (lists("abcdef", 101), 5, "abcdef"),  # what was shown does not agree with Kubernetes
        (lists("abce", 101), 4, "abce"),  # the new one agrees
        (lists("abcdef", 101), 4, "abcd"),  # early: e and f come back too soon
        (lists("abxdef", 101), 4, "abxd"),  # x was unhealthy, so it may come back
        (lists("abc", 101), 4, "abc"),  # fewer are believed
    ],
)
def test_the_rule(report: FreeList, idle: int, shown: str) -> None:
    assert "".join(refreshed(BEFORE, report, idle=idle).free) == shown


def test_the_first_report_is_taken_whole_and_so_is_one_after_an_empty_one() -> None:
    report = lists("ab", 5)
    assert refreshed(None, report, idle=1) is report
    assert refreshed(lists("", 4), report, idle=0) is report


def test_what_is_unhealthy_is_always_taken_from_the_report() -> None:
    assert refreshed(BEFORE, lists("abcdef", 101, "y"), idle=4).unhealthy == {"y"}


def test_a_view_believes_a_report_when_kubernetes_agrees_or_after_ten_seconds() -> None:
    view = with_report(None, BEFORE, idle=4)
    assert view.shown is BEFORE
    view = with_report(view, lists("abcdef", 103), idle=4)
    assert view.shown.free == tuple("abcd")
    assert looked_again(view, idle=4, age_s=10).shown.free == tuple("abcd")
    assert looked_again(view, idle=6, age_s=1).shown.free == tuple("abcdef")
    assert looked_again(view, idle=4, age_s=10.1).shown.free == tuple("abcdef")


def test_a_view_that_believes_stays_as_it_is() -> None:
    view = with_report(None, BEFORE, idle=4)
    assert looked_again(view, idle=1, age_s=0) is view
    assert with_report(view, lists("z", 100), idle=4) is view


def test_reports_in_a_row_are_each_judged_by_what_is_shown() -> None:
    view = with_report(None, BEFORE, idle=4)
    view = with_report(view, lists("abcdef", 103), idle=4)
    view = with_report(view, lists("abcdeg", 106), idle=4)
    assert view.shown.free == tuple("abcd")
    view = with_report(view, lists("abcdeg", 117), idle=4)
    assert view.shown.free == tuple("abcdeg")
