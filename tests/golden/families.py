"""The families that are built, by the name of their file; later parts add theirs here."""

from collections.abc import Mapping
from typing import Final

from tests.golden.chips import compare_node_chip, compare_sequence
from tests.golden.choices import compare_available, compare_form_choice, compare_soft_share
from tests.golden.harness import Compare
from tests.golden.levels import compare_levels
from tests.golden.partial_plans import compare_partial
from tests.golden.racks import compare_rack
from tests.golden.superpod_moves import compare_infer, compare_resched
from tests.golden.superpods import compare_superpod, compare_validate
from tests.golden.switches import compare_switch, compare_trace

FAMILIES: Final[Mapping[str, Compare]] = {
    "multilevel": compare_levels,
    "node_chip": compare_node_chip,
    "node_chip_available": compare_available,
    "node_chip_handler_select": compare_form_choice,
    "node_chip_sequences": compare_sequence,
    "node_chip_softshare": compare_soft_share,
    "superpod": compare_superpod,
    "superpod_rack": compare_rack,
    "superpod_infer": compare_infer,
    "superpod_resched": compare_resched,
    "superpod_validate": compare_validate,
    "switch": compare_switch,
    "switch_partial": compare_partial,
    "switch_trace": compare_trace,
}
