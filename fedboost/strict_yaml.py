"""YAML as settings files may use it."""

from __future__ import annotations

from typing import Any

import yaml

from fedboost.errors import ConfigError

NODES_MAX = 100_000  # keys and values of one file, those that aliases repeat counted each time


class Loader(yaml.SafeLoader):
    """YAML without objects, without keys that stand twice, of which YAML keeps the last, and
    without aliases of aliases that stand for more than anybody would write.
    """

    def construct_document(self, node: yaml.Node) -> Any:
        if _nodes(node, {}) > NODES_MAX:
            raise ConfigError(
                f"the file's aliases stand for more than {NODES_MAX} values", todo="write them out"
            )
        return super().construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Read keys and values; an error where a key occurs twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            name = f"{key.tag} {key.value}"
            if isinstance(key, yaml.ScalarNode) and name in seen:
                raise ConfigError(
                    f"the key {key.value!r} stands twice",
                    todo="keep one of them",
                    line=key.start_mark.line + 1,
                )
            seen.add(name)
        return super().construct_mapping(node, deep)


def _nodes(node: yaml.Node, known: dict[yaml.Node, int]) -> int:
    """Count the nodes that a node stands for, aliases expanded; a ConfigError where it holds
    itself.
    """
    if isinstance(node, yaml.ScalarNode):
        return 1
    if node not in known:
        known[node] = 0  # until its parts are counted
        parts: Any = node.value
        inner = [part for pair in parts for part in pair] if _is_mapping(node) else parts
        known[node] = 1 + sum(_nodes(part, known) for part in inner)
    if known[node] == 0:
        raise ConfigError("the file holds an alias of what it stands in", todo="remove it")
    return known[node]


def _is_mapping(node: yaml.Node) -> bool:
    return isinstance(node, yaml.MappingNode)
