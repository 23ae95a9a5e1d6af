"""The product catalogue is complete and consistent."""

import pytest

from berth.core.chips.affinity import NEVER, class_of
from berth.core.chips.form_selection import FormChoice, choose_form
from berth.products.catalogue import (
    ACCELERATOR_TYPES,
    CARDS_OF_2,
    CARDS_OF_4,
    FORMS,
    NODE_PRODUCTS,
    POLICIES,
    PRODUCTS,
    RINGS_OF_4,
    RINGS_OF_8,
)
from berth.products.model import ANNOTATION_POLICY, Form, Product

NAMES = [
    "module910x8", "half910x4", "card910x2", "module910bx8", "module910bx16", "module910a3x16", "module910a3x8", "chip4-node8", "chip4-node16",
    "chip1-node8", "chip1-node16", "310p", "310p-duo-chip", "310p-duo-chip-distributed", "310p-duo-card", "310-chip", "310-card", "chip1-softShareDev",
    "module910a3x16-sp", "module910a3x8-sp", "chip8-node8-sp", "chip8-node8-ra64-sp", "multilevel",
]  # fmt: skip


def test_every_form_of_the_reference_page_is_there_under_its_own_name() -> None:
    assert list(FORMS) == NAMES
    assert all(form.name == name for name, form in FORMS.items())


def test_forms_of_superpods_and_levels_say_how_nodes_are_chosen() -> None:
    assert {name: form.variant for name, form in FORMS.items() if form.variant} == {
        "module910a3x16-sp": "a3", "module910a3x8-sp": "a3", "chip8-node8-sp": "850", "chip8-node8-ra64-sp": "rack",
        "multilevel": "levels",
    }  # fmt: skip


def test_forms_of_superpods_name_their_product_and_say_whether_pods_carry_their_block() -> None:
    assert {name: (form.block_product, form.block_annotations) for name, form in FORMS.items() if form.variant} == {
        "module910a3x16-sp": ("A3", True), "module910a3x8-sp": ("A3", True), "chip8-node8-sp": ("Atlas 850", True),
        "chip8-node8-ra64-sp": ("Atlas 950", False), "multilevel": ("", False),
    }  # fmt: skip
    assert not any(form.block_product or form.block_annotations for form in FORMS.values() if not form.variant)


def test_names_policies_and_labels_lead_to_one_entry_each() -> None:
    assert len(FORMS) == len(PRODUCTS)
    assert len(NODE_PRODUCTS) == sum(len(entry.nodes) for entry in PRODUCTS)
    assert len(POLICIES) == sum(len(entry.policies) for entry in PRODUCTS)
    assert len(ACCELERATOR_TYPES) == sum(len(entry.accelerator_types) for entry in PRODUCTS)


@pytest.mark.parametrize("entry", PRODUCTS, ids=lambda entry: entry.form.name)
def test_a_job_that_asks_for_the_nodes_of_an_entry_gets_its_form(entry: Product) -> None:
    for node in entry.nodes:
        chosen = choose_form(
            resource=node.resource,
            labels=node.job_labels,
            annotations={ANNOTATION_POLICY: node.policy} if node.policy else {},
            selector=node.selector,
        )
        assert isinstance(chosen, FormChoice)
        assert (node.name, chosen.form) == (node.name, entry.form)
        assert node.chips <= entry.form.chips_max
        assert node.in_superpod == bool(entry.form.variant)


def test_network_unhealthy_chips_are_dropped_by_the_training_forms_only() -> None:
    keeps = {name for name, form in FORMS.items() if not form.drops_network}
    assert keeps == {
        "card910x2", "chip1-node8", "chip1-node16", "310p", "310p-duo-chip", "310p-duo-chip-distributed", "310p-duo-card",
        "310-chip", "310-card", "chip1-softShareDev",
    }  # fmt: skip


@pytest.mark.parametrize("form", [form for form in FORMS.values() if form.rule == "group"], ids=lambda form: form.name)
def test_tables_of_groups_are_square(form: Form) -> None:
    assert len(form.classes) == form.group_size
    assert all(len(row) == form.group_size for row in form.classes)


def test_orders_of_preference_follow_from_the_tables() -> None:
    def order(row: tuple[int, ...]) -> list[int]:
        return sorted(
            (free for free in range(1, len(row) + 1) if row[free - 1] < len(row)), key=lambda free: row[free - 1]
        )

    assert [order(row) for row in RINGS_OF_4] == [[1, 3, 2, 4], [2, 4, 3], [], [4]]
    assert [order(row) for row in CARDS_OF_4] == [[1, 3, 2, 4], [2, 3, 4], [3, 4], [4]]
    assert [order(row) for row in CARDS_OF_2] == [[1, 2], [2]]
    assert [order(row) for row in RINGS_OF_8] == [list(range(chips, 9)) for chips in range(1, 9)]


@pytest.mark.parametrize(
    ("chips", "free", "full", "expected"),
    [
        (2, 2, 1, 1), (2, 8, 4, 7), (2, 9, 4, 16), (4, 3, 1, NEVER), (4, 4, 1, NEVER),
        (1, 1, 0, 1), (1, 2, 0, 2), (1, 2, 1, 9), (1, 8, 4, 12), (1, 8, 3, 16), (1, 7, 3, 7), (1, 10, 5, 16),
        (3, 4, 2, 9), (3, 3, 1, 1), (3, 3, 0, NEVER), (5, 5, 2, 1), (5, 6, 2, 2), (5, 4, 2, NEVER),
    ],
)  # fmt: skip
def test_class_of_a_duo_node_for_one_distributed_pod(chips: int, free: int, full: int, expected: int) -> None:
    cards = [0b11] * full + [0b01] * (free - 2 * full)
    mask = sum(card << 2 * index for index, card in enumerate(cards))
    assert class_of(FORMS["310p-duo-chip-distributed"], mask, chips=chips, distributed=False) == expected
