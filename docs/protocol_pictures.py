"""Pictures of protocols: who sends what in which order, and what leaves a party.

They come from the walks, the tables of steps and the comments `Reveals:` of the messages, so they
change with the code. `make docs` writes them into docs/pictures/.
"""

from __future__ import annotations

import asyncio
import re
import textwrap
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from fedboost import protocols
from fedboost.encrypted.scheme import choice
from fedboost.encrypted.scheme.params import Encryption
from fedboost.flow import (
    AGGREGATOR,
    GUEST,
    HOST,
    CheckpointPolicy,
    Protocol,
    Role,
    Run,
    Step,
    Table,
)
from fedboost.messages.reveals import REVEALS

FOLDER = Path(__file__).resolve().parent / "pictures"
# The colours and classes that all drawings share.
STYLE = re.search(
    r"<style>.*?</style>", (FOLDER / "what-crosses-the-wire.svg").read_text(), re.DOTALL
)
WIDTH, MARGIN, TOP, MESSAGE, LOCAL, LOOP = 900, 24, 84, 54, 38, 24
END = 14  # below the last line of a loop
COLUMNS = {2: (250, 650), 3: (180, 450, 720)}
NAMES = {GUEST: "guest", HOST: "each host", AGGREGATOR: "aggregator"}
BOXES = {GUEST: "guest", HOST: "host", AGGREGATOR: "host2"}
LOOPS = {"quantiles": "probe for cut points"}  # names that say little by themselves
LEAVING = "secureboost"  # whose host's messages are drawn


@dataclass
class Loop:
    """A loop of a walk: its name, and where it begins and ends among the rows."""

    name: str
    depth: int
    first: int
    end: int = 0


@dataclass
class Recorder(Run):
    """A coordinator that writes down the steps of a walk.

    It goes through each loop twice and keeps the first time: a step that is missing the second
    time belongs to the first round alone.
    """

    params: Any
    table: Table
    steps: list[Step] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    once: dict[int, str] = field(default_factory=dict)  # steps of a loop's first round alone
    depth: int = 0

    def __call__(self, *steps: Step, **_: Any) -> Awaitable[None]:
        """Write the steps down."""
        self.steps += steps
        return asyncio.sleep(0)

    def keep(self, keeps: CheckpointPolicy = CheckpointPolicy.NOW_AND_THEN) -> None:
        """Do nothing: a picture shows no checkpoints."""

    def rounds(
        self, name: str, most: int, *, keeps: CheckpointPolicy | None = None
    ) -> Iterator[int]:
        """Go through the loop, and remember which rows it has."""
        loop = Loop(LOOPS.get(name, name), self.depth, len(self.steps))
        self.loops.append(loop)
        self.depth += 1
        yield 0
        loop.end, loops = len(self.steps), len(self.loops)
        yield 1
        self.depth -= 1
        again = self.steps[loop.end :]
        del self.steps[loop.end :], self.loops[loops:]
        self.once = {n: says for n, says in self.once.items() if n < loop.end}
        for number, step in enumerate(self.steps[loop.first :], start=loop.first):
            if step not in again:
                self.once[number] = f"first {loop.name}"


def pictures() -> dict[str, str]:
    """Return each picture by its file's name."""
    drawn = {f"flow-{name}.svg": _flow(one) for name, one in sorted(protocols.load_all().items())}
    return {**drawn, f"leaves-{LEAVING}.svg": _leaves(protocols.load_protocol(LEAVING))}


def _recorded(protocol: Protocol) -> Recorder:
    """Return the steps of a job with default parameters and two hosts."""
    params = protocol.params.model_construct(split="scored")
    if choice.is_open(params):
        chosen = Encryption(scheme=choice.choose_scheme(params, {}).scheme)
        params = params.model_copy(update={"encryption": chosen})
    run = Recorder(params, Table("guest", ("first", "last"), "aggregator"))

    async def walk() -> None:
        await protocol.walk(run)

    asyncio.run(walk())
    return run


