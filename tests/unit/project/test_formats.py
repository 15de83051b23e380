"""A format that changes has another number: `formats.json` holds the shape behind each number."""

import hashlib
import importlib
import json
import pkgutil
import re
import sqlite3
from contextlib import closing
from dataclasses import fields
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from pydantic import Field

import fedboost.messages
from fedboost import protocols
from fedboost.ground import formats, state
from fedboost.ground.settings import Settings
from fedboost.messages.job_pb2 import HelloReply
from fedboost.runtime.jobs.manifest import Manifest
from fedboost.runtime.ledger import ledger, rows
from fedboost.runtime.store import schema
from tests.conftest import ROOT

FILE = Path(__file__).with_name("formats.json")
PROSE = ("title", "description", "examples")


def modules_below(package):
    """Every module of a package, loaded."""
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [importlib.import_module(one.name) for one in found if "__main__" not in one.name]


def proto_files():
    return [m.DESCRIPTOR for m in modules_below(fedboost.messages) if hasattr(m, "DESCRIPTOR")]


def field_shape(one, parts):
    part = parts[one.oneof_index].name if one.HasField("oneof_index") else ""
    return [one.number, one.name, one.type, one.label, one.type_name, part]


def message_shape(message):
    """Fields and enums of a message and of those inside it, by number."""
    return {
        "fields": sorted(field_shape(one, message.oneof_decl) for one in message.field),
        "enums": {one.name: [[v.number, v.name] for v in one.value] for one in message.enum_type},
        "inside": {one.name: message_shape(one) for one in message.nested_type},
    }


def messages():
    """Every message of every file, its comments left out."""
    found: dict[str, object] = {}
    for file in proto_files():
        written = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(written)
        assert not written.enum_type
        found |= {f"{file.package}.{m.name}": message_shape(m) for m in written.message_type}
    return found


def calls():
    """Every call of every service: what it takes and answers, and whether either is a stream."""
    return {
        method.full_name: [
            method.input_type.full_name,
            method.output_type.full_name,
            method.client_streaming,
            method.server_streaming,
        ]
        for file in proto_files()
        for service in file.services_by_name.values()
        for method in service.methods
    }


def steps():
    """Every protocol's table of steps, in its order, and the protocols that come before."""
    return {
        name: [list(protocol.before), [step_shape(step) for step in protocol.flow]]
        for name in protocols._folders()
        for protocol in [protocols.load_protocol(name)]
    }


def step_shape(step):
    """Every field of a step, messages by their names."""
    values = {one.name: getattr(step, one.name) for one in fields(step)}
    for name in ("takes", "gives"):
        values[name] = values[name] and values[name].DESCRIPTOR.full_name
    return {name: repr(value) for name, value in values.items()}


def without_prose(shape):
    """A JSON Schema without its titles and descriptions; a property may have such a name."""
    if isinstance(shape, list):
        return [without_prose(one) for one in shape]
    if not isinstance(shape, dict):
        return shape
    return {
        key: {name: without_prose(one) for name, one in value.items()}
        if key in ("properties", "$defs")
        else without_prose(value)
        for key, value in shape.items()
        if key not in PROSE
    }


def manifests():
    """The manifest's fields, and the settings of every protocol with their defaults."""
    manifest = Manifest.model_json_schema()
    del manifest["properties"]["version"]["default"]  # of the package: names no format
    params = {
        name: protocols.load_protocol(name).params.model_json_schema()
        for name in protocols._folders()
    }
    return without_prose({"manifest": manifest, **params})


def codec_shape(codec):
    """What a codec writes: its class, and the codecs and types of its parts."""
    if isinstance(codec, state.Codec):
        parts = {name: one for name, one in vars(codec).items() if name != "make"}
        return [type(codec).__name__, codec_shape(parts)]
    if isinstance(codec, dict):
        return {str(name): codec_shape(one) for name, one in codec.items()}
    return codec.__name__ if isinstance(codec, type) else str(codec)


