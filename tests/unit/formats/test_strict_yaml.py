"""Bounds of a YAML text."""

import pytest

from berth.formats.yaml_documents import read_documents
from berth.formats.yaml_tree import DocumentError


def test_values_are_nested_64_deep_at_most() -> None:
    (tree,) = read_documents("[" * 64 + "]" * 64, DocumentError)
    assert str(tree.value) == "[" * 64 + "]" * 64
    with pytest.raises(DocumentError, match="nesting deeper than 64"):
        read_documents("[" * 65 + "]" * 65, DocumentError)