def _flow(protocol: Protocol) -> str:
    """Draw the steps and messages of a protocol from top to bottom."""
    run = _recorded(protocol)
    held = {role for step in run.steps for role in step.roles}
    roles = [role for role in Role if role in held]
    where = dict(zip(roles, COLUMNS[max(len(roles), 2)], strict=False))
    shown = [n for n, step in enumerate(run.steps) if step.gives or not step.takes]
    tops, bottom = _heights(run, shown)
    parts = [_boxes(run, tops, bottom)]
    parts += [_lifeline(role, x, bottom) for role, x in where.items()]
    for number in shown:
        step, y = run.steps[number], tops[number]
        if step.gives is None:
            parts += [_local(step, where[role], y) for role in step.roles]
        else:
            taker = _taker(run.steps, number)
            says = ", ".join(["in parts"] * step.streams + [run.once.get(number, "")]).strip(", ")
            parts.append(_message(protocol.name, (step, taker), says, where, y))
    title = f"{protocol.name}: steps and messages, with default parameters"
    return _svg(f"flow-{protocol.name}", title, parts, bottom)


def _heights(run: Recorder, shown: list[int]) -> tuple[list[float], float]:
    """Return the height of each step's line, and where the picture ends."""
    y, tops = float(TOP), []
    for number, step in enumerate(run.steps):
        y += LOOP * sum(loop.first == number for loop in run.loops)
        y += END * sum(loop.end == number for loop in run.loops)
        is_shown = number in shown
        y += (MESSAGE if step.gives else LOCAL) if is_shown else 0
        tops.append(y)
    return tops, y + END * sum(loop.end == len(run.steps) for loop in run.loops) + 36


def _taker(steps: list[Step], number: int) -> Step | None:
    """Return the next step that takes the message; where there is none, the first one."""
    kind = steps[number].gives
    later = [*steps[number + 1 :], *steps[: number + 1]]
    return next((step for step in later if step.takes is kind), None)


def _boxes(run: Recorder, tops: list[float], bottom: float) -> str:
    """Draw a frame around each loop, with its name."""
    drawn = []
    for loop in run.loops:
        if loop.end == loop.first:
            continue
        step = run.steps[loop.first]
        first = MESSAGE if step.gives else LOCAL if not step.takes else 0
        inner = sum(one.first == loop.first and one.depth > loop.depth for one in run.loops)
        top = tops[loop.first] - first - LOOP * (inner + 1) + 24
        within = sum(one.end == loop.end and one.depth > loop.depth for one in run.loops)
        end = tops[loop.end - 1] + 22 + 8 * within
        x = MARGIN + 12 * loop.depth
        drawn.append(
            f'<rect x="{x}" y="{top:g}" width="{WIDTH - 2 * x}" height="{end - top:g}" rx="6" '
            f'class="none"/><text x="{x + 10}" y="{top + 17:g}" class="small bold">'
            f"for each {escape(loop.name)}</text>"
        )
    return "\n".join(drawn)


def _lifeline(role: Role, x: float, bottom: float) -> str:
    """Draw a role's box and the line below it."""
    box = BOXES[role]
    return (
        f'<rect x="{x - 80}" y="50" width="160" height="32" rx="8" class="{box}"/>'
        f'<text x="{x}" y="71" class="bold mid t{box}">{NAMES[role]}</text>'
        f'<path d="M{x} 82L{x} {bottom - 12:g}" class="wire dash"/>'
    )


def _local(step: Step, x: float, y: float) -> str:
    """Draw a step that sends nothing."""
    wide = 7.2 * len(step.name) + 16
    return (
        f'<rect x="{x - wide / 2:g}" y="{y - 16:g}" width="{wide:g}" height="20" rx="4" '
        f'class="box"/><text x="{x}" y="{y - 2:g}" class="mono mid">{step.name}</text>'
    )


