"""The lease of Volcano's scheduler: whoever holds it writes the status of Queues.

Source: Volcano, ``cmd/scheduler``: a Lease with the scheduler's default name, whatever ``--scheduler-name`` says.
"""

from typing import Final

from berth.formats.kubernetes.lean import Lean
from berth.formats.kubernetes.paths import api_path
from berth.runtime.kube.port import Api, RefusedError
from berth.schemas.units import unix_ms

_NAME: Final = "volcano"
_VERSION: Final = "coordination.k8s.io/v1"
_DURATION_S: Final = 15
_MS: Final = 1_000


class LeaseSpec(Lean, frozen=True):
    """Who holds a lease, and until when."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None


class Lease(Lean, frozen=True):
    """A lease."""

    spec: LeaseSpec = LeaseSpec()


async def is_held(api: Api, namespace: str, now_ms: int) -> bool:
    """Whether somebody holds the lease.

    Args:
        api: The API server.
        namespace: Of the lease.
        now_ms: The time.

    Raises:
        TransientError: The server did not answer.
        RefusedError: The lease may not be read.
    """
    path = f"{api_path(_VERSION, 'namespaces', namespace, 'leases')}/{_NAME}"
    try:
        lease = await api.get(path, Lease)
    except RefusedError as error:
        if error.is_absent:
            return False
        raise
    return bool(lease.spec.holder_identity) and now_ms < _ends_ms(lease.spec)


def _ends_ms(spec: LeaseSpec) -> int:
    """When a lease ends that is not renewed; one that was never renewed has ended."""
    renewed_ms = unix_ms(spec.renew_time)
    return renewed_ms + (spec.lease_duration_seconds or _DURATION_S) * _MS if renewed_ms else 0
