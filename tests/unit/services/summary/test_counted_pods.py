"""Which pods count in a summary: those with chips, and of a rank and its backup one."""

import json

import msgspec

from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.pod_spec import Container
from tests.unit.services.summary.test_job_summaries import Desk, Made, a_group, a_pod


def status_of(desk: Desk) -> str:
    return desk.maps["job-summary-llm"].data["job_status"]


def test_a_pod_that_asks_for_no_chips_by_name_needs_no_configuration() -> None:
    desk = Desk()
    none = Made(chips=0, configured=False)
    desk.at(100, a_group(minimum=2), a_pod(0, made=none), a_pod(1))
    assert status_of(desk) == "running"
    (server,) = json.loads(desk.maps["job-summary-llm"].data["hccl.json"])["server_list"]
    assert server["pod_name"] == "llm-1"


def test_chips_of_a_sidecar_are_those_of_the_pod() -> None:
    pod = a_pod(0)
    main = pod.spec.containers
    spec = msgspec.structs.replace(
        pod.spec, containers=[msgspec.convert({"name": "m"}, Container)], init_containers=main
    )
    desk = Desk()
    desk.at(100, a_group(minimum=1), msgspec.structs.replace(pod, spec=spec))
    assert len(json.loads(desk.maps["job-summary-llm"].data["hccl.json"])["server_list"]) == 1


def test_a_job_runs_on_while_a_backup_pod_is_made_beside_one_of_its_pods() -> None:
    desk = Desk()
    desk.at(100, a_group(minimum=2), a_pod(0), a_pod(1))
    marks = {"podType": "backup", "backupSourcePodName": "llm-1"}

    def backup(phase: str) -> Pod:
        pod = a_pod(1, phase, annotations=marks)
        return msgspec.structs.replace(
            pod, metadata=msgspec.structs.replace(pod.metadata, name="llm-1-hot-1234", uid="u-b")
        )

    for phase in ("Pending", "Running"):
        desk.at(101, backup(phase))
        assert status_of(desk) == "running"
        servers = json.loads(desk.maps["job-summary-llm"].data["hccl.json"])["server_list"]
        assert [one["pod_name"] for one in servers] == ["llm-0", "llm-1"]
    desk.at(102, a_pod(1, made=Made(ending=True)))
    servers = json.loads(desk.maps["job-summary-llm"].data["hccl.json"])["server_list"]
    assert (status_of(desk), [one["pod_name"] for one in servers]) == ("running", ["llm-0", "llm-1-hot-1234"])
