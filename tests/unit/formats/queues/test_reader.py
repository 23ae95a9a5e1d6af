"""Queues from texts: both forms, and all errors at once."""

import json
from typing import Any

import pytest

from berth.formats.queues.reader import QueueReading, read_queues
from berth.schemas.queues.queue import CHIP, Queue

NPU = "huawei.com/Ascend910"
OWN = """
apiVersion: berth/v1
kind: Queue
metadata: {name: research}
spec: {%s}
"""
VOLCANO = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: research, creationTimestamp: "2026-11-30T07:00:05Z", annotations: {%s}}
spec: {%s}
status: {state: %s}
"""


def errors_of(reading: QueueReading) -> list[str]:
    return [f"{error.path}: is {error.value}, expected {error.expected}" for error in reading.errors]


def own(fields: str) -> QueueReading:
    return read_queues(OWN % fields)


def volcano(fields: str = "", *, annotations: str = "", state: str = "''") -> Queue:
    (queue,) = read_queues(VOLCANO % (annotations, fields, state)).queues
    return queue


def test_a_queue_of_berth_has_all_fields() -> None:
    reading = own(
        f"parent: lab, capability: {{{NPU}: 128, cpu: 1500m, memory: 1.5Mi}}, guarantee: {{resource: {{{NPU}: 4}}}},"
        f" deserved: {{{NPU}: 64}}, weight: 2, priority: 1, reclaimable: false, dequeueStrategy: fifo, state: Closing,"
        f" namespaces: [vision, nlp], perNamespace: {{{NPU}: 8}}"
    )
    assert reading.errors == []
    assert reading.queues == [
        Queue(
            "research",
            parent="lab",
            capability={"cpu": 1500, NPU: 128 * CHIP, "memory": 1},
            guarantee={NPU: 4 * CHIP},
            deserved={NPU: 64 * CHIP},
            weight=2,
            priority=1,
            reclaimable=False,
            is_fifo=True,
            state="Closing",
            namespaces=["nlp", "vision"],
            per_namespace={NPU: 8 * CHIP},
        )
    ]


def test_a_queue_of_volcano_has_its_state_age_and_annotations() -> None:
    annotations = f"""berth/namespaces: "vision, nlp", berth/per-namespace: '{{"{NPU}": 8}}'"""
    queue = volcano(f'capability: {{{NPU}: "16"}}, guarantee: null', annotations=annotations, state="Closed")
    assert queue == Queue(
        "research",
        capability={NPU: 16 * CHIP},
        state="Closed",
        created=20261130070005,
        namespaces=["nlp", "vision"],
        per_namespace={NPU: 8 * CHIP},
    )


def test_weight_0_of_volcano_is_1_and_an_error_in_a_file() -> None:
    assert volcano("weight: 0").weight == 1
    assert errors_of(own("weight: 0")) == ["spec.weight: is 0, expected a whole number from 1 to 65535"]


def test_all_wrong_fields_are_named_and_the_queue_is_not_valid() -> None:
    reading = own(
        f"weight: -1, priority: x, capability: {{cpu: -3, {NPU}: 1.5, memory: 1}}, state: Ajar, dequeueStrategy: lifo"
    )
    errors = [
        "spec.capability.cpu: is -3, expected a quantity that is not negative",
        f"spec.capability['{NPU}']: is 1.5, expected a whole number of chips",
        "spec.weight: is -1, expected a whole number from 1 to 65535",
        "spec.priority: is 'x', expected a whole number from 0 to 2147483647",
        "spec.dequeueStrategy: is 'lifo', expected 'fifo'? (one of fifo, traverse)",
        "spec.state: is 'Ajar', expected one of Closed, Closing, Open, Unknown",
    ]
    assert errors_of(reading) == errors
    assert reading.queues[0].wrong == errors


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ("colour: red", "spec.colour: is an unknown field, expected "),
        ("parent: A_B", "spec.parent: is 'A_B', expected an RFC 1123 name"),
        ("parent: 7", "spec.parent: is 7, expected an RFC 1123 name"),
        ("capability: 8", "spec.capability: is 8, expected a mapping"),
        ("guarantee: {resource: 8}", "spec.guarantee.resource: is 8, expected a mapping"),
        ("reclaimable: 1", "spec.reclaimable: is 1, expected true or false"),
        ("namespaces: nlp", "spec.namespaces: is 'nlp', expected a list"),
        ("namespaces: [a.b]", "spec.namespaces[0]: is 'a.b', expected an RFC 1123 label"),
        (
            "capability: {cpu: 9e20}",
            "spec.capability.cpu: is '9e20', expected at most 9007199254740991 thousandths of a CPU",
        ),
    ],
)
def test_a_wrong_field_is_named(fields: str, error: str) -> None:
    (found,) = errors_of(own(fields))
    assert found.startswith(error)


@pytest.mark.parametrize("value", ["'8'", "'[8]'", "'{'", "8"])
def test_limits_of_namespaces_are_a_json_object(value: str) -> None:
    queue = volcano(annotations=f"berth/per-namespace: {value}")
    assert len(queue.wrong) == 1
    assert queue.wrong[0].startswith("metadata.annotations['berth/per-namespace']: is ")


def test_what_has_no_effect_is_noted() -> None:
    queue = volcano(
        "affinity: {}, capability: {pods: 9, huawei.com/Ascend91O: 8}", annotations="volcano.sh/hierarchy: a/b"
    )
    assert queue.wrong == []
    assert queue.capability == {}
    assert queue.notes == [
        "spec.capability.pods is stored and not enforced",
        f"spec.capability['huawei.com/Ascend91O'] is stored and not enforced; is {NPU} meant?",
        "spec.affinity is not used",
        "metadata.annotations['volcano.sh/hierarchy'] is not used",
    ]


@pytest.mark.parametrize(
    "path", ["spec", "status", "metadata.annotations", "spec.guarantee", "spec.parent", "status.state"]
)
@pytest.mark.parametrize("value", [5, 0, ["x"], [], True, False])
def test_a_wrong_value_is_one_error_of_a_queue_that_stays(path: str, value: object) -> None:
    queue: dict[str, Any] = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"}}
    *parents, last = path.split(".")
    place = queue
    for key in parents:
        place = place.setdefault(key, {})
    place[last] = value
    reading = read_queues(json.dumps(queue))
    assert [error.path for error in reading.errors] == [path]
    assert [queue.wrong for queue in reading.queues] == [errors_of(reading)]


def test_a_state_that_nobody_knows_counts_as_closed() -> None:
    queue = volcano(state="Ajar")
    assert queue.state == "Unknown"
    assert queue.notes == ["status.state is 'Ajar', which counts as Closed"]


def test_lists_are_read_and_other_kinds_skipped() -> None:
    text = """
