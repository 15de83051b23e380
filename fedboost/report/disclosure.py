"""Messages of a job by receiver, described in the words of their definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from fedboost.messages.reveals import REVEALS
from fedboost.report import units
from fedboost.report.charts import Bar, bar_list
from fedboost.report.html import Html, join, tag
from fedboost.report.steps import step_title
from fedboost.report.story import COLOURS, PartyLink, StepTotal, Story, Traffic, known_protocol
from fedboost.report.tables import (
    Band,
    Column,
    TableRow,
    absence_note,
    html_table,
    listed_names,
    section,
)

UNKNOWN_MESSAGE = (
    "not known to this version of fedboost.",
    "not known to this version of fedboost.",
)

BARE = "the job's scheme hides nothing: all values that it encrypted were readable"


class LedgerLine(Protocol):
    """A row of a party's disclosure ledger, as the report shows it."""

    @property
    def direction(self) -> str:
        """`out` or `in`."""

    @property
    def kind(self) -> str:
        """The message's full name."""

    @property
    def peer(self) -> str:
        """Receiver or sender."""

    @property
    def bytes(self) -> int:
        """Size of the payload."""

    @property
    def values(self) -> int:
        """Number of values, ids or ciphertexts in it."""


@dataclass
class Disclosed:
    """All messages of one kind."""

    kind: str  # the full name; empty where the step is not known
    stage: str
    step: str  # that gave the first of them
    links: dict[PartyLink, Traffic] = field(default_factory=dict)


def disclosed_kinds(story: Story) -> list[Disclosed]:
    """Return every kind of message that was sent, in order of first appearance."""
    by_kind: dict[str, Disclosed] = {}
    for step in story.steps:
        if not step.sent:
            continue
        kind = _message_kind(step)
        message = by_kind.setdefault(
            kind or f"{step.stage} {step.step}", Disclosed(kind, step.stage, step.step)
        )
        for link, sent in step.sent.items():
            message.links.setdefault(link, Traffic()).add(sent.bytes, sent.messages)
    return list(by_kind.values())


def disclosure_section(story: Story, ledger: Sequence[LedgerLine]) -> Html:
    """Return the kinds of messages, the coordinator's reports, and a party's own ledger."""
    title = "Who learned what"
    rows: list[TableRow] = []
    stage = ""
    for message in disclosed_kinds(story):
        if message.stage != stage:
            stage = message.stage
            rows.append(Band(stage))
        reveals, protected = REVEALS.get(message.kind, UNKNOWN_MESSAGE)
        rows.append(
            [
                _message_name(message),
                _sentence(reveals),
                protection(protected),
                _senders_and_receivers(message.links),
                units.in_count(sum(sent.messages for sent in message.links.values())),
                units.in_bytes(sum(sent.bytes for sent in message.links.values())),
            ]
        )
    heads, numbers = ["message", "reveals", "protected", "from → to"], ["messages", "bytes"]
    if rows:
        drawn = html_table("Messages between parties", heads, rows, numbers=numbers, folds=True)
    else:
        drawn = absence_note("No message was sent from party to party.")
    intro = (
        "In addition to the agreed result. Every link is encrypted, and both ends show a "
        "certificate; “protected” says what hides a message from its receiver."
    )
    bare = tag("p", protection(f"not at all: {BARE}.")) if story.hides_nothing else join()
    parts = (
        bare,
        drawn,
        _sums_part(story),
        _noise_part(story),
        _reports_part(story),
        _ledger_part(ledger),
    )
    return section("disclosure", title, *parts, intro=intro)


def _sums_part(story: Story) -> Html:
    """Show the hosts' sums about a single bin, beside the limits of their owners."""
    if not story.told.released:
        return join()
    ended = story.result is not None
    rows: list[TableRow] = []
    for sums in story.told.released:
        total = sums.before + (sums.counted if ended else sums.planned)
        limits = (("warned above", sums.warn), ("refused above", sums.max))
        group = [Bar(total, story.colour_of(sums.party), f"{total:.3f}")]
        group += [Bar(limit, COLOURS, f"{what} {limit:g}") for what, limit in limits if limit < inf]
        rows.append(
            [
                sums.party,
                f"{sums.planned:.3f}",
                f"{sums.counted:.3f}" if ended else units.NOTHING,
                f"{sums.before:.3f}" if sums.before else units.NOTHING,
                f"{sums.placed.counted if ended else sums.placed.planned:.0%}",
                bar_list(group, max(bar.value for bar in group)),
            ]
        )
    counts = ("planned", "counted", "by earlier jobs", "rows an attack could place")
    heads = [Column("sums of"), *(Column(head, "number") for head in counts)]
    heads.append(Column("in all, and the limits", "wide"))
    note = (
        "The guest knows every gradient, so each sum that a host releases is an equation about who "
        "is in a bin. We count the sums for a bin of the host's most used column, divided by "
        "its training rows: more sums reveal more rows. A cheating guest reads more from a sum "
        "and could find the bins of at most the given share of "
        "rows."
    )
    drawn = html_table("Released sums per bin and row", heads, rows, folds=True)
    return join(drawn, tag("p", note, class_="note"))


