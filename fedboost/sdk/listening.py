"""A job's progress on standard error, until notebooks have a card of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from fedboost.messages.job_pb2 import Event
from fedboost.report.progress import Progress


@contextmanager
def watching(verbose: Any, name: str = "job") -> Iterator[Callable[[Event], None]]:
    """Shows the progress while the `with` lasts; gives what its events are told to."""
    if verbose is False or (verbose == "auto" and not sys.stderr.isatty()):
        yield lambda _: None
        return
    with Progress(Console(stderr=True), name) as progress:
        yield progress.event
