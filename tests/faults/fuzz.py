"""`python -m tests.faults.fuzz`: every decoder for minutes, on inputs that coverage leads to.

atheris (libFuzzer) is needed: `make fuzz` installs it. What has been tried lies in `.fuzz/` and is
gone on from; an input that breaks a decoder stays there and is named.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.__main__ import ROOT, shard_of

KEPT = ROOT / ".fuzz"
AT_ONCE = 2  # decoders
MINUTES = 10.0
INPUT_BYTES_MAX = 16_384
INPUT_S_MAX = 20  # whoever reads one for longer hangs
MEMORY_MB_MAX = 4096
# What is led by coverage; kernels of numba are compiled from code that has no counters in it.
OURS = ["data", "errors", "job", "model", "report", "runtime", "settings", "wire"]
COMPILED = ["fedboost.data.frame"]
WORDS = re.compile(rb"[A-Za-z_][A-Za-z0-9_.-]{2,31}")
WORDS_MAX = 500  # of the samples: the fuzzer puts them elsewhere
EXECUTED = re.compile(r"number_of_executed_units: (\d+)")
EDGES = re.compile(r"cov: (\d+)")
LINES_SHOWN = 25  # of what a broken decoder has said


@dataclass(frozen=True)
class Fuzzed:
    """How a decoder came out."""

    name: str
    inputs: int
    edges: int
    seconds: float
    broken: str  # what it has said, if it is

    def __str__(self) -> str:
        found = "1 failed" if self.broken else "passed"
        return f"{self.name:<18} {self.inputs:>12,} {self.edges:>7} {self.seconds:>8.0f}  {found}"


def fuzzed(name: str, seconds: float) -> Fuzzed:
    """One decoder, in a process of its own: it ends at the first input that breaks it."""
    started = time.monotonic()
    command = [sys.executable, "-m", "tests.faults.fuzz", "--feed", name, "--seconds", str(seconds)]
    ran = subprocess.run(
        command, cwd=ROOT, text=True, errors="replace", check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    said = ran.stdout
    inputs, edges = EXECUTED.findall(said), EDGES.findall(said)
    lines = [line for line in said.splitlines() if not line.startswith(("#", "INFO", "stat::"))]
    return Fuzzed(
        name,
        int(inputs[-1]) if inputs else 0,
        int(edges[-1]) if edges else 0,
        time.monotonic() - started,
        "\n".join(lines[-LINES_SHOWN:]) if ran.returncode else "",
    )


def feed(name: str, seconds: float) -> None:
    """Feeds a decoder in this process, and ends it."""
    import atheris

    ours = [f"fedboost.{part}" for part in OURS]
    with atheris.instrument_imports(include=ours, exclude=COMPILED, enable_loader_override=False):
        from tests.support.decoders import DECODERS

    kept = KEPT / name.replace(" ", "-")
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        decoder = DECODERS[name](Path(folder))
        for number, sample in enumerate(decoder.samples):
            (kept / f"sample-{number}").write_bytes(sample)
        options: dict[str, Any] = {
            "max_total_time": round(seconds),
            "max_len": max(INPUT_BYTES_MAX, *(2 * len(one) for one in decoder.samples)),
            "timeout": INPUT_S_MAX,
            "rss_limit_mb": MEMORY_MB_MAX,
            "print_final_stats": 1,
            "artifact_prefix": f"{kept}.",
        }
        if words := dictionary(decoder.samples):
            options["dict"] = kept.with_suffix(".words")
            options["dict"].write_text(words)
        given = [f"-{option}={value}" for option, value in options.items()]
        atheris.Setup([name, str(kept), *given], decoder.survives)
        atheris.Fuzz()  # does not come back


def dictionary(samples: tuple[bytes, ...]) -> str:
    """The words of texts, one a line, as libFuzzer reads them."""
    found = {word for sample in samples for word in WORDS.findall(sample)}
    return "".join(f'"{word.decode()}"\n' for word in sorted(found)[:WORDS_MAX])


def names() -> list[str]:
    """Of all decoders."""
    from tests.support.decoders import DECODERS

    return list(DECODERS)


def main() -> int:
    """Feeds what was asked for, a line for each when it is done; 1 where one broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for each")
    parser.add_argument("--shard", type=shard_of, default="1/1", help="I/N: the I-th of N parts")
    parser.add_argument("--decoder", action="append", help="only this one")
    parser.add_argument("--feed", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.feed is not None:
        feed(asked.feed, asked.seconds)
    place, shards = map(int, asked.shard.split("/"))
    mine = (asked.decoder or names())[place - 1 :: shards]
    say = sys.stdout.write
    say(f"{'decoder':<18} {'inputs':>12} {'edges':>7} {'seconds':>8}\n")
    broken = 0
    with ThreadPoolExecutor(min(AT_ONCE, os.cpu_count() or 1)) as pool:
        for done in as_completed(pool.submit(fuzzed, one, 60 * asked.minutes) for one in mine):
            own = done.result()
            say(f"{own}\n{own.broken and own.broken + chr(10)}")
            sys.stdout.flush()
            broken += bool(own.broken)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
