"""What this machine takes for each primitive: measured when first asked for, then kept.

Processor seconds of one core, the least of a few batches, so that other work on the machine
disturbs little; but with the other cores at work, as they are in a job, since cores share caches
and memory. Kept in ~/.cache/fedboost by machine and version.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedboost import __version__
from fedboost.disk import PUBLIC_MODE, make_folder, write_file
from fedboost.errors import ConfigError, StoreError
from fedboost.runtime.estimate import price_lists
from fedboost.runtime.estimate.price_ciphers import Batch

FORMAT = 2
BATCHES = 3  # of each primitive at least
LEAST_S = 0.05  # of processor time, and at most
MOST_S = 1.5  # once it takes so long, one batch is enough
NEIGHBOUR_CELLS = 1 << 21  # 16 MB, more than a core's own cache


def fingerprint() -> str:
    """Return a hash of the machine and the programs that are measured: others have other prices."""
    facts = [__version__, str(FORMAT), platform.machine(), platform.python_version(), _model()]
    facts.append(str(len(os.sched_getaffinity(0))))
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]


def cache_file(home: Path) -> Path:
    """Return where this machine's prices are kept."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return root / "fedboost" / f"prices-{fingerprint()}.json"


@dataclass
class Prices:
    """Seconds by primitive; `of` measures what is not known yet and keeps it."""

    file: Path | None = None  # None: nothing is kept
    known: dict[str, float] = field(default_factory=dict)
    measured: list[str] = field(default_factory=list)  # by this object, not found in the file

    @classmethod
    def load(cls, file: Path | None, *, anew: bool = False) -> Prices:
        """Read the prices in a file; none where it is absent, damaged or to be measured `anew`."""
        if file is None or anew:
            return cls(file)
        try:
            raw = json.loads(file.read_text())
            known = {str(name): float(price) for name, price in raw.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            known = {}
        return cls(file, known)

    def of(
        self, names: Iterable[str], say: Callable[[str], None] | None = None
    ) -> Mapping[str, float]:
        """Seconds for one of each; a ConfigError for a primitive that nobody can measure."""
        missing = sorted(set(names) - self.known.keys())
        with neighbours(len(os.sched_getaffinity(0)) - 1 if missing else 0):
            for name in missing:
                self._measure(name, say)
        if self.measured and self.file is not None:
            self._keep(self.file)
        return self.known

    def _measure(self, name: str, say: Callable[[str], None] | None) -> None:
        if name in self.known:  # it has come with another one
            return
        if say is not None:
            say(name)
        for other, price in price_lists.measure(name, timed).items():
            self.known[other] = price
            self.measured.append(other)
        if name not in self.known:
            raise ConfigError(f"nobody knows what it takes to {name!r}")

    def _keep(self, file: Path) -> None:
        try:
            make_folder(file.parent)
            write_file(file, json.dumps(self.known, indent=1).encode(), PUBLIC_MODE)
        except StoreError:  # a home that cannot be written to: measured again next time
            return


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Keeps so many cores at work meanwhile."""
    context = multiprocessing.get_context("spawn")
    busy = [context.Process(target=_work, args=(os.getpid(),), daemon=True) for _ in range(count)]
    for one in busy:
        one.start()
    try:
        yield
    finally:
        for one in busy:
            one.terminate()
            one.join()


def _work(parent: int) -> None:
    """Moves numbers through memory, as the parties of a job do, until the parent is gone."""
    cells = np.ones(NEIGHBOUR_CELLS)
    others = np.zeros(NEIGHBOUR_CELLS)
    while os.getppid() == parent:
        np.add(cells, others, out=others)
        np.multiply(cells, 0.5, out=others)


def timed(batch: Batch) -> float:
    """Processor seconds of one, the least of several batches; the first fills tables and caches."""
    started = time.process_time()
    batch()
    if time.process_time() - started > MOST_S:
        started = time.process_time()
        return _seconds(batch)
    found: list[float] = []
    begun = time.process_time()
    while len(found) < BATCHES or time.process_time() - begun < LEAST_S:
        found.append(_seconds(batch))
        if time.process_time() - begun > MOST_S:
            break
    return min(found)


def _seconds(batch: Batch) -> float:
    started = time.process_time()
    done = batch()
    return (time.process_time() - started) / max(done, 1e-12)


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("model name")), "")
