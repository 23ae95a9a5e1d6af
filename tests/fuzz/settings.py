"""Settings of epochs: both presets, every field."""

import random
from typing import Any, Final

from berth.schemas.ledger import Settings
from berth.services.dispatcher.config import DecisionConfig
from tests.support.core_cells import AT_ONCE

CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "strict_job_shape": (False,),
    "strict_label_values": (False,),
    "health_first": (True,),
    "round_gangs_max": (1, 2, 3, 50),
    "round_bytes_max": (1, 300, 800),
    "attempts_max": (1, 2),
    "shard_retry_ms": (10, 500),
    "tombstone_after_ms": (5,),
    "needs_health": (True,),
    "nslb_version": ("2.0",),
    "shared_tor_num": (1,),
    "strict_product_support": (True,),
    "super_pod_size": (2, 3, 4, 8),
    "reserve_nodes": (0, 1),
    "reserve_chips": (1, 8, 16),
    "reserve_depth": (1, 2),
    "unknown_run_ms": (1, 10),
    "queue_policy": ("fifo", "easy", "conservative"),
}
"""Values besides the default."""
RARE: Final = frozenset({"needs_health", "strict_product_support"})
"""What keeps most gangs out is rare."""


def draw_settings(chance: random.Random, *, levels: str, in_superpods: bool) -> dict[str, Any]:
    """Fields of an epoch: one of the presets, and some that differ from it."""
    fields: dict[str, Any] = {**AT_ONCE, "reference_parity": chance.random() < 0.35, "resource_levels": levels}
    density = chance.choice((0.0, 0.2, 0.5))
    for name, values in CHOICES.items():
        if chance.random() < density * (0.4 if name in RARE else 1.0):
            fields[name] = chance.choice(values)
    if chance.random() < 0.6:
        fields["queue_policy"] = chance.choice(("skip", "fifo", "easy", "conservative"))
    if in_superpods and chance.random() < 0.5:
        fields["super_pod_size"] = chance.choice(CHOICES["super_pod_size"])
        fields["reserve_nodes"] = chance.choice((0, 1))
    if fields.get("queue_policy") in {"easy", "conservative"}:
        fields.setdefault("reserve_chips", chance.choice(CHOICES["reserve_chips"]))
    # A run time that is assumed must be over before the history has settled.
    fields.setdefault("unknown_run_ms", 1_000)
    if fields.get("super_pod_size", 48) <= fields.get("reserve_nodes", 2):
        fields["reserve_nodes"] = fields["super_pod_size"] - 1
    return fields


def settings_of(fields: dict[str, Any]) -> Settings:
    """Settings as the dispatcher makes them."""
    return DecisionConfig(**fields).to_settings()
