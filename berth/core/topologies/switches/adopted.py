"""Leaf states of pods that another scheduler placed, by their annotations."""

from collections.abc import Sequence

from berth.core.topologies.switches.occupancy.leaf_bits import LARGE, NORMAL
from berth.core.topologies.switches.placed import SwitchPlacement
from berth.schemas.facts import PodsSeen
from berth.schemas.placement import Run


def adopted_part(fact: PodsSeen, runs: Sequence[Run]) -> SwitchPlacement | None:
    """States of leaf switches from the annotations of adopted pods; None without any.

    Pods whose job alone bears the label, not they, have the states all the same.
    """
    given = fact.leaf_states or bytes(len(runs))
    states = bytes(state if run.chips else 0 for run, state in zip(runs, given, strict=True))
    label = fact.tor_affinity if fact.tor_affinity in {NORMAL, LARGE} else ""
    pods = sum(1 for run in runs if run.chips)
    if not pods or not (label or any(states)):
        return None
    return SwitchPlacement(label, pods, states=states)
