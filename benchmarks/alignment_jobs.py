"""The jobs of the alignment benchmark: sets of ids, daemons that align them, and what they take."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from nacl.bindings import crypto_scalarmult
from numpy.typing import NDArray

from benchmarks import harness, links
from benchmarks.links import Link
from benchmarks.tables import GUEST, HOST
from fedboost.crypto import id_digests
from fedboost.data.ids import encode_ids
from fedboost.data.sources import SourceSpec
from fedboost.ground.ids import EncodedIds
from fedboost.ground.settings import parse
from fedboost.job import JobSpec
from fedboost.runtime.cluster.local import DATASET
from fedboost.runtime.ledger.ledger import Ledger

ECDH, OPRF, UNSAID = "ecdh", "oprf", "unsaid"  # the last: the job leaves it to the program
METHODS = (OPRF, ECDH, UNSAID)
ECDH_IDS_MAX = 100_000  # of a set: more points take minutes, and as long each
QUICK_IDS_MAX = 40_000
STAGE = "align"
PRICE_S = 0.5  # for which a multiplication is timed

Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """Sets of ids of which some are in all, and what lies between the parties."""

    name: str
    guest: int
    hosts: tuple[int, ...]
    common: int
    link: Link | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """Ids of each party, the guest first."""
        numbers = [""] if len(self.hosts) == 1 else range(1, len(self.hosts) + 1)
        names = [f"{HOST}{number}" for number in numbers]
        return {GUEST: self.guest, **dict(zip(names, self.hosts, strict=True))}

    def cut(self, most: int) -> Case:
        """The same with sets of so many ids at most, in proportion."""
        share = min(1.0, most / max(self.sizes.values()))
        hosts = tuple(round(share * size) for size in self.hosts)
        guest, common = round(share * self.guest), round(share * self.common)
        return replace(self, guest=guest, hosts=hosts, common=common)

    def numbers(self, place: int) -> NDArray[np.int64]:
        """The ids of a party as numbers, in an order of its own."""
        size = [*self.sizes.values()][place]
        first = sum([*self.sizes.values()][:place])
        own = np.arange(self.common, size) + first  # behind those of all and of the ones before
        found = np.concatenate([np.arange(self.common), own]).astype(np.int64)
        return np.random.default_rng(place).permutation(found)


MILLION, LINK = 1_000_000, Link(20e6, 0.05)
CASES = (
    Case("1m", MILLION, (MILLION,), MILLION // 2),
    Case("1m_link", MILLION, (MILLION,), MILLION // 2, LINK),
    Case("3_hosts", MILLION, (MILLION,) * 3, MILLION // 2),
    Case("uneven", MILLION // 10, (10 * MILLION,), MILLION // 20),
    Case("10m", 10 * MILLION, (10 * MILLION,), 5 * MILLION),
    Case("20m", 20 * MILLION, (20 * MILLION,), 10 * MILLION),
)


def measure(case: Case, method: str) -> Row:
    """A job that aligns, on daemons that do nothing else; the ids found are counted."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sources = {
            party: _written(case, place, folder / f"{party}.parquet")
            for place, party in enumerate(case.sizes)
        }
        spec = job(case, method)
        around = nullcontext if case.link is None else partial(links.shaped, link=case.link)
        with harness.daemons(spec, sources, folder / "cluster", around) as run:
            done = run(spec)
            amounts = told(folder / "cluster", done.result["job"], case)
    matched = {party: own["matched"] for party, own in done.result["ids"].items()}
    assert set(matched.values()) == {case.common}, matched
    steps = [step for step in done.steps if step.stage == STAGE]
    return {
        "case": case.name,
        "method": method,
        "sizes": case.sizes,
        "common": case.common,
        "link": case.link and str(case.link),
        "seconds": done.result["seconds"][STAGE],
        "job_seconds": done.result["seconds"]["total"],
        "cpu": {party: sum(s.cpu_seconds.get(party, 0.0) for s in steps) for party in case.sizes},
        "peak": done.result["memory_peak_bytes"],
        "sent": _sum_of(steps),
        "kinds": amounts,
        "load": done.load_before[:1],
    }


