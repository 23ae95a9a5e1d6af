"""The table of fields of a pod has every field that the API of the server has."""

from typing import Any

from berth.lab.servers.kube_server import KubeServer
from tests.support.kube_api import KubeApi
from tests.unit.formats.kubernetes.test_pod_fields import ROWS

NEWER_THAN_OLD_SERVERS = 36
"""Minor version of Kubernetes for which the table is written; an older server has fewer fields."""


async def test_every_field_of_a_pod_spec_is_in_the_table(kube_server: KubeServer, kube_api: KubeApi) -> None:
    found = await kube_api.get("/openapi/v2")
    fields: dict[str, Any] = found["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"]
    told = {field.split(".")[0].split(",")[0] for field in ROWS}
    assert set(fields) - told == set()
    if kube_server.minor >= NEWER_THAN_OLD_SERVERS:
        assert told - set(fields) <= {"workloadRef"}, "only what older servers have may be in the table beside"
