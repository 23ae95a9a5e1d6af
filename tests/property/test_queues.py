"""Queues: splits are exact, children stay within their parents, and wrong queues affect no others."""

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from berth.core.queues.admission import Ask, gangs_within, minima_of, placement_refusal
from berth.core.queues.amounts import is_within, judged
from berth.core.queues.charges import Holding, Usage
from berth.core.queues.order import leaves_in_order, next_leaf
from berth.core.queues.shares import Shares, shares_of
from berth.core.queues.split import Entry, split
from berth.core.queues.tree import Tree, tree_of
from berth.schemas.queues.queue import ROOT, Queue

NPU = "huawei.com/Ascend910"
DIMENSIONS = st.sampled_from(["cpu", "memory", NPU])
AMOUNTS = st.dictionaries(DIMENSIONS, st.integers(0, 40).map(lambda number: number * 100), max_size=3)
CAPACITY = st.fixed_dictionaries({name: st.integers(0, 80).map(lambda n: n * 100) for name in ("cpu", "memory", NPU)})


@st.composite
def entries(draw: st.DrawFn) -> list[Entry]:
    found = []
    for number in range(draw(st.integers(0, 6))):
        floor = draw(st.integers(0, 30))
        cap = draw(st.none() | st.integers(floor, 60))
        found.append(Entry(f"q{number}", draw(st.integers(0, 9)), floor, cap))
    return found


@st.composite
def forests(draw: st.DrawFn) -> list[Queue]:
    """Valid queues, each below one before it or below the root."""
    found: list[Queue] = []
    for number in range(draw(st.integers(1, 8))):
        parent = draw(st.sampled_from(["", *(queue.name for queue in found)]))
        found.append(
            Queue(
                f"q{number}",
                parent=parent,
                capability=draw(AMOUNTS),
                guarantee=draw(AMOUNTS),
                deserved=draw(st.just({}) | AMOUNTS),
                weight=draw(st.integers(1, 5)),
                priority=draw(st.integers(0, 2)),
                state=draw(st.sampled_from(["", "Open", "Closing", "Closed"])),
                created=draw(st.integers(0, 3)),
            )
        )
    return found


@st.composite
def wrong_queues(draw: st.DrawFn) -> list[Queue]:
    """Queues that are not valid, whatever is beside them."""
    kinds = [
        Queue("x", parent="x", guarantee={NPU: 500}, deserved={NPU: 500}),
        Queue("y", parent="nowhere", capability={NPU: 0}, priority=9),
        Queue("z", weight=-1, guarantee={"cpu": 900}),
        Queue("v", parent="w", guarantee={NPU: 100}),
        Queue("w", parent="v"),
        Queue("u", parent="q0", capability={NPU: -100}),
    ]
    return draw(st.lists(st.sampled_from(kinds), unique_by=lambda queue: queue.name))


@given(st.integers(0, 200), entries(), st.randoms(use_true_random=False))
def test_a_split_is_exact_and_free_of_order(amount: int, parts: list[Entry], shuffler: random.Random) -> None:
    found = split(amount, parts)
    for entry in parts:
        assert entry.floor <= found[entry.name]
        assert entry.cap is None or found[entry.name] <= entry.cap
    weighed = [entry for entry in parts if entry.weight]
    fixed = sum(entry.floor for entry in parts if not entry.weight)
    least = sum(entry.floor for entry in weighed)
    most = None if any(entry.cap is None for entry in weighed) else sum(entry.cap or 0 for entry in weighed)
    wanted = max(least, amount - fixed)
    assert sum(found[entry.name] for entry in weighed) == (wanted if most is None else min(most, wanted))
    shuffled = list(parts)
    shuffler.shuffle(shuffled)
    assert split(amount, shuffled) == found


@given(st.integers(0, 200), entries())
def test_more_weight_gets_no_less_beside_equal_bounds(amount: int, parts: list[Entry]) -> None:
    free = [entry._replace(floor=0, cap=None) for entry in parts]
    found = split(amount, free)
    ranked = sorted(free, key=lambda entry: entry.weight)
    assert [found[entry.name] for entry in ranked] == sorted(found[entry.name] for entry in ranked) or len(
        {entry.weight for entry in ranked}
    ) < len(ranked)


@given(forests(), CAPACITY)
def test_no_child_has_more_than_its_parent(queues: list[Queue], capacity: dict[str, int]) -> None:
    tree = tree_of(queues)
    shares = shares_of(tree, capacity)
    for name, children in tree.children.items():
        declares = any(tree.queues[child].deserved for child in children)
        for dimension in capacity:
            above = shares.limits[name].get(dimension)
            if above is not None:
                assert all(shares.limits[child][dimension] <= above for child in children)
            floors = sum(tree.queues[child].guarantee.get(dimension, 0) for child in children)
            entitled = sum(shares.entitlements[child][dimension] for child in children)
            assert declares or entitled <= max(floors, shares.entitlements[name][dimension])


