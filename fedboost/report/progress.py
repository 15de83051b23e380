"""A job's progress in the terminal: a live display if possible, otherwise lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedboost.ground.printable import printable
from fedboost.messages.job_pb2 import Event, Waiting
from fedboost.report import units
from fedboost.report.benefit import rehearsal_lines
from fedboost.report.seen import JobProgress, metric_words, waiting_words
from fedboost.report.story import ordered_splits

LINE_EVERY_S = 10.0  # without a terminal, at least so often while something happens
LINES_OF_A_JOB = 10  # and at least so many rounds apart
KERNELS_OF_A_LINE = 20  # without a terminal, between two lines about compilation
FIRST_JOB_S = 30  # processor time that a machine's first job compiles: secureboost on a lattice


class Progress:
    """Display of one job's events.

    On a terminal: a bar, the last metrics, seconds a tree, bytes, time left, awaited parties.
    Elsewhere: a line for each change of state, stage and tenth of the job, or every ten seconds.
    `batch_rows` is the number of rows that a prediction scores at once. `clock` gives seconds since
    1970, like the events' own times.
    """

    def __init__(
        self,
        console: Console,
        name: str,
        *,
        batch_rows: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._console = console
        self._name = printable(name)
        self._clock = clock
        self._seen = JobProgress(batch_rows=batch_rows)
        self._waiting: tuple[Waiting, ...] = ()
        self._live = Live(
            self, console=console, refresh_per_second=4, transient=True, redirect_stdout=False
        )
        self._kernels, self._kernels_line = 0, 1
        self._line_at = 0.0
        self._line_done = 0
        self._waited_at = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def event(self, event: Event) -> None:
        """Handle an event."""
        seen, name_before = self._seen, self._seen.round_name
        seen.event(event)
        what = event.WhichOneof("what")
        if what == "state":
            self._print_state(event.state.state)
        elif what == "step":
            self._line_if_due()
        elif what == "round":
            self._print_round(is_other=seen.round_name != name_before)
        elif what == "stage":
            took = units.in_seconds(event.stage.seconds)
            self._print_on_terminal_too(f"stage {printable(event.stage.stage)} done in {took}")
        elif what == "lost":
            self._print_on_terminal_too(seen.warnings[-1])
        elif what == "warned":
            self._print_on_terminal_too(f"warning: {seen.warnings[-1]}")

    __call__ = event

    def waiting(self, waiting: Iterable[Waiting]) -> None:
        """Set the parties that work or must answer now."""
        self._waiting = tuple(waiting)
        if self._console.is_terminal or not self._waiting:
            return
        now = self._clock()
        longest = min(self._waiting, key=lambda entry: entry.since)
        if now - max(longest.since, self._waited_at, self._line_at) >= LINE_EVERY_S:
            self._waited_at = now
            self._print_line(waiting_words(self._waiting, now))

    def compiling(self, kernels: int) -> None:
        """Show how many kernels have been compiled on this machine since the job began."""
        self._kernels = kernels
        if kernels >= self._kernels_line and not self._console.is_terminal:
            self._kernels_line = kernels + KERNELS_OF_A_LINE
            self._print_line(compilation_words(kernels))

    def __rich__(self) -> RenderableType:
        """Return the live display."""
        seen, now = self._seen, self._clock()
        head = Table.grid(padding=(0, 1), expand=False)
        bar = ProgressBar(total=seen.of or 1, completed=seen.done, width=30)
        head.add_row(Text(self._name, style="bold"), bar, Text(seen.count_words))
        waits = waiting_words(self._waiting, now)
        compiles = "" if seen.done else compilation_words(self._kernels)
        lines = (
            (compiles, "yellow"),
            (metric_words(seen.metrics), ""),
            (seen.pace_words(now), "dim"),
            (waits, "yellow"),
        )
        return Group(head, *(Text(words, style=style) for words, style in lines if words))

    def _print_state(self, state: str) -> None:
        """Print the state, and the reason of a pause; the command prints why a job failed."""
        reason = self._seen.reason if state == "paused" else ()
        self._print_on_terminal_too(": ".join([self._seen.state_words, *reason[:1]]))
        for line in reason[1:]:
            self._print_on_terminal_too(line)

    def _print_round(self, *, is_other: bool) -> None:
        """Print a line if one is due; `is_other`: another stage's count of rounds began."""
        seen = self._seen
        if is_other:
            self._line_done = 0
        apart = max(1, seen.of // LINES_OF_A_JOB)
        if seen.done == seen.of or seen.done - self._line_done >= apart or seen.done == 1:
            self._print_progress()
        else:
            self._line_if_due()

    def _line_if_due(self) -> None:
        """Print a line if there has been none for a while, by the events' own times."""
        self._line_at = self._line_at or self._seen.at
        if self._seen.at - self._line_at >= LINE_EVERY_S:
            self._print_progress()

    def _print_progress(self) -> None:
        seen = self._seen
        self._line_at, self._line_done = seen.at, seen.done
        if self._console.is_terminal:
            return
        words = [seen.count_words, metric_words(seen.metrics), seen.pace_words(seen.at)]
        self._print_line(", ".join(part for part in words if part))

    def _print_on_terminal_too(self, words: str) -> None:
        """Print a line that stays, on a terminal too."""
        self._line_at = self._seen.at
        self._print_line(words)

    def _print_line(self, words: str) -> None:
        line = Text(f"{self._name}: {words}")
        self._console.print(line, soft_wrap=True, highlight=False)


def compilation_words(kernels: int) -> str:
    """Return the text that says why a machine's first job takes longer; "" without kernels."""
    if not kernels:
        return ""
    return f"compiling once on this machine, a first job about {FIRST_JOB_S} s: kernel {kernels}"


def result_summary(result: Mapping[str, Any], stopped: str = "") -> RenderableType:
    """Return a finished job's result for people, from the keys of `--json`; keys may be absent.

    `stopped` says where early stopping ended the job.
    """
    parts: list[RenderableType] = [Text(_headline(result), style="bold")]
    parts += [Text(stopped)] if stopped else []
    metrics = result.get("metrics") or {}
    if metrics:
        parts += [Text(), _metrics_table(metrics)]
    parts += [Text(), _parties_table(result), Text(), _facts_table(result)]
    if result.get("rehearsal"):
        parts += [Text(), Text("\n".join(rehearsal_lines(result["rehearsal"])))]
    return Group(*parts)


def _headline(result: Mapping[str, Any]) -> str:
    words = [printable(result.get(key) or "") for key in ("name", "state")]
    if result.get("trees"):
        words.append(f"with {units.plural(result['trees'], 'tree')}")
    if result.get("rounds"):
        before = "of" if result.get("trees") else "with"  # trees, or rounds without any
        words.append(f"{before} {units.plural(result['rounds'], 'round')}")
    total = (result.get("seconds") or {}).get("total")
    if total is not None:
        words.append(f"in {units.in_seconds(total)}")
    return " ".join(word for word in words if word)


def _metrics_table(metrics: Mapping[str, Mapping[str, float]]) -> Table:
    splits = ordered_splits(metrics)
    table = _new_table(["metric"], splits)
    for name in dict.fromkeys(name for split in splits for name in metrics[split]):
        values = (metrics[split].get(name) for split in splits)
        shown = (Text(units.metric_text(value)) for value in values)
        table.add_row(Text(printable(name)), *shown)
    return table


def _parties_table(result: Mapping[str, Any]) -> Table:
    """Return processor time, peak memory and bytes of each party."""
    cpu = result.get("cpu_seconds") or {}
    memory = result.get("memory_peak_bytes") or {}
    sent: dict[str, int] = {}
    received: dict[str, int] = {}
    for link, count in (result.get("bytes") or {}).items():
        sender, _, receiver = link.partition("->")
        sent[sender] = sent.get(sender, 0) + count
        received[receiver] = received.get(receiver, 0) + count
    table = _new_table(["party"], ["processor time", "peak memory", "sent", "received"])
    for party in dict.fromkeys([*cpu, *memory, *sent, *received]):
        table.add_row(
            Text(printable(party)),
            units.in_seconds(cpu.get(party)),
            units.in_bytes(memory[party]) if party in memory else units.NOTHING,
            units.in_bytes(sent.get(party, 0)),
            units.in_bytes(received.get(party, 0)),
        )
    return table


def _facts_table(result: Mapping[str, Any]) -> Table:
    seconds = units.shown_seconds(result.get("seconds") or {})
    rows, ids = result.get("rows") or {}, result.get("ids") or {}
    encryption = result.get("encryption") or {}
    lines = [
        ("rows", ", ".join(f"{units.in_count(rows[name])} {name}" for name in rows)),
        ("ids", ", ".join(f"{p} {units.matched_ids(counts)}" for p, counts in ids.items())),
        ("lost", ", ".join(result.get("lost") or ())),
        ("encryption", "{scheme}: {because}".format_map(encryption) if encryption else ""),
        *(("warning", words) for words in result.get("warnings") or ()),
        ("time", ", ".join(f"{name} {units.in_seconds(seconds[name])}" for name in seconds)),
        ("model", result.get("model") or ""),
        ("report", result.get("report") or ""),
    ]
    table = Table.grid(padding=(0, 2))
    for name, words in lines:
        if words:
            shown = printable(words.replace("per_", "per "))
            table.add_row(Text(name, style="dim"), Text(shown, overflow="fold"))
    return table


def _new_table(texts: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    for head in texts:
        table.add_column(Text(printable(head)))
    for head in numbers:
        table.add_column(Text(printable(head)), justify="right")
    return table
