"""YAML, stricter than its own rules: a repeated key is an error, depth is bounded, and dates stay text."""

from typing import Final

import yaml

DEPTH_MAX: Final = 64
"""Deepest nesting that is read; manifests need about 15."""


class StrictLoader(yaml.SafeLoader):
    """Safe loader that refuses repeated keys and bottomless nesting, and leaves dates as text."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Next node of the document, not too deep.

        Raises:
            MarkedYAMLError: It is nested deeper than :data:`DEPTH_MAX`.
        """
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise yaml.MarkedYAMLError(problem=f"nesting deeper than {DEPTH_MAX}", problem_mark=self.get_mark())
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_mapping_node(self, anchor: dict[str, yaml.Node]) -> yaml.MappingNode:
        """Mapping that begins here, before merge keys are resolved.

        Raises:
            MarkedYAMLError: A key is given twice.
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
