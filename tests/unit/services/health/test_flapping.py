"""Flapping chips: excluded for a growing time, bounded, forgotten after a quiet time, kept over restarts."""

from collections.abc import Iterator

import pytest

from berth.core.cluster.node_packing import pack_health, unpack_health
from berth.schemas.facts import HealthSource, NodeHealth
from berth.schemas.fault_facts import FlappingChip
from berth.schemas.nodes import NodeCondition
from berth.services.health.flapping import FlapHistory, FlapRules
from tests.support.health_worlds import World, a_node
from tests.support.waiting import until

RULES = FlapRules(hold_ms=60_000, hold_max_ms=300_000, quiet_ms=1_000_000)
HOUR_MS = 3_600_000


class Chip:
    """Chip 3 of a node with eight chips, and a clock."""

    def __init__(self, rules: FlapRules = RULES) -> None:
        self.book = FlapHistory(rules)
        self.now_ms = 1_700_000_000_000

    def say(self, unhealthy: int = 0, **fields: object) -> NodeCondition:
        condition = NodeCondition("n", unhealthy=unhealthy, **fields)  # type: ignore[arg-type]  # fields of it
        return self.book.judge(condition, 0xFF, self.now_ms)

    def fault(self, lasts_ms: int = 1_000) -> int:
        """A fault comes and goes; how long the chip is withheld after it."""
        assert self.say(8).withheld == 0
        self.now_ms += lasts_ms
        found = self.say()
        until_ms = self.book.next_change_ms("n", self.now_ms)
        assert (found.withheld != 0) == (until_ms is not None)
        return 0 if until_ms is None else until_ms - self.now_ms

    def lengths(self, count: int) -> Iterator[int]:
        for _ in range(count):
            yield self.fault()
            self.now_ms += 1_000


def test_each_further_fault_excludes_a_chip_for_twice_as_long_up_to_a_limit() -> None:
    assert list(Chip().lengths(6)) == [0, 60_000, 120_000, 240_000, 300_000, 300_000]
    chip = Chip()
    assert max(chip.lengths(2_000)) == 300_000, "the number of faults is no bound"


def test_it_takes_work_again_when_the_time_is_over_and_not_before() -> None:
    chip = Chip()
    list(chip.lengths(2))
    chip.now_ms += 58_999
    assert chip.say().withheld == 8
    chip.now_ms += 1
    assert chip.say().withheld == 0
    assert chip.book.next_change_ms("n", chip.now_ms) is None


def test_a_quiet_time_forgets_its_faults() -> None:
    chip = Chip()
    list(chip.lengths(4))
    chip.now_ms += 1_000_000
    assert chip.fault() == 0
    chip.now_ms += 999_999
    assert chip.fault() == 60_000


def test_nothing_is_kept_of_quiet_chips() -> None:
    chip = Chip()
    chip.fault()
    assert len(chip.book) == 1
    chip.now_ms += 1_000_000
    chip.book.forget(chip.now_ms)
    assert len(chip.book) == 0
    chip.fault()
    chip.now_ms += 1_000_000
    chip.say()
    assert len(chip.book) == 0
    assert FlapHistory(RULES).judge(NodeCondition("n"), 0xFF, 0) == NodeCondition("n")


def test_a_fault_that_lasts_is_one_fault_however_often_it_is_reported() -> None:
    chip = Chip()
    for _ in range(10):
        assert chip.say(8).withheld == 0
        chip.now_ms += 100_000
    chip.say()
    assert chip.fault() == 60_000


def test_a_chip_that_recovers_is_not_well_yet() -> None:
    chip = Chip()
    chip.say(8)
    chip.say(recovering=8)
    chip.say(8)
    chip.say(recovering=8)
    assert chip.say().withheld == 0
    assert chip.book.rows(["n"]) == [FlappingChip(0, 3, 1, chip.now_ms)]


def test_a_node_that_comes_and_goes_takes_all_its_chips_along() -> None:
    chip = Chip()
    for _ in range(2):
        chip.say(level=NodeHealth.EVICT)
        chip.now_ms += 1_000
        chip.say()
    found = chip.say()
    assert found.withheld == 0xFF


def test_other_chips_and_other_nodes_are_not_concerned() -> None:
    chip = Chip()
    list(chip.lengths(3))
    found = chip.say(0b1)
    assert (found.unhealthy, found.withheld) == (0b1, 8)
    assert chip.book.judge(NodeCondition("m"), 0xFF, chip.now_ms) == NodeCondition("m")


def test_the_reason_names_the_chip_the_number_and_the_end() -> None:
    chip = Chip()
    list(chip.lengths(2))
    told = "flapping: chip 3 failed 2 times, no new work until 2023-11-14T22:14:23Z"
    assert chip.say().reason == told
    assert chip.say(reason="NodeD: x").reason == f"NodeD: x; {told}"


def test_without_a_time_nothing_is_excluded_or_kept() -> None:
    chip = Chip(FlapRules(hold_ms=0, hold_max_ms=0, quiet_ms=1_000))
    assert list(chip.lengths(4)) == [0, 0, 0, 0]
    assert len(chip.book) == 0


@pytest.mark.parametrize("unhealthy", [0, 8])
def test_another_run_goes_on_where_this_one_ended(unhealthy: int) -> None:
    first, second = Chip(), Chip()
    list(first.lengths(3))
    condition = first.say(unhealthy, withheld=0b100, reason="x")
    (packed,) = unpack_health(pack_health("d", [condition]))
    second.now_ms = first.now_ms
    found = second.book.restore(first.book.rows(["n"]), {0: packed})
    assert list(found.values()) == ([] if unhealthy else [NodeCondition("n", withheld=0b100, reason="x")])
    for chip in (first, second):
        chip.now_ms += 5_000
        chip.say()
    assert first.book.rows(["n"]) == second.book.rows(["n"])
    assert first.fault() == second.fault()


def test_rows_of_a_fact_that_name_no_node_are_ignored() -> None:
    book = FlapHistory(RULES)
    assert book.restore([FlappingChip(7, 3, 2, 1, 2)], {0: NodeCondition("n")}) == {}
    assert len(book) == 0


async def test_a_flapping_chip_is_withheld_in_facts_and_by_the_next_run_too() -> None:
    world = World()
    await world.bus.ensure_streams()
    await world.nodes("d", a_node("a"))
    world.device("a")
    async with world.service():
        for _ in range(2):
            world.device("a", unhealthy=[3])
            row = await world.has("a", unhealthy=8)
            assert row.sources == HealthSource.DEVICE_PLUGIN
            world.clock.advance(1)
            world.device("a")
            await world.has("a", unhealthy=0)
        row = await world.has("a", withheld=8)
        assert "flapping: chip 3 failed 2 times" in row.reason
        assert [(one.chip, one.faults) for one in world.history("d")[-1].flapping] == [(3, 2)]
    world.clock.advance(30)
    async with world.service():
        world.device("a")
        world.clock.advance(29)
        world.device("a", unhealthy=[5])
        assert (await world.has("a", unhealthy=32)).withheld == 8
        world.device("a")
        assert (await world.has("a", unhealthy=0)).withheld == 8
        world.clock.advance(1)
        row = await world.has("a", withheld=0)
        assert row.reason == ""
        await until(lambda: len(world.history("d")[-1].flapping) == 2, deadline_s=5, what="both chips to be known")
