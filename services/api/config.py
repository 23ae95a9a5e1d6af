"""Settings of the service for programs."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from berth.runtime.config import BusConfig, ServiceConfig
from berth.runtime.tracing.spans import TracingConfig
from berth.schemas.programs.operations import Role

EVERY = "*"
"""In a grant: every identity, or every namespace."""


class Grant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an identity may do."""

    identity: Annotated[str, Meta(min_length=1, max_length=256)]
    """Name of the caller in the subject of its requests; ``*`` for every caller that has one."""
    role: Role
    """``read``: see jobs and nodes; ``submit``: submit and cancel jobs as well; ``operate``: drain nodes and approve
    restarts as well, if it is for all namespaces, and otherwise as ``submit``."""
    namespaces: list[Annotated[str, Meta(min_length=1, max_length=253)]]
    """Namespaces in which it has the role; ``*`` for all."""


class ApiConfig(ServiceConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the service for programs."""

    CONSTANTS: ClassVar[Mapping[str, str]] = {
        "requests_at_once": "64",
        "position_every_s": "5 s",
        "retry_wait_s": "0.25 s",
    }

    access: Literal["auto", "open", "grants"] = "auto"
    """``grants``: only what ``grants`` allow; ``open``: everybody may do everything; ``auto``: ``grants`` if this
    service logs in to NATS, else ``open``."""
    grants: list[Grant] = []
    """Who may do what. Without a grant that fits a request is denied."""
    requests_per_s: Annotated[float, Meta(gt=0, le=1_000_000)] = 400.0
    """Requests of one identity in a second, after those of ``requests_burst``; one counts as one more for each 4 KiB
    and each 8 JSON objects in it. More are refused with ``too-many``. In an open cell callers without an identity have
    no bound."""
    requests_burst: Annotated[int, Meta(ge=1, le=10_000_000)] = 4_000
    """Requests of one identity that are carried out at once after a time without any."""
    events_kept_s: Annotated[int, Meta(ge=60, le=31_536_000)] = 604_800
    """How long events are kept."""
    place_series_max: Annotated[int, Meta(ge=0, le=10_000)] = 500
    """Most leaf switches, and most SuperPoDs, of which `/metrics` has series of each, six a place; of more of them it
    has none."""
    tracing: TracingConfig = TracingConfig()
    retry_wait_max_s: Annotated[float, Meta(gt=0, le=600)] = 5.0
    """Longest pause after events could not be stored; the first is 0.25 s, and it doubles."""

    @property
    def is_open(self) -> bool:
        """Whether everybody may do everything."""
        return self.access == "open" or (self.access == "auto" and not logs_in(self.bus))


def logs_in(bus: BusConfig) -> bool:
    """Whether a service proves to NATS who it is."""
    return bool(bus.user or bus.token_file or bus.creds_file or bus.tls_cert_file)