@given(forests(), wrong_queues(), CAPACITY, st.randoms(use_true_random=False))
def test_wrong_queues_affect_no_others(
    queues: list[Queue], wrong: list[Queue], capacity: dict[str, int], shuffler: random.Random
) -> None:
    alone, mixed = tree_of(queues), [*queues, *wrong]
    shuffler.shuffle(mixed)
    beside = tree_of(mixed)
    assert beside.paths == alone.paths
    assert beside.children == alone.children
    assert {queue.name for queue in wrong} == set(beside.broken)
    mine, theirs = shares_of(alone, capacity), shares_of(beside, capacity)
    assert (mine.limits, mine.entitlements) == (theirs.limits, theirs.entitlements)
    assert leaves_in_order(mine, Usage(alone)) == leaves_in_order(theirs, Usage(beside))
    assert {name: beside.states[name] for name in alone.paths} == {name: alone.states[name] for name in alone.paths}


@given(forests(), CAPACITY, st.lists(st.tuples(st.integers(0, 7), AMOUNTS), max_size=8))
def test_nothing_that_is_placed_raises_a_queue_above_its_limit(
    queues: list[Queue], capacity: dict[str, int], asks: list[tuple[int, dict[str, int]]]
) -> None:
    tree = tree_of(queues)
    shares = shares_of(tree, capacity)
    usage = Usage(tree)
    for number, charge in asks:
        name = f"q{number}"
        if placement_refusal(shares, usage, Ask(name, charge)) is None:
            usage.charge(name, charge)
    for name, limits in shares.limits.items():
        assert all(usage.held(name, dimension) <= limit for dimension, limit in limits.items())


@given(forests(), CAPACITY, st.lists(st.tuples(st.integers(0, 7), AMOUNTS), max_size=5))
def test_the_first_of_all_leaves_has_the_next_turn(
    queues: list[Queue], capacity: dict[str, int], held: list[tuple[int, dict[str, int]]]
) -> None:
    tree = tree_of(queues)
    shares = shares_of(tree, capacity)
    gangs = [Holding(f"g{at}", f"q{number}", charge) for at, (number, charge) in enumerate(held)]
    usage = Usage(tree, gangs)
    order = leaves_in_order(shares, usage)
    assert sorted(order) == sorted(tree.leaves())
    for at in range(len(order)):
        awake = {step for name in order[at:] for step in tree.paths[name]}
        assert next_leaf(shares, usage, awake) == order[at]


@given(forests(), st.lists(st.tuples(st.integers(0, 9), AMOUNTS), max_size=6), st.randoms(use_true_random=False))
def test_charges_are_free_of_order_and_can_be_taken_back(
    queues: list[Queue], held: list[tuple[int, dict[str, int]]], shuffler: random.Random
) -> None:
    tree = tree_of(queues)
    gangs = [Holding(f"g{at}", f"q{number}", charge) for at, (number, charge) in enumerate(held)]
    usage = Usage(tree, gangs)
    shuffler.shuffle(gangs)
    other = Usage(tree, gangs)
    assert sums(usage, tree) == sums(other, tree)
    for gang in gangs:
        usage.charge(gang.queue, gang.charge, times=-1)
    assert not any(sums(usage, tree).values())


def stays(shares: Shares, gang: Holding, ask: Ask, *, is_within_entitlement: bool) -> bool:
    """Whether one running gang counts against one that asks, stated for the two alone."""
    if gang.is_leaving:
        return False
    if gang.is_critical or not gang.is_preemptable or not ask.may_displace:
        return True
    if gang.queue == ask.queue:
        return gang.priority >= ask.priority
    if is_within_entitlement or not shares.tree.is_reclaimable(gang.queue):
        return True
    mine, _ = shares.tree.branches(ask.queue, gang.queue)
    return not all(is_within(ask.minimum, shares.entitlements[step], judged(ask.minimum)) for step in mine)


@st.composite
def holdings(draw: st.DrawFn) -> list[Holding]:
    return [
        Holding(
            f"g{at}",
            f"q{draw(st.integers(0, 9))}",
            draw(AMOUNTS),
            priority=draw(st.integers(0, 2)),
            start=at,
            is_leaving=draw(st.booleans()),
            is_preemptable=draw(st.integers(0, 3)) > 0,
            is_critical=draw(st.integers(0, 3)) == 0,
        )
        for at in range(draw(st.integers(0, 8)))
    ]


@given(forests(), CAPACITY, holdings(), st.integers(0, 7), AMOUNTS, st.integers(0, 2), st.booleans())
def test_admission_counts_each_gang_that_stays_along_the_path(
    queues: list[Queue],
    capacity: dict[str, int],
    gangs: list[Holding],
    number: int,
    minimum: dict[str, int],
    priority: int,
    may_displace: bool,  # noqa: FBT001
) -> None:
    shares = shares_of(tree_of(queues), capacity)
    ask = Ask(f"q{number}", minimum, priority=priority, may_displace=may_displace)
    within = gangs_within(shares, gangs)
    staying = Usage(
        shares.tree,
        [gang for gang in gangs if stays(shares, gang, ask, is_within_entitlement=gang.uid in within)],
    )
    expected, got = placement_refusal(shares, staying, ask), minima_of(shares, gangs).refusal(ask)
    assert (expected is None) == (got is None)
    if expected is not None and got is not None:
        assert expected == msgspec.structs.replace(got, is_admission=False)


def sums(usage: Usage, tree: Tree) -> dict[tuple[str, str], int]:
    return {(name, dimension): usage.held(name, dimension) for name in tree.queues for dimension in ("cpu", NPU)}


def test_the_root_has_everything() -> None:
    tree = tree_of([Queue("a", parent="x")])
    assert Usage(tree, [Holding("g", "a", {NPU: 100})]).held(ROOT, NPU) == 100
