"""Strict YAML for settings files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml

from fedboost.ground.errors import ConfigError

YAML_NODES_MAX = 100_000  # keys and values of one file; each alias counts its values again


class Loader(yaml.SafeLoader):
    """YAML loader that refuses objects, repeated keys, and aliases of too many values."""

    def construct_document(self, node: yaml.Node) -> Any:
        if _count_nodes(node, {}) > YAML_NODES_MAX:
            raise ConfigError(
                f"the file's aliases stand for more than {YAML_NODES_MAX} values",
                todo="write them out",
            )
        return super().construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Read keys and values; a ConfigError if a key occurs twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            name = f"{key.tag} {key.value}"
            if isinstance(key, yaml.ScalarNode) and name in seen:
                raise ConfigError(
                    f"the key {key.value!r} occurs twice",
                    todo="keep one of them",
                    line=key.start_mark.line + 1,
                )
            seen.add(name)
        return super().construct_mapping(node, deep)


# YAML 1.2 reads 1e-1 as a number, which 1.1 and so PyYAML takes for a text.
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    [*"-+0123456789"],
)

# `${env:NAME}`, `${file:/path}`; a second $ in front makes it plain text.
VALUE_REFERENCE = re.compile(r"\$(\$?)\{(\w+):([^}]*)\}")
VALUE_BYTES_MAX = 1 << 16  # of a file that holds one value
_TEXT = "tag:yaml.org,2002:str"


class FilledLoader(Loader):
    """Loader of a daemon's own files: values may refer to variables and to files.

    A quoted value with a reference is a text; without quotes YAML decides its type.
    """

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self.filled: dict[str, str] = {}  # by the value, its reference in the file
        self._done: set[yaml.Node] = set()

    def construct_document(self, node: yaml.Node) -> Any:
        _count_nodes(node, {})  # refuses a node that holds itself
        self._fill_node(node, "")
        return super().construct_document(node)

    def _fill_node(self, node: yaml.Node, key: str) -> None:
        if node in self._done:
            return
        self._done.add(node)
        if isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                self._fill_node(value, f"{key}.{name.value}" if key else str(name.value))
        elif isinstance(node, yaml.SequenceNode):
            for place, value in enumerate(node.value):
                self._fill_node(value, f"{key}.{place}")
        elif isinstance(node, yaml.ScalarNode) and VALUE_REFERENCE.search(node.value):
            node.value = VALUE_REFERENCE.sub(
                lambda match: self._resolve_reference(match, key), node.value
            )
            read_like: Any = self.resolve
            plain = node.style is None
            node.tag = read_like(yaml.ScalarNode, node.value, (True, False)) if plain else _TEXT

    def _resolve_reference(self, match: re.Match[str], key: str) -> str:
        is_meant_so, kind, name = match.groups()
        reference = match[0]
        if is_meant_so:
            return reference[1:]
        if kind not in ("env", "file"):
            raise ConfigError(
                f"{key}: {reference} refers to nothing",
                todo="write ${env:NAME} or ${file:/path}; $${ is a text that begins with ${",
            )
        text = read_variable(name, key) if kind == "env" else read_value_file(name, key)
        self.filled[text] = reference
        return text


def read_variable(name: str, key: str) -> str:
    """Return an environment variable; a ConfigError, at `key`, if it is not set."""
    text = os.environ.get(name)
    if text is None:
        raise ConfigError(f"{key}: there is no variable {name}", todo=f"set {name}")
    return text


def read_value_file(name: str, key: str) -> str:
    """Return the text of a file without its last line break; a ConfigError, at `key`, if it is
    unreadable.
    """
    try:
        with Path(name).expanduser().open("rb") as file:
            data = file.read(VALUE_BYTES_MAX + 1)
        if len(data) > VALUE_BYTES_MAX:
            raise ConfigError(f"{key}: {name} is too large for one value", todo="check the path")
        return data.decode().removesuffix("\n")
    except OSError as error:
        reason = error.strerror
    except (ValueError, RuntimeError):  # no text, no path, or an unknown user's home
        reason = "it holds no text, or is no path"
    raise ConfigError(
        f"{key}: cannot read {name}: {reason}", todo="check the path and its permissions"
    )


def _count_nodes(node: yaml.Node, known: dict[yaml.Node, int]) -> int:
    """Count the nodes below a node, aliases expanded; a ConfigError if a node contains itself."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if node not in known:
        known[node] = 0  # until its parts are counted
        parts: Any = node.value
        inner = [part for pair in parts for part in pair] if _is_mapping(node) else parts
        known[node] = 1 + sum(_count_nodes(part, known) for part in inner)
    if known[node] == 0:
        raise ConfigError("the file holds an alias of a value that contains it", todo="remove it")
    return known[node]


def _is_mapping(node: yaml.Node) -> bool:
    return isinstance(node, yaml.MappingNode)
