"""Profile ``kubernetes`` of ``compose.yaml`` at work on a real API server, in place of the simulated cluster.

Excluded: the containers themselves, which need a container engine, and whether the server can be reached from them.
"""

from pathlib import Path

import pytest

from berth.lab.servers.kube_server import KubeServer
from tests.support.compose import ROOT, at_work, plan
from tests.support.kube_api import KubeApi

LEFT_OUT = {"binder", "nodesim"}
"""What the command at the top of the file scales to 0."""


@pytest.mark.timeout(150)
async def test_services_of_the_profile_are_well_with_the_kubeconfig_that_is_named(
    kube_server: KubeServer, kube_api: KubeApi, cell: str, tmp_path: Path
) -> None:
    text = (ROOT / "compose.yaml").read_text("utf-8")
    assert text.count("BERTH_BUS__CELL: demo\n") == 1
    assert all(f"--scale {name}=0" in text for name in LEFT_OUT)
    kubeconfig = kube_server.write_kubeconfig(tmp_path / "kubeconfig")
    planned = plan(
        text.replace("BERTH_BUS__CELL: demo\n", f"BERTH_BUS__CELL: {cell}\n"),
        tmp_path,
        profiles=["kubernetes"],
        variables={"KUBECONFIG": str(kubeconfig)},
    )
    await kube_api.post("/api/v1/nodes", {"metadata": {"name": "plain"}})
    async with at_work([one for one in planned if one.name not in LEFT_OUT], tmp_path, deadline_s=90) as running:
        assert {"inventory", "health", "summary", "binder-kubernetes", "dispatcher"} <= set(running.processes)
        assert '"nodes": 1' in running.processes["inventory"].whole_log(), running.logs()
        assert running.restarted() == ""
        ours = [process for process in running.processes.values() if process.planned.is_ours]
        assert [await process.stop() for process in reversed(ours)] == [0] * len(ours), running.logs()
