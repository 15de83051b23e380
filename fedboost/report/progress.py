"""A job's progress in the terminal, alive where it can be and line by line elsewhere."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedboost.messages.job_pb2 import Event, RoundDone, StateChanged, Waiting
from fedboost.report import units
from fedboost.report.story import fault_lines, in_order

LINE_EVERY_S = 10.0  # without a terminal, at least so often while something happens
LINES_OF_A_JOB = 10  # and at least so many rounds apart
RECENT_ROUNDS = 5  # that the estimate of the time left is taken from
TEXT_CHARS_MAX = 500  # of one line from outside
WAIT_SHOWN_S = 3.0  # who has worked for less is not worth a line


@dataclass
class _Seen:
    """What the events have said so far."""

    state: str = ""
    parties: list[str] = field(default_factory=list)  # whose approval is waited for
    reason: tuple[str, ...] = ()
    stage: str = ""
    step: str = ""
    round_name: str = "tree"
    done: int = 0
    of: int = 0
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    took: list[float] = field(default_factory=list)  # seconds of the rounds since the last start
    bytes: int = 0
    began: float = 0.0
    at: float = 0.0  # of the last event
    round_at: float = 0.0  # of the last round

    @property
    def per_round(self) -> float | None:
        """Median seconds of the last rounds."""
        return statistics.median(self.took[-RECENT_ROUNDS:]) if self.took else None

    def left(self, now: float) -> float | None:
        """Seconds until the last round is done, if the next ones are like the last ones."""
        per_round = self.per_round
        if per_round is None or not self.of:
            return None
        return max(0.0, (self.of - self.done) * per_round - max(0.0, now - self.round_at))


class Progress:
    """Shows the events of one job as they come.

    On a terminal: a bar, the last metrics, seconds a tree, bytes, time left, who is waited for.
    Elsewhere: a line for each change of state, stage and tenth of the job, or every ten seconds.
    `clock` gives seconds since 1970, as the events' own times do.
    """

    def __init__(
        self, console: Console, name: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._console = console
        self._name = printable(name)
        self._clock = clock
        self._seen = _Seen()
        self._waiting: tuple[Waiting, ...] = ()
        self._live = Live(
            self, console=console, refresh_per_second=4, transient=True, redirect_stdout=False
        )
        self._line_at = 0.0
        self._line_done = 0
        self._waited_at = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def event(self, event: Event) -> None:
        """Takes in what happened."""
        seen = self._seen
        seen.at = max(seen.at, event.at)
        seen.began = seen.began or event.at
        what = event.WhichOneof("what")
        if what == "state":
            self._state(event.state)
        elif what == "step":
            seen.stage, seen.step = printable(event.step.stage), printable(event.step.step)
            seen.bytes += sum(link.bytes for cost in event.step.costs for link in cost.sent)
            self._line_if_due()
        elif what == "round":
            self._round(event.round)
        elif what == "stage":
            took = units.in_seconds(event.stage.seconds)
            self._say(f"stage {printable(event.stage.stage)} done in {took}")
        elif what == "lost":
            self._say(f"{printable(event.lost.party)} is lost, the job goes on without it")
        elif what == "warned":
            self._say(f"warning: {printable(event.warned.warning)}")

    def waiting(self, waiting: Iterable[Waiting]) -> None:
        """Who works or has to answer now, replacing whom we knew of."""
        self._waiting = tuple(waiting)
        if self._console.is_terminal or not self._waiting:
            return
        now = self._clock()
        longest = min(self._waiting, key=lambda one: one.since)
        if now - max(longest.since, self._waited_at, self._line_at) >= LINE_EVERY_S:
            self._waited_at = now
            self._print(self._waiting_words(now))

    def __rich__(self) -> RenderableType:
        """The live display."""
        seen, now = self._seen, self._clock()
        head = Table.grid(padding=(0, 1), expand=False)
        bar = ProgressBar(total=seen.of or 1, completed=seen.done, width=30)
        head.add_row(Text(self._name, style="bold"), bar, Text(self._count_words()))
        facts = [Text(words, style="dim") for words in (self._pace_words(now),) if words]
        metrics = [Text(words) for words in (metric_words(seen.metrics),) if words]
        waits = [Text(words, style="yellow") for words in (self._waiting_words(now),) if words]
        return Group(head, *metrics, *facts, *waits)

    def _state(self, changed: StateChanged) -> None:
        seen = self._seen
        seen.state = printable(changed.state)
        seen.parties = [printable(party) for party in changed.parties]
        seen.reason = tuple(printable(line) for line in fault_lines(changed.reason))
        seen.took = []
        words = seen.state
        if changed.state == "waiting for approval" and seen.parties:
            words += " by " + ", ".join(seen.parties)
        self._say(": ".join([words, *seen.reason[:1]]))
        for line in seen.reason[1:]:
            self._say(line)

    def _round(self, done: RoundDone) -> None:
        seen = self._seen
        name = printable(done.progress.round) or "tree"
        if name != seen.round_name:  # another stage's: they say nothing of these
            seen.took, self._line_done = [], 0
        seen.round_name = name
        seen.done, seen.of = done.progress.done, done.progress.of
        seen.took.append(done.seconds)
        seen.round_at = seen.at
        if done.metrics:
            seen.metrics = {}
        for metric in done.metrics:
            seen.metrics.setdefault(printable(metric.split), {})[printable(metric.name)] = (
                metric.value
            )
        apart = max(1, seen.of // LINES_OF_A_JOB)
        if seen.done == seen.of or seen.done - self._line_done >= apart or seen.done == 1:
            self._line()
        else:
            self._line_if_due()

    def _line_if_due(self) -> None:
        """A line where there has been none for a while, by the events' own times."""
        self._line_at = self._line_at or self._seen.at
        if self._seen.at - self._line_at >= LINE_EVERY_S:
            self._line()

    def _line(self) -> None:
        seen = self._seen
        self._line_at, self._line_done = seen.at, seen.done
        if self._console.is_terminal:
            return
        words = [self._count_words(), metric_words(seen.metrics), self._pace_words(seen.at)]
        self._print(", ".join(part for part in words if part))

    def _say(self, words: str) -> None:
        """A line that stays, on a terminal too."""
        self._line_at = self._seen.at
        self._print(words)

    def _print(self, words: str) -> None:
        line = Text(f"{self._name}: {words}")
        self._console.print(line, soft_wrap=True, highlight=False)

    def _count_words(self) -> str:
        seen = self._seen
        if seen.of:
            return f"{seen.round_name} {seen.done} of {seen.of}"
        at = " ".join(part for part in (seen.stage, seen.step.replace("_", " ")) if part)
        return at or seen.state or "starting"

    def _pace_words(self, now: float) -> str:
        seen = self._seen
        words = []
        if seen.per_round is not None:
            words.append(f"{units.in_seconds(seen.per_round)} a {seen.round_name}")
        if seen.bytes:
            words.append(f"{units.in_bytes(seen.bytes)} sent")
        if seen.began:
            words.append(f"{units.in_seconds(float(round(max(0.0, now - seen.began))))} so far")
        left = seen.left(now)
        if left is not None and seen.done < seen.of:
            words.append(f"about {units.in_seconds(float(round(left)))} left")
        return ", ".join(words)

    def _waiting_words(self, now: float) -> str:
        """The step and the parties that have been at it longest."""
        if not self._waiting:
            return ""
        first = min(self._waiting, key=lambda one: one.since)
        since = max(0.0, now - first.since)
        if since < WAIT_SHOWN_S:
            return ""
        parties = ", ".join(printable(one.party) for one in self._waiting if one.step == first.step)
        step = printable(first.step).replace("_", " ")
        return f"waiting for {parties}, {step}, {units.in_seconds(float(round(since)))}"