def job(case: Case, method: str) -> JobSpec:
    """A job that aligns, and does nothing else."""
    guest, *hosts = case.sizes
    raw: dict[str, Any] = {
        "name": f"align-{case.name.replace('_', '-')}",
        "protocol": "align",
        "parties": {"guest": guest, "hosts": hosts},
        "data": {party: {"dataset": DATASET} for party in case.sizes},
    }
    if method != UNSAID:
        raw["alignment"] = {"method": method}
    return parse(JobSpec, raw)


def told(cluster: Path, job_id: str, case: Case) -> dict[str, int]:
    """Bytes by kind of the alignment's messages and their sender, as the parties' ledgers say."""
    found: dict[str, int] = {}
    for party in case.sizes:
        with closing(Ledger(cluster / "var" / party / "store.sqlite", read_only=True)) as ledger:
            for row in ledger.rows(job_id):
                if row.direction == "out" and row.stage == STAGE:
                    who = "guest" if party == GUEST else "hosts"
                    key = f"{row.kind.rpartition('.')[2]} of {who}"
                    found[key] = found.get(key, 0) + row.bytes
    return found


def in_clear(case: Case) -> Row:
    """Processor seconds of parties that trust one another: keyed digests, found in the others'."""
    sets = [_encoded(case.numbers(place)) for place in range(len(case.sizes))]
    key = id_digests.fresh_key()
    started = time.process_time()
    guest, *hosts = [EncodedIds(*_digested(own, key)) for own in sets]
    everywhere = np.all([own.find(guest) >= 0 for own in hosts], axis=0)
    spent = time.process_time() - started
    assert int(everywhere.sum()) == case.common
    return {"case": case.name, "seconds": spent}


def multiplication_s() -> float:
    """Processor seconds of one multiplication on the curve, in a bare loop."""
    scalar, point = b"\x40" * 32, bytes([9]) + bytes(31)
    done, started = 0, time.process_time()
    while time.process_time() - started < PRICE_S:
        point = crypto_scalarmult(scalar, point)
        done += 1
    return (time.process_time() - started) / done


def multiplications(sizes: Mapping[str, int]) -> int:
    """How often the curve's method must multiply: each id once for each party."""
    return sum(sizes.values()) * len(sizes)


def line_seconds(sent: Mapping[str, int], link: Link) -> float:
    """For how long the busiest line is full, one way, at least."""
    busy: dict[tuple[str, str], int] = {}
    for pair, count in sent.items():
        sender, receiver = pair.split("->")
        for line in (("up", sender), ("down", receiver)):
            busy[line] = busy.get(line, 0) + count
    return 8 * max(busy.values()) / link.bits_per_s


def _encoded(numbers: NDArray[np.int64]) -> EncodedIds:
    return encode_ids([pa.chunked_array([_texts(numbers)])], ["id"])


def _digested(ids: EncodedIds, key: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    found = id_digests.digests(ids, key)
    return found.reshape(-1), np.arange(len(found) + 1) * id_digests.DIGEST_BYTES


def _texts(numbers: NDArray[np.int64]) -> pa.Array:
    digits = pc.utf8_lpad(pc.cast(pa.array(numbers), pa.large_string()), 9, "0")
    return pc.binary_join_element_wise(
        pa.scalar("person-", pa.large_string()), digits, pa.scalar("", pa.large_string())
    )


def _written(case: Case, place: int, path: Path) -> SourceSpec:
    numbers = case.numbers(place)
    columns = {"id": _texts(numbers), "x": pa.array((numbers % 97).astype(np.float32))}
    pq.write_table(pa.table(columns), path)
    return SourceSpec(path=str(path))


def _sum_of(steps: list[harness.StepTotal]) -> dict[str, int]:
    found: dict[str, int] = {}
    for step in steps:
        for pair, count in step.bytes.items():
            found[pair] = found.get(pair, 0) + count
    return found
