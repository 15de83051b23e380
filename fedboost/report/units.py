"""Numbers as people read them: bytes, seconds, counts, measurements and moments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

NOTHING = "–"
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"))
_LATEST = 253_402_300_799.0  # the last second of the year 9999, where calendars end


def in_bytes(count: float) -> str:
    """Format `count` bytes, in steps of 1000: ``0 B``, ``1.5 KB``, ``34.1 MB``."""
    for size, unit in _BYTES:
        if count >= size * 0.9995:
            return f"{_three_digits(count / size)} {unit}"
    return f"{count:.0f} B"


def in_seconds(seconds: float | None) -> str:
    """Format a duration: ``0 s``, ``3.2 ms``, ``4.21 s``, ``3 min 20 s``; a dash for None."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0.0:
        return NOTHING
    if seconds == 0.0:
        return "0 s"
    if seconds < 0.9995:
        return "< 0.1 ms" if seconds < 1e-4 else f"{_three_digits(seconds * 1e3)} ms"
    if seconds < 59.95:
        return f"{_three_digits(seconds)} s"
    rounded = round(seconds)
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def in_count(count: float) -> str:
    """Format a whole number with a comma every three digits."""
    return f"{count:,.0f}"


def matched_ids(ids: Mapping[str, int]) -> str:
    """Return the count of a party's ids that matched: ``1,901 of 2,000 ids matched``."""
    return f"{in_count(ids.get('matched', 0))} of {in_count(ids.get('brought', 0))} ids matched"


def metric_text(value: float | None) -> str:
    """Format a metric: four decimals, or four digits if it is large or tiny; a dash for None."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0.0 or 0.001 <= abs(value) < 10.0:
        return f"{value:.4f}"
    return f"{value:,.1f}" if 1000.0 <= abs(value) < 1e9 else f"{value:.4g}"


def in_percent(part: float, whole: float) -> str:
    """Format `part` of `whole` in percent; a dash if `whole` is 0."""
    if whole <= 0.0:
        return NOTHING
    percent = 100.0 * part / whole
    return "< 0.1 %" if 0.0 < percent < 0.1 else f"{percent:.1f} %"


def plural(count: int, noun: str, several: str = "") -> str:
    """Format ``1 tree``, ``25 trees``."""
    return f"{in_count(count)} {noun if count == 1 else several or noun + 's'}"


def date_and_time(at: float) -> str:
    """Format seconds since 1970 as ``2025-03-01 09:30:05``, UTC."""
    return _format_time(at, "%Y-%m-%d %H:%M:%S")


def clock_time(at: float) -> str:
    """Format seconds since 1970 as ``09:30:05``, UTC."""
    return _format_time(at, "%H:%M:%S")


def date_text(at: float) -> str:
    """Format seconds since 1970 as ``2025-03-01``, UTC."""
    return _format_time(at, "%Y-%m-%d")


def iso_time(at: float) -> str:
    """Format seconds since 1970 as ``2025-03-01T09:30:05+00:00``, for programs."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _format_time(at: float, shape: str) -> str:
    if not 0.0 < at < _LATEST:
        return NOTHING
    return datetime.fromtimestamp(at, UTC).strftime(shape)


def _three_digits(value: float) -> str:
    """Format three significant digits: 1.23, 12.3, 123."""
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    shown = f"{value:.{decimals}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def shown_seconds(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return a result's seconds for people: a model of rounds has no seconds per tree."""
    return {key: s for key, s in seconds.items() if key != "per_tree" or "per_round" not in seconds}
