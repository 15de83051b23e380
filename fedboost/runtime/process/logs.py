"""Format of log lines, as text or as JSON, with the job and step of each line."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from pythonjsonlogger.json import JsonFormatter

from fedboost.ground.printable import printable

LogFormat: TypeAlias = Literal["text", "json"]
PLACES = ("job", "attempt", "stage", "step", "party")  # in this order in every line
LOG_LINE_CHARS_MAX = 8000
PLACE_CHARS_MAX = 80  # a peer may send anything as the name of a job

_about: ContextVar[Mapping[str, str]] = ContextVar("about", default={})  # noqa: B039  never changed


def note_context(**fields: str | int) -> None:
    """Set the context of log lines in this task, and in tasks that it starts.

    `fields` are some of PLACES; an empty one is left unchanged.
    """
    _about.set(_merged(fields))


@contextmanager
def added_context(**fields: str | int) -> Iterator[None]:
    """Add to the context of log lines inside the `with`; see `note_context`."""
    before = _about.set(_merged(fields))
    try:
        yield
    finally:
        _about.reset(before)


def _merged(fields: Mapping[str, str | int]) -> Mapping[str, str]:
    """Return the current context with these fields."""
    known = {key: _short_line(str(value)) for key, value in fields.items() if value}
    assert known.keys() <= set(PLACES)
    return {**_about.get(), **known}


def note_call(request: Any) -> None:
    """Set the context from a call: job, attempt, stage and steps of its message."""
    steps = [turn.step for turn in getattr(request, "turns", ())]
    note_context(
        job=getattr(request, "job", "") or getattr(request, "id", ""),
        attempt=getattr(request, "attempt", 0),
        stage=getattr(request, "stage", ""),
        step=", ".join(steps) or getattr(request, "step", ""),
    )


def set_up_logging(style: LogFormat, level: int, daemon: str = "") -> None:
    """Send all logs to stderr in this style; replaces an earlier setup.

    `daemon` (``party bank``) is in every line of JSON, to tell the logs of several daemons apart.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(daemon) if style == "json" else _Text())
    handler.addFilter(_Indices(daemon))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(style == "json")
    for noisy in ("asyncio", "numba", "grpc"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def is_json() -> bool:
    """Return whether `set_up_logging` has chosen JSON last."""
    return any(isinstance(handler.formatter, _Json) for handler in logging.getLogger().handlers)


class _Indices(logging.Filter):
    """Filter that adds the context to a record; at a party also its name."""

    def __init__(self, daemon: str) -> None:
        super().__init__()
        role, _, name = daemon.partition(" ")
        self._own = {"party": name} if role == "party" else {}

    def filter(self, record: logging.LogRecord) -> bool:
        record.about = {**self._own, **_about.get()}
        return True


class _Plain(logging.Formatter):
    """Formatter without control characters, even in quoted text; a message is one line."""

    def formatException(self, ei: Any) -> str:  # noqa: N802  logging's own name
        return printable(super().formatException(ei), instead="?", keeps="\n", most=None)


class _Text(_Plain):
    """``2026-01-31 10:00:00,000 INFO fedboost.x [job, 2, align, blind]: y``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s%(where)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's own name
        about: Mapping[str, str] = getattr(record, "about", {})
        named = [about[key] for key in PLACES[:-1] if key in about]
        record.where = f" [{', '.join(named)}]" if named else ""
        record.message = printable(record.message, instead="?", most=LOG_LINE_CHARS_MAX)
        return super().formatMessage(record)


class _Json(_Plain, JsonFormatter):
    """Formatter of JSON lines: time (UTC), level, logger, daemon, places, message, exception."""

    def __init__(self, daemon: str) -> None:
        super().__init__()
        self._daemon = {"daemon": daemon} if daemon else {}

    def add_fields(
        self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]
    ) -> None:
        """Write time, level, daemon and context of the record into a line of JSON."""
        about: Mapping[str, Any] = getattr(record, "about", {})
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        log_data |= {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._daemon,
            **{key: about[key] for key in PLACES if key in about},
            "message": printable(
                record.getMessage(), instead="?", keeps="\n", most=LOG_LINE_CHARS_MAX
            ),
        }
        if log_data.get("attempt", "").isdigit():
            log_data["attempt"] = int(log_data["attempt"])
        if record.exc_info:
            log_data["exception"] = self.formatException(record.exc_info)


def _short_line(text: str) -> str:
    """Return one short line, even from a peer's text."""
    return printable(text, instead="?", most=PLACE_CHARS_MAX)
