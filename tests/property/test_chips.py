"""Laws of chip rules, over every form, size and mask."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.chips.chip_rules import ChipColumns, ChipRow, compile_rule
from berth.core.chips.picking import ids_of
from berth.products.catalogue import FORMS
from berth.products.model import Form
from berth.schemas.ledger import Settings
from tests.support.chip_masks import mask_of

PLACED = [form for form in FORMS.values() if form.rule != "share"]

MASKS = st.one_of(
    st.integers(0, (1 << 8) - 1),
    st.integers(0, (1 << 16) - 1),
    st.integers(0, (1 << 32) - 1),
    st.integers(0, (1 << 64) - 1),
    st.lists(st.integers(0, 63), max_size=12).map(mask_of),
)
ROWS = st.builds(
    ChipRow,
    free=MASKS,
    network=MASKS,
    network_known=st.booleans(),
    unhealthy=st.integers(0, 64),
    allocatable=st.integers(0, 64),
    idle=st.one_of(st.integers(-2, 66), st.just(64)),
    capacity=st.one_of(st.integers(0, 64), st.just(64)),
    others=st.one_of(st.just(0), st.integers(0, 64)),
    unsettled=st.booleans(),
)
SETTINGS = st.builds(Settings, reference_parity=st.booleans(), health_first=st.booleans())


def columns_of(rows: list[ChipRow]) -> ChipColumns:
    kinds = (np.uint64, np.uint64, np.bool_, *[np.int16] * 5, np.bool_)
    return ChipColumns(*(np.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)))


def calm(mask: int) -> ChipRow:
    """A healthy node with these chips free."""
    return ChipRow(mask, 0, network_known=True, unhealthy=0, allocatable=64, idle=64, capacity=64)


@pytest.mark.parametrize("form", PLACED, ids=lambda form: form.name)
@given(
    rows=st.lists(ROWS, max_size=8), chips=st.integers(1, 20), options=SETTINGS, flags=st.tuples(*[st.booleans()] * 2)
)
def test_a_column_and_a_row_get_the_same_answer(
    form: Form, rows: list[ChipRow], chips: int, options: Settings, flags: tuple[bool, bool]
) -> None:
    distributed, labelled = flags
    rule = compile_rule(form, chips=chips, distributed=distributed, settings=options)
    reasons, scores = rule.evaluate(columns_of(rows), np.full(len(rows), labelled))
    answers = [rule.evaluate_one(row, labelled=labelled) for row in rows]
    assert answers == list(zip(reasons.tolist(), scores.tolist(), strict=True))


@pytest.mark.parametrize("form", PLACED, ids=lambda form: form.name)
@given(masks=st.lists(MASKS, min_size=1, max_size=12), chips=st.integers(1, 16), distributed=st.booleans())
def test_small_masks_and_large_ones_follow_one_rule(
    form: Form, masks: list[int], chips: int, *, distributed: bool
) -> None:
    rule = compile_rule(form, chips=chips, distributed=distributed, settings=Settings())
    small = [calm(mask & 0xFFFF) for mask in masks]
    alone = rule.evaluate(columns_of(small))
    beside = rule.evaluate(columns_of([*small, calm(1 << 63)]))
    assert alone[0].tolist() == beside[0].tolist()[:-1]
    assert alone[1].tolist() == beside[1].tolist()[:-1]


def groups_of(picked: tuple[int, ...], size: int) -> set[int]:
    return {chip // size for chip in picked}


def is_legal_group(form: Form, picked: tuple[int, ...], *, distributed: bool) -> bool:
    if len(picked) <= form.group_size:
        return len(groups_of(picked, form.group_size)) == 1
    if len(picked) == form.whole:
        return True
    left, right = picked[0::2], picked[1::2]
    partners = all(other - one == 8 for one, other in zip(left, right, strict=True))
    return max(left) < 8 <= min(right) and (distributed or partners)


def is_legal_mesh(picked: tuple[int, ...]) -> bool:
    if len(picked) > 4 and len(picked) % 4:
        return True
    return len(groups_of(picked, 4)) == max(len(picked) // 4, 1)


def is_legal(form: Form, picked: tuple[int, ...], usable: int, *, distributed: bool) -> bool:
    """What the links between chips demand, said again and differently than in the rules."""
    broken = [chip for chip in picked if chip ^ 1 not in picked and usable >> (chip ^ 1) & 1]
    match form.rule:
        case "group":
            return is_legal_group(form, picked, distributed=distributed)
        case "mesh":
            return is_legal_mesh(picked)
        case "pairs" if len(picked) % 2 == 0:
            return {chip ^ 1 for chip in picked} == set(picked)
        case "duo":
            return len(broken) <= len(picked) % 2
        case _:
            return True


@pytest.mark.parametrize("form", PLACED, ids=lambda form: form.name)
@given(mask=MASKS, network=MASKS, chips=st.integers(1, 16), distributed=st.booleans())
def test_a_choice_is_of_usable_chips_and_legal(
    form: Form, mask: int, network: int, chips: int, *, distributed: bool
) -> None:
    rule = compile_rule(form, chips=chips, distributed=distributed, settings=Settings())
    row = calm(mask)._replace(network=network, allocatable=form.chips_max)
    reason, score = rule.evaluate_one(row)
    if reason:
        assert score == 0
        return
    assert score <= int(rule._values.max()) + rule._health * rule.form.chips_max
    usable = rule.usable(mask, network)
    picked = rule.pick(mask, network)
    assert len(picked) == len(set(picked)) == chips
    assert set(picked) <= set(ids_of(usable))
    assert is_legal(form, picked, usable, distributed=distributed)
    if rule.drops:
        assert not mask_of(picked) & network


@pytest.mark.parametrize("form", PLACED, ids=lambda form: form.name)
@given(mask=st.integers(1, (1 << 16) - 1), chips=st.integers(1, 8), health=st.integers(1, 16))
def test_health_first_puts_one_healthy_chip_above_all_else(form: Form, mask: int, chips: int, health: int) -> None:
    rule = compile_rule(form, chips=chips, distributed=False, settings=Settings(health_first=True))
    better = calm(mask)._replace(allocatable=health)
    best_of_worse = max(
        rule.evaluate_one(calm(other)._replace(allocatable=health - 1))[1]
        for other in (1, 3, 15, 255, 0xF0F, 0xFFFF, mask)
    )
    reason, score = rule.evaluate_one(better)
    assert reason or score > best_of_worse
