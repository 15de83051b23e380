"""JSON Schemas of the files that people write, for editors and for checks without fedboost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedboost import protocols
from fedboost.data.sources import SourceSpec
from fedboost.ground.settings import Settings
from fedboost.job import JobSpec
from fedboost.runtime.client.config import ClientConfig
from fedboost.runtime.config.daemons import CoordinatorConfig, PartyConfig
from fedboost.runtime.config.relay import RelayConfig

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Alternative to a number or to one of several words; `load` fills it in.
REFERENCE_SCHEMA = {"type": "string", "pattern": r"\$\{(env|file):"}
_NARROW = ({"type": "integer"}, {"type": "number"}, {"type": "boolean"})

Schema = dict[str, Any]


def _settings_schema(kind: type[Settings]) -> Callable[[], Schema]:
    """Return the schema of a file that may refer to variables and other files."""
    return lambda: _with_references(kind.model_json_schema())


def _job_schema() -> Schema:
    """Return the schema of a job's file, with the `params` of each protocol."""
    schema = JobSpec.model_json_schema()
    cases = []
    for name in protocols.all_names():
        template = "#/$defs/{model}"
        params = protocols.load_protocol(name).params.model_json_schema(ref_template=template)
        schema["$defs"] |= params.pop("$defs", {})
        schema["$defs"][f"params-of-{name}"] = params
        cases.append(
            {
                "if": {"properties": {"protocol": {"const": name}}},
                "then": {"properties": {"params": {"$ref": f"#/$defs/params-of-{name}"}}},
            }
        )
    schema["properties"]["protocol"]["enum"] = list(protocols.all_names())
    return {**schema, "allOf": cases}


FILES: dict[str, Callable[[], Schema]] = {
    "client": _settings_schema(ClientConfig),
    "coordinator": _settings_schema(CoordinatorConfig),
    "dataset": _settings_schema(SourceSpec),
    "job": _job_schema,
    "party": _settings_schema(PartyConfig),
    "relay": _settings_schema(RelayConfig),
}


def json_schema(file: str) -> Schema:
    """Return the JSON Schema (draft 2020-12) of one of `FILES`.

    It covers keys, types, bounds and words; rules across several keys are checked when the file is
    read.
    """
    return {"$schema": DIALECT, **FILES[file]()}


def _with_references(schema: Any) -> Any:
    """Return a schema whose numbers, switches and words may also be references."""
    if isinstance(schema, list):
        return [_with_references(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    narrow = any(schema.items() >= narrow_type.items() for narrow_type in _NARROW)
    if narrow or "enum" in schema or "const" in schema or "pattern" in schema:
        return {"anyOf": [schema, REFERENCE_SCHEMA]}
    # A reference fits several branches at once, so `oneOf` becomes `anyOf`.
    named = {"anyOf" if key == "oneOf" else key: part for key, part in schema.items()}
    inner = {key: _with_references(part) for key, part in named.items() if key != "default"}
    return {**named, **inner}
