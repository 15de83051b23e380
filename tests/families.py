"""`python -m tests.families`: the table of the page of tests, counted by collecting every tier.

With the report of a run (`--junitxml`), its seconds are written anew, too. The
table of what is known lies in the document: a test holds the run's own column to it.
"""

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from xml.etree import ElementTree

from tests.tiers import Tier

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "development" / "tests.md"
BLOCK = re.compile(r"(<!-- generated: families -->\n).*?(<!-- end -->)", re.DOTALL)
COUNTED = re.compile(r"^(tests/\S+\.py): (\d+)$", re.MULTILINE)
HEAD = (
    "| family | what it protects | `make test` | `make test-all` | `--long` | seconds |\n"
    "| --- | --- | --- | --- | --- | --- |\n"
)
OPTIONS = {Tier.CHANGE: [], Tier.ALL: ["--all"], Tier.LONG: ["--long"]}
# How far a count may be from the table's: `once` needs a case more or less from commit to commit.
SLACK_CASES, SLACK_SHARE = 3, 0.03

UNIT, FAULTS = "tests/unit/", "tests/faults/test_"
# The first family that a file fits is its own.
FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "attacks": ("what nobody may learn, and what must fail", ("tests/attacks/*",)),
    "transcripts": ("who says what to whom, in which order and shape", ("tests/transcripts/*",)),
    "vectors": ("bytes of messages, keys and ciphertexts", ("tests/vectors/*",)),
    "unit: core": ("trees, bins, sums and metrics, beside naive twins", (f"{UNIT}core/*",)),
    "unit: crypto": ("schemes, masks, shares and noise", (f"{UNIT}crypto/*",)),
    "unit: sums and ciphertexts": (
        "`aggregation` and `encrypted`: what is added up, and under what",
        (f"{UNIT}aggregation/*", f"{UNIT}encrypted/*"),
    ),
    "unit: data and models": (
        "tables, ids, shards, exports, audits",
        tuple(f"{UNIT}{name}/*" for name in ("data", "model", "audit")),
    ),
    "unit: protocols": (
        "steps, and what a lying party cannot do in them",
        (f"{UNIT}protocols/*",),
    ),
    "unit: people": (
        "commands, pages, reports, SDK, sweeps, estimates",
        tuple(
            f"{UNIT}{name}/*"
            for name in ("cli", "sdk", "report", "pages", "sweep", "runtime/estimate")
        ),
    ),
    "unit: benchmarks": ("what benchmarks count and draw", (f"{UNIT}benchmarks/*",)),
    "unit: project": (
        "documents, deployment, layers, what starts, and the tests' own tools",
        (f"{UNIT}project/*",),
    ),
    "unit: runtime": (
        "daemons, sessions, walks, stores, ledgers, metrics; messages and settings",
        (f"{UNIT}*",),
    ),
    "equivalence": ("the federated model is the pooled one", ("tests/equivalence/*",)),
    "faults: messages": ("nothing is lost whatever befalls a call", (f"{FAULTS}family_messages*",)),
    "faults: kills, simulated": (
        "nothing is lost whichever daemon dies at whichever write",
        (f"{FAULTS}family_kills_simulated*",),
    ),
    "faults: schedules": ("the same, under faults at random", (f"{FAULTS}family_schedules*",)),
    "faults: adversary": (
        "what leaves a host is charged, allowed and approved, whatever others do",
        (f"{FAULTS}family_adversary*",),
    ),
    "faults: sums": (
        "no combination of sums is about one of two contributors, whoever else lies",
        (f"{FAULTS}family_sums*",),
    ),
    "faults: waits": ("a job left alone waits and goes on", (f"{FAULTS}family_waits*",)),
    "faults: kills": (
        "real daemons die and stop",
        (f"{FAULTS}family_kills.py", f"{FAULTS}family_workers*"),
    ),
    "faults: links": ("real daemons in bad weather", (f"{FAULTS}family_links*",)),
    "faults: outage": ("a host gone for five minutes", (f"{FAULTS}family_outage*",)),
    "faults: mutations": (
        "every spoilt message is refused, and nothing else changes",
        (f"{FAULTS}family_mutations*",),
    ),
    "faults: ciphertexts": ("numbers that are no ciphertexts", (f"{FAULTS}family_ciphertexts*",)),
    "faults: nodes": ("a node goes on after a lie", (f"{FAULTS}family_nodes*",)),
    "faults: data sets": ("odd tables", (f"{FAULTS}family_datasets*",)),
    "faults: disk": ("torn and flipped files", (f"{FAULTS}family_disk*",)),
    "faults: fuzz": ("every decoder reads or refuses", (f"{FAULTS}family_fuzz*",)),
    "faults: others": (
        "lost parties and answers, power cuts, full disks, ledgers that agree",
        (f"{FAULTS}*",),
    ),
    "documents": ("what documents show is done", ("tests/e2e/test_documents*",)),
    "e2e": ("real daemons, commands and browsers", ("tests/e2e/*",)),
}


