"""ConfigMaps of the chart: which lines of their data are values.

The name of a ConfigMap ends in a hash of its content, as with kustomize: a change restarts the pods that read it.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from tests.chart.manifests import ChartError, Form, Met
from tests.chart.places import AUTH, ENVIRONMENT, GATEWAY, MARKS, ONE, TLS

STORE: Final = "max_file_store: 18GB"
SUBJECTS: Final = '"berth.default.'
USERS_ALONE: Final = "nats/users/access.conf"
"""Users of NATS without a gateway; the manifests of which the chart is made have one."""
_OF_CLUSTER: Final = "cluster.conf"
_FOLDERS: Final[dict[str, tuple[str, dict[str, Form]]]] = {
    "tls.conf": (f'(ternary "encrypted" "plain" {TLS})', {"encrypted": "production", "plain": "trial"}),
    "access.conf": (
        f'(ternary (ternary "gateway" "users" {GATEWAY}) "open" {AUTH})',
        {"gateway": "production", "open": "trial"},
    ),
    _OF_CLUSTER: (
        f'(ternary "one" (ternary "users" "open" {AUTH}) {ONE})',
        {"users": "production", "open": "trial", "one": "small"},
    ),
}
"""Files of NATS that differ: which folder a template takes, and the form that each folder is made of.