def _message(
    name: str, steps: tuple[Step, Step | None], says: str, where: dict[Role, float], y: float
) -> str:
    """Draw an arrow from those who give a message to those who take it."""
    step, taker = steps
    assert step.gives is not None
    givers = [where[role] for role in step.roles]
    takers = [where[role] for role in (taker.roles if taker else ())]
    label = f"{step.name} → {taker.name}" if taker else step.name
    wire = {GUEST: "guest", HOST: "host"}.get(step.roles[0], "soft")
    wire = "soft" if len(step.roles) > 1 else wire
    line, arrow = ("wire" if wire == "soft" else f"w{wire}"), f"url(#flow-{name}-{wire})"
    if givers == takers and len(givers) == 1:  # from one host to the next
        x = givers[0]
        path = f"M{x + 4} {y - 10:g}h70v16h-64"
        drawn = [f'<path d="{path}" class="{line}" marker-end="{arrow}"/>']
        middle = x + 150
    else:
        drawn = [_arrow(givers, x, y, f'class="{line}" marker-end="{arrow}"') for x in takers]
        middle = (min(givers + takers) + max(givers + takers)) / 2
        if len(where) == 3 and min(givers + takers) == min(where.values()):
            middle = (where[GUEST] + where[HOST]) / 2
    drawn += [f'<circle cx="{x}" cy="{y:g}" r="3.5" style="fill:var(--soft)"/>' for x in givers]
    kind = step.gives.DESCRIPTOR.name + (f" ({says})" if says else "")
    drawn.append(f'<text x="{middle:g}" y="{y - 7:g}" class="bold mid">{kind}</text>')
    drawn.append(f'<text x="{middle:g}" y="{y + 14:g}" class="small mid">{label}</text>')
    return "\n".join(drawn)


def _arrow(givers: list[float], taker: float, y: float, style: str) -> str:
    """Draw a line from the giver farthest away to a taker."""
    start = max(givers, key=lambda x: abs(x - taker))
    end = taker - 6 if start < taker else taker + 6
    return f'<path d="M{start} {y:g}L{end} {y:g}" {style}/>'


def _leaves(protocol: Protocol) -> str:
    """Draw what leaves a host: each message, what it reveals, and how it is protected."""
    y, parts = 100.0, []
    stages = [protocols.load_protocol(name) for name in (*protocol.before, protocol.name)]
    for stage in stages:
        parts.append(f'<text x="250" y="{y:g}" class="head">{stage.name}</text>')
        y += 14
        kinds = dict.fromkeys(
            s.gives for s in _recorded(stage).steps if s.gives and HOST in s.roles
        )
        for kind in kinds:
            reveals, protected = REVEALS[kind.DESCRIPTOR.full_name]
            says = [*_wrapped("Reveals", reveals), *_wrapped("Protected", protected)]
            high = 30 + 15 * len(says)
            parts.append(_leaving(kind.DESCRIPTOR.name, says, y, high))
            y += high + 12
        y += 18
    bottom = y
    host = (
        f'<rect x="24" y="60" width="180" height="{bottom - 84:g}" rx="8" class="host"/>'
        '<text x="114" y="86" class="bold thost mid">a host</text>'
        '<text x="114" y="106" class="small mid">rows, values, column names</text>'
        '<text x="114" y="122" class="small mid">and thresholds stay here</text>'
    )
    title = f"What leaves a host of {protocol.name}"
    return _svg(f"leaves-{protocol.name}", title, [host, *parts], bottom)


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(f"{head}: {text.replace('`', '')}", 96)


def _leaving(name: str, says: list[str], y: float, high: float) -> str:
    lines = "".join(
        f'<text x="264" y="{y + 36 + 15 * n:g}" class="small">{escape(line)}</text>'
        for n, line in enumerate(says)
    )
    return (
        f'<path d="M204 {y + 20:g}L246 {y + 20:g}" class="whost" '
        f'marker-end="url(#leaves-{LEAVING}-host)"/>'
        f'<rect x="250" y="{y:g}" width="626" height="{high:g}" rx="8" class="box"/>'
        f'<text x="264" y="{y + 19:g}" class="bold thost">{name}</text>{lines}'
    )


def _svg(name: str, title: str, parts: list[str], height: float) -> str:
    """Return the file, in the colours of all drawings."""
    assert STYLE is not None
    markers = "".join(
        f'<marker id="{name}-{colour}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        f'markerHeight="7" orient="auto-start-reverse"><path d="M0 0.8L9.5 5L0 9.2z" '
        f'style="fill:var(--{colour})"/></marker>'
        for colour in ("guest", "host", "soft")
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" '
        f'width="{WIDTH}" height="{height:g}" class="fb-drawing" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>{STYLE[0]}'
        f"<defs>{markers}</defs>"
    )
    ground = f'<rect width="{WIDTH}" height="{height:g}" rx="10" class="page"/>'
    said = f'<text x="24" y="34" class="head">{escape(title)}</text>'
    return "\n".join([head, ground, said, *parts, "</svg>", ""])