def states():
    """Every class of states, with its fields at any depth."""
    found = {}
    for path in sorted((ROOT / "fedboost").rglob("*.py")):
        for name in re.findall(r"^@state_class\nclass (\w+)", path.read_text(), re.MULTILINE):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name] = codec_shape(
                state._codec_of(getattr(importlib.import_module(module), name))
            )
    return found


def tables(statements):
    """What SQL creates: its tables, indices and triggers, as SQLite keeps them."""
    with closing(schema.with_row_hash(sqlite3.connect(":memory:"))) as connection:
        for statement in statements:
            connection.execute(statement)
        made = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
        return [
            (kind, name, " ".join((sql or "").split()))
            for kind, name, sql in connection.execute(made)
        ]


def store_tables():
    return tables(schema._creation_statements())


def ledger_tables():
    return [ledger.TABLES, [one.name for one in fields(rows.Row)], tables(ledger.SCHEMA)]


# By format: its number, and the functions that describe what the number stands for.
SHAPES = {
    "wire": (formats.WIRE_VERSION, (messages, calls, steps, manifests)),
    "checkpoint": (formats.CHECKPOINT_FORMAT, (states,)),
    "store": (formats.STORE_VERSION, (store_tables,)),
    "ledger": (formats.LEDGER_FORMAT, (ledger_tables,)),
}


def shape_hash(shape):
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()


def changed_parts(known, number, hashes):
    """Return the parts that differ from what the golden file holds under a number."""
    return [part for part, digest in hashes.items() if known[number].get(part) != digest]


@pytest.mark.parametrize("name", SHAPES)
def test_a_format_that_changes_has_another_number(name, request):
    number, shapes = SHAPES[name]
    hashes = {shape.__name__: shape_hash(shape()) for shape in shapes}
    golden = json.loads(FILE.read_text())
    known = golden.setdefault(name, {})
    if str(number) not in known and request.config.getoption("--rewrite"):
        known[str(number)] = hashes
        FILE.write_text(json.dumps(golden, indent=1) + "\n")
    assert str(number) in known, (
        f"{name} {number} is new: write its shape with --rewrite, and see "
        "docs/development/releases.md for what else it needs"
    )
    changed = changed_parts(known, str(number), hashes)
    assert not changed, (
        f"{', '.join(changed)} changed, and {name} still has the number {number}: raise it in "
        "fedboost/ground/formats.py, then write its shape with --rewrite; "
        "docs/development/releases.md says what else it needs"
    )
    assert max(map(int, known)) == number, f"{name} {number} is older than numbers before it"


@pytest.mark.parametrize(
    "change",
    [{"name": "other"}, {"number": 9}, {"type": 4}, {"label": 3}, {"type_name": ".fedboost.Fault"}],
    ids=lambda change: next(iter(change)),
)
def test_a_field_with_another_name_number_or_type_is_another_shape(change):
    one = descriptor_pb2.DescriptorProto()
    HelloReply.DESCRIPTOR.CopyToProto(one)
    other = descriptor_pb2.DescriptorProto.FromString(one.SerializeToString())
    for key, value in change.items():
        setattr(other.field[0], key, value)
    assert shape_hash(message_shape(one)) != shape_hash(message_shape(other))


def test_another_default_is_another_shape_and_other_prose_is_none():
    def shape(depth, meaning):
        class Params(Settings):
            description: int = Field(depth, description=meaning)

        return without_prose(Params.model_json_schema())

    assert shape(5, "layers") == shape(5, "layers below the root") != shape(6, "layers")


def test_a_changed_part_is_named_and_an_equal_one_is_not():
    known = {"7": {"calls": "a", "steps": "b"}}
    assert changed_parts(known, "7", {"calls": "a", "steps": "c", "messages": "d"}) == [
        "steps", "messages",
    ]  # fmt: skip
