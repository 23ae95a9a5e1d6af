"""Texts of the ConfigMaps that tell others about faults."""

import hashlib
import json

import msgspec
import pytest

from berth.formats.ascend.fault_counters import (
    FaultyDevice,
    FaultyNode,
    Retries,
    group_name,
    job_key,
    nodes_text,
    read_retries,
    retries_text,
)
from berth.formats.ascend.report_error import ReportError
from berth.formats.ascend.reschedule_reasons import (
    JobRestarts,
    PodReason,
    Restart,
    fitted,
    read_restarts,
    restart_of,
    text_of,
    with_restart,
)
from berth.formats.ascend.reset_config import after_restart, read_reset, with_graceful_exit


def test_the_counter_has_the_key_that_the_operator_of_ascend_jobs_reads() -> None:
    key = job_key("team-a", group_name("llm-13b", "5f2c"))
    assert key == "team-a/llm-13b-5f2c"
    assert retries_text({key: Retries("5f2c", 2)}) == '{"team-a/llm-13b-5f2c":{"UUID":"5f2c","Times":2}}'


def test_counters_are_sorted_and_read_back() -> None:
    counters = {"b/j": Retries("u2", 1), "a/j": Retries("u1", 0)}
    text = retries_text(counters)
    assert list(json.loads(text)) == ["a/j", "b/j"]
    assert read_retries(text) == counters


def test_nothing_is_an_empty_text() -> None:
    assert (retries_text({}), nodes_text([]), text_of({})) == ("", "", "")
    assert (read_retries(""), read_retries("null"), read_restarts(" "), read_restarts("null")) == ({}, {}, {}, {})


def test_faulty_nodes_have_the_names_of_the_format() -> None:
    device = FaultyDevice("CardUnhealthy", "Ascend910-3", fault_code="80E18005")
    nodes = [
        FaultyNode([], "n2", [], [], "NodeUnhealthy", 7),
        FaultyNode([device], "n1", ["Ascend910-3"], ["Ascend910-4"], "CardUnhealthy", 1_763_640_001),
    ]
    assert nodes_text(nodes) == (
        '[{"FaultDeviceList":[{"fault_type":"CardUnhealthy","npu_name":"Ascend910-3","fault_level":"",'
        '"fault_handling":"","large_model_fault_level":"","fault_code":"80E18005"}],"NodeName":"n1",'
        '"UnhealthyNPU":["Ascend910-3"],"NetworkUnhealthyNPU":["Ascend910-4"],"NodeHealthState":"CardUnhealthy",'
        '"UpdateTime":1763640001},{"FaultDeviceList":[],"NodeName":"n2","UnhealthyNPU":[],"NetworkUnhealthyNPU":[],'
        '"NodeHealthState":"NodeUnhealthy","UpdateTime":7}]'
    )


def test_a_restart_is_told_in_the_form_of_the_format() -> None:
    key = "team-a/llm-13b-5f2c"
    pods = [PodReason("CardUnhealthy", "llm-13b-worker-3", "npu-a22", "4")]
    restarts = {key: with_restart(None, key, restart_of(1_763_640_001, "I1120 12:00:01", pods))}
    assert text_of(restarts) == (
        '{"team-a/llm-13b-5f2c":{"JobID":"team-a/llm-13b-5f2c","TotalRescheduleTimes":1,"RescheduleRecords":['
        '{"LogFileFormatTime":"I1120 12:00:01","RescheduleTimeStamp":1763640001,"ReasonOfTask":['
        '{"RescheduleReason":"CardUnhealthy","PodName":"llm-13b-worker-3","NodeName":"npu-a22","NodeRankIndex":"4"}]}]}}'
    )
    assert read_restarts(text_of(restarts)) == restarts


