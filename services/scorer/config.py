"""Settings of a scorer."""

import re
from typing import Annotated, Final

from msgspec import Meta

from berth.runtime.config import SHARDS_MAX, ConfigError, ServiceConfig

_ORDINAL: Final = re.compile(r".*-(?P<number>[0-9]{1,5})", re.ASCII)


class ScorerConfig(ServiceConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One shard of the cell's nodes."""

    shard: Annotated[int, Meta(ge=0, le=SHARDS_MAX - 1)] = 0
    """Number of this shard, below ``shards``. Several scorers of one shard share its load."""
    shard_name: Annotated[str, Meta(max_length=253)] = ""
    """Name that ends in the number of this shard, as those of a StatefulSet's pods do: ``scorer-3``. Goes before
    ``shard``."""
    shards: Annotated[int, Meta(ge=1, le=SHARDS_MAX)] = 1
    """Number of shards, the same for all scorers and the dispatcher."""

    def number(self) -> int:
        """Number of this shard, from its name where it has one; below ``shards``.

        Raises:
            ConfigError: It is not below ``shards``, or the name does not end in a number.
        """
        if not self.shard_name:
            return self._below_shards("shard", str(self.shard), self.shard)
        match = _ORDINAL.fullmatch(self.shard_name)
        if match is None:
            raise ConfigError(
                field="shard_name",
                value=repr(self.shard_name),
                expected="a name that ends in a hyphen and the number of the shard, such as scorer-3",
            )
        return self._below_shards("shard_name", repr(self.shard_name), int(match["number"]))

    def _below_shards(self, field: str, value: str, number: int) -> int:
        if number >= self.shards:
            raise ConfigError(field=field, value=value, expected=f"below shards, which is {self.shards}")
        return number
