"""Values of the chart: comment, schema and default of each, and what a trial and a small cell have instead.

A default that is not given here comes from the manifests.
"""

from dataclasses import dataclass
from typing import Any, Final

from tests.chart.text import Tree

SERVICES: Final = ("inventory", "health", "dispatcher", "scorer", "binder", "summary", "api")
"""Services of every cell, in the order of ``k8s/base/kustomization.yaml``."""


class _Manifests:
    """Stands for a default that the manifests have."""


FROM_MANIFESTS: Final = _Manifests()

_BOOLEAN: Final[Tree] = {"type": "boolean"}
_NAME: Final[Tree] = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
_OPTIONAL_NAME: Final[Tree] = {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", "maxLength": 253}
_TEXT: Final[Tree] = {"type": "string"}
_FILE: Final[Tree] = {"type": "string", "minLength": 1}
_REPOSITORY: Final[Tree] = {"type": "string", "pattern": "^[a-z0-9][a-z0-9._/:-]*[a-z0-9]$"}
_TAG: Final[Tree] = {"type": "string", "pattern": "^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$"}
_COUNT: Final[Tree] = {"type": "integer", "minimum": 1}
_QUANTITY: Final[Tree] = {
    "type": ["string", "number"],
    "pattern": "^[0-9]+(\\.[0-9]+)?(m|k|Ki|[MGTP]i?)?$",
    "minimum": 0,
}
_AMOUNTS: Final[Tree] = {"type": "object", "additionalProperties": _QUANTITY}
_RESOURCES: Final[Tree] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"requests": _AMOUNTS, "limits": _AMOUNTS},
}
_LABELS: Final[Tree] = {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}}
_TOLERATIONS: Final[Tree] = {
    "type": "array",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "key": _TEXT,
            "operator": {"enum": ["Exists", "Equal"]},
            "value": _TEXT,
            "effect": {"enum": ["", "NoSchedule", "PreferNoSchedule", "NoExecute"]},
            "tolerationSeconds": {"type": "integer"},
        },
    },
}
_SECRETS: Final[Tree] = {
    "type": "array",
    "items": {"type": "object", "additionalProperties": False, "required": ["name"], "properties": {"name": _NAME}},
}
_ENVIRONMENT: Final[Tree] = {
    "type": "object",
    "propertyNames": {"pattern": "^BERTH_[A-Z0-9_]+$"},
    "additionalProperties": _TEXT,
}
_ADDRESSES: Final[Tree] = {"type": "string", "pattern": "^((nats|tls)://[^,\\s]+(,(nats|tls)://[^,\\s]+)*)?$"}


SECTIONS: Final = {
    "settings": "Settings of each service, in TOML; docs/operators.md lists them. A change restarts the service.",
    "priorityClass": "Priority of all pods.",
    "oneProcess": "For clusters of up to 2,000 nodes: see values-small.yaml.",
    "api": "Answers programs.",
    "gateway": "HTTP for browsers and programs.",
    "networkPolicies": "Who reaches NATS and the services, and what they reach.",
    "marks": "By which Berth knows the pods that it bound: see docs/operate/keys.md.",
    "policies": "What the API server refuses: see docs/reference/trust.md.",
    "volumes": "Claims that wait for their first pod.",
    "podMonitor": "For Prometheus.",
    "prometheusRule": "Alerts for Prometheus.",
    "dashboard": "For Grafana.",
    "natsExporter": "Metrics of the pods of NATS; alerts about NATS need them.",
}
"""Comments above groups of values."""


@dataclass(frozen=True)
class Setting:
    """A value of the chart.

    Attributes:
        path: Names from the outermost to its own, with dots between them.
        about: Comment above it; lines of at most 118 columns. May be empty.
        schema: JSON Schema of it.
        default: What production has.
        trial: What a trial has instead; None if the same, or if the manifests say it.
        small: What a small cell has instead; likewise.
    """

    path: str
    about: str
    schema: Tree
    default: Any = FROM_MANIFESTS
    trial: Any = None
    small: Any = None


