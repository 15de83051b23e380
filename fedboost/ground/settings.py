"""Base classes of settings: frozen models of files, jobs and parameters."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from fedboost.ground.errors import ConfigError, install_advice

if TYPE_CHECKING:
    from fedboost.ground.strict_yaml import Loader

UNENDED = ("while scanning", "while parsing a flow")  # what YAML says of signs without an end
NEAR = 0.5  # least similarity of a mistyped word
QUOTED = r"'([^']*)'"
SETTINGS_BYTES_MAX = 1 << 20  # a larger file holds no settings
SECRET_CHARS_MIN = 4  # shorter values are no secrets, and errors without them would be hard to read
# Types as which YAML reads texts such as No, 12:30 and 2024-01-31 without quotes.
READ_AS = {
    bool: "a word for true or false",
    int: "a number",
    float: "a number",
    date: "a date",
    datetime: "a date",
}
Model = TypeVar("Model", bound=BaseModel)


def _check_path(path: str) -> str:
    if "\0" in path:
        raise ValueError("a zero byte is in no path")
    return path


def optional_library(module: str, key: str, extra: str) -> Any:
    """Return a library that the setting `key` needs; a ConfigError if `extra` is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ConfigError(
            f"{key} needs a package that is not installed",
            todo=install_advice(extra),
            key=key,
        ) from None


PathText = Annotated[str, AfterValidator(_check_path)]  # a path, or an address that holds one


@dataclass(frozen=True, eq=False)
class NameIn:
    """Annotation of a text: a name in a registry, which each check reads again."""

    what: str  # kind of the things in the registry
    known: Mapping[str, object]
    also: str = ""  # a word that stands for any of them

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Return the schema of a text that passes `check`."""
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the JSON Schema with the known names, for editors."""
        return {**handler(schema), "enum": self.names}

    @property
    def names(self) -> list[str]:
        """Return the known names, after the word that stands for any of them."""
        return [self.also] * bool(self.also) + [*self.known]

    def check(self, name: str) -> str:
        """Return a known name, or the word; a ValueError lists the known ones."""
        if name not in self.names:
            raise ValueError(f"there is no {self.what} {name!r}, but {', '.join(self.names)}")
        return name


class Settings(BaseModel):
    """Base of everything read from a file or a job: frozen, strict, no unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, validate_default=True, defer_build=True
    )

    @classmethod
    def key_remedy(cls, key: str) -> str | None:
        """Return special advice about an unknown key; None if there is none."""
        return None


class SecretReference(Settings):
    """Reference to a secret, which is read at each use, so a renewed secret counts at once."""

    env: str | None = None  # a variable of the daemon
    file: PathText | None = None  # a file that holds nothing else

    @model_validator(mode="after")
    def _check_one_source(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("a secret lies either in 'env', a variable, or in 'file'")
        return self

    def __str__(self) -> str:
        """Return the reference, never the secret."""
        return f"env {self.env}" if self.env is not None else f"file {self.file}"

    def read(self, key: str) -> str:
        """Return the secret; a ConfigError, at the settings' `key`, if it is missing."""
        from fedboost.ground import strict_yaml

        if self.env is not None:
            return strict_yaml.read_variable(self.env, key)
        return strict_yaml.read_value_file(self.file or "", key)


def parse_settings(kind: type[Model], raw: object, **where: str) -> Model:
    """Return raw YAML or JSON values as a `kind`; a ConfigError names the key and the nearest known
    one.

    `where` goes into the error, e.g. ``file="job.yaml"``.
    """
    if not isinstance(raw, Mapping):
        raise ConfigError(
            f"expected keys and values, got {type(raw).__name__}",
            todo="write the file as YAML with one key per line",
            **where,
        )
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise _readable_error(kind, error, where) from None
    except ConfigError as error:
        raise error.at(**where) from None


def expand_path(path: Path) -> Path:
    """Return a path with ~ replaced by the home folder; a ConfigError if ~NAME is an unknown
    user's.

    A ValueError for a path that no file can have.
    """
    _check_path(str(path))
    try:
        return path.expanduser()
    except RuntimeError:
        raise ConfigError(
            f"{path.parts[0]} is no user's home folder", todo="write the whole path"
        ) from None


