"""Manifests: job requests from YAML text of one or several documents, by kind.

Known kinds: workloads with a form of manifest (Volcano ``Job``, ``AscendJob``, Kubernetes ``Job``), ``Job`` of Berth,
and a ``List`` of these. Objects of
other kinds, such as the ConfigMap and the Service that a job uses, are skipped; see :attr:`Reading.skipped`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Final

from berth.formats.kubernetes.workloads.registry import kinds
from berth.formats.manifests import job_file
from berth.formats.manifests.field_names import field_in
from berth.formats.manifests.gang_request import ManifestError, gang_request
from berth.formats.yaml_documents import plain_tree, read_documents
from berth.formats.yaml_tree import MISSING, DocumentError, Tree, nearest, without
from berth.schemas.intake import JobRequest

_KINDS_SHOWN: Final = 8
_ERRORS_MAX: Final = 16
"""Most errors of an object after its first."""
_LIST: Final = ("v1", "List")
_CLUSTER: Final = (job_file.API_VERSION, "Cluster")
_SIMILAR: Final = 0.8
"""Similarity from which on a kind of a known version is a job's kind with a wrong letter."""

__all__ = ["ManifestError", "Reading", "Skipped", "parse_jobs", "read_job", "read_jobs"]


@dataclass(frozen=True, slots=True)
class Skipped:
    """An object that is no job: number of its document, kind, version and name, as far as it has them."""

    document: int
    kind: str
    api_version: str
    name: str

    @property
    def sentence(self) -> str:
        """What was skipped, for people."""
        name = f" {self.name}" if self.name else ""
        return f"document {self.document}: {self.kind}{name} ({self.api_version}) is no job; it is skipped"


@dataclass(frozen=True, slots=True)
class Reading:
    """Content of a manifest.

    Attributes:
        jobs: The valid job requests.
        errors: Errors of other jobs: all that can be told of an object without guesses.
        skipped: What is no job.
        names: For each of ``jobs``, what gives a field of it its path in the manifest.
    """

    jobs: list[JobRequest]
    errors: list[ManifestError]
    skipped: list[Skipped]
    names: list[Callable[[str], str]]


def parse_jobs(text: str) -> list[JobRequest]:
    """Job requests of a manifest, in its order.

    Args:
        text: YAML or JSON: one or several documents; empty ones are skipped.

    Raises:
        ManifestError: It is not YAML; it has no job; a field is missing or wrong; or the name of a job is repeated. The
            error has document, field path, value and valid values.
    """
    reading = read_jobs(text)
    if reading.errors:
        raise reading.errors[0]
    return reading.jobs


def read_jobs(text: str) -> Reading:
    """As :func:`parse_jobs`, but continues after errors."""
    reading = Reading([], [], [], [])
    seen: set[tuple[str, str]] = set()
    try:
        documents = read_documents(text, ManifestError)
    except ManifestError as error:
        return Reading([], [error], [], [])
    for document in documents:
        _read_document(document, reading, seen)
    if not reading.jobs and not reading.errors:
        reading.errors.append(_no_job(reading.skipped))
    return reading


def read_job(value: object, *, path: str) -> tuple[JobRequest, Callable[[str], str]]:
    """Job request of one object that was decoded from JSON, and what gives a field of it its path.

    Args:
        value: The object, of one of the known kinds.
        path: Where it was, for errors.

    Raises:
        ManifestError: See :func:`parse_jobs`.
    """
    tree = plain_tree(value, path, ManifestError)
    if _kind(tree) == _LIST:
        raise tree.need("kind", "").wrong("a single job; submit each job of a list by itself")
    job = _read(tree)
    return job, _names_of(tree, job)


def _names_of(tree: Tree, job: JobRequest) -> Callable[[str], str]:
    return partial(field_in, tree, job.origin, job.resource)


