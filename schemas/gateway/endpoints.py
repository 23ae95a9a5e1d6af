"""Endpoints of the gateway: method, path, the role that a caller needs, fields of the query, body and answer.

Longer than 400 lines because each endpoint has its entry here.
"""

from http import HTTPStatus
from typing import Any, Final, Literal, NamedTuple

from berth.schemas.page.hour import Hour
from berth.schemas.page.view import Change, PageSettings, View
from berth.schemas.programs.documents import components_of
from berth.schemas.programs.events import JobEvent
from berth.schemas.programs.expected import AskReply, AskRequest, ExpectedStartsReply, ExpectedStartsRequest
from berth.schemas.programs.job_file import JobFile
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
)
from berth.schemas.programs.replies import (
    ApproveReply,
    CancelReply,
    DrainReply,
    ExplainReply,
    JobState,
    NodesReply,
    RightsReply,
    SubmitManyReply,
    SubmitReply,
    UpdateReply,
)
from berth.schemas.programs.requests import (
    ApproveRequest,
    DrainRequest,
    JobUpdate,
    NodesRequest,
    SubmitManyRequest,
)
from berth.schemas.programs.shape import Request, Shape

Role = Literal["public", "none", "read", "read-all", "submit", "operate"]
"""``public``: no token; ``none``: any token; ``read``, ``submit``: a grant of ``api`` in the namespace of the path or
body, or in any if there is none; ``read-all``, ``operate``: one for all namespaces."""
Method = Literal["get", "post", "patch", "delete"]
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
HTML: Final = "text/html"
ANY: Final = "*/*"


class Field(NamedTuple):
    """A field of a query.

    Attributes:
        name: Its name.
        text: What it means.
        schema: Its JSON Schema.
    """

    name: str
    text: str
    schema: dict[str, Any]


class Endpoint(NamedTuple):
    """An endpoint.

    Attributes:
        method: Its method, in small letters.
        path: Its path, with names in braces.
        name: Name of the operation.
        role: What the caller must be.
        text: What it does.
        answer: Type of the answer, or of each event; None for a file.
        media: Type of the content of the answer.
        statuses: Statuses of success.
        query: Fields of the query.
        body: Type of the body of the request; None for none.
        errors: Statuses of errors beside those of every endpoint with its role.
        loose: JSON type of the answer where it has no type here.
        tag: What it is about; empty: the page alone uses it, and it is not in the document.
    """

    method: Method
    path: str
    name: str
    role: Role
    text: str
    answer: type[Shape] | None = None
    media: str = JSON
    statuses: tuple[HTTPStatus, ...] = (HTTPStatus.OK,)
    query: tuple[Field, ...] = ()
    body: type[Shape] | None = None
    errors: tuple[HTTPStatus, ...] = ()
    loose: str = "object"
    tag: str = "jobs"


def fields_of(kind: type[Request]) -> tuple[Field, ...]:
    """Fields of the query that stands for a request."""
    _, components = components_of([kind], "{name}")
    places = components[kind.__name__]["properties"]
    return tuple(
        Field(
            name, schema.get("description", ""), {key: value for key, value in schema.items() if key != "description"}
        )
        for name, schema in places.items()
    )


_JOB: Final = "/api/v1/jobs/{namespace}/{name}"
_TEXT: Final = {"type": "string", "maxLength": 1_000}
_UID: Final = Field("uid", "Only the job with this uid; without it the job that has the name.", _TEXT)
_LOOKED_UP: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND)
_SENT: Final = (
    *_LOOKED_UP,
    HTTPStatus.CONFLICT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
)

