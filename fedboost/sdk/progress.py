"""A job's progress where Python runs: a card in notebooks, a bar in terminals, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol, TypeAlias

from fedboost.messages.job_pb2 import Event, Waiting
from fedboost.report.card import JobCard, job_card
from fedboost.report.consoles import plain_console
from fedboost.report.progress import Progress, compilation_words
from fedboost.report.seen import JobProgress
from fedboost.runtime.process.compilation import count_new_kernels

Verbose: TypeAlias = bool | Literal["auto"]

REDRAWN_S = 0.25  # at least so long between two pictures in a notebook


class Hears(Protocol):
    """Takes in a job's events, from any one thread at a time."""

    def __call__(self, event: Event) -> None:
        """Handle an event."""

    def waiting(self, waiting: Iterable[Waiting]) -> None:
        """Set the parties that work or must answer now."""


@contextmanager
def watching(verbose: Verbose = "auto", name: str = "job") -> Iterator[Hears]:
    """Show the job's progress during the `with`; yield the object that takes its events.

    True always shows it; "auto" only in notebooks and on terminals, so logs stay short; False
    never. Terminals and logs get it on standard error, like the command line.
    """
    if verbose is False or (verbose == "auto" and not (in_notebook() or sys.stderr.isatty())):
        yield _Silent()
    elif in_notebook():
        shown = InNotebook(name)
        try:
            with count_new_kernels(shown.compiling):
                yield shown
        finally:
            shown.draw()
    else:
        with (
            Progress(plain_console(stderr=True), name) as progress,
            count_new_kernels(progress.compiling),
        ):
            yield progress


def in_notebook() -> bool:
    """Return True if a Jupyter kernel runs this process, so that HTML can be shown."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class _Silent:
    """Shows nothing."""

    def __call__(self, event: Event) -> None:
        """Do nothing."""

    def waiting(self, waiting: Iterable[Waiting]) -> None:
        """Do nothing."""


class InNotebook:
    """A card that is updated in place; rich's own display in notebooks needs ipywidgets."""

    def __init__(self, name: str, *, clock: Callable[[], float] = time.time) -> None:
        self._name, self._clock = name, clock
        self._seen = JobProgress()
        self._waiting: tuple[Waiting, ...] = ()
        self._drawn_at = clock()
        self._place = _display(self._card_html())
        self._below: Any = None  # the line about compilation, below the card

    def __call__(self, event: Event) -> None:
        self._seen.event(event)
        self._draw_if_due()

    def waiting(self, waiting: Iterable[Waiting]) -> None:
        self._waiting = tuple(waiting)
        self._draw_if_due()

    def compiling(self, kernels: int) -> None:
        """Show how many kernels have been compiled on this machine since the job began."""
        line = f"<p>{compilation_words(kernels)}</p>"
        if self._below is None:
            self._below = _display(line)
        else:
            self._below.update(_Drawn(line))

    def draw(self) -> None:
        """Draw the current card."""
        self._drawn_at = self._clock()
        self._place.update(_Drawn(self._card_html()))

    def _draw_if_due(self) -> None:
        if self._clock() - self._drawn_at >= REDRAWN_S:
            self.draw()

    def _card_html(self) -> str:
        # A job that rests takes no more time: the card says how long it took.
        at = self._seen.at if self._seen.rests else self._clock()
        return job_card(JobCard(self._name, self._seen, at, waiting=self._waiting))


class _Drawn:
    """A picture for a notebook; the text is for displays without HTML."""

    def __init__(self, html: str) -> None:
        self._html = html

    def _repr_html_(self) -> str:
        return self._html

    def __repr__(self) -> str:
        return "a job's progress"


def _display(html: str) -> Any:
    """Show the picture; return a handle that can replace it."""
    from IPython.display import display

    return display(_Drawn(html), display_id=True)  # type: ignore[no-untyped-call]
