"""Pages that follow from the code: commands, settings, job file, messages, metrics, and the table of differences.

They are not in the tree: the hook of mkdocs, ``docs/theme/links.py``, takes their texts from here.
"""

import importlib
from collections.abc import Iterable, Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any, Final

import msgspec

from berth.cli.cluster.node_rows import NodeRow
from berth.cli.jobs.requests import Fault
from berth.cli.jobs.rows import JobRow
from berth.cli.jobs.submit import Submitted
from berth.core.explain.model import Explanation
from berth.core.topologies.maps import LeafRow, SuperpodRow
from berth.products.catalogue import NODE_PRODUCTS
from berth.runtime.config import PREFIX, ServiceConfig
from berth.runtime.kube.config import KubeConfig
from berth.schemas.catalogue import MESSAGES
from berth.schemas.intake import BOUNDS
from berth.schemas.ledger import Settings
from berth.schemas.programs.job_file import JobFile, JobMetadata, JobSpec, JobTask, SoftShare
from berth.schemas.subjects import StreamSpec, Subjects
from tests.contract.command_page import commands_page
from tests.contract.metrics_page import anchor, metrics_page
from tests.contract.parity_table import parity_page
from tests.contract.struct_tables import (
    WRITTEN,
    as_markdown,
    fields_of,
    filled,
    struct_table,
    table,
)
from tests.support.services import PACKAGES, SERVICES

ROOT: Final = Path(__file__).parents[2]
NOT_FOR_OPERATORS: Final = {"fault_point"}
"""Settings that tests of crashes set."""
WAITING: Final = ("waiting_jobs_max", "waiting_pods_max")


def settings_page() -> str:
    """The page of all settings."""
    lines = [
        "# Settings",
        "",
        *filled(
            f"{WRITTEN} [Operate a cell](../operators.md#settings) says where settings come from. A service is started with"
            " `python -m berth.services.SERVICE --config FILE`, nodesim with `python -m berth.lab.nodesim`; `berth check-config SERVICE FILE` prints the settings"
            " that result from the file, the environment and the defaults."
        ),
        "",
        *filled(
            f"The variable of a setting in the environment is `{PREFIX}` and its path in capitals, with two underscores"
            f" between the parts: `{variable('bus.url')}` is `bus.url`. Lists and tables are JSON there."
        ),
        "",
        "## Every service",
        "",
        *_settings(ServiceConfig, set()),
        "## Every service on Kubernetes",
        "",
        *_settings(KubeConfig, set(), "kube."),
    ]
    shared = {name for name, *_ in _rows(ServiceConfig)} | {name for name, *_ in _rows(KubeConfig, "kube.")} | {"kube"}
    for service in SERVICES:
        lines += [f"## {service}", "", *_settings(settings_of(service), shared)]
    return "\n".join(lines).rstrip() + "\n"


def settings_of(service: str) -> type[ServiceConfig]:
    """Struct of the settings of a service."""
    module = importlib.import_module(f"{PACKAGES[service]}.config")
    (found,) = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, ServiceConfig) and value is not ServiceConfig
    ]
    return found


