import msgspec

from berth.formats.kubernetes.events import (
    MESSAGE_MAX,
    NAME_MAX,
    Involved,
    event_name,
    events_path,
    new_event,
    repeated,
)

POD = Involved(api_version="v1", kind="Pod", namespace="team", name="llm-0", uid="u1")


def test_an_event_as_the_server_takes_it() -> None:
    event = new_event(POD, reason="Waiting", message="no chips", kind="Normal", first_ms=0, last_ms=1_000)
    assert msgspec.json.decode(msgspec.json.encode(event)) == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event_name(POD, reason="Waiting", message="no chips"), "namespace": "team"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "team", "name": "llm-0", "uid": "u1"},
        "reason": "Waiting",
        "message": "no chips",
        "type": "Normal",
        "count": 1,
        "firstTimestamp": "1970-01-01T00:00:00Z",
        "lastTimestamp": "1970-01-01T00:00:01Z",
        "source": {"component": "berth"},
        "reportingComponent": "berth",
        "reportingInstance": "",
    }
    assert events_path(POD) == "/api/v1/namespaces/team/events"
    assert repeated(3, 2_000) == {"count": 3, "lastTimestamp": "1970-01-01T00:00:02Z"}


def test_an_event_about_a_job_names_its_trace() -> None:
    event = new_event(POD, reason="Waiting", message="no chips", first_ms=0, last_ms=0, trace_id="5e")
    assert event.metadata.annotations == {"berth/trace-id": "5e"}


def test_events_about_objects_without_a_namespace_live_in_the_default_one() -> None:
    node = Involved(kind="Node", name="n1", uid="n1")
    event = new_event(node, reason="NodeInvalid", message="m", first_ms=0, last_ms=0)
    assert (events_path(node), event.metadata.namespace) == ("/api/v1/namespaces/default/events", "default")


def test_the_same_word_about_the_same_object_is_the_same_event() -> None:
    name = event_name(POD, reason="Waiting", message="no chips")
    assert name == event_name(POD, reason="Waiting", message="no chips")
    other = Involved(api_version="v1", kind="Pod", namespace="team", name="llm-0", uid="u2")
    names = {
        name,
        event_name(other, reason="Waiting", message="no chips"),
        event_name(POD, reason="Held", message="no chips"),
        event_name(POD, reason="Waiting", message="few chips"),
    }
    assert len(names) == 4


def test_names_and_messages_stay_within_what_the_server_takes() -> None:
    long = Involved(kind="Pod", namespace="team", name="a" * 235 + "." + "b" * 17, uid="u1")
    name = event_name(long, reason="Waiting", message="m")
    assert len(name) <= NAME_MAX
    assert ".." not in name
    event = new_event(long, reason="Waiting", message="m" * 2000, first_ms=0, last_ms=0)
    assert len(event.message) == MESSAGE_MAX


def test_a_message_is_printable_whatever_it_tells_of() -> None:
    event = new_event(POD, reason="Waiting", message="no node\n\x1b[31m\u202ehas", first_ms=0, last_ms=0)
    assert event.message == r"no node\n\x1b[31m\u202ehas"
