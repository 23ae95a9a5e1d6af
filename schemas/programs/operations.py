"""Operations of the JSON API: verb, request, reply, and the role that a caller needs."""

from typing import Final, Literal, NamedTuple, get_args

from berth.schemas.programs.events import EventsReply
from berth.schemas.programs.expected import AskReply, AskRequest, ExpectedStartsReply, ExpectedStartsRequest
from berth.schemas.programs.lists import (
    DrainsReply,
    DrainsRequest,
    FaultsReply,
    FaultsRequest,
    JobsReply,
    JobsRequest,
    PlacesReply,
    PlacesRequest,
    QueuesReply,
    QueuesRequest,
    UsageReply,
    UsageRequest,
)
from berth.schemas.programs.replies import (
    ApproveReply,
    CancelReply,
    DrainReply,
    ExplainReply,
    NodesReply,
    RightsReply,
    StatusReply,
    SubmitManyReply,
    SubmitReply,
    UpdateReply,
)
from berth.schemas.programs.requests import (
    ApproveRequest,
    CancelRequest,
    DrainRequest,
    EventsRequest,
    ExplainRequest,
    NodesRequest,
    RightsRequest,
    StatusRequest,
    SubmitManyRequest,
    SubmitRequest,
    UndrainRequest,
    UpdateRequest,
)
from berth.schemas.programs.shape import Reply, Request

Role = Literal["read", "submit", "operate"]
"""``read``: see jobs and nodes; ``submit``: submit, change and cancel jobs as well; ``operate``, for all namespaces:
drain nodes and approve restarts as well."""
ROLES: Final[tuple[Role, ...]] = get_args(Role)
"""Each includes those before it."""
Needed = Literal["read", "submit", "operate", "none"]
"""Role that an operation needs; ``none``: everybody may ask."""


class Operation(NamedTuple):
    """An operation.

    Attributes:
        verb: Its name, and the token after ``berth.<cell>.api.``.
        request: What is sent.
        reply: What comes back, unless it is an error.
        role: What the caller must be in the namespace; nodes, faults and the like belong to none, so that a role in
            any is enough, and events of all namespaces to all. Jobs are listed as far as the caller may read them.
    """

    verb: str
    request: type[Request]
    reply: type[Reply]
    role: Needed


OPERATIONS: Final = (
    Operation("submit", SubmitRequest, SubmitReply, "submit"),
    Operation("submit-many", SubmitManyRequest, SubmitManyReply, "submit"),
    Operation("cancel", CancelRequest, CancelReply, "submit"),
    Operation("update", UpdateRequest, UpdateReply, "submit"),
    Operation("drain", DrainRequest, DrainReply, "operate"),
    Operation("undrain", UndrainRequest, DrainReply, "operate"),
    Operation("approve", ApproveRequest, ApproveReply, "operate"),
    Operation("status", StatusRequest, StatusReply, "read"),
    Operation("explain", ExplainRequest, ExplainReply, "read"),
    Operation("expected-starts", ExpectedStartsRequest, ExpectedStartsReply, "read"),
    Operation("ask", AskRequest, AskReply, "submit"),
    Operation("jobs", JobsRequest, JobsReply, "read"),
    Operation("nodes", NodesRequest, NodesReply, "read"),
    Operation("usage", UsageRequest, UsageReply, "read"),
    Operation("leaves", PlacesRequest, PlacesReply, "read"),
    Operation("superpods", PlacesRequest, PlacesReply, "read"),
    Operation("faults", FaultsRequest, FaultsReply, "read"),
    Operation("drains", DrainsRequest, DrainsReply, "read"),
    Operation("queues", QueuesRequest, QueuesReply, "read"),
    Operation("events", EventsRequest, EventsReply, "read"),
    Operation("rights", RightsRequest, RightsReply, "none"),
)
