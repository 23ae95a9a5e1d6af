"""``berth submit``: sends job requests from files, validated before anything is sent, and prints the verdicts."""

import sys
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.jobs.listing import OVER, JobRow, phase_words, row_of
from berth.cli.jobs.watching import Watch
from berth.cli.output import FAILED, OK, CommandError, complain, emit, listed, print_progress, print_result, warn
from berth.core.requests.job_validation import validate
from berth.core.requests.key_spelling import spelling_warnings
from berth.formats.manifests.reader import ManifestError, read_jobs
from berth.runtime.bus.port import Bus
from berth.runtime.clock import SystemClock
from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.history import settings_now
from berth.runtime.identity import new_uid
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Settings
from berth.schemas.refusal import Refusal
from berth.schemas.status import JobStatus

_VERDICT_S: Final = 10.0
_PLACED: Final = frozenset({"placed", "bound", "running", "ending", "succeeded"})
_STRICT: Final = Settings(strict_job_shape=True, strict_label_values=True, recoveries=1)
_LENIENT: Final = Settings(strict_job_shape=False, strict_label_values=False)
"""Settings that accept most: a request refused under these is invalid for every cell."""


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


class Submitted(msgspec.Struct, frozen=True):
    """Result of a request, as ``--json`` prints it."""

    namespace: str
    name: str
    uid: str
    intake_seq: int
    verdict: str
    """accepted, rejected, or unknown if no verdict came in time."""
    refusal: Fault | None = None
    status: JobRow | None = None


class Outcome(msgspec.Struct, frozen=True):
    """Result of ``berth submit --json``: faults, and then nothing was sent; or the result of each request."""

    faults: list[Fault] = []
    jobs: list[Submitted] = []


class _Sent(msgspec.Struct):
    request: JobRequest
    file: str
    intake_seq: int = 0

    @property
    def key(self) -> tuple[str, str]:
        return (self.request.namespace, self.request.name)