def test_the_newest_ten_restarts_and_the_first_ten_pods_are_kept() -> None:
    job: JobRestarts | None = None
    for number in range(12):
        job = with_restart(job, "a/j", restart_of(number, "t", [PodReason(rank=str(rank)) for rank in range(11)]))
    assert job is not None
    assert job.total == 12
    assert [one.at_s for one in job.restarts or ()] == list(range(11, 1, -1))
    assert [pod.rank for pod in (job.restarts or [])[0].pods or ()] == [str(rank) for rank in range(10)]


def test_what_another_wrote_is_read_within_the_limits_and_its_additional_info_stays() -> None:
    rows = [{"RescheduleTimeStamp": number, "ReasonOfTask": [{}] * 12} for number in range(12)]
    text = json.dumps({"a/j": {"AdditionalInfo": "x", "RescheduleRecords": rows, "new": 1}, "b/j": {}})
    found = read_restarts(text)
    assert [len(one.pods or ()) for one in found["a/j"].restarts or ()] == [10] * 10
    assert found["b/j"].restarts == []
    assert json.loads(text_of({"a/j": with_restart(found["a/j"], "a/j", Restart())}))["a/j"]["AdditionalInfo"] == "x"
    assert "AdditionalInfo" not in text_of({"b/j": found["b/j"]})


def test_records_above_the_limit_lose_the_oldest_of_each_job_round_by_round_but_never_the_newest() -> None:
    def job(count: int) -> JobRestarts:
        return JobRestarts("j", count, [Restart("t" * 90, 100 - number) for number in range(count)])

    restarts = {"a/one": job(1), "a/three": job(3), "a/two": job(2)}
    whole = len(text_of(restarts))
    assert fitted(restarts, bytes_max=whole) == (restarts, text_of(restarts))
    cut, text = fitted(restarts, bytes_max=whole - 1)
    assert {key: len(one.restarts or ()) for key, one in cut.items()} == {"a/one": 1, "a/three": 2, "a/two": 1}
    assert [one.at_s for one in cut["a/three"].restarts or ()] == [100, 99]
    assert cut["a/three"].total == 3
    assert text == text_of(cut)
    last, _ = fitted(restarts, bytes_max=0)
    assert {key: [one.at_s for one in job.restarts or ()] for key, job in last.items()} == {
        key: [100] for key in restarts
    }


def test_recent_reschedule_records_over_950_kib_fit_and_every_job_keeps_its_newest() -> None:
    pods = [PodReason("CardUnhealthy", f"llm-worker-{rank}", f"node-{rank}.zone-a", str(rank)) for rank in range(10)]
    records = [restart_of(1_000 - number, "I1120 12:00:01", pods) for number in range(10)]
    restarts = {f"team/job-{number}": JobRestarts(f"team/job-{number}", 12, records) for number in range(150)}
    assert len(text_of(restarts)) > 1_400_000
    kept, text = fitted(restarts)
    assert len(text) <= 950 * 1024
    assert read_restarts(text) == kept
    assert all(job.restarts == records[:5] and job.total == 12 for job in kept.values())
    one_more = {key: msgspec.structs.replace(job, restarts=records[:6]) for key, job in kept.items()}
    assert len(text_of(one_more)) > 950 * 1024, "no more is cut than has to be"


@pytest.mark.parametrize("text", ["{", "[]", '{"a/j": {"Times": "2"}}', '{"a/j": 2}'])
def test_counters_that_cannot_be_read_name_their_place(text: str) -> None:
    with pytest.raises(ReportError, match="remain-retry-times"):
        read_retries(text)


def test_records_that_cannot_be_read_name_their_place() -> None:
    with pytest.raises(ReportError, match=r"recent-reschedule-records\[\.\.\.\]\.TotalRescheduleTimes"):
        read_restarts('{"a/j": {"TotalRescheduleTimes": "x"}}')