Production has users with a gateway; those without one are a file of its own, :data:`USERS_ALONE`.
"""
STREAMS: Final = "_default"
"""End of the names of streams in the rights."""
USERS: Final = "users: ["
"""Begin of the list of users, to which a value adds more."""
_OF_NODESIM: Final = {"settings.toml": "nodesim.settings", "cluster.yaml": "nodesim.cluster"}

Maps = Mapping[Form, Mapping[str, str]]


def document(name: str, there: Maps, met: Met, files: dict[str, str]) -> tuple[str, str]:
    """Definition of the data of a ConfigMap, and the ConfigMap itself.

    Args:
        name: Without its end.
        there: Its content in each form that has it.
        met: Gets the values.
        files: Gets the files that the template reads, by their names.

    Raises:
        ChartError: The content has something that the chart cannot express.
    """
    match name:
        case "berth-environment":
            lines = list(_environment(there, met))
        case "nats":
            lines = list(_nats(there, files))
        case "berth-nodesim":
            lines = list(_texts(name, there, _OF_NODESIM, met))
        case _:
            service = name.removeprefix("berth-")
            lines = list(_texts(name, there, {"settings.toml": f"settings.{service}"}, met))
    data = [f'{{{{- define "berth.data.{name}" }}}}', *lines, "{{- end }}"]
    return "\n".join(data) + "\n", (
        "apiVersion: v1\n"
        "kind: ConfigMap\n"
        "metadata:\n"
        f'  name: {{{{ include "berth.configMap" (list . "{name}") }}}}\n'
        '  namespace: {{ include "berth.namespace" . }}\n'
        "  labels:\n"
        "    app.kubernetes.io/part-of: berth\n"
        "data:\n"
        f'  {{{{- include "berth.data.{name}" . | nindent 2 }}}}\n'
    )


def _texts(name: str, there: Maps, values: Mapping[str, str], met: Met) -> Iterator[str]:
    """Each file is a value.

    Raises:
        ChartError: There is another file.
    """
    for data in there.values():
        if set(data) != set(values):
            raise ChartError(f"ConfigMap {name} has {sorted(data)}: expected {sorted(values)}")
    for file, path in values.items():
        met.note(path, {form: data[file] for form, data in there.items()})
        yield f"{file}: {{{{ .Values.{path} | toJson }}}}"


def _environment(there: Maps, met: Met) -> Iterator[str]:
    """A variable that follows from another value, or is a value by itself."""
    base, production, small = there["base"], there["production"], there["small"]
    met.note("cell", {form: data["BERTH_BUS__CELL"] for form, data in there.items()})
    met.note("nats.streamReplicas", {form: int(data["BERTH_BUS__REPLICAS"]) for form, data in there.items()})
    shards = {form: int(data["BERTH_SHARDS"]) for form, data in there.items()}
    met.note("scorer.replicas", {form: count for form, count in shards.items() if form != "small"})
    met.note(
        "environment",
        {form: {key: text for key, text in data.items() if key not in ENVIRONMENT} for form, data in there.items()},
    )
    open_url, url = base["BERTH_BUS__URL"], production["BERTH_BUS__URL"]
    of_several = f'(ternary "{url}" "{open_url}" {TLS})'
    own_url = f'ternary "{small["BERTH_BUS__URL"]}" {of_several} {ONE}'
    yield f"BERTH_BUS__URL: {{{{ .Values.nats.url | default ({own_url}) | toJson }}}}"
    yield "BERTH_BUS__CELL: {{ .Values.cell | toJson }}"
    yield "BERTH_BUS__REPLICAS: {{ .Values.nats.streamReplicas | toString | toJson }}"
    yield f"BERTH_SHARDS: {{{{ ternary {shards['small']} (int .Values.scorer.replicas) {ONE} | toString | toJson }}}}"
    yield f'BERTH_PROBES__HOST: "{base["BERTH_PROBES__HOST"]}"'
    yield f'BERTH_PROBES__PORT: "{base["BERTH_PROBES__PORT"]}"'
    yield f"{{{{- if {AUTH} }}}}"
    yield f'BERTH_BUS__MAKES_STREAMS: "{production["BERTH_BUS__MAKES_STREAMS"]}"'
    yield f"BERTH_BUS__PASSWORD_FILE: {production['BERTH_BUS__PASSWORD_FILE']}"
    yield "{{- end }}"
    yield f"{{{{- if {TLS} }}}}"
    yield f"BERTH_BUS__TLS_CA_FILE: {production['BERTH_BUS__TLS_CA_FILE']}"
    yield "{{- end }}"
    yield f"{{{{- if {MARKS} }}}}"
    yield f"BERTH_MARKS_FILE: {production['BERTH_MARKS_FILE']}"
    yield "{{- end }}"
    yield "{{- range $name, $text := .Values.environment }}"
    yield "{{ $name }}: {{ $text | toJson }}"
    yield "{{- end }}"


def _nats(there: Maps, files: dict[str, str]) -> Iterator[str]:
    """Files of their own beside the templates; those of production differ where NATS has users, and TLS.

    A small cell has those of a trial, but for that of the cluster.

    Raises:
        ChartError: They lack what the templates replace.
    """
    trial, production = there["trial"], there["production"]
    if STORE not in trial["server.conf"] or SUBJECTS not in production["access.conf"]:
        raise ChartError(f"expected {STORE} in server.conf and {SUBJECTS} in access.conf")
    if production["access.conf"].count(USERS) != 1:
        raise ChartError(f"expected {USERS} once in access.conf")
    small = there["small"]
    if {**trial, _OF_CLUSTER: small[_OF_CLUSTER]} != small:
        raise ChartError(f"files of NATS in a small cell: expected those of a trial, apart from {_OF_CLUSTER}")
    for name, text in trial.items():
        if text == production[name]:
            files[f"nats/{name}"] = text
            source = f'.Files.Get "nats/{name}"'
        elif name in _FOLDERS:
            folder, made_of = _FOLDERS[name]
            files |= {f"nats/{own}/{name}": there[form][name] for own, form in made_of.items()}
            source = f'.Files.Get (printf "nats/%s/{name}" {folder})'
        else:
            raise ChartError(
                f"file {name} of NATS differs between trial and production: expected one of {sorted(_FOLDERS)}"
            )
        if name == "server.conf":
            source += f' | replace "{STORE}" (include "berth.fileStore" .)'
        if name == "access.conf":
            source += " | replace `" + SUBJECTS + '` (printf `"berth.%s.` .Values.cell)'
            source += f' | replace "{STREAMS}" (printf "_%s" .Values.cell)'
            source += f' | replace "{USERS}" (printf "{USERS}%s" .Values.nats.auth.users)'
        yield f"{name}: {{{{ {source} | toJson }}}}"