def _read_document(document: Tree, reading: Reading, seen: set[tuple[str, str]]) -> None:
    try:
        trees = _objects(document)
    except ManifestError as error:
        reading.errors.append(error)
        return
    for tree in trees:
        try:
            skipped = _skipped(tree)
            if skipped is not None:
                reading.skipped.append(skipped)
                continue
            job = _read(tree)
            if (job.namespace, job.name) in seen:
                name = tree.need("metadata", "").need("name", "")
                raise name.wrong(f"another name: {job.namespace}/{job.name} is given twice")
        except ManifestError as error:
            reading.errors.extend([error, *_further(tree, error)])
            continue
        seen.add((job.namespace, job.name))
        reading.jobs.append(job)
        reading.names.append(_names_of(tree, job))


def _further(tree: Tree, error: ManifestError) -> list[ManifestError]:
    """Errors of an object beside its first: those that are there without the fields of the errors before.

    What is then missing may be so for that reason alone, so the search ends.
    """
    found: list[ManifestError] = []
    while len(found) < _ERRORS_MAX and (rest := without(tree, error.path)) is not None:
        tree = rest
        try:
            _read(tree)
        except ManifestError as next_error:
            if next_error.value == MISSING:
                break
            error = next_error
            found.append(error)
        else:
            break
    return found


def _objects(document: Tree) -> list[Tree]:
    """The document itself, or the entries of a list."""
    return document.items_of("items") if _kind(document) == _LIST else [document]


def _readers() -> dict[tuple[str, str], Callable[[Tree], JobRequest]]:
    """What reads each kind of jobs, by version and kind."""
    found: dict[tuple[str, str], Callable[[Tree], JobRequest]] = {
        (kind.versions[0], kind.api_kind[1]): partial(gang_request, form=kind.manifest)
        for kind in kinds().named.values()
        if kind.manifest is not None
    }
    return found | {(job_file.API_VERSION, job_file.KIND): job_file.read_job_file}


def _kind(tree: Tree) -> tuple[str, str]:
    kind = tree.need("kind", "the kind of the object").text()
    api_version = tree.need("apiVersion", "the version of the object's kind").text()
    return api_version, kind


def _skipped(tree: Tree) -> Skipped | None:
    """What an object is that is no job; None for a job, and for what may be one with a wrong kind or version."""
    api_version, kind = _kind(tree)
    readers = _readers()
    known = {name for _, name in readers}
    is_similar = bool(get_close_matches(kind, known, n=1, cutoff=_SIMILAR)) or kind.casefold() in {
        name.casefold() for name in known
    }
    if kind in known or kind == _LIST[1] or api_version == job_file.API_VERSION:
        return None
    if is_similar and (any(api_version == version for version, _ in readers) or kind.casefold() == "job"):
        return None
    try:
        name = tree.dig("metadata", "name")
    except DocumentError:
        name = None
    return Skipped(tree.document, kind, api_version, str(name.value) if name is not None else "")


def _no_job(skipped: Sequence[Skipped]) -> ManifestError:
    if not skipped:
        return ManifestError(document=0, path="", value="nothing", expected="at least one job")
    kinds = sorted({one.kind for one in skipped})
    listed = ", ".join(sorted({f"{kind} ({version})" for version, kind in _readers()}))
    value = f"only {', '.join(kinds[:_KINDS_SHOWN])}{', …' if len(kinds) > _KINDS_SHOWN else ''}"
    return ManifestError(document=0, path="kind", value=value, expected=f"at least one job: {listed}")


def _read(tree: Tree) -> JobRequest:
    api_version, kind = _kind(tree)
    readers = _readers()
    reader = readers.get((api_version, kind))
    if reader is not None:
        return reader(tree)
    versions = [version for version, known in readers if known == kind]
    if versions:
        raise tree.need("apiVersion", "").wrong(nearest(api_version, versions))
    known = nearest(kind, {known for _, known in readers})
    hint = "; a Cluster describes simulated nodes, not a job" if (api_version, kind) == _CLUSTER else ""
    raise tree.need("kind", "").wrong(f"{known}{hint}")
