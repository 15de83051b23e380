"""The prices of primitives: ciphers are measured on this machine, the others are typical values.

Prices are processor seconds of one core, the least of a few batches. Ciphers take most of the time
of a long job and differ most between machines; the rest was measured on two cores of an AMD EPYC.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from fedboost.runtime.estimate import price_ciphers
from fedboost.runtime.estimate.phases import ASKED
from fedboost.runtime.estimate.price_ciphers import Batch
from fedboost.runtime.party.job.memory import DAEMON_BYTES

BATCHES = 3  # of each primitive at least
LEAST_S = 0.05  # of processor time, at least
MOST_S = 0.5  # at most; after that one batch is enough

READ_ROW, READ_CELL = "read a row", "read a cell"  # of a party's table, ids hashed
FSYNC = "wait for the disk"
# Of the coordinator's call of a step to all parties; of sender and receiver together.
LEAD, MESSAGE, BYTE = "call a step", "send a message", "send a byte"
JOB = "begin and end a job"  # of a party
DAEMON_MEMORY = "memory of a daemon"  # bytes, with compiled kernels
WORKER = "memory of a worker"  # bytes, besides those that it shares with its daemon
TYPICAL: Mapping[str, float] = {
    READ_ROW: 4e-7, READ_CELL: 3e-8, FSYNC: 5e-4, ASKED: 3e-3, LEAD: 4e-3, MESSAGE: 4e-3,
    BYTE: 1e-8, JOB: 0.1, DAEMON_MEMORY: DAEMON_BYTES, WORKER: 20e6,
}  # fmt: skip


def prices_of(
    names: Iterable[str], say: Callable[[str], None] = lambda _: None
) -> dict[str, float]:
    """Return the prices of these primitives and of all typical ones.

    `say` is called with each cipher that is measured.
    """
    known = dict(TYPICAL)
    for name in sorted(names):
        cipher = name.rpartition(": ")[0]
        if name not in known:
            say(cipher)
            known |= price_ciphers.measure(cipher, time_batch)
    return known


def time_batch(batch: Batch) -> float:
    """Return processor seconds per item, the least of several batches; the first fills caches."""
    started = time.process_time()
    batch()
    if time.process_time() - started > MOST_S:
        return _batch_seconds(batch)
    seconds: list[float] = []
    begun = time.process_time()
    while len(seconds) < BATCHES or time.process_time() - begun < LEAST_S:
        seconds.append(_batch_seconds(batch))
        if time.process_time() - begun > MOST_S:
            break
    return min(seconds)


def _batch_seconds(batch: Batch) -> float:
    started = time.process_time()
    done = batch()
    return (time.process_time() - started) / max(done, 1e-12)