apiVersion: v1
kind: List
items:
  - {apiVersion: berth/v1, kind: Queue, metadata: {name: a}}
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}
"""
    reading = read_queues(text)
    assert [queue.name for queue in reading.queues] == ["a"]
    assert reading.skipped == ["ConfigMap b"]
    assert reading.errors == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "kind: is nothing, expected at least one Queue"),
        ("{apiVersion: v1, kind: Secret}", "kind: is only Secret, expected at least one Queue"),
        ("{apiVersion: berth/v2, kind: Queue}", "apiVersion: is 'berth/v2', expected 'berth/v1'? (one of berth/v1, "),
        ("{apiVersion: berth/v1, kind: Queue}", "metadata: is missing, expected the metadata of the queue"),
        (
            "{apiVersion: berth/v1, kind: Queue, metadata: {name: A}}",
            "metadata.name: is 'A', expected an RFC 1123 name",
        ),
        ("a: [", "line 1, column 5: is wrong: "),
        (
            OWN % "" + "---" + OWN % "",
            "metadata.name: is 'research', expected another name: queue research is given twice",
        ),
    ],
)
def test_what_is_no_queue_is_an_error(text: str, error: str) -> None:
    (found,) = errors_of(read_queues(text))
    assert found.startswith(error)


def test_a_wrong_queue_hides_no_other() -> None:
    reading = read_queues("a: 1\n---" + OWN % "weight: x" + "---" + (OWN % "").replace("research", "b"))
    assert [queue.name for queue in reading.queues] == ["research", "b"]
    assert [error.document for error in reading.errors] == [1, 2]
