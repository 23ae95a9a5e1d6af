"""Strict YAML: a repeated key is an error, depth and aliases are bounded, and dates stay text."""

import re
from typing import Final

import yaml

DEPTH_MAX: Final = 64
"""Maximum accepted nesting; manifests need about 15."""
COPIES_MAX: Final = 1_000_000
"""Maximum number of values that aliases and merge keys repeat in a text: five for each of the 200,000 nodes that a
topology may have. Reading them takes about two seconds."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class StrictLoader(yaml.SafeLoader):
    """Safe loader that rejects repeated keys, deep nesting and too many repeated aliases.

    It keeps dates as text, and reads a surrogate pair that is written as two escapes, as in JSON, as one character.
    """

    _depth = 0
    _values = 0
    """Values so far, including those that aliases repeat."""
    _copies = 0

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._sizes: dict[yaml.Node, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Next node of the document, not too deep.

        Raises:
            MarkedYAMLError: It is nested deeper than :data:`DEPTH_MAX`, is an alias of a node that contains it, or
                aliases have repeated more than :data:`COPIES_MAX` values.
        """
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]  # the stubs of PyYAML leave it without types
        if isinstance(event, yaml.AliasEvent):
            node: yaml.Node | None = super().compose_node(parent, index)
            if node is not None:
                self._count_copy(node, event.anchor or "")
            return node
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise yaml.MarkedYAMLError(problem=f"nesting deeper than {DEPTH_MAX}", problem_mark=self.get_mark())
        before = self._values
        node = super().compose_node(parent, index)
        self._depth -= 1
        self._values += 1
        if node is not None and isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            self._sizes[node] = self._values - before
        return node

    def _count_copy(self, node: yaml.Node, anchor: str) -> None:
        size = self._sizes.get(node)
        if size is None:
            raise yaml.MarkedYAMLError(
                problem=f"alias *{anchor} is inside the node that it names", problem_mark=self.get_mark()
            )
        self._values += size
        self._copies += size
        if self._copies > COPIES_MAX:
            raise yaml.MarkedYAMLError(
                problem=f"aliases and merge keys repeat more than {COPIES_MAX} values", problem_mark=self.get_mark()
            )

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        """Text of a scalar; the two halves of a surrogate pair are one character."""
        text: str = super().construct_scalar(node)
        if text.isascii() or not _SURROGATE.search(text):
            return text
        try:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            return text  # half a pair is left; the check of the texts reports its place

    def compose_mapping_node(self, anchor: dict[str, yaml.Node]) -> yaml.MappingNode:
        """Mapping that begins here, before merge keys are resolved.

        Raises:
            MarkedYAMLError: A key is repeated.
        """
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"key {key.value!r} given twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return node


StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