ENDPOINTS: Final = (
    Endpoint(
        "post",
        "/api/v1/jobs",
        "submitJob",
        "submit",
        "Submit a job. `metadata.uid` is the idempotency key: a repeated request never submits twice. Also a Volcano Job,"
        " an AscendJob or a Kubernetes Job with its own fields. 201: the request is stored; 200: it was stored before.",
        answer=SubmitReply,
        statuses=(HTTPStatus.CREATED, HTTPStatus.OK),
        body=JobFile,
        errors=(
            HTTPStatus.BAD_REQUEST,
            HTTPStatus.CONFLICT,
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        ),
    ),
    Endpoint(
        "post",
        "/api/v1/jobs/batch",
        "submitJobs",
        "submit",
        "Submit several jobs. They are stored one after another, each as by itself; the answer says for each what became"
        " of it.",
        answer=SubmitManyReply,
        body=SubmitManyRequest,
        errors=(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
    ),
    Endpoint(
        "get",
        "/api/v1/jobs",
        "listJobs",
        "read",
        "Jobs by namespace and name, with their positions in the queue and why they wait. Jobs of namespaces that the"
        " caller may not read are left out.",
        answer=JobsReply,
        query=fields_of(JobsRequest),
    ),
    Endpoint(
        "get",
        _JOB,
        "getJob",
        "read",
        "State of a job, with node and chips of each rank.",
        answer=JobState,
        query=(_UID,),
        errors=_LOOKED_UP,
    ),
    Endpoint(
        "delete",
        _JOB,
        "cancelJob",
        "submit",
        "Cancel a job, whether it waits or runs. 202: the cancellation is stored.",
        answer=CancelReply,
        statuses=(HTTPStatus.ACCEPTED,),
        query=(_UID, Field("reason", "It is stored with the job.", _TEXT)),
        errors=(*_LOOKED_UP, HTTPStatus.CONFLICT),
    ),
    Endpoint(
        "patch",
        _JOB,
        "updateJob",
        "submit",
        "Hold a job that waits, release it, or lower its priority. 202: the change is stored.",
        answer=UpdateReply,
        statuses=(HTTPStatus.ACCEPTED,),
        query=(_UID,),
        body=JobUpdate,
        errors=_SENT,
    ),
    Endpoint(
        "get",
        f"{_JOB}/explain",
        "explainJob",
        "read",
        "Why a job is where it is, or why it waits and what would help.",
        answer=ExplainReply,
        query=(
            _UID,
            Field("nodes", "Whether the evidence says of each node if it could take a pod now.", {"type": "boolean"}),
        ),
        errors=_LOOKED_UP,
    ),
    Endpoint(
        "get",
        "/api/v1/expected-starts",
        "listExpectedStarts",
        "read",
        "When jobs that wait are expected to start, by namespace and name, and what holds their places. Jobs of"
        " namespaces that the caller may not read are left out, and have no names elsewhere.",
        answer=ExpectedStartsReply,
        query=fields_of(ExpectedStartsRequest),
    ),
    Endpoint(
        "post",
        "/api/v1/ask",
        "askStart",
        "submit",
        "When a job would be expected to start if it were submitted now. Nothing is stored.",
        answer=AskReply,
        body=AskRequest,
        errors=(
            HTTPStatus.BAD_REQUEST,
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        ),
    ),
    Endpoint(
        "get",
        f"{_JOB}/events",
        "jobEvents",
        "read",
        "Events of a job as server-sent events: those that are stored, and those to come. The id of each is its position;"
        " the header `Last-Event-ID` goes on after it. An event `end` says why the gateway ends the stream.",
        answer=JobEvent,
        media=EVENTS,
        query=(
            Field("after", "Position after which to begin; 0 for the oldest event.", {"type": "integer", "minimum": 0}),
            Field(
                "uid", "Only events of the job with this uid; the stream ends after the last one, with `over`.", _TEXT
            ),
            Field("follow", "`false`: end after the stored events. Default: `true`.", {"type": "boolean"}),
        ),
        errors=(HTTPStatus.BAD_REQUEST, HTTPStatus.GONE),
    ),
    Endpoint(
        "get",
        "/api/v1/nodes",
        "listNodes",
        "read",
        "Nodes and their chips, by name.",
        answer=NodesReply,
        query=fields_of(NodesRequest),
        tag="cell",
    ),
    Endpoint(
        "get",
        "/api/v1/usage",
        "getUsage",
        "read",
        "How full the cell is: chips by what they are for, by product, and jobs and chips by namespace.",
        answer=UsageReply,
        tag="cell",
    ),
    Endpoint(
        "get",
        "/api/v1/leaves",
        "listLeaves",
        "read",
        "How full leaf switches are, by name.",
        answer=PlacesReply,
        query=fields_of(PlacesRequest),
        tag="cell",
    ),
    Endpoint(
        "get",
        "/api/v1/superpods",
        "listSuperpods",
        "read",
        "How full SuperPoDs are, by name.",
        answer=PlacesReply,
        query=fields_of(PlacesRequest),
        tag="cell",
    ),
    Endpoint(
        "get",
        "/api/v1/faults",
        "listFaults",
        "read",
        "Faults of nodes and chips in groups, since when, and the jobs there.",
        answer=FaultsReply,
        query=fields_of(FaultsRequest),
        tag="cell",
    ),
    Endpoint(
        "get",
        "/api/v1/drains",
        "listDrains",
        "read",
        "What is drained or will be, and the jobs there.",
        answer=DrainsReply,
        query=fields_of(DrainsRequest),
        tag="cell",
    ),
    Endpoint(
        "post",
        "/api/v1/drains",
        "drain",
        "operate",
        "Take a node, or all nodes of a leaf switch or SuperPoD, out of service. 202: the drain is stored.",
        answer=DrainReply,
        statuses=(HTTPStatus.ACCEPTED,),
        body=DrainRequest,
        errors=_SENT,
        tag="operators",
    ),
    Endpoint(
        "delete",
        "/api/v1/drains/{kind}/{name}",
        "undrain",
        "operate",
        "Return what was drained to service. 202: that is stored.",
        answer=DrainReply,
        statuses=(HTTPStatus.ACCEPTED,),
        errors=_LOOKED_UP,
        tag="operators",
    ),
    Endpoint(
        "post",
        "/api/v1/approvals",
        "approve",
        "operate",
        "Let jobs restart for faults that only one source reports, although they are many; or withdraw that. 202: it is"
        " stored.",
        answer=ApproveReply,
        statuses=(HTTPStatus.ACCEPTED,),
        body=ApproveRequest,
        errors=_SENT,
        tag="operators",
    ),
    Endpoint(
        "get",
        "/api/v1/queues",
        "listQueues",
        "read",
        "Queues: what each is entitled to, holds and may hold, and how many jobs wait in it.",
        answer=QueuesReply,
        query=fields_of(QueuesRequest),
        tag="cell",
    ),
    Endpoint(
        "get",
        "/api/v1/view",
        "view",
        "read",
        "The whole picture of the cell: nodes with their chips, jobs, the queue, faults. Jobs of namespaces that the"
        " caller may not read are left out, their chips are shown as held.",
        answer=View,
        tag="",
    ),
    Endpoint(
        "get",
        "/api/v1/view/changes",
        "viewChanges",
        "read",
        "The picture and its changes as server-sent events: first an event `view` with the whole picture, as of"
        " `/api/v1/view`, then `change` for each change, and `view` again when the layout of the cell changes.",
        answer=Change,
        media=EVENTS,
        tag="",
    ),
    Endpoint(
        "get",
        "/api/v1/view/hour",
        "viewHour",
        "read",
        "What changed within the last hour: chips in use and waiting jobs over the time, and what happened.",
        answer=Hour,
        tag="",
    ),
    Endpoint(
        "get",
        "/api/v1/page",
        "pageSettings",
        "none",
        "Links of the page to other sites, as templates.",
        answer=PageSettings,
        tag="",
    ),
    Endpoint(
        "get",
        "/api/v1/cell",
        "cellStatus",
        "read",
        "Status of the cell, as `berth status --json` prints it.",
        tag="operators",
    ),
    Endpoint(
        "get",
        "/api/v1/dead",
        "deadLetters",
        "read-all",
        "Dead letters that are open, the newest first, as `berth dead list --json` prints them.",
        loose="array",
        tag="operators",
    ),
    Endpoint(
        "get",
        "/api/v1/me",
        "me",
        "none",
        "Identity of the caller, and what it may do.",
        answer=RightsReply,
        tag="caller",
    ),
    Endpoint("get", "/api/v1/openapi.json", "openapi", "public", "This document.", tag="caller"),
    Endpoint(
        "get", "/", "page", "public", "The page, for browsers.", media=HTML, errors=(HTTPStatus.NOT_FOUND,), tag=""
    ),
    Endpoint(
        "get",
        "/assets/{path}",
        "asset",
        "public",
        "A file of the page.",
        media=ANY,
        errors=(HTTPStatus.NOT_FOUND,),
        tag="",
    ),
)
"""All of them. A module of the gateway that adds a route adds its endpoint here."""