def user_home_folder() -> Path:
    """Return the user's home folder; for a user without one, a folder that does not exist."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")


def read_yaml(path: Path) -> object:
    """Read a YAML file; a ConfigError if it is missing, too large or not YAML."""
    return parse_yaml(_read_bytes(path), file=str(path))


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read the file: {error.strerror}", file=str(path), todo="check the path"
        ) from None


def parse_yaml(text: bytes, **where: str) -> object:
    """Parse YAML; a ConfigError, with `where`, if it is too large or not YAML."""
    from fedboost.ground.strict_yaml import Loader

    return _document(Loader, text, where)[0]


def _document(kind: type[Loader], text: bytes, where: dict[str, str]) -> tuple[object, Loader]:
    """Return the document that a loader reads from YAML, and the loader."""
    import yaml

    if len(text) > SETTINGS_BYTES_MAX:
        raise ConfigError(
            f"the file has {len(text)} bytes, too many for settings",
            todo="check the path",
            **where,
        )
    try:
        loader = kind(text)
        return loader.get_single_data(), loader
    except ConfigError as error:
        raise error.at(**where) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Of what never ends the beginning is at fault, not the line at which it shows.
        is_open = str(getattr(error, "context", "")).startswith(UNENDED)
        begins = getattr(error, "context_mark", None) if is_open else None
        mark = begins or getattr(error, "problem_mark", None)
        spot = {} if mark is None else {"line": mark.line + 1}
        raise ConfigError(
            "the file is not valid YAML",
            todo="check indentation, colons and quotes around that line",
            **where,
            **spot,
        ) from None


def load_settings(kind: type[Model], path: Path) -> Model:
    """Read the YAML file at `path` as a `kind`, with `${env:NAME}` and `${file:/path}` filled in.

    Errors show the references, not their values. Only for files of the user who runs the program.
    """
    from fedboost.ground.strict_yaml import FilledLoader

    raw, loader = _document(FilledLoader, _read_bytes(path), {"file": str(path)})
    assert isinstance(loader, FilledLoader)
    try:
        return parse_settings(kind, raw, file=str(path))
    except ConfigError as error:
        hidden = sorted(loader.filled.items(), key=lambda pair: -len(pair[0]))
        for value, reference in hidden:
            if len(value) >= SECRET_CHARS_MIN:
                error.what = error.what.replace(value, reference)
                error.todo = error.todo.replace(value, reference)
        error.args = (error.what,)
        raise


def _readable_error(
    kind: type[BaseModel], error: ValidationError, where: dict[str, str]
) -> ConfigError:
    errors = error.errors(include_url=False, include_input=False)
    # A mistyped key is unknown, and the correct one is missing: the first error says more.
    first = next((entry for entry in errors if entry["type"] == "extra_forbidden"), errors[0])
    # A union's tag is in parentheses; it is not a key.
    path = [str(part) for part in first["loc"] if not str(part).startswith("(")]
    key = ".".join(path)
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        at = _model_at(kind, path[:-1])
        todo = "remove it" if at is None else _unknown_key_remedy(at, path[-1])
        return ConfigError(f"unknown key {key!r}{more}", todo=todo, **where)
    if first["type"] == "missing":
        return ConfigError(f"the key {key!r} is missing{more}", todo=f"add {path[-1]!r}", **where)
    message = first["msg"].removeprefix("Value error, ")
    what = f"{key}: {message}{more}" if key else f"{message}{more}"
    if first["type"] == "string_type":
        places = (
            entry for entry in error.errors(include_url=False) if entry["loc"] == first["loc"]
        )
        read_as = READ_AS.get(type(next(places)["input"]), "")
        if read_as:
            what = f"{key}: expected a text, got {read_as}{more}"
            return ConfigError(
                what, todo="put it in quotes: YAML reads No, 1 and 12:30 otherwise", **where
            )
    return ConfigError(what, todo=_value_remedy(first["type"], first.get("ctx", {}), path), **where)


def _value_remedy(fault: str, about: Mapping[str, Any], path: list[str]) -> str:
    """Return advice about a value that a key may not have."""
    key = next((part for part in reversed(path) if not part.isdigit()), "")
    if fault == "literal_error":
        return f"write one of: {', '.join(re.findall(QUOTED, about['expected']))}"
    if fault == "list_type":
        return f"write a list: {key}: [first, second]"
    return f"change {key!r}" if key else "change one of the keys that it names"


def _unknown_key_remedy(kind: type[BaseModel], key: str) -> str:
    """Return the likely key for an unknown one, or the list of known keys."""
    renamed = kind.key_remedy(key) if issubclass(kind, Settings) else None
    keys = {known.casefold(): known for known in kind.model_fields}
    nearest = difflib.get_close_matches(key.casefold(), keys, n=1, cutoff=NEAR)
    if renamed or nearest:
        return renamed or f"did you mean {keys[nearest[0]]!r}?"
    return f"remove it, or write one of: {', '.join(kind.model_fields)}"


def _model_at(kind: type[BaseModel], path: list[str]) -> Any:
    """Return the model that `kind` holds at `path`; None if the path holds another type."""
    at: Any = kind
    held = False  # whether the next part is a key of a dict or an index of a list
    for part in path:
        field = None if held else at.model_fields.get(part)
        held = False
        if field is not None:
            at, held = _model_in(field.annotation), _is_container(field.annotation)
        if at is None:
            return None
    return at


def _is_container(annotation: Any) -> bool:
    """Return True if an annotation such as ``list[Model] | None`` holds a dict, list or tuple."""
    if get_origin(annotation) in (dict, list, tuple):
        return True
    return any(_is_container(part) for part in get_args(annotation))


def _model_in(annotation: Any) -> Any:
    """Return the first model inside an annotation such as ``dict[str, Model] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in getattr(annotation, "__args__", ()):
        model = _model_in(part)
        if model is not None:
            return model
    return None
