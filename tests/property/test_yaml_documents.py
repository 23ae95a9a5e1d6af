"""YAML texts of any kind: documents, or the documented error, in bounded work."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.formats.manifests.reader import read_jobs
from berth.formats.strict_yaml import COPIES_MAX
from berth.formats.yaml_documents import read_documents
from berth.formats.yaml_tree import DocumentError

_SNIPPETS = st.sampled_from(
    ["&a ", "*a", "<<: ", "a: ", "b: ", "- ", "[", "]", "{", "}", ",", "\n", "  ", '"\\ud800"', '"\\ud83d\\ude00"', "!!int ", "? ",
     "---\n", "1", "x", "&b ", "*b", "!!merge x: ", "|\n", "'", '"', "#", "=: ", "!!binary "]
)  # fmt: skip


def nested_merges(levels: int, width: int = 12) -> str:
    """Mappings of which each merges the one before ``width`` times."""
    lines = ["m0: &m0 {k: v}"]
    for level in range(1, levels + 1):
        aliases = ", ".join([f"*m{level - 1}"] * width)
        lines.append(f"m{level}: &m{level} {{<<: [{aliases}]}}")
    return "\n".join(lines)


@given(st.lists(_SNIPPETS, max_size=24).map("".join) | st.text(max_size=60))
def test_a_text_is_read_or_refused(text: str) -> None:
    try:
        documents = read_documents(text, DocumentError)
    except DocumentError as error:
        str(error).encode()
        return
    for tree in documents:
        repr(tree.value).encode()


@given(st.lists(_SNIPPETS, max_size=16).map("".join))
def test_a_manifest_is_read_or_refused(text: str) -> None:
    reading = read_jobs(text)
    for error in reading.errors:
        str(error).encode()


@given(st.integers(1, 12), st.integers(1, 12))
def test_nested_merge_keys_are_bounded(levels: int, width: int) -> None:
    copies = sum(width**level for level in range(1, levels + 1))
    text = nested_merges(levels, width)
    if copies > COPIES_MAX:
        with pytest.raises(DocumentError, match=f"aliases and merge keys repeat more than {COPIES_MAX} values"):
            read_documents(text, DocumentError)
    elif copies < COPIES_MAX // 400:
        assert read_documents(text, DocumentError)[0].mapping()[f"m{levels}"] == {"k": "v"}


def test_aliases_of_aliases_are_bounded() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 9)]
    with pytest.raises(DocumentError, match="aliases and merge keys repeat more than") as caught:
        read_documents("\n".join(lines), DocumentError)
    assert caught.value.path.startswith("line 7, column ")


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {b: *a}", "&a {<<: *a}"])
def test_an_alias_inside_what_it_names_is_refused(text: str) -> None:
    with pytest.raises(DocumentError, match=r"alias \*a is inside the node that it names"):
        read_documents(text, DocumentError)


def test_anchors_and_merges_of_everyday_use_still_work() -> None:
    text = """
base: &base {cpu: 4, image: x}
env: &env [{name: a, value: b}]
one: {<<: *base, cpu: 8, env: *env}
two: {<<: [*base, {tail: 1}], env: *env}
three: *base
"""
    found = read_documents(text, DocumentError)[0].mapping()
    assert found["one"] == {"image": "x", "cpu": 8, "env": [{"name": "a", "value": "b"}]}
    assert found["two"] == {"cpu": 4, "image": "x", "tail": 1, "env": [{"name": "a", "value": "b"}]}
    assert found["three"] == {"cpu": 4, "image": "x"}
    many = "base: &base {a: 1, b: 2}\n" + "\n".join(f"n{number}: {{<<: *base}}" for number in range(2_000))
    assert len(read_documents(many, DocumentError)[0].mapping()) == 2_001


def test_both_halves_of_a_surrogate_pair_are_one_character() -> None:
    assert read_documents('{"a": "\\ud83d\\ude00", "b": "é"}', DocumentError)[0].value == {"a": "😀", "b": "é"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('a: {b: ["x", "y\\ud800"]}', r"document 1: a.b[1]: is 'y\ud800', expected text without half a surrogate pair"),
        ('{"a": {"\\udc00": "x"}}', r"document 1: a: is '\udc00', expected a key that is text without half"),
        ('--- {a: b}\n--- "\\ude00\\ud83d"', r"document 2: (top): is '\ude00\ud83d', expected text without half"),
    ],
)
def test_half_a_surrogate_pair_is_refused_with_its_field(text: str, words: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_documents(text, DocumentError)
    assert words in str(caught.value)
