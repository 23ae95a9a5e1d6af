"""When a report was written, whatever the node's own clock says."""

from collections.abc import Sequence

from berth.formats.ascend.device_info import DeviceReport, report_of
from berth.schemas.nodes import NodeCondition
from berth.services.health.report_store import ReportStore
from tests.support.device_texts import RES, device_list

MINUTE = 60_000
NOON = 1_700_000_000_000


def report(update_ms: int, free: Sequence[int] = range(8)) -> DeviceReport:
    return report_of(device_list(free=free), update_s=update_ms // 1000, field="list")


class Ear:
    def __init__(self) -> None:
        self.words = ReportStore()

    def hear(
        self, update_ms: int, now_ms: int, *, is_live: bool = True, idle: int = 8, free: Sequence[int] = range(8)
    ) -> int:
        self.words.put_device("a", report(update_ms, free), now_ms=now_ms, is_live=is_live, idle=idle)
        return self.reported_ms

    @property
    def reported_ms(self) -> int:
        word = self.words.of("a").device
        assert word is not None
        return word.reported_ms


def test_what_was_there_before_counts_by_its_own_time() -> None:
    assert Ear().hear(NOON - 14 * MINUTE, NOON, is_live=False) == NOON - 14 * MINUTE
    assert Ear().hear(NOON - 14 * MINUTE, NOON) == NOON - 14 * MINUTE, "new to us, but nobody says that it is new"


def test_a_clock_that_is_fast_does_not_make_a_report_newer_than_its_receipt() -> None:
    ear = Ear()
    assert ear.hear(NOON + 60 * MINUTE, NOON, is_live=False) == NOON
    assert ear.hear(NOON + 65 * MINUTE, NOON + 5 * MINUTE) == NOON + 5 * MINUTE
    assert ear.hear(NOON + 65 * MINUTE, NOON + 30 * MINUTE) == NOON + 5 * MINUTE, "the same report again"


def test_a_clock_that_is_slow_is_learned_from_what_is_watched() -> None:
    ear = Ear()
    slow = 20 * MINUTE
    assert ear.hear(NOON - slow, NOON, is_live=False) == NOON - slow
    assert ear.hear(NOON + MINUTE - slow, NOON + MINUTE) == NOON + MINUTE
    late = NOON + 9 * MINUTE
    assert ear.hear(NOON + 6 * MINUTE - slow, late, is_live=False) == NOON + 6 * MINUTE, "found in a list after a pause"


def test_an_old_report_that_comes_late_is_old() -> None:
    ear = Ear()
    ear.hear(NOON, NOON, is_live=False)
    ear.hear(NOON + MINUTE, NOON + MINUTE)
    assert ear.hear(NOON + 10 * MINUTE, NOON + 60 * MINUTE) == NOON + 10 * MINUTE


def test_a_clock_that_is_set_is_learned_anew() -> None:
    ear = Ear()
    ear.hear(NOON + 60 * MINUTE, NOON, is_live=False)
    ear.hear(NOON + 61 * MINUTE, NOON + MINUTE)
    assert ear.hear(NOON + 2 * MINUTE, NOON + 2 * MINUTE) == NOON + 2 * MINUTE, "set back to the truth"
    assert ear.hear(NOON + 3 * MINUTE, NOON + 3 * MINUTE) == NOON + 3 * MINUTE


def test_an_earlier_run_may_have_known_better() -> None:
    ear = Ear()
    ear.words.restore(NodeCondition("a", updated_ms=NOON - 2 * MINUTE))
    assert ear.hear(NOON - 20 * MINUTE, NOON, is_live=False) == NOON - 2 * MINUTE


def test_a_time_of_nothing_is_no_time_before_1970() -> None:
    ear = Ear()
    ear.hear(NOON + 60 * MINUTE, NOON, is_live=False)
    ear.hear(NOON + 61 * MINUTE, NOON + MINUTE)
    ear.words.put_device("a", report(0), now_ms=NOON + 2 * MINUTE, is_live=False, idle=8)
    assert ear.reported_ms == 0


def test_a_list_that_grows_too_early_is_believed_later() -> None:
    ear = Ear()
    ear.hear(NOON, NOON, idle=4, free=[4, 5, 6, 7])
    ear.hear(NOON + 5_000, NOON + 5_000, idle=4, free=list(range(8)))
    assert ear.words.unsettled == {"a"}
    ear.words.reexamine("a", now_ms=NOON + 14_000, idle=4)
    assert ear.words.unsettled == {"a"}
    ear.words.reexamine("a", now_ms=NOON + 16_000, idle=4)
    assert ear.words.unsettled == set()
    word = ear.words.of("a").device
    assert word is not None
    assert len(word.views[RES].shown.free) == 8


def test_doubt_is_new_once_and_ends_once() -> None:
    words = ReportStore()
    assert words.mark_suspect("a", "x", "why")
    assert not words.mark_suspect("a", "x", "why else")
    assert words.of("a").suspect == {"x": "why else"}
    assert words.suspect_count({"a"}) == 1
    assert words.suspect_count(set()) == 0, "nodes that are gone do not count"
    assert words.mark_valid("a", "x")
    assert not words.mark_valid("a", "x")
    assert words.suspect_count({"a"}) == 0


def test_an_earlier_run_may_have_known_less() -> None:
    ear = Ear()
    ear.words.restore(NodeCondition("a", updated_ms=NOON - 20 * MINUTE))
    assert ear.hear(NOON - 2 * MINUTE, NOON, is_live=False) == NOON - 2 * MINUTE
