"""What an operator's program asks of a cell: drains, and approvals of restarts. It needs the right to operate."""

from abc import ABC, abstractmethod
from typing import TypeVar

from berth.schemas.fault_facts import DrainKind
from berth.schemas.programs.replies import ApproveReply, DrainReply
from berth.schemas.programs.requests import ApproveRequest, DrainRequest, UndrainRequest
from berth.schemas.programs.shape import Reply

_Answer = TypeVar("_Answer", bound=Reply)


class Maintenance(ABC):
    """What a client can do for maintenance."""

    async def drain(
        self,
        name: str,
        *,
        kind: DrainKind = "node",
        since_ms: int = 0,
        grace_ms: int = 0,
        reason: str = "",
        force: bool = False,
    ) -> DrainReply:
        """Take a node, or all nodes of a leaf switch or SuperPoD, out of service: they accept no new work.

        Args:
            name: Of the node, leaf switch or SuperPoD.
            kind: What the name is.
            since_ms: From when on: a moment to come; 0 for now.
            grace_ms: How long pods may take to end from then on; 0 for the default.
            reason: It is stored with the drain.
            force: Whether pods leave too that no controller makes anew.
        """
        request = DrainRequest(kind=kind, name=name, since_ms=since_ms, grace_ms=grace_ms, reason=reason, force=force)
        return await self._ask("drain", request, DrainReply)

    async def undrain(self, name: str, *, kind: DrainKind = "node") -> DrainReply:
        """Return what was drained to service.

        Args:
            name: Of the node, leaf switch or SuperPoD.
            kind: What the name is.
        """
        return await self._ask("undrain", UndrainRequest(kind=kind, name=name), DrainReply)

    async def approve(self, kind: str, *, domain: str = "", lasts_ms: int = 600_000, reason: str = "") -> ApproveReply:
        """Let jobs restart for faults that only one source reports, although they are many; or withdraw that.

        Args:
            kind: Kind of the faults, as ``held`` of :meth:`berth.client.Client.faults` names it.
            domain: Domain of the nodes; empty for nodes that are gone.
            lasts_ms: How long new faults of this kind are approved too; 0 withdraws the approval.
            reason: It is stored with the approval.
        """
        request = ApproveRequest(kind=kind, domain=domain, lasts_ms=lasts_ms, reason=reason)
        return await self._ask("approve", request, ApproveReply)

    @abstractmethod
    async def _ask(self, verb: str, request: object, answer: type[_Answer], *, is_patient: bool = False) -> _Answer:
        """Answer to a request; see :class:`berth.client.Client`."""
