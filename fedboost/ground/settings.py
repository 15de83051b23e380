"""Files, jobs and parameters as frozen models; what a file may hold is said once, by its class."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
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

from fedboost.ground.errors import ConfigError

if TYPE_CHECKING:
    from fedboost.ground.strict_yaml import Loader

NEAR = 0.5  # likeness from which a word can be a mistyped one
QUOTED = r"'([^']*)'"
FILE_BYTES_MAX = 1 << 20  # a settings file larger than this is not one
SECRET_CHARS_MIN = 4  # a number or a yes is no secret, and errors would be hard to read
Model = TypeVar("Model", bound=BaseModel)


def _nameable(path: str) -> str:
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
            todo=f"pip install 'fedboost[{extra}]'",
            key=key,
        ) from None


PathText = Annotated[str, AfterValidator(_nameable)]  # a path, or an address that holds one


@dataclass(frozen=True, eq=False)
class NameIn:
    """Of an annotated text: it is a name in a registry, which is read anew at each check."""

    what: str  # the registry holds
    known: Mapping[str, object]
    also: str = ""  # a word that stands for any of them

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Return the schema of a text that `check` takes."""
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the JSON Schema of the names there are, for editors."""
        return {**handler(schema), "enum": self.names}

    @property
    def names(self) -> list[str]:
        """Return the names there are, after the word that stands for any of them."""
        return [self.also] * bool(self.also) + [*self.known]

    def check(self, name: str) -> str:
        """Return a known name, or the word; a ValueError lists those there are."""
        if name not in self.names:
            raise ValueError(f"there is no {self.what} {name!r}, but {', '.join(self.names)}")
        return name


class Settings(BaseModel):
    """Base of everything read from a file or a job: frozen, strict, no unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, validate_default=True, defer_build=True
    )

    @classmethod
    def remedy(cls, key: str) -> str | None:
        """Return what to do about an unknown key, where more is known than its spelling."""
        return None


class SecretReference(Settings):
    """Where a secret lies. It is read each time it is needed, so a renewed one counts at once."""

    env: str | None = None  # a variable of the daemon
    file: PathText | None = None  # a file that holds nothing else

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("a secret lies either in 'env', a variable, or in 'file'")
        return self

    def __str__(self) -> str:
        """The reference, never the secret."""
        return f"env {self.env}" if self.env is not None else f"file {self.file}"

    def read(self, key: str) -> str:
        """Return the secret; a ConfigError, at the settings' `key`, where there is none."""
        from fedboost.ground import strict_yaml

        if self.env is not None:
            return strict_yaml.variable(self.env, key)
        return strict_yaml.content(self.file or "", key)


def parse(kind: type[Model], raw: object, **where: str) -> Model:
    """`raw` (what YAML or JSON gave) as a `kind`; a ConfigError names the key and the nearest one.

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
        raise _readable(kind, error, where) from None
    except ConfigError as error:
        raise error.at(**where) from None


def expanded(path: Path) -> Path:
    """A path as it is meant, ~ being the home folder; a ConfigError where ~NAME is nobody's.

    A ValueError for a path that no file can have.
    """
    _nameable(str(path))
    try:
        return path.expanduser()
    except RuntimeError:
        raise ConfigError(
            f"{path.parts[0]} is nobody's home folder", todo="write the whole path"
        ) from None


def home() -> Path:
    """The user's home folder; for a user without one the folder that systems write for none."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")


def read_yaml(path: Path) -> object:
    """Read a YAML file; a ConfigError where it is absent, too large or not YAML."""
    return yaml_in(_bytes(path), file=str(path))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read the file: {error.strerror}", file=str(path), todo="check the path"
        ) from None


def yaml_in(text: bytes, **where: str) -> object:
    """Parse YAML; a ConfigError where it is too large, or none. `where` goes into it."""
    from fedboost.ground.strict_yaml import Loader

    return _document(Loader, text, where)[0]


def _document(kind: type[Loader], text: bytes, where: dict[str, str]) -> tuple[object, Loader]:
    """Return what a loader makes of YAML, and the loader."""
    import yaml

    if len(text) > FILE_BYTES_MAX:
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
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        spot = {} if line is None else {"line": line + 1}
        raise ConfigError(
            "the file is not valid YAML",
            todo="check indentation, colons and quotes around that line",
            **where,
            **spot,
        ) from None


def load(kind: type[Model], path: Path) -> Model:
    """The YAML file at `path` as a `kind`; `${env:NAME}` and `${file:/path}` in it are filled in.

    Errors say the references, not what they stand for. Only for files of whoever runs this.
    """
    from fedboost.ground.strict_yaml import FilledLoader

    raw, loader = _document(FilledLoader, _bytes(path), {"file": str(path)})
    assert isinstance(loader, FilledLoader)
    try:
        return parse(kind, raw, file=str(path))
    except ConfigError as error:
        hidden = sorted(loader.filled.items(), key=lambda pair: -len(pair[0]))
        for value, reference in hidden:
            if len(value) >= SECRET_CHARS_MIN:
                error.what = error.what.replace(value, reference)
                error.todo = error.todo.replace(value, reference)
        error.args = (error.what,)
        raise


def _readable(kind: type[BaseModel], error: ValidationError, where: dict[str, str]) -> ConfigError:
    errors = error.errors(include_url=False, include_input=False)
    # A mistyped key is unknown, and the one that is meant is missing: the first says more.
    first = next((entry for entry in errors if entry["type"] == "extra_forbidden"), errors[0])
    # A union's tag is in parentheses, and no key.
    path = [str(part) for part in first["loc"] if not str(part).startswith("(")]
    key = ".".join(path)
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        at = _model_at(kind, path[:-1])
        todo = "remove it" if at is None else _remedy(at, path[-1])
        return ConfigError(f"unknown key {key!r}{more}", todo=todo, **where)
    if first["type"] == "missing":
        return ConfigError(f"the key {key!r} is missing{more}", todo=f"add {path[-1]!r}", **where)
    message = first["msg"].removeprefix("Value error, ")
    what = f"{key}: {message}{more}" if key else f"{message}{more}"
    return ConfigError(what, todo=_change(first["type"], first.get("ctx", {}), path), **where)


def _change(fault: str, about: Mapping[str, Any], path: list[str]) -> str:
    """Return what to do about a value that a key may not have."""
    key = next((part for part in reversed(path) if not part.isdigit()), "")
    if fault == "literal_error":
        return f"write one of: {', '.join(re.findall(QUOTED, about['expected']))}"
    if fault == "list_type":
        return f"write a list: {key}: [first, second]"
    return f"change {key!r}" if key else "change one of the keys that it names"


def _remedy(kind: type[BaseModel], key: str) -> str:
    """Return what to write in place of a key that a model does not know."""
    renamed = kind.remedy(key) if issubclass(kind, Settings) else None
    keys = {known.casefold(): known for known in kind.model_fields}
    nearest = difflib.get_close_matches(key.casefold(), keys, n=1, cutoff=NEAR)
    if renamed or nearest:
        return renamed or f"did you mean {keys[nearest[0]]!r}?"
    return f"remove it, or write one of: {', '.join(kind.model_fields)}"


def _model_at(kind: type[BaseModel], path: list[str]) -> Any:
    """The model that `kind` holds at `path`, None where it is another thing."""
    at: Any = kind
    held = False  # whether the next part is a key of a dict or a place in a list
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
    """The first model inside an annotation such as ``dict[str, Model] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in getattr(annotation, "__args__", ()):
        model = _model_in(part)
        if model is not None:
            return model
    return None
