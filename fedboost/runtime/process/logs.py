"""What log lines look like, as text or as JSON, and which job and step each one is about."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from pythonjsonlogger.json import JsonFormatter

from fedboost.ground.printable import printable

LogFormat: TypeAlias = Literal["text", "json"]
PLACES = ("job", "attempt", "stage", "step", "party")  # in this order in every line
LINE_CHARS_MAX = 8000
PLACE_CHARS_MAX = 80  # a peer may send anything as the name of a job

_about: ContextVar[Mapping[str, str]] = ContextVar("about", default={})  # noqa: B039  never changed


def note(**fields: str | int) -> None:
    """Says what the lines of this task, and of those that it starts, are about from here on.

    `fields` are some of PLACES; an empty one is left as it was.
    """
    known = {key: _short(str(value)) for key, value in fields.items() if value}
    assert known.keys() <= set(PLACES)
    _about.set({**_about.get(), **known})


def note_call(request: Any) -> None:
    """The same of a call: its message says of which job, attempt, stage and steps it speaks."""
    steps = [turn.step for turn in getattr(request, "turns", ())]
    note(
        job=getattr(request, "job", "") or getattr(request, "id", ""),
        attempt=getattr(request, "attempt", 0),
        stage=getattr(request, "stage", ""),
        step=", ".join(steps) or getattr(request, "step", ""),
    )


def noted() -> Mapping[str, str]:
    """Return what lines are about at this place of the program."""
    return _about.get()


def set_up(style: LogFormat, level: int, daemon: str = "") -> None:
    """Has everything that is logged go to stderr in this style, in place of what was set up before.

    `daemon` (``party bank``) stands in every line of JSON: logs of several daemons meet in one
    place.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(daemon) if style == "json" else _Text())
    handler.addFilter(_Indices(daemon))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(style == "json")
    for noisy in ("asyncio", "numba", "grpc"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def is_json() -> bool:
    """Return whether `set_up` has chosen JSON last."""
    return any(isinstance(handler.formatter, _Json) for handler in logging.getLogger().handlers)


class _Indices(logging.Filter):
    """Adds what a line is about to its record; at a party, whose line it is."""

    def __init__(self, daemon: str) -> None:
        super().__init__()
        role, _, name = daemon.partition(" ")
        self._own = {"party": name} if role == "party" else {}

    def filter(self, record: logging.LogRecord) -> bool:
        record.about = {**self._own, **_about.get()}
        return True


class _Plain(logging.Formatter):
    """Nothing that a terminal obeys, whoever's words are quoted; a message is one line."""

    def formatException(self, ei: Any) -> str:  # noqa: N802  logging's own name
        return printable(super().formatException(ei), instead="?", keeps="\n", most=None)


class _Text(_Plain):
    """``2026-01-31 10:00:00,000 INFO fedboost.runtime.party.node [job, 2, align, blind]: x``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s%(where)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's own name
        about: Mapping[str, str] = getattr(record, "about", {})
        named = [about[key] for key in PLACES[:-1] if key in about]
        record.where = f" [{', '.join(named)}]" if named else ""
        record.message = printable(record.message, instead="?", most=LINE_CHARS_MAX)
        return super().formatMessage(record)


class _Json(_Plain, JsonFormatter):
    """One object a line: time (UTC), level, logger, daemon, places, message, exception."""

    def __init__(self, daemon: str) -> None:
        super().__init__()
        self._daemon = {"daemon": daemon} if daemon else {}

    def add_fields(
        self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]
    ) -> None:
        """Write time, level, daemon and what the record is about into a line of JSON."""
        about: Mapping[str, Any] = getattr(record, "about", {})
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        log_data |= {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._daemon,
            **{key: about[key] for key in PLACES if key in about},
            "message": printable(record.getMessage(), instead="?", keeps="\n", most=LINE_CHARS_MAX),
        }
        if log_data.get("attempt", "").isdigit():
            log_data["attempt"] = int(log_data["attempt"])
        if record.exc_info:
            log_data["exception"] = self.formatException(record.exc_info)


def _short(text: str) -> str:
    """One short line, whatever a peer has sent."""
    return printable(text, instead="?", most=PLACE_CHARS_MAX)
