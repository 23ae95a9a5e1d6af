"""Job requests of files: read, validated, and with an identity."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from berth.core.requests.bounds import above_bounds
from berth.core.requests.job_validation import validate
from berth.formats.manifests.reader import ManifestError, read_jobs
from berth.runtime.clock import SystemClock
from berth.runtime.identity import new_uid
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Settings
from berth.schemas.refusal import Refusal

_LENIENT: Final = Settings(strict_job_shape=False, strict_label_values=False)
"""Settings that accept most: a request refused under these is invalid for every cell."""
_TABLES: Final = frozenset({"labels", "annotations"})
_NO_CHIPS: Final = Task("worker", 1, 0)


class Fault(msgspec.Struct, frozen=True):
    """Error in a request, as ``--json`` prints it."""

    file: str
    field: str
    value: str
    expected: str
    document: int = 0
    job: str = ""
    code: str = "manifest"
    form: str = ""
    because: str = ""

    def line(self) -> str:
        """The fault in one line."""
        place = self.job or (f"document {self.document}" if self.document else "")
        head = ": ".join(filter(None, (self.file, place, self.field)))
        form = f" (product form {self.form}, because {self.because})" if self.form else ""
        return f"{head}: is {self.value or 'missing'}, expected {self.expected}{form}"


class Request(msgspec.Struct):
    """A job request of a file, and whether it was sent."""

    request: JobRequest
    file: str
    name_of: Callable[[str], str] = str
    """Gives a field of the request its path in the file."""
    intake_seq: int = 0
    is_sent: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return (self.request.namespace, self.request.name)


def stamped(request: JobRequest, *, now_ms: int) -> JobRequest:
    """The request with an identity and a time; an existing identity is kept."""
    if request.uid:
        return request
    return msgspec.structs.replace(request, uid=new_uid(), created_at_ms=now_ms)


def fault_of(refusal: Refusal, *, file: str = "", job: str = "", name_of: Callable[[str], str] = str) -> Fault:
    """A refusal of a request in the form of a fault, with its field as the file has it."""
    return Fault(
        file=file,
        job=job,
        code=refusal.code,
        field=name_of(refusal.field),
        value=refusal.value,
        expected=refusal.expected,
        form=refusal.form,
        because=refusal.form_because,
    )


class Read(NamedTuple):
    """Content of files.

    Attributes:
        requests: The requests.
        faults: Errors of the documents that can be found without a cell.
        skipped: A sentence about each object that is no job.
    """

    requests: list[Request]
    faults: list[Fault]
    skipped: list[str]


def read_requests(files: tuple[str, ...], queue: str = "") -> Read:
    """Content of all files.

    Args:
        files: Paths; - for stdin.
        queue: Queue of all jobs, whatever they name; empty: what they name.
    """
    found = Read([], [], [])
    requests, faults, skipped = found
    now_ms = SystemClock().now_ms()
    names: dict[tuple[str, str], str] = {}
    for file in files:
        try:
            text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
        except OSError as error:
            faults.append(Fault(file, "", f"unreadable ({error.strerror or error})", "a file that can be read"))
            continue
        except UnicodeDecodeError as error:
            faults.append(Fault(file, "", f"not UTF-8 at byte {error.start}", "a text in UTF-8"))
            continue
        reading = read_jobs(text)
        faults += [_manifest_fault(file, error) for error in reading.errors]
        skipped += [f"{file}: {one.sentence}" for one in reading.skipped]
        for job, name_of in zip(reading.jobs, reading.names, strict=True):
            if queue:
                job = msgspec.structs.replace(job, queue=queue)  # noqa: PLW2901  # the job as it is sent
            sent = Request(stamped(job, now_ms=now_ms), file, name_of)
            if sent.key in names:
                expected = f"another name: {names[sent.key]} has a job of this name, too"
                faults.append(Fault(file, "metadata.name", "/".join(sent.key), expected))
            names[sent.key] = file
            requests.append(sent)
            above = above_bounds(job)
            faults += faults_of(sent, [above] if above is not None else refusals_of(job, _LENIENT))
    return found


def refusals_of(job: JobRequest, settings: Settings) -> list[Refusal]:
    """All that is wrong with a request: its first error, and those of labels and annotations beside it."""
    found: list[Refusal] = []
    while isinstance(refusal := validate(job, settings), Refusal):
        kind, _, key = refusal.field.partition(".")
        has_key = kind in _TABLES and key in getattr(job, kind)
        if found and not has_key and job.tasks == [_NO_CHIPS]:
            break  # it may follow from what was taken away
        found.append(refusal)
        if has_key:
            table = {name: value for name, value in getattr(job, kind).items() if name != key}
            job = msgspec.structs.replace(job, **{kind: table})
        elif job.tasks == [_NO_CHIPS]:
            break
        else:
            job = msgspec.structs.replace(job, tasks=[_NO_CHIPS], min_available=0)  # labels alone are checked then
    return found


def faults_of(sent: Request, refusals: Iterable[Refusal]) -> list[Fault]:
    """Refusals of a request of a file, with the fields as the file has them."""
    return [fault_of(one, file=sent.file, job="/".join(sent.key), name_of=sent.name_of) for one in refusals]


def _manifest_fault(file: str, error: ManifestError) -> Fault:
    return Fault(file, error.path, error.value, error.expected, document=error.document)