@dataclass(frozen=True)
class Row:
    """A family in the table."""

    cases: tuple[int, ...] = (0, 0, 0)  # by tier
    seconds: str = "?"  # of processor time, in `make test`


def family_of(path: str) -> str:
    """The family of a test file."""
    return next(
        name
        for name, (_, patterns) in FAMILIES.items()
        if any(fnmatch(path, pattern) for pattern in patterns)
    )


def by_family(paths: Iterable[str]) -> Counter[str]:
    """How many cases each family has, from the file of each case."""
    return Counter(map(family_of, paths))


def collected(tier: Tier) -> Counter[str]:
    """How many cases each family has in a tier, as another process collects them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *OPTIONS[tier]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: Counter[str] = Counter()
    for path, cases in COUNTED.findall(done.stdout):
        found[family_of(path)] += int(cases)
    return found


def measured(report: Path) -> dict[str, float]:
    """Seconds of processor time of each family, from a report in JUnit's format."""
    found = dict.fromkeys(FAMILIES, 0.0)
    for case in ElementTree.parse(report).iter("testcase"):
        path = case.get("classname", "").replace(".", "/") + ".py"
        for noted in case.iter("property"):
            if noted.get("name") == "cpu_s" and path.startswith("tests/"):
                found[family_of(path)] += float(noted.get("value", "0"))
    return found


def known() -> dict[str, Row]:
    """The table as the document has it."""
    found = {}
    for line in BLOCK.search(FILE.read_text(encoding="utf-8"))[0].splitlines():  # type: ignore[index]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] in FAMILIES:
            cases = tuple(int(cell.replace(",", "").replace("–", "0")) for cell in cells[2:5])
            found[cells[0]] = Row(cases, cells[5])
    return found


def written(rows: Mapping[str, Row]) -> str:
    """The document with this table."""
    lines = []
    for name, row in rows.items():
        cases = (f"{count:,}" if count else "–" for count in row.cases)
        lines.append(f"| {name} | {FAMILIES[name][0]} | {' | '.join(cases)} | {row.seconds} |\n")
    whole = [f"{sum(row.cases[tier] for row in rows.values()):,}" for tier in Tier]
    seconds = sum(float(row.seconds) for row in rows.values() if row.seconds != "?")
    lines.append(f"| all | | {' | '.join(whole)} | {seconds:.0f} |\n")
    text = FILE.read_text(encoding="utf-8")
    return BLOCK.sub(lambda found: found[1] + HEAD + "".join(lines) + found[2], text)


def fits(count: int, stands: int) -> bool:
    """Whether a family has as many cases as the table says."""
    return abs(count - stands) <= max(SLACK_CASES, SLACK_SHARE * stands)


def main() -> int:
    """Writes the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.families", description=__doc__)
    parser.add_argument("--measured", type=Path, help="a report that --junitxml has written")
    asked = parser.parse_args()
    tiers = [collected(tier) for tier in Tier]
    before = known()
    rows = {
        name: Row(tuple(tier[name] for tier in tiers), before.get(name, Row()).seconds)
        for name in FAMILIES
    }
    for name, seconds in (measured(asked.measured) if asked.measured else {}).items():
        rows[name] = replace(
            rows[name], seconds=f"{seconds:.1f}" if seconds < 10 else f"{seconds:.0f}"
        )
    FILE.write_text(written(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
