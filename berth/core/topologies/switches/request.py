"""What a job says of leaf switches."""

from typing import Final

from berth.core.topologies.job_topology import Asked, JobTopology
from berth.core.topologies.switches.demand import SWITCHES, TOR_AFFINITY, UNINVOLVED, leaf_demand
from berth.core.topologies.switches.occupancy.leaf_bits import LARGE, NORMAL
from berth.products.model import MIN_AVAILABLE, Form
from berth.schemas.ledger import Settings
from berth.schemas.offers import Demand
from berth.schemas.refusal import Refusal

_WHOLE: Final = f"pods of the job: with label {TOR_AFFINITY} all of them start together"


class SwitchJobs(JobTopology):
    """The label for switch affinity."""

    name = SWITCHES
    keys = (TOR_AFFINITY,)
    label_values = {TOR_AFFINITY: (UNINVOLVED, NORMAL, LARGE)}

    def check(self, asked: Asked) -> Refusal | None:
        """Check that a job starts all its pods together (decision switch-min-available).

        Source: docs/reference/switches.md, "Jobs and policies".
        """
        if not _label(asked):
            return None
        request, pods = asked.request, sum(task.replicas for task in asked.request.tasks)
        if request.min_available not in {0, pods}:
            return _refused("min_available", request.min_available, f"0 or {pods}, the {_WHOLE}")
        if asked.minimum not in {None, pods}:
            written = request.annotations[MIN_AVAILABLE]
            return _refused(f"annotations.{MIN_AVAILABLE}", written, f"{pods}, the {_WHOLE}")
        return None

    def demand(
        self,
        asked: Asked,
        form: Form,  # noqa: ARG002  # the port has it
        settings: Settings,  # noqa: ARG002  # as above
    ) -> Demand | None:
        """The label of a job with chips."""
        label = _label(asked)
        return leaf_demand(label, gang_pods=asked.gang_pods) if label else None


def _label(asked: Asked) -> str:
    """Value of the label; empty if switch affinity is off."""
    value = asked.request.labels.get(TOR_AFFINITY, UNINVOLVED)
    return value if value != UNINVOLVED and asked.chip_pods else ""


def _refused(field: str, value: object, expected: str) -> Refusal:
    return Refusal(code="invalid-request", field=field, value=str(value), expected=expected)
