"""Calls of kube-scheduler to an extender, and the answers."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.formats.kubernetes.extender import (
    BindCall,
    ExtenderError,
    bind_answer,
    bind_call,
    filter_answer,
    filter_call,
    preempt_answer,
    preempt_call,
)

POD: dict[str, Any] = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"containers": []}}
BINDING = {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n1"}
NODES: dict[str, Any] = {
    "metadata": {},
    "items": [{"metadata": {"name": name}, "spec": {"x": 1}} for name in ("n1", "n2")],
}


def data(value: object) -> bytes:
    return json.dumps(value).encode()


def test_candidates_are_read_from_names() -> None:
    call = filter_call(data({"Pod": POD, "Nodes": None, "NodeNames": ["n1", "n2"]}))
    assert (call.namespace, call.name, call.uid, call.nodes, call.objects) == ("ns", "p", "u", ("n1", "n2"), None)


def test_the_answer_to_names_leaves_the_node_and_says_why_of_the_others() -> None:
    call = filter_call(data({"Pod": POD, "NodeNames": ["n1", "n2", "n3"]}))
    assert json.loads(filter_answer(call, "n2", "why")) == {
        "Nodes": None,
        "NodeNames": ["n2"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"n1": "why", "n3": "why"},
        "Error": "",
    }


@pytest.mark.parametrize("node", ["", "n9"])
def test_without_the_node_among_the_candidates_none_is_left(node: str) -> None:
    call = filter_call(data({"Pod": POD, "NodeNames": ["n1", "n2"]}))
    answer = json.loads(filter_answer(call, node, "why"))
    assert (answer["NodeNames"], answer["FailedAndUnresolvableNodes"]) == ([], {"n1": "why", "n2": "why"})


def test_the_answer_to_objects_has_the_object_as_it_came() -> None:
    call = filter_call(data({"Pod": POD, "Nodes": NODES, "NodeNames": None}))
    answer = json.loads(filter_answer(call, "n2", "why"))
    assert answer["NodeNames"] is None
    assert answer["Nodes"]["items"] == [NODES["items"][1]]
    assert answer["FailedAndUnresolvableNodes"] == {"n1": "why"}


def test_a_binding_is_read() -> None:
    assert bind_call(data(BINDING)) == BindCall("ns", "p", "u", "n1")
    assert json.loads(bind_answer("why not")) == {"Error": "why not"}
    assert json.loads(bind_answer("")) == {"Error": ""}


def test_no_pod_is_preempted() -> None:
    preempt_call(data({"Pod": POD, "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v"}]}}}))
    assert json.loads(preempt_answer()) == {"NodeNameToMetaVictims": {}}


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({}, "Pod is missing, expected the pod"),
        ({"Pod": {"metadata": {"name": "p", "namespace": "n"}}}, "Pod.metadata.uid is '', expected a text"),
        ({"Pod": POD}, "NodeNames is missing, expected the candidates there or in Nodes"),
        ({"Pod": POD, "NodeNames": "n1"}, "NodeNames is of type str, expected array | null"),
        ({"Pod": POD, "NodeNames": [1]}, "NodeNames[0] is of type int, expected str"),
        ({"Pod": POD, "Nodes": {"items": [{}]}}, "Nodes.items[0].metadata.name is '', expected the name of a node"),
        ({"Pod": POD, "Nodes": {"items": [3]}}, "Nodes.items[0] is of type int, expected object"),
        ([], "ExtenderArgs is of type array, expected object"),
    ],
)
def test_a_wrong_filter_call_is_refused_by_its_field(value: object, error: str) -> None:
    with pytest.raises(ExtenderError) as caught:
        filter_call(data(value))
    assert str(caught.value) == error


@pytest.mark.parametrize("field", sorted(BINDING))
def test_a_binding_without_a_field_is_refused_by_its_name(field: str) -> None:
    with pytest.raises(ExtenderError, match=f"^{field} is '', expected a text$"):
        bind_call(data({**BINDING, field: ""}))
    with pytest.raises(ExtenderError, match=f"^{field} is of type int, expected str$"):
        bind_call(data({**BINDING, field: 7}))


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(["Pod", "Nodes", "NodeNames", "PodName", "PodUID", "Node", "metadata", "items", "name", "uid"])
CALLS = st.recursive(ANY, lambda inner: st.dictionaries(FIELDS, inner, max_size=4), max_leaves=12)


@given(CALLS.map(data) | st.binary(max_size=60))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    for read in (filter_call, bind_call, preempt_call):
        try:
            read(body)
        except ExtenderError as error:
            assert ", expected " in str(error)  # noqa: PT017  # any other error fails


@given(st.lists(st.sampled_from(["n1", "n2", "n3", "n4"]), max_size=6), st.sampled_from(["", "n1", "n3", "n9"]))
def test_every_candidate_is_left_or_failed_and_no_other(candidates: list[str], node: str) -> None:
    answer = json.loads(filter_answer(filter_call(data({"Pod": POD, "NodeNames": candidates})), node, "why"))
    assert {*answer["NodeNames"], *answer["FailedAndUnresolvableNodes"]} == set(candidates)
    assert answer["NodeNames"] == ([node] if node in candidates else [])
    assert not {*answer["NodeNames"]} & {*answer["FailedAndUnresolvableNodes"]}
