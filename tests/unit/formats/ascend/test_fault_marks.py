"""Annotations of pods and PodGroups that facts about faults have."""

from berth.formats.ascend.fault_marks import pod_marks, steering_annotations
from berth.schemas.fault_facts import BACKUP_POD, EXTERNAL_OWNER, NEED_SCHEDULER, RANK_INDEX

LONG = "x" * 254


def test_values_are_no_longer_than_a_name_since_the_marks_of_all_pods_of_a_gang_are_in_one_message() -> None:
    assert pod_marks({}, {BACKUP_POD: LONG[1:], NEED_SCHEDULER: LONG, RANK_INDEX: LONG}, 3) == ((BACKUP_POD, LONG[1:]),)
    assert pod_marks({}, {RANK_INDEX: "4"}, 3) == ((RANK_INDEX, "4"),)
    assert steering_annotations({EXTERNAL_OWNER: LONG}) == {}
    assert steering_annotations({EXTERNAL_OWNER: "me"}) == {EXTERNAL_OWNER: "me"}