def _rows(struct: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Settings below a path: each path with type, default and text; sections are opened."""
    for field in fields_of(struct):
        path = f"{prefix}{field.name}"
        if field.name in NOT_FOR_OPERATORS:
            continue
        if field.inside and field.default == "its defaults":
            yield from _rows(field.inside[0], f"{path}.")
            continue
        yield path, field.kind, field.default, field.text
        if field.inside and path != "kube":
            for inner in fields_of(field.inside[0]):
                yield f"{path}[].{inner.name}", inner.kind, inner.default, inner.text


def _settings(struct: type[msgspec.Struct], shared: set[str], prefix: str = "") -> list[str]:
    return table(
        ("setting", "type", "default", "meaning"),
        [
            (f"`{path}`", words, default or "required", as_markdown(text))
            for path, words, default, text in _rows(struct, prefix)
            if path not in shared
        ],
    )


def variable(path: str) -> str:
    """Name of the variable of a setting in the environment."""
    return PREFIX + path.upper().replace(".", "__")


_JOB_PARTS: Final = (
    ("The job", JobFile),
    ("metadata", JobMetadata),
    ("spec", JobSpec),
    ("spec.tasks[]", JobTask),
    ("spec.softShare", SoftShare),
)


def job_file_page() -> str:
    """The page of the job file."""
    anchors = {struct: anchor(title) for title, struct in _JOB_PARTS}
    lines = [
        "# Job file",
        "",
        *filled(
            f"{WRITTEN} A job file is YAML or JSON, with one or several documents. A field that is not listed is refused."
            " Volcano Jobs, AscendJobs and `batch/v1` Jobs are accepted as well: see the [examples](../examples) and the"
            " [labels and annotations](kubernetes.md)."
        ),
        "",
        "```yaml",
        (ROOT / "docs" / "examples" / "job.yaml").read_text("utf-8").partition("---")[0].strip(),
        "```",
        "",
    ]
    for title, struct in _JOB_PARTS:
        lines += [f"## {title}", "", as_markdown(cleandoc(struct.__doc__ or "")), "", *struct_table(struct, anchors)]
    rows = [
        (f"`{name}`", product.about, f"`{product.resource}`", str(product.chips), _pairs(product.selector),
         f"`{product.policy}`" if product.policy else "none")
        for name, product in NODE_PRODUCTS.items()
    ]  # fmt: skip
    lines += [
        "## Products",
        "",
        *filled(
            "Values of `spec.product`, with what each of them sets: the resource name, the selector of nodes and the"
            " policy ([nodes and chips](nodes-and-chips.md))."
        ),
        "",
        *table(("product", "what", "resource", "chips of a node", "selector", "policy"), rows),
        *_bounds(),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _bounds() -> list[str]:
    """The section of the bounds of requests."""
    settings = msgspec.structs.fields(Settings)
    jobs, pods = (next(one.default for one in settings if one.name == name) for name in WAITING)
    return [
        "## Bounds",
        "",
        *filled(
            "One request delays the decisions about all others, so none may be arbitrarily large. What is above a bound is"
            " refused with `too-large`: the refusal names the field, what it has, and the bound. The bounds are the same for"
            " `berth submit`, for programs, and for pods and PodGroups of a cluster, whose pods then wait with the refusal"
            " as their reason. Nothing of such a request is kept, and no other one waits for it."
        ),
        "",
        *table(("bound", "at most", "what"), [(f"`{one.name}`", f"{one.most:,}", one.what) for one in BOUNDS]),
        *filled(
            "Of a pod of another scheduler that is above a bound only what it takes from its node is counted."
            " Annotations and labels of PodGroups and owners that Berth does not read are not copied into a request."
        ),
        "",
        "## Jobs that wait",
        "",
        *filled(
            f"At most {jobs:,} jobs with {pods:,} pods wait in one namespace, and as many of one program"
            f" (`decisions.{WAITING[0]}`, `decisions.{WAITING[1]}` of the dispatcher). As stored they have at most 1,000"
            " bytes for each job that may wait, or as many as one job may have if that is more: few jobs near the"
            " [bounds](#bounds) fill it. Jobs that are over, or rejected, count with a quarter of what they have above"
            " 1,000 bytes, until their names are free. A request beyond them is refused with `too-many`; for pods of a cluster it is made"
            " again later. Ranks that a running gang has lost have room."
        ),
        "",
    ]


def _pairs(labels: dict[str, str]) -> str:
    return ", ".join(f"`{key}={value}`" for key, value in sorted(labels.items())) or "none"


def messages_page() -> str:
    """The page of streams, subjects and messages."""
    kinds = {message: message.KIND for message in MESSAGES}
    parts = _parts(MESSAGES)
    anchors: dict[type[msgspec.Struct], str] = {each: anchor(kind) for each, kind in kinds.items()}
    anchors.update({each: anchor(each.__name__) for each in parts})
    lines = [
        "# Streams, subjects and messages",
        "",
        *filled(
            f"{WRITTEN} How messages change between releases is in [messages.md](../messages.md), what of a stream may be"
            " deleted in [streams](../operate/streams.md#streams), JSON for programs in [programs.md](../programs.md)."
            " [schemas/json](../../schemas/json) has the JSON Schemas of all messages, and of requests, replies and events"
            " in JSON."
        ),
        "",
        *filled(
            "A message is msgpack: `[kind, version, body]`, and the body an array of the fields in the order of the table."
            " Names in subjects are escaped: every byte other than letters, digits, `-` and `_` is `=` and two upper-case"
            " hex digits."
        ),
        "",
        "## Streams",
        "",
        *table(("stream", "subjects", "keeps"), [_stream(spec) for spec in Subjects("CELL").streams()]),
        "## Subjects",
        "",
        *table(("subject", "what"), sorted(_subjects())),
        "## Messages",
        "",
        *table(
            ("kind", "version", "what"),
            [(f"[`{kind}`](#{anchors[each]})", str(each.VERSION), _first(each)) for each, kind in kinds.items()],
        ),
    ]
    for message, kind in kinds.items():
        lines += [f"### {kind}", "", *_struct_text(message), *struct_table(message, anchors)]
    lines += ["## Parts of messages", ""]
    for part in parts:
        lines += [f"### {part.__name__}", "", *_struct_text(part), *struct_table(part, anchors)]
    return "\n".join(lines).rstrip() + "\n"


def _parts(whole: Iterable[type[msgspec.Struct]]) -> list[type[msgspec.Struct]]:
    """Structs inside others, these left out, by name."""
    found: dict[str, type[msgspec.Struct]] = {}
    waiting = outer = list(whole)
    while waiting:
        inner = [cls for struct in waiting for field in fields_of(struct) for cls in field.inside if cls not in outer]
        waiting = [cls for cls in inner if cls.__name__ not in found]
        found.update({cls.__name__: cls for cls in waiting})
    return [found[name] for name in sorted(found)]


def _struct_text(struct: type[msgspec.Struct]) -> list[str]:
    text = as_markdown(cleandoc(struct.__doc__ or "").partition("\nAttributes:")[0].rstrip())
    return [*text.splitlines(), ""] if text else []


def _first(struct: type[msgspec.Struct]) -> str:
    text = " ".join(cleandoc(struct.__doc__ or "").partition("\n\n")[0].split())
    return as_markdown(text.partition(". ")[0].rstrip("."))


def _stream(spec: StreamSpec) -> tuple[str, str, str]:
    subjects = ", ".join(f"`{_bare(subject)}`" for subject in spec.subjects)
    keeps = [f"{spec.max_age_s // 86_400} days" if spec.max_age_s else ""]
    keeps += [f"{spec.max_bytes >> 20:,} MiB" if spec.max_bytes else ""]
    keeps += ["the latest message of each subject" if spec.per_subject == 1 else ""]
    mirror = f"mirror of `{spec.mirror_of}`" if spec.mirror_of else subjects
    return f"`{spec.name}_CELL`", mirror, ", ".join(part for part in keeps if part) or "everything"


def _bare(subject: str) -> str:
    return subject.replace("berth.CELL.", "berth.<cell>.")


def _subjects() -> Iterator[tuple[str, str]]:
    """Subjects of a cell, with the parts that vary in angle brackets, and what is published there."""
    subjects = Subjects("CELL")
    for name, member in vars(Subjects).items():
        if name.startswith("_") or name in {"cell", "root", "stream", "streams", "facts", "snapshot_all", "reports_health",
                                            "api_as_any"}:  # fmt: skip
            continue
        if isinstance(member, property):
            subject, doc = str(getattr(subjects, name)), member.fget.__doc__
        elif callable(member):
            words: dict[str, Any] = {
                one: f"WORD{one}" for one in member.__annotations__ if one not in {"return", "stream"}
            }
            subject, doc = str(member(subjects, **words, **_enums(member))), member.__doc__
        else:
            continue
        yield f"`{_marked(_bare(subject))}`", as_markdown(str(doc))


def _enums(member: Any) -> dict[str, Any]:  # noqa: ANN401  # a function of any signature
    return {"stream": _Word("WORDstream")} if "stream" in member.__annotations__ else {}


class _Word(str):
    """A text that stands for a stream as well."""

    @property
    def value(self) -> str:
        return str(self)


def _marked(subject: str) -> str:
    parts = subject.split(".")
    return ".".join(f"<{part.removeprefix('WORD')}>" if part.startswith("WORD") else part for part in parts)


_DOCUMENTS: Final[dict[str, type[msgspec.Struct]]] = {
    "job": JobRow,
    "fault": Fault,
    "submitted": Submitted,
    "node": NodeRow,
    "leaf": LeafRow,
    "superpod": SuperpodRow,
    "explanation": Explanation,
}


def json_page() -> str:
    """The page of what commands print with ``--json``."""
    parts = _parts(_DOCUMENTS.values())
    anchors: dict[type[msgspec.Struct], str] = {cls: anchor(name) for name, cls in _DOCUMENTS.items()}
    anchors.update({each: anchor(each.__name__) for each in parts})
    lines = [
        "# JSON of commands",
        "",
        *filled(
            f"{WRITTEN} [JSON](../cli/json.md) has the document of each command, which names these parts. A field whose name"
            " ends in `_ms` is a time or a duration in milliseconds."
        ),
        "",
    ]
    for title, struct in [*_DOCUMENTS.items(), *((each.__name__, each) for each in parts)]:
        lines += [f"## {title}", "", *_struct_text(struct), *struct_table(struct, anchors)]
    return "\n".join(lines).rstrip() + "\n"


def made_pages() -> dict[str, str]:
    """Text of each page by its path below ``docs``."""
    return {
        "reference/commands.md": commands_page(),
        "reference/json-of-commands.md": json_page(),
        "reference/settings.md": settings_page(),
        "reference/job-file.md": job_file_page(),
        "reference/streams-and-messages.md": messages_page(),
        "reference/metrics.md": metrics_page(),
        "reference/parity.md": parity_page(),
    }
