"""Submission of a job: read, judged as the dispatcher would, then stored."""

from collections.abc import Callable
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from berth.core.state.admission import Receipt, admit, holder_of, uid_from
from berth.core.state.cell import State
from berth.formats.manifests.reader import ManifestError, read_job
from berth.formats.yaml_tree import is_dns_name
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest
from berth.schemas.programs.events import FINAL
from berth.schemas.programs.expected import AskRequest
from berth.schemas.programs.requests import SUBMIT_MAX, SubmitManyRequest, SubmitRequest
from berth.schemas.refusal import Refusal
from berth.services.api.request_errors import RefusedError, RequestError, UidInUseError, decoded

_ENDS: Final = FINAL - {"rejected"}
"""Phases in which a job ends that was accepted."""


class Sent(NamedTuple):
    """A job as it is sent.

    Attributes:
        request: Its request.
        name_of: Gives a field of the request its path in what is sent.
        asks_victims: It is asked which jobs would end for it.
    """

    request: JobRequest
    name_of: Callable[[str], str]
    asks_victims: bool = False


class Submission(msgspec.Struct, frozen=True):
    """What becomes of a request.

    Attributes:
        request: The request.
        duplicate_seq: Sequence of the same request that was stored before; 0 if it is to be stored.
        is_unknown: No job has the name and the uid now; one that is over may have had them.
    """

    request: JobRequest
    duplicate_seq: int = 0
    is_unknown: bool = False


class _Plain(SubmitRequest, frozen=True, kw_only=True):
    """A submission whose job is read by the reader of manifests."""

    job: msgspec.Raw  # type: ignore[assignment]  # decoded later, with errors of its own


class _PlainAsk(AskRequest, frozen=True, kw_only=True):
    """The same of a question."""

    job: msgspec.Raw  # type: ignore[assignment]  # as above


class _PlainMany(SubmitManyRequest, frozen=True, kw_only=True):
    """The same of several jobs."""

    jobs: Annotated[list[msgspec.Raw], Meta(min_length=1, max_length=SUBMIT_MAX)]  # type: ignore[assignment]  # as above


def read_submission(data: bytes, identity: str) -> Sent:
    """Job out of a submission.

    Args:
        data: The bytes.
        identity: Of the caller.

    Raises:
        RequestError: A field is missing, wrong or unknown.
    """
    return _read(decoded(data, _Plain).job, identity, path="job")


def read_question(data: bytes, identity: str) -> Sent:
    """Job out of a question about its start.

    Args:
        data: The bytes.
        identity: Of the caller.

    Raises:
        RequestError: A field is missing, wrong or unknown.
    """
    asked = decoded(data, _PlainAsk)
    if asked.queue and not is_dns_name(asked.queue):
        raise RequestError("queue", repr(asked.queue), "the name of a queue")
    sent = _read(asked.job, identity, path="job")._replace(asks_victims=asked.victims)
    return sent._replace(request=msgspec.structs.replace(sent.request, queue=asked.queue)) if asked.queue else sent


def read_submissions(data: bytes, identity: str) -> list[Sent | RequestError]:
    """Jobs out of a submission of several, or why one cannot be read.

    Args:
        data: The bytes.
        identity: Of the caller.

    Raises:
        RequestError: It is no list of jobs, or of too many.
    """
    found: list[Sent | RequestError] = []
    for index, job in enumerate(decoded(data, _PlainMany).jobs):
        try:
            found.append(_read(job, identity, path=f"jobs[{index}]"))
        except RequestError as error:
            found.append(error)
    return found


def _read(job: msgspec.Raw, identity: str, *, path: str) -> Sent:
    try:
        request, name_of = read_job(msgspec.json.decode(job), path=path)
    except ManifestError as error:
        raise RequestError(error.path or path, error.value, error.expected) from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise RequestError(path, "malformed", f"a job file in JSON ({error})") from error
    return Sent(msgspec.structs.replace(request, submitted_by=identity), name_of)


def judge(sent: Sent, state: State, *, now_ms: int, waiting: Refusal | None = None) -> Submission:
    """What becomes of a request, as far as the state of the cell tells.

    The dispatcher has the last word: it judges the requests in the order in which they are stored.

    Args:
        sent: The job.
        state: The cell.
        now_ms: The time.
        waiting: Its refusal because of those that wait already; None if there is room for it.

    Raises:
        RefusedError: The dispatcher would refuse it.
        UidInUseError: Another job has or had its uid.
    """
    request = sent.request
    key = (request.namespace, request.name)
    known = state.jobs.get(key)
    if known is not None and request.uid and known.uid == request.uid and known.state != "rejected":
        _check_same_request(sent, known, state)
        if request == known.request:
            return Submission(request, duplicate_seq=known.accepted_seq)
    holder = holder_of(known, state.fold.gangs.get(known.uid) if known is not None else None)
    owner = state.name_of.get(request.uid) if request.uid else None
    if owner is not None and owner != key:
        raise UidInUseError(request, owner, sent.name_of)
    verdict = admit(request, Receipt(0, 0, now_ms), holder, state.fold.settings, waiting)
    if verdict.rejection is not None and verdict.rejection.intake_seq == 0:
        raise RefusedError(verdict.rejection.refusal, sent.name_of)
    if verdict.state == "rejected" and verdict.refusal is not None:
        raise RefusedError(verdict.refusal, sent.name_of)
    return Submission(request, is_unknown=bool(request.uid) and (known is None or known.uid != request.uid))


def check_unused(sent: Sent, stored_ids: set[str]) -> None:
    """Check that no job that is over had the name and the uid.

    A job with an event of its end is over. One with other events alone may be live: another instance has stored them,
    and this one does not know the job yet. The dispatcher takes its request once.

    Args:
        sent: The job.
        stored_ids: Ids of all events that are kept for the name.

    Raises:
        UidInUseError: A job that is over had the name and the uid.
    """
    request = sent.request
    if any(one.rsplit("/", 3)[0] == request.uid and one.rpartition("/")[2] in _ENDS for one in stored_ids):
        raise UidInUseError(request, (request.namespace, request.name), sent.name_of)


def uid_of(request: JobRequest, sequence: int) -> str:
    """Uid of a job by its request and the sequence at which that is stored."""
    return request.uid or uid_from(sequence)


def _check_same_request(sent: Sent, known: JobSeen, state: State) -> None:
    """Check that a request with the uid of a job that is over is its own.

    Raises:
        UidInUseError: The request is another one.
    """
    request = sent.request
    gang = state.fold.gangs.get(known.uid)
    is_over = known.state != "accepted" or (gang is not None and gang.is_over)
    if is_over and request != known.request:
        raise UidInUseError(request, (request.namespace, request.name), sent.name_of)