def summary(result: Mapping[str, Any]) -> RenderableType:
    """A finished job's result, laid out as `--json` has it, for people; keys may be absent."""
    parts: list[RenderableType] = [Text(_headline(result), style="bold")]
    metrics = result.get("metrics") or {}
    if metrics:
        parts += [Text(), _metrics(metrics)]
    parts += [Text(), _parties(result), Text(), _facts(result)]
    return Group(*parts)


def metric_words(metrics: Mapping[str, Mapping[str, float]]) -> str:
    """``train auc 0.8431, validation auc 0.8012``; empty where nothing was told."""
    return ", ".join(
        f"{split} {name} {units.measured(value)}"
        for split in in_order(metrics)
        for name, value in metrics[split].items()
    )


def printable(text: str) -> str:
    """Somebody else's words, without what a terminal would obey."""
    return "".join(mark for mark in str(text)[:TEXT_CHARS_MAX] if mark.isprintable())


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


def _metrics(metrics: Mapping[str, Mapping[str, float]]) -> Table:
    splits = in_order(metrics)
    table = _table(["metric"], splits)
    for name in dict.fromkeys(name for split in splits for name in metrics[split]):
        values = (metrics[split].get(name) for split in splits)
        shown = [units.NOTHING if value is None else units.measured(value) for value in values]
        table.add_row(Text(printable(name)), *(Text(value) for value in shown))
    return table


def _parties(result: Mapping[str, Any]) -> Table:
    """Processor time, peak memory and bytes of each party."""
    cpu = result.get("cpu_seconds") or {}
    memory = result.get("memory_peak_bytes") or {}
    sent: dict[str, int] = {}
    received: dict[str, int] = {}
    for link, count in (result.get("bytes") or {}).items():
        sender, _, receiver = link.partition("->")
        sent[sender] = sent.get(sender, 0) + count
        received[receiver] = received.get(receiver, 0) + count
    table = _table(["party"], ["processor time", "peak memory", "sent", "received"])
    for party in dict.fromkeys([*cpu, *memory, *sent, *received]):
        table.add_row(
            Text(printable(party)),
            units.in_seconds(cpu[party]) if party in cpu else units.NOTHING,
            units.in_bytes(memory[party]) if party in memory else units.NOTHING,
            units.in_bytes(sent.get(party, 0)),
            units.in_bytes(received.get(party, 0)),
        )
    return table


def _facts(result: Mapping[str, Any]) -> Table:
    seconds = units.told_seconds(result.get("seconds") or {})
    rows = result.get("rows") or {}
    lines = [
        ("rows", ", ".join(f"{units.in_count(rows[name])} {name}" for name in rows)),
        ("lost", ", ".join(result.get("lost") or ())),
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


def _table(texts: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    for head in texts:
        table.add_column(Text(printable(head)))
    for head in numbers:
        table.add_column(Text(printable(head)), justify="right")
    return table