def _noise_part(story: Story) -> Html:
    """Show the bound on the information in noisy values, per value and per row."""
    if not story.told.privacy:
        return join()
    rows: list[TableRow] = [
        [
            bound.party,
            f"{bound.epsilon_element:g}" if bound.noise else "no bound",
            f"{bound.epsilon_row:g}" if bound.noise else "no bound",
            f"{bound.moved:.1%}",
        ]
        for bound in story.told.privacy
    ]
    numbers = ["ε per value", "ε per row", "changed by noise"]
    return html_table(
        "Local differential privacy, given the cut points", ["values of"], rows, numbers=numbers
    )


def _message_kind(step: StepTotal) -> str:
    protocol = known_protocol(step.stage)
    known = protocol.step(step.step) if protocol is not None else None
    return known.gives.DESCRIPTOR.full_name if known is not None and known.gives is not None else ""


def _message_name(message: Disclosed) -> Html:
    if not message.kind:
        return join("of ", tag("span", step_title(message.step), title=message.step))
    return tag("span", message.kind.rpartition(".")[2], class_="kind", title=message.kind)


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def protection(words: str) -> Html:
    """Return the sentence; mark messages whose receiver can read them."""
    if words.startswith("not at all"):
        reason = words.removeprefix("not at all").strip(" ,.")
        return join(tag("span", "in the clear", class_="pill"), f" {reason}" if reason else "")
    return join(_sentence(words))


def _senders_and_receivers(links: Mapping[PartyLink, Traffic]) -> Html:
    """Return senders and receivers; senders with the same receivers share a line."""
    receivers: dict[str, list[str]] = {}
    for link in links:
        receivers.setdefault(link.sender, []).append(link.receiver)
    senders: dict[tuple[str, ...], list[str]] = {}
    for sender, reached in receivers.items():
        senders.setdefault(tuple(reached), []).append(sender)
    lines = [f"{listed_names(who)} → {listed_names(reached)}" for reached, who in senders.items()]
    return join(*(tag("span", line, class_="way") for line in lines))


def _reports_part(story: Story) -> Html:
    values = sum(len(summary.metrics) for summary in story.rounds)
    used = len(story.told.importance)
    parts = [
        units.plural(values, "metric value") if values else "",
        units.plural(len(story.told.curves), "curve") if story.told.curves else "",
        units.plural(len(story.told.counts), "row or tree count") if story.told.counts else "",
        units.plural(used, "importance value") if used else "",
    ]
    words = [part for part in parts if part]
    listed = "only the steps done, with their seconds and bytes"
    if words:
        listed = ", ".join(words) + ", and every step's seconds and bytes"
    return tag(
        "p",
        tag("b", "The coordinator "),
        f"received {listed}. Data, keys and ciphertexts never pass through it.",
    )


def _ledger_part(ledger: Sequence[LedgerLine]) -> Html:
    """Show one party's own record, by direction, message and peer."""
    if not ledger:
        return join()
    totals: dict[tuple[str, str, str], list[int]] = {}
    for line in ledger:
        total = totals.setdefault((line.direction, line.kind, line.peer), [0, 0, 0])
        for place, amount in enumerate((1, line.values, line.bytes)):
            total[place] += amount
    rows: list[TableRow] = [
        [
            kind.removeprefix("fedboost."),
            f"to {peer}" if direction == "out" else f"from {peer}",
            units.in_count(messages),
            units.in_count(values),
            units.in_bytes(size),
        ]
        for (direction, kind, peer), (messages, values, size) in totals.items()
    ]
    heads, numbers = ["message", "direction"], ["messages", "values", "bytes"]
    return html_table("From this party's own disclosure ledger", heads, rows, numbers=numbers)