SETTINGS: Final = (
    Setting(
        "namespace.create",
        "Whether the release makes the namespace; it is kept in another one then, and uninstalling it deletes the volumes\n"
        "of NATS too. false if you make the namespace before, for example for the Secret below.",
        _BOOLEAN,
        default=False,
    ),
    Setting("namespace.name", "Empty: the namespace of the release.", _OPTIONAL_NAME, default=""),
    Setting("image.repository", "Where the nodes find the image of Berth, which you build.", _REPOSITORY),
    Setting("image.tag", "Empty: the version of this chart.", _TAG, default=""),
    Setting("image.pullPolicy", "", {"enum": ["", "Always", "IfNotPresent", "Never"]}, default=""),
    Setting("image.pullSecrets", "Of a private registry: [{name: registry}].", _SECRETS, default=[]),
    Setting(
        "cell",
        "Name of the cell, which is part of all subjects.",
        {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,63}$"},
    ),
    Setting(
        "environment",
        "Settings of all services as variables, such as BERTH_SOURCE: clusterd; docs/operators.md lists them.\n"
        "Add volcano to the names of schedulers to take over jobs that were written for it; stop it first.",
        _ENVIRONMENT,
    ),
    *(Setting(f"settings.{name}", "", _FILE) for name in SERVICES),
    Setting("settings.gateway", "", _FILE),
    Setting("settings.cell", "Of the one process, if oneProcess.enabled: a section for each service.", _FILE),
    Setting("priorityClass.create", "", _BOOLEAN, default=True),
    Setting("priorityClass.name", "Empty: the default of the cluster.", _OPTIONAL_NAME),
    Setting("priorityClass.value", "", {"type": "integer", "maximum": 1_000_000_000, "minimum": -2_147_483_648}),
    Setting("tolerations", "Of all services.", _TOLERATIONS),
    Setting("nodeSelector", "Of all services.", _LABELS, default={}),
    Setting(
        "nats.embedded",
        "false: use a NATS with JetStream that is there, which url names.",
        _BOOLEAN,
        default=True,
    ),
    Setting(
        "nats.url",
        "Addresses with commas between them; empty: those of the pods below. tls:// requires TLS.",
        _ADDRESSES,
        default="",
    ),
    Setting("nats.streamReplicas", "Copies of each stream, on as many nodes of NATS.", {"enum": [1, 3, 5]}),
    Setting(
        "nats.auth.enabled",
        "Whether NATS asks each service for its password.",
        _BOOLEAN,
        default=True,
        trial=False,
        small=False,
    ),
    Setting(
        "nats.auth.secret", "Secret with the password of each user; make it before: docs/howto/production.md.", _NAME
    ),
    Setting(
        "nats.auth.users",
        "More users of NATS with their rights, as they stand in its configuration. See docs/howto/add-a-nats-user.md.",
        _TEXT,
        default="",
    ),
    Setting(
        "nats.tls.enabled",
        "Whether the pods of NATS and their clients use TLS. false: the network must keep others away.",
        _BOOLEAN,
        default=True,
        trial=False,
        small=False,
    ),
    Setting(
        "nats.tls.secret",
        "Secret with ca.crt, tls.crt and tls.key; make it before: docs/howto/production.md. Only ca.crt is used if NATS is\n"
        "not embedded.",
        _NAME,
    ),
    Setting("nats.image.repository", "", _REPOSITORY),
    Setting("nats.image.tag", "", {**_TAG, "minLength": 1}),
    Setting(
        "nats.storage.enabled", "false: nothing is kept when a pod of NATS ends.", _BOOLEAN, default=True, trial=False
    ),
    Setting(
        "nats.storage.size",
        "Of each of the three volumes. NATS may fill nine tenths; the streams reserve more than 4 GiB of that.",
        {"type": "string", "pattern": "^([89]|[1-9][0-9]{1,4})Gi$"},
    ),
    Setting("nats.storage.className", "Empty: the default of the cluster.", _OPTIONAL_NAME, default=""),
    Setting(
        "nats.spread",
        "What a scheduler does that would put two pods of NATS on one node.",
        {"enum": ["DoNotSchedule", "ScheduleAnyway"]},
    ),
    Setting("nats.resources", "", _RESOURCES),
    Setting("nats.tolerations", "", _TOLERATIONS),
    Setting("nats.nodeSelector", "", _LABELS, default={}),
    Setting(
        "oneProcess.enabled",
        "Whether all services are one process, without shards and standby. It needs a NATS without passwords and TLS.",
        _BOOLEAN,
        default=False,
        small=True,
    ),
    Setting("oneProcess.resources", "", _RESOURCES),
    Setting("inventory.resources", "", _RESOURCES),
    Setting("health.resources", "", _RESOURCES),
    Setting("dispatcher.replicas", "One is the leader, the others take over from it.", _COUNT),
    Setting("dispatcher.resources", "", _RESOURCES),
    Setting(
        "scorer.replicas",
        "Shards. To change it, scale dispatcher and scorer to 0 first.",
        _COUNT,
    ),
    Setting("scorer.resources", "", _RESOURCES),
    Setting("binder.resources", "", _RESOURCES),
    Setting("summary.resources", "", _RESOURCES),
    Setting("api.replicas", "", _COUNT),
    Setting("api.resources", "", _RESOURCES),
    Setting(
        "gateway.enabled",
        "NATS needs the password of its user then. See docs/howto/open-the-gateway.md.",
        _BOOLEAN,
        default=False,
        trial=True,
    ),
    Setting(
        "gateway.open",
        "Whether it asks for no token; then only kubectl port-forward reaches it. For a trial.",
        _BOOLEAN,
        default=False,
        trial=True,
    ),
    Setting("gateway.replicas", "", _COUNT),
    Setting(
        "gateway.tokens.secret", "Secret with the key tokens; make it before: docs/howto/open-the-gateway.md.", _NAME
    ),
    Setting("gateway.resources", "", _RESOURCES),
    Setting(
        "marks.enabled",
        "Whether marks of pods count with a code alone. Change it while no pod of Berth runs.",
        _BOOLEAN,
        default=True,
        trial=False,
        small=False,
    ),
    Setting("marks.secret", "Secret with the key keys; make it before with berth keys marks.", _NAME),
    Setting(
        "policies.enabled",
        "Whether they are in force; needs Kubernetes 1.30. Without them a role alone says what an account may write.",
        _BOOLEAN,
        default=True,
        trial=False,
    ),
    Setting(
        "policies.chipWriters",
        "Accounts that write the chips of pods: device plug-ins, the Ascend operator, a scheduler that Berth replaces.",
        _FILE,
    ),
    Setting(
        "policies.schedulerNames", "Schedulers whose pods the binder may delete: BERTH_GANGS__SCHEDULER_NAMES.", _FILE
    ),
    Setting(
        "volumes.enabled",
        "Whether the binder may bind claims; false where no job has such claims.",
        _BOOLEAN,
        default=True,
    ),
    Setting("networkPolicies.enabled", "", _BOOLEAN, default=True, trial=False),
    Setting(
        "networkPolicies.egress",
        "More rules of egress for the services: for a NATS that is not embedded, or another port of names or of the API\n"
        "server.",
        {"type": "array", "items": {"type": "object"}},
        default=[],
    ),
    Setting(
        "podMonitor.enabled",
        "Needs the Prometheus operator.",
        _BOOLEAN,
        default=False,
    ),
    Setting("podMonitor.labels", "By which Prometheus finds it.", _LABELS, default={}),
    Setting("prometheusRule.enabled", "Needs the Prometheus operator.", _BOOLEAN, default=False),
    Setting("prometheusRule.labels", "By which Prometheus finds it.", _LABELS, default={}),
    Setting("dashboard.enabled", "A ConfigMap, which the sidecar of Grafana loads.", _BOOLEAN, default=False),
    Setting("dashboard.labels", "By which the sidecar finds it.", _LABELS, default={"grafana_dashboard": "1"}),
    Setting(
        "natsExporter.enabled",
        "Only for pods of this chart. podMonitor makes Prometheus read it.",
        _BOOLEAN,
        default=False,
    ),
    Setting("natsExporter.image.repository", "", _REPOSITORY, default="natsio/prometheus-nats-exporter"),
    Setting("natsExporter.image.tag", "", {**_TAG, "minLength": 1}, default="0.17.3"),
    Setting(
        "natsExporter.resources",
        "",
        _RESOURCES,
        default={"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
    ),
    Setting(
        "nodesim.enabled",
        "A trial with simulated nodes; never in a cluster that is in use.",
        _BOOLEAN,
        default=False,
        trial=True,
    ),
    Setting("nodesim.settings", "", _FILE),
    Setting("nodesim.cluster", "", _FILE),
    Setting("nodesim.resources", "", _RESOURCES),
)


def put(tree: Tree, path: str, value: object) -> None:
    """Set a member of a tree by its path."""
    *way, last = path.split(".")
    for name in way:
        tree = tree.setdefault(name, {})
    tree[last] = value


def schema() -> Tree:
    """JSON Schema of the values."""
    root: Tree = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart berth"}
    root |= _object()
    root["properties"]["global"] = {"type": "object"}  # Helm adds it where the chart is part of another
    for setting in SETTINGS:
        *way, last = setting.path.split(".")
        tree = root
        for name in way:
            tree = tree["properties"].setdefault(name, _object())
        tree["properties"][last] = setting.schema
    return root


def _object() -> Tree:
    return {"type": "object", "additionalProperties": False, "properties": {}}
