"""What is asked of a topology about a job alone, without the cluster: nothing here imports numpy.

A command that only reads jobs starts faster so. ``port`` has the rest, ``job_registry`` all topologies.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from berth.products.model import Form
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Settings
from berth.schemas.offers import Demand
from berth.schemas.refusal import Refusal


class Asked(NamedTuple):
    """A job request, and what it says of its gang.

    Attributes:
        request: The request.
        chip_pods: Its pods with chips.
        gang_pods: Pods with chips of the whole gang, of which the request may be a part.
        minimum: Pods that start together, by annotation; None without one.
    """

    request: JobRequest
    chip_pods: int
    gang_pods: int
    minimum: int | None


class JobTopology:
    """What a job says of a topology. What one does not define has a neutral answer.

    Attributes:
        name: Name in demands.
        keys: Labels and annotations of a job that it reads.
        label_values: Labels with a fixed set of values; with any other value a job is invalid.
    """

    name: str = ""
    keys: tuple[str, ...] = ()
    label_values: Mapping[str, tuple[str, ...]] = MappingProxyType({})

    def check(self, asked: Asked) -> Refusal | None:  # noqa: ARG002  # topologies have it
        """Refusal of a job before its product form is chosen."""
        return None

    def demand(
        self,
        asked: Asked,  # noqa: ARG002  # topologies have it
        form: Form,  # noqa: ARG002  # as above
        settings: Settings,  # noqa: ARG002  # as above
    ) -> Demand | Refusal | None:
        """What the pods with chips of a job demand, or its refusal; None if they demand nothing of this topology."""
        return None
