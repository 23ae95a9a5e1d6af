"""Files of the chart in ``k8s/chart``: those that are written from the manifests, and those that people write."""

import json
from pathlib import Path
from typing import Final

from tests.chart.config_maps import USERS_ALONE
from tests.chart.manifests import Form, Manifests
from tests.chart.settings import SECTIONS, SETTINGS, schema
from tests.chart.templates import Chart, chart_of
from tests.chart.text import document
from tests.support.kustomize import objects_of, read

K8S: Final = Path(__file__).parents[2] / "k8s"
FOLDER: Final = K8S / "chart"
GATEWAY: Final = K8S / "gateway"
FORMS: Final[dict[Form, tuple[Path, ...]]] = {
    "base": (K8S / "base", GATEWAY),
    "trial": (K8S / "overlays" / "dev",),
    "production": (K8S / "overlays" / "prod", GATEWAY, GATEWAY / "users"),
    "small": (K8S / "overlays" / "small", GATEWAY, GATEWAY / "network"),
}
"""Kustomization and components of each form."""
WITHOUT_GATEWAY: Final = K8S / "overlays" / "prod" / "nats" / "access.conf"
"""Users of NATS in production where there is no gateway."""
MONITORING: Final = K8S / "monitoring"
MONITORS: Final = MONITORING / "pod-monitor.yaml"
COPIED: Final = ("rules.yaml", "dashboard.json")
"""Files for Prometheus and Grafana, which a template reads: they have braces of their own."""
BY_HAND: Final = {"templates/_names.tpl", "templates/checks.yaml", "templates/monitoring.yaml", "templates/NOTES.txt"}
"""Files that are not written from the manifests."""
_ABOUT_VALUES: Final = (
    "# Values of the chart, those of production. Written by make chart from the manifests in k8s/.\n\n"
)
_ABOUT_TRIAL: Final = (
    "# A trial with simulated nodes, without passwords; nothing is stored. Written by make chart from k8s/overlays/dev.\n"
    "# helm install berth k8s/chart --namespace berth-system --create-namespace --values k8s/chart/values-dev.yaml\n\n"
)


_ABOUT_SMALL: Final = (
    "# For clusters of up to 2,000 nodes: one process in place of all services, one node of NATS, no standby, no\n"
    "# passwords. The network has to apply policies. Written by make chart from k8s/overlays/small.\n"
    "# helm install berth k8s/chart --namespace berth-system --create-namespace --values k8s/chart/values-small.yaml\n\n"
)


def chart() -> Chart:
    """The chart of the manifests.

    Raises:
        ChartError: They have something that it cannot express.
    """
    return chart_of(forms(), alone())


def forms() -> dict[Form, Manifests]:
    """Manifests of the base and of all overlays, all with the gateway."""
    return {form: Manifests.of(*objects_of(folder, components)) for form, (folder, *components) in FORMS.items()}


def alone() -> Manifests:
    """Objects that are in no overlay: the PodMonitor of the services. That of NATS goes with its exporter."""
    objects = [one for one in read(MONITORS) if one["metadata"]["name"] == "berth"]
    for one in objects:
        one["metadata"]["labels"]["app.kubernetes.io/part-of"] = "berth"
    return Manifests.of(objects, [])


def wanted() -> dict[str, str]:
    """Text of each file that is written, by its name in the folder of the chart.

    Raises:
        ChartError: As :func:`chart`.
    """
    made = chart()
    leaves = {one.path for one in SETTINGS}
    about = SECTIONS | {one.path: one.about for one in SETTINGS if one.about}
    return {
        "Chart.yaml": _chart_yaml(made.version),
        "values.yaml": _ABOUT_VALUES + document(made.values, about, leaves),
        "values-dev.yaml": _ABOUT_TRIAL + document(made.trial, {}, leaves),
        "values-small.yaml": _ABOUT_SMALL + document(made.small, {}, leaves),
        "values.schema.json": json.dumps(schema(), indent=2) + "\n",
        **{f"templates/{name}": text for name, text in made.templates.items()},
        **made.files,
        USERS_ALONE: WITHOUT_GATEWAY.read_text("utf-8"),
        **{f"monitoring/{name}": (MONITORING / name).read_text("utf-8") for name in COPIED},
    }


def present() -> dict[str, str]:
    """Text of each file that is there, by its name; those that people write are left out."""
    paths = {str(path.relative_to(FOLDER)): path for path in FOLDER.rglob("*") if path.is_file()}
    return {name: path.read_text("utf-8") for name, path in paths.items() if name not in BY_HAND}


def write() -> None:
    """Make the folder hold what is wanted.

    Raises:
        ChartError: As :func:`chart`.
    """
    files = wanted()
    for name in set(present()) - set(files):
        (FOLDER / name).unlink()
    for name, text in files.items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def _chart_yaml(version: str) -> str:
    chart = version.replace(".dev", "-dev")  # Helm wants a semantic version
    return (
        "# Written by make chart; the version is the tag of the image in k8s/base/kustomization.yaml.\n"
        "apiVersion: v2\n"
        "name: berth\n"
        "description: Topology-affine placement of NPU jobs on Kubernetes\n"
        "type: application\n"
        f"version: {chart}\n"
        f'appVersion: "{version}"\n'
        'kubeVersion: ">=1.21.0-0"\n'
    )
