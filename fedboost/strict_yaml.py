"""YAML as settings files may use it."""

from __future__ import annotations

from typing import Any

import yaml

from fedboost.errors import ConfigError


class Loader(yaml.SafeLoader):
    """YAML without objects, and without keys that stand twice, of which YAML keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
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
