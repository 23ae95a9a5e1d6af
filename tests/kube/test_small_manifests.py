"""The overlay for small cells on a real API server, and as kustomize itself reads it."""

from pathlib import Path

import pytest

from berth.lab.servers.kube_server import KubeServer
from tests.support.kube_api import KubeApi
from tests.support.kube_objects import apply, in_order, lost, path_of, serves
from tests.support.kustomize import identity, render
from tests.support.manifest_programs import kustomize_build

SMALL = Path(__file__).parents[2] / "k8s" / "overlays" / "small"


def test_kustomize_makes_of_the_overlay_what_we_read() -> None:
    ours, theirs = render(SMALL), kustomize_build(SMALL)
    assert [identity(one) for one in theirs] == [identity(one) for one in ours]
    assert theirs == ours


@pytest.mark.timeout(120)
async def test_every_object_is_taken_as_it_is(tmp_path: Path) -> None:
    objects = in_order(render(SMALL))
    async with KubeServer(tmp_path / "kube", start_deadline_s=50) as server, KubeApi(server) as api:
        await api.post("/api/v1/namespaces", {"metadata": {"name": "mindx-dl"}})
        for one in objects:
            assert await serves(api, one), identity(one)
            await apply(api, one)
        for one in objects:
            assert lost(one, await api.get(path_of(one))) == [], path_of(one)
