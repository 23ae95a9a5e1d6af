"""The table of fields of PodGroups has every field that the API of the server has."""

from pathlib import Path

from berth.lab.servers.kube_server import KubeServer
from tests.support.kube_api import KubeApi
from tests.unit.formats.kubernetes.test_group_fields import ROWS

GATES = "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true"


async def test_every_field_of_a_native_podgroup_is_in_the_table(tmp_path: Path) -> None:
    flags = [f"--feature-gates={GATES}", "--runtime-config=scheduling.k8s.io/v1alpha2=true"]
    async with (
        KubeServer(tmp_path / "own", controllers=(), api_args=flags, start_deadline_s=60) as server,
        KubeApi(server) as api,
    ):
        found = await api.get("/openapi/v2")
    fields = found["definitions"]["io.k8s.api.scheduling.v1alpha2.PodGroupSpec"]["properties"]
    assert set(fields) - {field for one, field in ROWS if one == "Kubernetes"} == set()
