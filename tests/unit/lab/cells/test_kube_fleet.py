"""What a new API server gets before the services of ``berth demo --kubernetes`` start."""

from berth.lab.cells.kube_fleet import CRDS, RIGHTS, prepare
from tests.support.fake_kube import FakeKube

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def test_kinds_namespaces_and_rights_are_created_where_they_belong() -> None:
    kube = FakeKube()
    await prepare(kube, has_rights=True)
    created = [call.path for call in kube.calls if call.method == "POST"]
    assert created[0] == "/api/v1/namespaces"
    assert created.count(CRD) == len(list(CRDS.glob("*.yaml")))
    text = "".join(file.read_text("utf-8") for file in RIGHTS.glob("*.yaml"))
    assert created.count(f"{RBAC}/clusterroles") == text.count("\nkind: ClusterRole\n")
    assert created.count(f"{RBAC}/clusterrolebindings") == text.count("\nkind: ClusterRoleBinding\n")
    assert kube.object(f"{RBAC}/namespaces/kube-system/roles/berth-health")["metadata"]["namespace"] == "kube-system"


async def test_a_cell_without_rights_creates_none() -> None:
    kube = FakeKube()
    await prepare(kube, has_rights=False)
    assert not any("rbac" in call.path for call in kube.calls)
