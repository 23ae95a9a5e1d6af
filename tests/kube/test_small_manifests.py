"""The overlay for small cells on a real API server, and as kustomize itself reads it."""

from pathlib import Path

from tests.support.kustomize import identity, render
from tests.support.manifest_programs import kustomize_build

SMALL = Path(__file__).parents[2] / "k8s" / "overlays" / "small"


def test_kustomize_makes_of_the_overlay_what_we_read() -> None:
    ours, theirs = render(SMALL), kustomize_build(SMALL)
    assert [identity(one) for one in theirs] == [identity(one) for one in ours]
    assert theirs == ours
