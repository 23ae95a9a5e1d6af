"""Storage of a generated cluster: classes, drivers, volumes and claims, and pods that mount claims.

Claims come in every state that a scheduler meets: bound to a volume that is tied to nodes or not, waiting for the
first pod, to be bound at once, lost, of a class that nobody has, and missing. Volumes and claims agree as the
controller that binds them would leave them.
"""

from typing import Any, Final

from tests.support.dice import Dice

Tree = dict[str, Any]

DRIVER: Final = "csi.example.com"
CAPPED_DRIVER: Final = "capped.example.com"
"""A driver that reports the capacity that is left."""
ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
_PV: Final = "/api/v1/persistentvolumes"
_STORAGE: Final = "/apis/storage.k8s.io/v1"
_CLASSES: Final = ("now", "later", "zoned", "local", "capped")


class Volumes:
    """Storage of a cluster.

    Args:
        dice: Choices.
        nodes: Names of the nodes.
        namespaces: Namespaces; claims are in all of them.

    Attributes:
        objects: Objects by path of their collection.
    """

    def __init__(self, dice: Dice, nodes: list[str], namespaces: tuple[str, ...]) -> None:
        self._dice = dice
        self._nodes = nodes
        self._claims: dict[str, list[str]] = {namespace: [] for namespace in namespaces}
        self._bound: dict[str, list[str]] = {namespace: [] for namespace in namespaces}
        self.objects: list[tuple[str, Tree]] = []
        self._add_classes()
        self._add_drivers()
        for number in range(dice.number(4, 12)):
            self._add_free_volume(f"free-{number}")
        for namespace in namespaces:
            for number in range(dice.number(6, 10) if namespace == namespaces[0] else 2):
                self._add_claim(namespace, f"claim-{number}")

    def mount(self, spec: Tree, namespace: str, *, running: bool) -> None:
        """Let a pod use claims and other volumes; the first namespace has all kinds of them.

        Args:
            spec: Spec of the pod.
            namespace: Its namespace.
            running: It is on a node, so its claims are bound.
        """
        dice = self._dice
        claims = (self._bound if running else self._claims)[namespace]
        names = dice.some(claims, dice.pick(1, 1, 2)) if claims else []
        if not running and dice.chance(0.05):
            names.append("missing")
        volumes: list[Tree] = [
            {"name": f"v{at}", "persistentVolumeClaim": {"claimName": name}} for at, name in enumerate(names)
        ]
        if dice.chance(0.2):
            volumes.append({"name": "scratch", "emptyDir": {}})
        spec["volumes"] = volumes

    def _add(self, path: str, tree: Tree) -> None:
        self.objects.append((path, tree))

    def _add_classes(self) -> None:
        dice = self._dice
        zones = [{"matchLabelExpressions": [{"key": ZONE, "values": dice.some(("z1", "z2", "z3"), 2)}]}]
        for name, provisioner, waits, topologies in (
            ("now", DRIVER, False, None),
            ("later", DRIVER, True, None),
            ("zoned", DRIVER, True, zones),
            ("local", "kubernetes.io/no-provisioner", True, None),
            ("capped", CAPPED_DRIVER, True, None),
        ):
            tree: Tree = {
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
            }
            self._add(f"{_STORAGE}/storageclasses", tree | ({"allowedTopologies": topologies} if topologies else {}))

    def _add_drivers(self) -> None:
        dice = self._dice
        for name, capped in ((DRIVER, False), (CAPPED_DRIVER, True)):
            self._add(f"{_STORAGE}/csidrivers", {"metadata": {"name": name}, "spec": {"storageCapacity": capped}})
        for node in self._nodes:
            if dice.chance(0.7):
                drivers: list[Tree] = [{"name": CAPPED_DRIVER, "nodeID": node, "topologyKeys": []}]
                limit: Tree = {"allocatable": {"count": dice.number(1, 3)}} if dice.chance(0.7) else {}
                drivers.append({"name": DRIVER, "nodeID": node, "topologyKeys": []} | limit)
                self._add(f"{_STORAGE}/csinodes", {"metadata": {"name": node}, "spec": {"drivers": drivers}})
        for zone in dice.some(("z1", "z2", "z3"), 3):
            tree: Tree = {
                "metadata": {"name": f"capacity-{zone}"},
                "storageClassName": "capped",
                "nodeTopology": dice.pick({"matchLabels": {ZONE: zone}}, {"matchLabels": {ZONE: zone}}, {}),
                "capacity": dice.pick("1Gi", "10Gi", "100Gi"),
            }
            if dice.chance(0.3):
                tree["maximumVolumeSize"] = dice.pick("2Gi", "20Gi")
            self._add(f"{_STORAGE}/namespaces/{'default'}/csistoragecapacities", tree)

    def _ties(self, spec: Tree) -> None:
        """Tie a volume to nodes, or not."""
        dice = self._dice
        one: list[Tree] = [
            {"key": HOST, "operator": "In", "values": dice.some(self._nodes, 5)},
            {"key": ZONE, "operator": dice.pick("In", "NotIn"), "values": dice.some(("z1", "z2", "z3"), 2)},
        ]
        match dice.number(0, 4):
            case 0 | 1:
                terms = [{"matchExpressions": [one[0]]}]
            case 2:
                terms = [{"matchExpressions": [one[1]]}]
            case 3:
                terms = [{"matchExpressions": [each]} for each in one]
            case _:
                return
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}

    def _volume(self, name: str, storage_class: str) -> Tree:
        dice = self._dice
        driver = CAPPED_DRIVER if storage_class == "capped" else DRIVER
        spec: Tree = {
            "capacity": {"storage": dice.pick("1Gi", "5Gi", "20Gi")},
            "accessModes": dice.pick(["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"], ["ReadWriteMany"]),
            "storageClassName": storage_class,
            "persistentVolumeReclaimPolicy": "Retain",
        }
        if dice.chance(0.7):
            spec["csi"] = {"driver": driver, "volumeHandle": f"handle-{name}"}
        else:
            spec["nfs"] = {"server": "192.0.2.1", "path": "/"}
        self._ties(spec)
        labels = {"kind": dice.pick("fast", "slow")}
        if dice.chance(0.15):
            labels[ZONE] = dice.pick("z1", "z2", "z1__z3")
        return {"metadata": {"name": name, "labels": labels}, "spec": spec}

    def _add_free_volume(self, name: str) -> None:
        """A volume that no claim has: it is there to be chosen."""
        dice = self._dice
        volume = self._volume(name, dice.pick("local", "local", "later"))
        if dice.chance(0.15):
            volume["spec"]["volumeMode"] = "Block"
        volume["status"] = {"phase": dice.pick("Available", "Available", "Available", "Pending")}
        self._add(_PV, volume)

    def _add_claim(self, namespace: str, name: str) -> None:
        dice = self._dice
        self._claims[namespace].append(name)
        state = dice.pick(*["bound"] * 5, *["waits"] * 6, "chosen", "chosen", dice.pick("now", "lost", "classless"))
        storage_class = dice.pick(*_CLASSES) if state == "bound" else dice.pick("later", "zoned", "local", "capped")
        spec: Tree = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": dice.pick("1Gi", "1Gi", "4Gi", "15Gi")}},
            "storageClassName": storage_class,
        }
        meta: Tree = {"name": name, "namespace": namespace}
        tree: Tree = {"metadata": meta, "spec": spec}
        match state:
            case "bound":
                self._bind(tree, f"{namespace}-{name}", storage_class)
            case "now":
                spec["storageClassName"] = "now"
            case "lost":
                spec["volumeName"] = "gone"
                meta["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
                tree["status"] = {"phase": "Lost"}
            case "chosen":
                meta["annotations"] = {"volume.kubernetes.io/selected-node": dice.pick(*self._nodes)}
            case "classless":
                spec["storageClassName"] = dice.pick("", "unknown")
            case _:
                if dice.chance(0.3):
                    spec["selector"] = {"matchLabels": {"kind": dice.pick("fast", "slow")}}
                if dice.chance(0.1):
                    spec["volumeMode"] = "Block"
                if dice.chance(0.2):
                    self._reserve(namespace, name, storage_class)
        self._add(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", tree)

    def _bind(self, claim: Tree, volume: str, storage_class: str) -> None:
        """Bind a claim to a volume of its own, now and then to one that another pod alone may use."""
        dice, meta, spec = self._dice, claim["metadata"], claim["spec"]
        self._bound[meta["namespace"]].append(meta["name"])
        one = self._volume(volume, storage_class)
        if dice.chance(0.15):
            spec["accessModes"] = one["spec"]["accessModes"] = ["ReadWriteOncePod"]
            one["spec"].pop("nfs", None)
            one["spec"]["csi"] = {"driver": DRIVER, "volumeHandle": f"handle-{volume}"}
        one["spec"]["claimRef"] = {
            "kind": "PersistentVolumeClaim",
            "namespace": meta["namespace"],
            "name": meta["name"],
        }
        one["status"] = {"phase": "Bound"}
        spec["volumeName"] = volume
        meta["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        claim["status"] = {"phase": "Bound"}
        if not dice.chance(0.05):  # otherwise the volume of a bound claim is not there
            self._add(_PV, one)

    def _reserve(self, namespace: str, name: str, storage_class: str) -> None:
        """Reserve a volume for a claim that waits: no other claim may have it."""
        one = self._volume(f"kept-{namespace}-{name}", storage_class)
        one["spec"]["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
        one["status"] = {"phase": "Available"}
        self._add(_PV, one)
