"""The families that are built, by the name of their file; later parts add theirs here."""

from collections.abc import Mapping
from typing import Final

from tests.golden.chips import compare_node_chip, compare_sequence
from tests.golden.choices import compare_available, compare_form_choice, compare_soft_share
from tests.golden.harness import Compare
from tests.golden.levels import compare_levels
from tests.golden.partial_plans import compare_partial
from tests.golden.queues import compare_queues
from tests.golden.queues_ours import compare_queues_ours
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
    "queues": compare_queues,
    "queues_ours": compare_queues_ours,
    "superpod": compare_superpod,
    "superpod_rack": compare_rack,
    "superpod_infer": compare_infer,
    "superpod_resched": compare_resched,
    "superpod_validate": compare_validate,
    "switch": compare_switch,
    "switch_partial": compare_partial,
    "switch_trace": compare_trace,
}

_BLOCKS: Final = ("result.ok", "canonical.by_phys", "canonical.by_vid")
_LEAVES: Final = ("ok", "error", "chosen_nodes", "pod_annotations", "switch_before", "switch_after")

COMPARED: Final[Mapping[str, tuple[str, ...]]] = {
    "multilevel": ("result.ok", "canonical.level1_free_taken"),
    "node_chip": ("error", "scores", "chosen_chips"),
    "node_chip_available": ("resulting_device_list",),
    "node_chip_handler_select": (
        "handled",
        "max_per_node",
        "drops_net_unhealthy_when_distributed",
        "forbidden_sizes",
    ),
    "node_chip_sequences": (
        "steps[].final_scores",
        "steps[].node",
        "steps[].error",
        "steps[].chips",
        "steps[].node_free_after",
        "release_last.node",
        "release_last.node_free_after",
    ),
    "node_chip_softshare": ("job_valid", "scores", "chosen_card"),
    "queues": (
        "result.ready",
        "result.attrs",
        "result.order",
        "result.enqueueable",
        "result.lacking",
        "result.allocatable",
        "result.gangs[].bundles",
    ),
    "queues_ours": tuple(
        f"result.{field}"
        for field in (
            "broken",
            "state",
            "limits",
            "entitlements",
            "share",
            "borrowed",
            "order",
            "within",
            "admission",
            "placement",
            "candidates",
            "allowed",
            "fits_alone",
            "best",
        )
    ),
    "superpod": (*_BLOCKS, "result.reason"),
    "superpod_infer": _BLOCKS,
    "superpod_rack": (*_BLOCKS, "canonical.by_rack"),
    "superpod_resched": _BLOCKS,
    "superpod_validate": ("result.pass", "result.reason"),
    "switch": tuple(f"result.{field}" for field in _LEAVES),
    "switch_partial": (*(f"result.{field}" for field in _LEAVES), "result.rejected"),
    "switch_trace": tuple(f"events[].result.{field}" for field in _LEAVES),
}
"""Fields of each family that are compared, and no others; ``[]`` stands for every element of a list.

What holds of ``result`` holds of the other outcomes of a line too. A test alters each of them, and another takes all
other fields of answers away.
"""
