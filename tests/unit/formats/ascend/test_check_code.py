import hashlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.formats.ascend.check_code import check_code, go_json

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


class Inner(msgspec.Struct, rename="pascal"):
    second_field: int = 0
    a_list: list[str] | None = None


class Outer(msgspec.Struct, rename="pascal"):
    zed: dict[str, int] | None = None
    inner: Inner | None = None


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("testHashCodeStr", "9f9046a094b85b781aca276c46c36956ed07f6de1ec1f94268bfce764e0a9606"),
        (None, "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"),
        ({"DeviceList": {}, "UpdateTime": 0}, "de66ee6ed1e7a46ba95255b4ea0de48d161dc047b75109471eb7b85d1ea230aa"),
        (
            {"DeviceList": {"huawei.com/Ascend910": "a<b&c>"}, "UpdateTime": 1},
            "eb33febb4f39330ad810b08bd21584996259c1993d858e277e3936e4e57f3c96",
        ),
    ],
)
def test_codes_of_the_reference_page(value: Any, code: str) -> None:  # noqa: ANN401 - whatever is summed
    assert check_code(value) == code


def test_null_empty_and_full_lists_and_maps_differ() -> None:
    assert (go_json(None), go_json([]), go_json({}), go_json([1, True, None])) == ("null", "[]", "{}", "[1,true,null]")


def test_fields_come_as_declared_and_keys_of_maps_by_their_bytes() -> None:
    value = Outer({"b": 2, "a": 1, "B": 3, "é": 4, "😀": 6, "\uffff": 5}, Inner(7))
    expected = '{"Zed":{"B":3,"a":1,"b":2,"é":4,"\uffff":5,"😀":6},"Inner":{"SecondField":7,"AList":null}}'
    assert go_json(value) == expected


def test_what_go_escapes_is_escaped() -> None:
    assert go_json("<>&\u2028\u2029") == r'"\u003c\u003e\u0026\u2028\u2029"'
    assert go_json('"\\/\n\r\t\x01\x7fé') == r'"\"\\/\n\r\t\u0001' + '\x7fé"'
    assert go_json("\ud800x") == '"\ufffdx"'


@pytest.mark.parametrize("value", [1.5, b"bytes", {1, 2}, [object()]])
def test_what_has_no_place_is_refused(value: Any) -> None:  # noqa: ANN401 - whatever is summed
    with pytest.raises(TypeError, match="no place in a sum"):
        go_json(value)


@given(value=values)
def test_what_is_written_reads_back_and_is_compact(value: Any) -> None:  # noqa: ANN401 - whatever is summed
    text = go_json(value)
    assert json.loads(text) == value
    assert not set(text) & set("<>&\u2028\u2029\n\t")
    plain = json.dumps(value, separators=(",", ":"))
    assert len(text) <= len(plain) + len(r"\u003c") * sum(map(plain.count, "<>&")), "nothing stands between the words"
    assert check_code(value) == hashlib.sha256(text.encode()).hexdigest()


@given(value=st.dictionaries(texts, st.integers(), min_size=2, max_size=6))
def test_the_order_of_a_map_does_not_count(value: dict[str, int]) -> None:
    backwards = dict(reversed(list(value.items())))
    assert go_json(backwards) == go_json(value)
    keys = list(json.loads(go_json(value)))
    assert [key.encode() for key in keys] == sorted(key.encode() for key in keys)