def submit(
    *files: Annotated[str, Parameter(allow_leading_hyphen=True)],
    wait: Annotated[bool, Parameter(negative=())] = False,
    timeout: float | None = None,
    common: Common | None = None,
) -> int:
    """Send job requests and print the verdicts. Nothing is sent if any of them is invalid.

    Args:
        files: Manifests in YAML: Berth's own, Volcano, Ascend and batch/v1 jobs; several documents; - for stdin.
        wait: Wait until each job is placed or cannot be placed.
        timeout: Seconds to wait; default 10 for the verdicts, no limit with --wait.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> int:
        if not files:
            raise CommandError("no file is named; give one, or - for stdin", code=2)
        requests, faults = _read(files)
        warn(
            f"{sent.file}: {'/'.join(sent.key)}: {words}"
            for sent in requests
            for words in spelling_warnings(sent.request)
        )
        if faults:
            return _refuse(faults, options)
        async with connected(options) as bus:
            faults = await _check(bus, requests)
            if faults:
                return _refuse(faults, options)
            done = await _send(bus, requests, wait=wait, timeout_s=timeout)
        if options.json:
            emit(Outcome(jobs=done))
        else:
            for job in done:
                _show(job)
        return OK if all(_is_good(job, wait=wait) for job in done) else FAILED

    return run(work)


def stamped(request: JobRequest, *, now_ms: int) -> JobRequest:
    """The request with an identity and a time; an existing identity is kept."""
    if request.uid:
        return request
    return msgspec.structs.replace(request, uid=new_uid(), created_at_ms=now_ms)


def fault_of(refusal: Refusal, *, file: str = "", job: str = "") -> Fault:
    """A refusal of a request in the form of a fault."""
    return Fault(
        file=file,
        job=job,
        code=refusal.code,
        field=refusal.field,
        value=refusal.value,
        expected=refusal.expected,
        form=refusal.form,
        because=refusal.form_because,
    )


def _read(files: tuple[str, ...]) -> tuple[list[_Sent], list[Fault]]:
    """Requests of all files, and the first error of each document that can be found without a cell."""
    requests: list[_Sent] = []
    faults: list[Fault] = []
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
        for job in reading.jobs:
            sent = _Sent(stamped(job, now_ms=now_ms), file)
            if sent.key in names:
                expected = f"another name: {names[sent.key]} has a job of this name, too"
                faults.append(Fault(file, "metadata.name", "/".join(sent.key), expected))
            names[sent.key] = file
            requests.append(sent)
            refusal = validate(job, _LENIENT)
            if isinstance(refusal, Refusal):
                faults.append(fault_of(refusal, file=file, job="/".join(sent.key)))
    return requests, faults


def _manifest_fault(file: str, error: ManifestError) -> Fault:
    return Fault(file, error.path, error.value, error.expected, document=error.document)


async def _check(bus: Bus, requests: list[_Sent]) -> list[Fault]:
    """Errors under the settings of the cell, which are read only if they matter."""
    doubtful = [sent for sent in requests if isinstance(validate(sent.request, _STRICT), Refusal)]
    if not doubtful:
        return []
    settings = await settings_now(bus) or Settings()
    return [
        fault_of(refusal, file=sent.file, job="/".join(sent.key))
        for sent in doubtful
        if isinstance(refusal := validate(sent.request, settings), Refusal)
    ]


def _refuse(faults: list[Fault], options: Common) -> int:
    if options.json:
        emit(Outcome(faults=faults))
    else:
        complain(fault.line() for fault in faults)
        print_progress("nothing was sent")
    return FAILED


async def _send(bus: Bus, requests: list[_Sent], *, wait: bool, timeout_s: float | None) -> list[Submitted]:
    clock = SystemClock()
    patience_s = timeout_s if timeout_s is not None or wait else _VERDICT_S
    async with Watch(bus, [sent.key for sent in requests]) as watch:
        sent_so_far: list[_Sent] = []
        for sent in requests:
            try:
                subject = bus.subjects.intake_request(*sent.key)
                sent.intake_seq = await bus.publish(subject, encode(sent.request))
            except (TransientError, PoisonError) as error:
                names = listed(("/".join(one.key) for one in sent_so_far), most=len(requests)) or "none"
                raise CommandError(f"{'/'.join(sent.key)} could not be sent: {error}", f"sent were: {names}") from error
            sent_so_far.append(sent)
        end_s = None if patience_s is None else clock.monotonic_s() + patience_s
        done: list[Submitted] = []
        for sent in requests:
            left_s = None if end_s is None else max(end_s - clock.monotonic_s(), 0.001)
            found = await watch.until(lambda sent=sent: _judged(watch, sent, wait=wait), timeout_s=left_s)  # type: ignore[misc]  # a default binds the loop's value
            done.append(found or _unknown(watch, sent))
        return done


def _verdict(watch: Watch, sent: _Sent) -> JobSeen | None:
    return next((seen for seen in watch.verdicts[sent.key] if seen.intake_seq >= sent.intake_seq), None)


def _judged(watch: Watch, sent: _Sent, *, wait: bool) -> Submitted | None:
    """Result of a request, once it is complete."""
    verdict = _verdict(watch, sent)
    if verdict is None:
        return None
    refusal = None
    if verdict.rejection is not None and verdict.rejection.intake_seq == sent.intake_seq:
        refusal = verdict.rejection.refusal
    elif verdict.uid == sent.request.uid:
        refusal = verdict.refusal
    if refusal is not None:
        return _submitted(sent, "rejected", refusal, None)
    status = _own(watch, sent)
    if status is None or (wait and not _is_settled(status)):
        return None
    return _submitted(sent, "accepted", None, status)


def _own(watch: Watch, sent: _Sent) -> JobStatus | None:
    status = watch.statuses.get(sent.key)
    return status if status is not None and status.uid == sent.request.uid else None


def _is_settled(status: JobStatus) -> bool:
    """Whether the job is placed, has ended, or is larger than the cluster."""
    too_large = status.refusal is not None and status.refusal.code == "larger-than-cluster"
    return status.phase in _PLACED or status.phase in OVER or too_large


def _unknown(watch: Watch, sent: _Sent) -> Submitted:
    """Result of a request after the timeout."""
    status = _own(watch, sent)
    return _submitted(sent, "unknown" if status is None else "accepted", None, status)


def _submitted(sent: _Sent, verdict: str, refusal: Refusal | None, status: JobStatus | None) -> Submitted:
    namespace, name = sent.key
    return Submitted(
        namespace=namespace,
        name=name,
        uid=sent.request.uid,
        intake_seq=sent.intake_seq,
        verdict=verdict,
        refusal=fault_of(refusal, job="/".join(sent.key)) if refusal is not None else None,
        status=row_of(status) if status is not None else None,
    )


def _is_good(job: Submitted, *, wait: bool) -> bool:
    if job.verdict != "accepted" or job.status is None:
        return False
    return job.status.phase not in {"rejected", "failed"} and (not wait or job.status.phase in _PLACED)


def _show(job: Submitted) -> None:
    label = f"{job.namespace}/{job.name}"
    if job.verdict == "unknown":
        complain([f"{label}: stored as request {job.intake_seq}, but no verdict came; is a dispatcher running?"])
    elif job.refusal is not None:
        complain([job.refusal.line()])
    elif job.status is not None:
        where = listed(rank.node for rank in job.status.ranks)
        tail = f" on {where}" if where else f": {job.status.sentence}" if job.status.sentence else ""
        print_result(f"{label} {phase_words(job.status.phase)}{tail}")
