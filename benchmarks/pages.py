"""Fills the claims and tables of docs/benchmarks/ with measured figures.

A page has a block of claims, perhaps one of a record's tables, and words by hand. What a claim says
stands in docs/benchmarks/claims.yaml; the figure stands in docs/benchmarks/data/, as `--record`
wrote it.

python -m benchmarks.federboost --record docs/benchmarks/data/federboost.json && make docs
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.rows import Shown
from fedboost.ground.settings import read_yaml

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "benchmarks"
BLOCK = re.compile(r"(<!-- generated: claims -->\n).*?(<!-- end -->)", re.DOTALL)
TABLES = re.compile(r"(<!-- generated: tables of (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
HEADS = ("what", "measured", "target", "paper", "command")
GIB = 1 << 30


@dataclass(frozen=True)
class Claim:
    """A row of a page's table of claims."""

    what: str
    figures: Sequence[str]  # by the names of the record
    target: str = ""
    paper: str = ""
    digits: int = 3
    record: str = ""  # of another run than the page's own
    part: str = ""  # of the command

    def row(self, page: str) -> tuple[str, ...]:
        """Return the cells of the table; a KeyError where the record lacks a figure."""
        found = record(self.record or page)["figures"]
        numbers = [f"{found[name]:.{self.digits}f}" for name in self.figures]
        command = f"`python -m benchmarks.{page}{self.part and ' ' + self.part}`"
        return (self.what, ", ".join(numbers), self.target, self.paper, command)


def write() -> None:
    """Write the blocks of all pages."""
    for page in pages():
        page.write_text(filled(page), encoding="utf-8")


def pages() -> list[Path]:
    """Return the pages that have claims."""
    return [FOLDER / f"{name}.md" for name in claims()]


def claims() -> Mapping[str, list[Claim]]:
    """Return the claims by the name of their page."""
    found: Any = read_yaml(FOLDER / "claims.yaml")
    return {name: [Claim(**one) for one in own] for name, own in found.items()}


def record(name: str) -> dict[str, Any]:
    """Return what a benchmark's `--record` wrote."""
    found: dict[str, Any] = json.loads((FOLDER / "data" / f"{name}.json").read_text("utf-8"))
    return found


def filled(page: Path) -> str:
    """Return a page's text with its claims as they are measured now."""
    block = "\n".join(_block(page.stem))
    text, count = BLOCK.subn(
        lambda found: f"{found[1]}{block}\n{found[2]}", page.read_text("utf-8")
    )
    if count != 1:
        raise ValueError(f"{page.name} has no place for its claims")
    return TABLES.sub(lambda found: f"{found[1]}{_tables(found[2])}{found[3]}", text)


def _tables(name: str) -> str:
    """Return a record's tables, and where they were measured."""
    found = record(name)
    drawn = [Shown(**table).markdown() for table in found["tables"]]
    where = f"Measured on {_machine(found['machine'])}: [{name}.json](data/{name}.json).\n"
    return "\n".join([*drawn, where])


def _block(page: str) -> Iterator[str]:
    own = claims()[page]
    rows = [one.row(page) for one in own]
    kept = [place for place, _ in enumerate(HEADS) if any(row[place] for row in rows)]
    heads = tuple(HEADS[place] for place in kept)
    cells = [tuple(row[place] for place in kept) for row in rows]
    yield Shown("", heads, cells).markdown().split("\n\n", 1)[1].rstrip()
    yield ""
    names = list(dict.fromkeys(one.record or page for one in own))
    yield (
        f"Measured on {_machine(record(names[0])['machine'])}. All rows: "
        + ", ".join(f"[{name}.json](data/{name}.json)" for name in names)
        + "."
    )


def _machine(facts: Mapping[str, Any]) -> str:
    """Say on what was measured, in a few words."""
    memory = int(facts["memory"]) / GIB
    return f"{facts['cores']} cores ({facts['model']}), {memory:.0f} GiB, Python {facts['python']}"
