"""Helm and kustomize as programs; ``make helm-assets`` builds them."""

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from berth.runtime.config import kube_assets_from_environment
from tests.support.kustomize import Tree, identity

CHART: Final = Path(__file__).parents[2] / "k8s" / "chart"
_PINS: Final = CHART.parent / "assets" / "modules" / "manifests" / "go.mod"
_TIMEOUT_S: Final = 30


class HelmError(Exception):
    """What Helm wrote to stderr before it ended with an exit code other than 0."""


class Helm:
    """Helm, with files of its own.

    Args:
        folder: For its files; created if missing.
        kubeconfig: Of the cluster; None if it needs none.
    """

    def __init__(self, folder: Path, kubeconfig: Path | None = None) -> None:
        self._program = _program("helm")
        self._environment = {"HOME": str(folder)}
        if kubeconfig is not None:
            self._environment["KUBECONFIG"] = str(kubeconfig)

    def __call__(self, *words: str | Path) -> str:
        """What a command writes to stdout.

        Raises:
            HelmError: The command failed.
        """
        done = subprocess.run(  # noqa: S603  # our own words
            [self._program, *words],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise HelmError(done.stderr)
        return done.stdout

    def template(self, *words: str | Path) -> list[Tree]:
        """Objects of the chart, in order of kind, namespace and name.

        Raises:
            HelmError: The values are wrong.
        """
        return _objects(self("template", "berth", CHART, *words))


def kustomize_build(folder: Path) -> list[Tree]:
    """Objects of a kustomization as kustomize makes them, in order of kind, namespace and name."""
    done = subprocess.run(  # noqa: S603  # our own words
        [_program("kustomize"), "build", folder], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
    )
    return _objects(done.stdout)


def _objects(text: str) -> list[Tree]:
    return sorted((one for one in yaml.safe_load_all(text) if one is not None), key=identity)


def path_of_program(name: str) -> Path:
    """Where ``make helm-assets`` puts a program; it may be missing, as on a machine without Go."""
    pin = re.search(r"helm\.sh/helm/v4 (v\S+)", _PINS.read_text("utf-8"))
    assert pin is not None
    return kube_assets_from_environment()[1] / f"helm-{pin[1]}" / name


def _program(name: str) -> Path:
    """Path of a program; skips the test without it."""
    path = path_of_program(name)
    if not path.is_file():
        pytest.skip(f"no {path}: run make helm-assets")
    return path
