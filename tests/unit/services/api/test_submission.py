"""What becomes of a submission before the cell has an epoch: it is judged by the settings of this release."""

import msgspec

from berth.core.state.cell import State
from berth.formats.manifests.reader import read_job
from berth.services.api.submission import judge, read_submission
from berth.services.dispatcher.config import DispatcherConfig

MIXED = {
    "apiVersion": "berth/v1",
    "kind": "Job",
    "metadata": {"name": "mixed"},
    "spec": {
        "product": "module910bx8",
        "tasks": [{"name": "launcher", "cpu": 1}, {"name": "worker", "replicas": 2, "chips": 8}],
    },
}


def test_a_job_that_mixes_pods_with_and_without_chips_is_taken_before_the_first_epoch() -> None:
    request = read_submission(msgspec.json.encode({"job": MIXED}), "user")
    assert judge(request, State(), now_ms=1).request == msgspec.structs.replace(
        read_job(MIXED, path="job")[0], submitted_by="user"
    )


def test_settings_before_the_first_epoch_are_those_of_a_dispatcher_without_configuration() -> None:
    assert State().fold.settings == DispatcherConfig().decisions.to_settings()
