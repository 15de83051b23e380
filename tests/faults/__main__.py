"""`python -m tests.faults`: every family of faults in full, a line for each when it is done."""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.progress import Progress

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PREFIX = "test_family_"
AT_ONCE = 2  # families; one waits for daemons while another computes
LONGEST = (
    "schedules",
    "adversary",
    "kills",
    "kills_simulated",
    "messages",
    "links",
    "outage",
)  # first
LINES_KEPT = 40  # of what a family that cannot even begin has said
SO_FAR = re.compile(r"\[ *(\d+)%\]$")  # behind a line of dots
# What drills print, by what they measure: the worst of each stands in the family's line.
MEASURED = {
    "detect": re.compile(r"detect ([0-9.]+) s"),
    "resume": re.compile(r"resume ([0-9.]+) s"),
    "lost layers": re.compile(r"lost layers ([0-9]+)"),
}


@dataclass
class Family:
    """How the cases of one family came out."""

    name: str
    cases: int = 0
    passed: int = 0
    seconds: float = 0.0
    failed: list[str] = field(default_factory=list)
    worst: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        worst = ", ".join(f"{name} ≤ {value:g}" for name, value in self.worst.items())
        line = f"{self.name:<14} {self.cases:>7} {self.passed:>7} {self.seconds:>8.0f}"
        return f"{line}  {worst}".rstrip()


def families() -> list[str]:
    """The names of all families, in the order in which they are begun."""
    names = sorted(path.stem.removeprefix(PREFIX) for path in HERE.glob(f"{PREFIX}*.py"))
    return sorted(names, key=lambda name: LONGEST.index(name) if name in LONGEST else len(LONGEST))


def run(name: str, shard: str, progress: Progress) -> Family:
    """Runs one family, the tests that take minutes too."""
    started, task = time.monotonic(), progress.add_task(name, total=100)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--long", f"--shard={shard}"]
        command += [f"--junitxml={report}", "-o", "junit_logging=system-out"]
        command.append(str(HERE / f"{PREFIX}{name}.py"))
        said: deque[str] = deque(maxlen=LINES_KEPT)
        with subprocess.Popen(
            command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as running:
            assert running.stdout is not None
            for line in running.stdout:
                said.append(line)
                if done := SO_FAR.search(line):
                    progress.update(task, completed=int(done[1]))
        family = read(name, report) if report.exists() else Family(name)
    progress.remove_task(task)
    if not family.cases and running.returncode not in (0, 5):  # 5: a shard without a test of it
        family.failed.append("".join(said))
    family.seconds = time.monotonic() - started
    return family


def read(name: str, report: Path) -> Family:
    """What pytest has written of a family's cases."""
    family = Family(name)
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        family.cases += 1
        if case.find("failure") is None and case.find("error") is None:
            family.passed += 1
        else:
            family.failed.append(case.get("name", ""))
        said = case.findtext("system-out") or ""
        for what, pattern in MEASURED.items():
            found = [family.worst.get(what, 0.0), *map(float, pattern.findall(said))]
            if len(found) > 1:
                family.worst[what] = max(found)
    return family


def shard_of(text: str) -> str:
    """I/N with 1 <= I <= N."""
    place, shards = map(int, text.split("/"))
    if not 1 <= place <= shards:
        raise ValueError
    return text


def main() -> int:
    """Runs what was asked for; 1 where a case has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--shard", type=shard_of, default="1/1", help="I/N: the I-th of N parts")
    parser.add_argument("--family", choices=families(), action="append", help="only this one")
    asked = parser.parse_args()
    say = sys.stdout.write
    say(f"{'family':<14} {'cases':>7} {'passed':>7} {'seconds':>8}\n")
    failed: list[str] = []
    shown = Progress(console=Console(stderr=True), transient=True)
    with shown, ThreadPoolExecutor(AT_ONCE) as pool:
        names = asked.family or families()
        running = [pool.submit(run, name, asked.shard, shown) for name in names]
        for done in as_completed(running):
            family = done.result()
            say(f"{family}\n")
            for case in family.failed:
                say(f"  failed: {case}\n")
            sys.stdout.flush()
            failed += family.failed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
