"""Settings of a scorer."""

from typing import Annotated

from msgspec import Meta

from berth.runtime.config import ServiceConfig


class ScorerConfig(ServiceConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One shard of the cell's nodes."""

    shard: Annotated[int, Meta(ge=0, le=255)] = 0
    """Number of this shard, below ``shards``. Several scorers of one shard share its load."""
    shards: Annotated[int, Meta(ge=1, le=256)] = 1
    """Number of shards, the same for all scorers and the dispatcher."""
