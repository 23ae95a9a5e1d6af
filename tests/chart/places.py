"""Which fields of the manifests are values of the chart, and which are there only for some values.

A pattern names a field by the keys above it, with blanks between them. An item of a list counts by its name if it has
one (``mountPath`` of a mount), otherwise by its number.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from tests.chart.manifests import Form
from tests.chart.settings import SERVICES
from tests.chart.text import Block, Given, Items, Node, Value

AUTH: Final = ".Values.nats.auth.enabled"
TLS: Final = ".Values.nats.tls.enabled"
MARKS: Final = ".Values.marks.enabled"
GATEWAY: Final = ".Values.gateway.enabled"
OPEN: Final = ".Values.gateway.open"
STORED: Final = ".Values.nats.storage.enabled"
ONE: Final = ".Values.oneProcess.enabled"
HAS_POLICIES: Final = 'semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version'
POD: Final = "spec template spec"
CONTAINER: Final = f"{POD} containers *"
INIT: Final = f"{POD} initContainers *"


@dataclass(frozen=True)
class Place:
    """A field.

    Attributes:
        kind: Pattern of the kind of its object.
        name: Pattern of the name of its object.
        path: Pattern of its keys.
    """

    kind: str
    name: str
    path: str

    def meets(self, kind: str, name: str, path: tuple[str, ...]) -> bool:
        """Whether a field is meant."""
        keys = self.path.split()
        return (
            fnmatchcase(kind, self.kind)
            and fnmatchcase(name, self.name)
            and len(keys) == len(path)
            and all(fnmatchcase(one, key) for one, key in zip(path, keys, strict=True))
        )


@dataclass(frozen=True)
class Field:
    """A field that is a value; ``{name}`` in its path stands for the name of the object."""

    place: Place
    value: str
    form: str = "text"

    def node(self, name: str) -> Node:
        """What stands in the template."""
        path = f".Values.{self.value_of(name)}"
        match self.form:
            case "number":
                return Value(f"int64 {path}")
            case "tree":
                return Block(f"toYaml {path}")
            case "optional tree":
                return Given(f"with {path}", Block("toYaml ."))
            case "optional text":
                return Given(f"with {path}", Value("."))
            case "lines":
                return Value(f"toJson {path}")
            case _:
                return Value(path)

    def value_of(self, name: str) -> str:
        """Path of the value."""
        return self.value.format(name=name)


FIELDS: Final = (
    Field(Place("Deployment", "dispatcher", "spec replicas"), "{name}.replicas", "number"),
    Field(Place("Deployment", "api", "spec replicas"), "{name}.replicas", "number"),
    Field(Place("Deployment", "gateway", "spec replicas"), "{name}.replicas", "number"),
    Field(
        Place("Deployment", "gateway", f"{CONTAINER} env BERTH_TOKENS valueFrom secretKeyRef name"),
        "gateway.tokens.secret",
    ),
    Field(Place("StatefulSet", "scorer", "spec replicas"), "{name}.replicas", "number"),
    Field(Place("Deployment", "cell", f"{CONTAINER} resources"), "oneProcess.resources", "tree"),
    Field(Place("*", "*", f"{CONTAINER} resources"), "{name}.resources", "tree"),
    Field(Place("*", "*", f"{POD} priorityClassName"), "priorityClass.name", "optional text"),
    Field(Place("Deployment", "*", f"{POD} tolerations"), "tolerations", "optional tree"),
    Field(Place("StatefulSet", "scorer", f"{POD} tolerations"), "tolerations", "optional tree"),
    Field(Place("StatefulSet", "nats", f"{POD} tolerations"), "nats.tolerations", "optional tree"),
    Field(Place("StatefulSet", "nats", f"{POD} topologySpreadConstraints 0 whenUnsatisfiable"), "nats.spread"),
    Field(
        Place("StatefulSet", "nats", "spec volumeClaimTemplates 0 spec resources requests storage"), "nats.storage.size"
    ),
    Field(Place("StatefulSet", "nats", f"{POD} volumes data emptyDir sizeLimit"), "nats.storage.size"),
    Field(Place("*", "*", f"{POD} volumes secret secret secretName"), "nats.auth.secret"),
    Field(Place("StatefulSet", "nats", f"{CONTAINER} env OF_* valueFrom secretKeyRef name"), "nats.auth.secret"),
    Field(Place("*", "*", f"{POD} volumes streams secret secretName"), "nats.auth.secret"),
    Field(Place("*", "*", f"{POD} volumes ca secret secretName"), "nats.tls.secret"),
    Field(Place("StatefulSet", "nats", f"{POD} volumes tls secret secretName"), "nats.tls.secret"),
    Field(Place("Deployment", "*", f"{POD} volumes marks secret secretName"), "marks.secret"),
    Field(Place("ConfigMap", "berth-policies", "data chip-writers"), "policies.chipWriters", "lines"),
    Field(Place("ConfigMap", "berth-policies", "data scheduler-names"), "policies.schedulerNames", "lines"),
    Field(Place("PriorityClass", "*", "metadata name"), "priorityClass.name"),
    Field(Place("PriorityClass", "*", "value"), "priorityClass.value", "number"),
)

CONDITIONS: Final = (
    (Place("StatefulSet", "nats", f"{CONTAINER} env OF_GATEWAY"), f"and {AUTH} {GATEWAY}"),
    (Place("StatefulSet", "nats", f"{CONTAINER} env PASSWORD_GATEWAY"), f"and {AUTH} {GATEWAY}"),
    (Place("Deployment", "gateway", f"{CONTAINER} env BERTH_TOKENS"), f"not {OPEN}"),
    (Place("Deployment", "gateway", f"{CONTAINER} env BERTH_ACCESS"), OPEN),
    (Place("*", "*", f"{CONTAINER} env"), AUTH),
    (Place("*", "*", f"{CONTAINER} env BERTH_BUS__USER"), AUTH),
    (Place("*", "*", f"{CONTAINER} volumeMounts /run/secrets/berth"), AUTH),
    (Place("*", "*", f"{POD} volumes secret"), AUTH),
    (Place("*", "*", f"{INIT} env"), AUTH),
    (Place("*", "*", f"{INIT} volumeMounts /run/secrets/berth"), AUTH),
    (Place("*", "*", f"{INIT} volumeMounts /run/secrets/berth-ca"), TLS),
    (Place("*", "*", f"{POD} volumes streams"), AUTH),
    (Place("StatefulSet", "nats", f"{CONTAINER} env OF_*"), AUTH),
    (Place("StatefulSet", "nats", f"{CONTAINER} env PASSWORD_*"), AUTH),
    (Place("StatefulSet", "nats", f"{CONTAINER} env ROUTE_*"), AUTH),
    (Place("*", "*", f"{CONTAINER} volumeMounts /run/secrets/berth-ca"), TLS),
    (Place("*", "*", f"{POD} volumes ca"), TLS),
    (Place("*", "*", f"{CONTAINER} volumeMounts /run/secrets/berth-marks"), MARKS),
    (Place("*", "*", f"{POD} volumes marks"), MARKS),
    (Place("StatefulSet", "nats", f"{CONTAINER} volumeMounts /etc/nats-tls"), TLS),
    (Place("StatefulSet", "nats", f"{POD} volumes tls"), TLS),
    (Place("StatefulSet", "nats", "spec volumeClaimTemplates"), STORED),
    (Place("StatefulSet", "nats", f"{POD} volumes data"), f"not {STORED}"),
    (Place("NetworkPolicy", "nats", "spec ingress 1"), f"not {ONE}"),
    (Place("NetworkPolicy", "nats", "spec egress 1"), f"not {ONE}"),
)
"""Fields that some of the manifests lack."""

OF_A_FORM: Final[tuple[tuple[Place, Form, str], ...]] = (
    (Place("*Binding", "berth-*", "subjects 0 name"), "small", ONE),
    (Place("StatefulSet", "nats", "spec replicas"), "small", ONE),
    (Place("StatefulSet", "nats", f"{CONTAINER} env GOMEMLIMIT value"), "small", ONE),
    (Place("Deployment", "gateway", f"{CONTAINER} env BERTH_HOST value"), "trial", OPEN),
)
"""Fields that are something else in one form, with the condition that it has in the chart."""

_MARKS_MOUNT: Final = {"name": "marks", "mountPath": "/run/secrets/berth-marks", "readOnly": True}
_MARKS_VOLUME: Final = {"name": "marks", "secret": {"secretName": Value(".Values.marks.secret"), "defaultMode": 0o440}}
ADDED: Final = (
    (Place("Deployment", "cell", f"{CONTAINER} volumeMounts"), "", Given(f"if {MARKS}", _MARKS_MOUNT)),
    (Place("Deployment", "cell", f"{POD} volumes"), "", Given(f"if {MARKS}", _MARKS_VOLUME)),
    (Place("Deployment", "*", POD), "nodeSelector", Given("with .Values.nodeSelector", Block("toYaml ."))),
    (Place("StatefulSet", "scorer", POD), "nodeSelector", Given("with .Values.nodeSelector", Block("toYaml ."))),
    (Place("StatefulSet", "nats", POD), "nodeSelector", Given("with .Values.nats.nodeSelector", Block("toYaml ."))),
    (Place("*", "*", POD), "imagePullSecrets", Given("with .Values.image.pullSecrets", Block("toYaml ."))),
    (Place("*", "*", CONTAINER), "imagePullPolicy", Given("with .Values.image.pullPolicy", Value("."))),
    (Place("*", "*", INIT), "imagePullPolicy", Given("with .Values.image.pullPolicy", Value("."))),
    (
        Place("StatefulSet", "nats", "spec volumeClaimTemplates 0 spec"),
        "storageClassName",
        Given("with .Values.nats.storage.className", Value(".")),
    ),
    (Place("PodMonitor", "*", "metadata labels"), "", Items(".Values.podMonitor.labels")),
    (Place("NetworkPolicy", "berth", "spec egress"), "", Items(".Values.networkPolicies.egress")),
)
"""Members and items that the manifests lack: they are there for values that the manifests do not have."""

_OF_SERVICES: Final = ("Deployment", "StatefulSet", "ServiceAccount", "PodDisruptionBudget", "Service")
OBJECTS: Final = (
    (Place("PodDisruptionBudget", "nats", ""), f"and .Values.nats.embedded (not {ONE})"),
    (Place("*", "cell", ""), ONE),
    (Place("ConfigMap", "berth-cell", ""), ONE),
    *(
        (Place(kind, f"{before}{service}", ""), f"not {ONE}")
        for service in SERVICES
        for kind, before in (*((kind, "") for kind in _OF_SERVICES), ("ConfigMap", "berth-"))
    ),
    (Place("ValidatingAdmissionPolicyBinding", "*", ""), f"and .Values.policies.enabled ({HAS_POLICIES})"),
    (Place("ValidatingAdmissionPolicy", "*", ""), HAS_POLICIES),
    (Place("*", "berth-binder-volumes", ""), ".Values.volumes.enabled"),
    (Place("Namespace", "berth-system", ""), ".Values.namespace.create"),
    (Place("PriorityClass", "*", ""), ".Values.priorityClass.create"),
    (Place("NetworkPolicy", "nats", ""), "and .Values.networkPolicies.enabled .Values.nats.embedded"),
    (Place("NetworkPolicy", "berth-gateway", ""), f"and .Values.networkPolicies.enabled {GATEWAY}"),
    (Place("NetworkPolicy", "*", ""), ".Values.networkPolicies.enabled"),
    (Place("PodMonitor", "*", ""), ".Values.podMonitor.enabled"),
    (Place("*", "nats", ""), ".Values.nats.embedded"),
    (Place("Namespace", "mindx-dl", ""), ".Values.nodesim.enabled"),
    (Place("*", "*nodesim", ""), ".Values.nodesim.enabled"),
    (Place("*", "gateway", ""), GATEWAY),
    (Place("ConfigMap", "berth-gateway", ""), GATEWAY),
)
"""Objects that are there only for some values; the first that meets counts."""

ENVIRONMENT: Final = {
    "BERTH_BUS__URL",
    "BERTH_BUS__CELL",
    "BERTH_BUS__REPLICAS",
    "BERTH_BUS__MAKES_STREAMS",
    "BERTH_BUS__PASSWORD_FILE",
    "BERTH_BUS__TLS_CA_FILE",
    "BERTH_MARKS_FILE",
    "BERTH_SHARDS",
    "BERTH_PROBES__HOST",
    "BERTH_PROBES__PORT",
}
"""Variables that follow from other values; ``checks.yaml`` says from which."""