def test_a_partial_restart_counts_and_empties_the_list_of_ranks_and_other_fields_stay() -> None:
    text = json.dumps(
        {
            "RankList": [{"RankId": 3, "Status": "unrecovered", "Policy": "restart"}],
            "RetryTime": 2,
            "GracefulExit": 1,
            "FaultFlushing": True,
            "status": "initializing",
            "more": {"a": [1]},
        }
    )
    found = after_restart(text, now_s=77, is_whole=False)
    assert found["reset.json"] == (
        '{"RankList":[],"UpdateTime":77,"RetryTime":3,"FaultFlushing":true,"GracefulExit":1,'
        '"RestartFaultProcess":false,"status":"initializing","more":{"a": [1]}}'
    )
    known = '{"RankList":[],"UpdateTime":77,"RetryTime":3,"FaultFlushing":true,"GracefulExit":1,"RestartFaultProcess":false}'
    assert found["checkCode"] == hashlib.sha256(known.encode()).hexdigest()
    assert found["restartType"] == "podReschedule"


def test_the_restart_of_a_whole_job_begins_to_count_anew() -> None:
    assert read_reset(after_restart('{"RetryTime": 5}', now_s=1, is_whole=True)["reset.json"]).retry_time == 0


def test_an_empty_value_is_one_without_restarts() -> None:
    assert read_reset(after_restart("", now_s=1, is_whole=False)["reset.json"]).retry_time == 1


def test_a_graceful_exit_is_told_before_and_taken_back_after_it_and_ranks_stay() -> None:
    text = '{"RankList":[{"RankId":1,"ErrorCode":[7],"ErrorCodeHex":"<7>"}],"RetryTime":4,"x":"y"}'
    asked = with_graceful_exit(text, now_s=9, leaves=True)
    known = (
        '{"RankList":[{"RankId":1,"LogicId":0,"Status":"","Policy":"","InitialPolicy":"","ErrorCode":[7],'
        '"ErrorCodeHex":"\\u003c7\\u003e"}],"UpdateTime":9,"RetryTime":4,"FaultFlushing":false,"GracefulExit":1,'
        '"RestartFaultProcess":false}'
    )
    assert asked == {
        "reset.json": known[:-1] + ',"x":"y"}',
        "checkCode": hashlib.sha256(known.encode()).hexdigest(),
    }
    assert with_graceful_exit(asked["reset.json"], now_s=10, leaves=True) == {}
    back = with_graceful_exit(asked["reset.json"], now_s=11, leaves=False)
    assert read_reset(back["reset.json"]).graceful_exit == 0
    assert with_graceful_exit("", now_s=1, leaves=False) == {}


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"RetryTime": "1"}'])
def test_a_value_that_cannot_be_read_is_not_replaced(text: str) -> None:
    with pytest.raises(ReportError, match=r"reset\.json"):
        after_restart(text, now_s=1, is_whole=False)


def test_a_sum_that_covers_fields_of_another_release_goes_on_to_cover_them() -> None:
    text = '{"Phase":1.50,"RankList":[],"UpdateTime":1,"RetryTime":2,"FaultFlushing":false,"GracefulExit":0}'
    code = hashlib.sha256(text.encode()).hexdigest()
    found = with_graceful_exit(text, now_s=9, leaves=True, code=code)
    assert found["reset.json"] == text.replace('"UpdateTime":1', '"UpdateTime":9').replace('Exit":0', 'Exit":1')
    assert found["checkCode"] == hashlib.sha256(found["reset.json"].encode()).hexdigest()
    after = after_restart(found["reset.json"], now_s=9, is_whole=False, code=found["checkCode"])
    assert after["reset.json"] == found["reset.json"].replace('"RetryTime":2', '"RetryTime":3')
    assert after["checkCode"] == hashlib.sha256(after["reset.json"].encode()).hexdigest()


def test_fields_of_another_release_in_rows_stay() -> None:
    text = '{"RankList":[{"Device":{"x": 1},"RankId":1}]}'
    found = json.loads(with_graceful_exit(text, now_s=9, leaves=True)["reset.json"])
    assert (found["RankList"][0]["Device"], found["RankList"][0]["RankId"]) == ({"x": 1}, 1)
