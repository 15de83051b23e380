"""Time, memory and bytes of finding the ids in common, on real daemons over mutual TLS."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from nacl.bindings import crypto_scalarmult
from numpy.typing import NDArray

from benchmarks import harness, links
from benchmarks.links import Link
from benchmarks.question import Part, Question
from benchmarks.rows import Row
from benchmarks.tables import GUEST, HOST
from fedboost.crypto import id_digests
from fedboost.data.ids import encode_ids
from fedboost.data.sources import SourceSpec
from fedboost.ground.ids import EncodedIds
from fedboost.job import JobSpec
from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.ledger.ledger import Ledger

ECDH, OPRF = "ecdh", "oprf"
ECDH_IDS_MAX = 100_000  # of a set: more points take minutes, and as long each
STAGE = "align"
PRICE_S = 0.5  # for which a multiplication is timed

GB = 1e9


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
)


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    ids: int = 1 << 62  # of a set at most
    link: Link = LINK  # of cases that have one
    method: tuple[str, ...] = (OPRF, ECDH)
    compared: tuple[str, ...] = tuple(case.name for case in CASES)  # by all methods


def measure(name: str, plan: Plan) -> Iterator[Row]:
    """A row for each method: what it takes, and what no program of the same could go below."""
    price = multiplication_s()
    case = next(one for one in CASES if one.name == name)
    for method in plan.method if name in plan.compared else plan.method[:1]:
        cut = case.cut(min(plan.ids, ECDH_IDS_MAX) if method == ECDH else plan.ids)
        cut = cut if cut.link is None else replace(cut, link=plan.link)
        row = aligned(cut, method)
        row["floors"] = floors(row, in_clear(cut), price)
        yield row


def aligned(case: Case, method: str) -> Row:
    """A job that aligns, on daemons that do nothing else; the ids found are counted."""
    clusters: list[ClusterProcesses] = []

    @contextmanager
    def around(made: ClusterProcesses) -> Iterator[None]:
        clusters.append(made)
        with ExitStack() as stack:
            if case.link is not None:
                stack.enter_context(links.shaped(made, case.link))
            yield

    def deal(folder: Path) -> dict[str, SourceSpec]:
        folder.mkdir(parents=True)
        return {
            party: _written(case, place, folder / f"{party}.parquet")
            for place, party in enumerate(case.sizes)
        }

    spec = job(case, method)
    with harness.daemons(spec, deal, around) as run:
        done = run(spec)
        amounts = told(clusters[0], done.result["job"], case)
    matched = {party: own["matched"] for party, own in done.result["ids"].items()}
    assert set(matched.values()) == {case.common}, matched
    steps = done.of_stage(STAGE)
    return {
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
    spec = harness.job("align", list(case.sizes), {}, alignment={"method": method})
    data = {party: one.model_copy(update={"label": None}) for party, one in spec.data.items()}
    return spec.model_copy(update={"data": data})


def told(cluster: ClusterProcesses, job_id: str, case: Case) -> dict[str, int]:
    """Bytes by kind of the alignment's messages and their sender, as the parties' ledgers say."""
    found: dict[str, int] = {}
    for party in case.sizes:
        with closing(Ledger(cluster.store(party) / "store.sqlite", read_only=True)) as ledger:
            for row in ledger.rows(job_id):
                if row.direction == "out" and row.stage == STAGE:
                    who = "guest" if party == GUEST else "hosts"
                    key = f"{row.kind.rpartition('.')[2]} of {who}"
                    found[key] = found.get(key, 0) + row.bytes
    return found


def in_clear(case: Case) -> float:
    """Processor seconds of parties that trust one another: keyed digests, found in the others'."""
    sets = [_encoded(case.numbers(place)) for place in range(len(case.sizes))]
    key = id_digests.fresh_key()
    started = time.process_time()
    guest, *hosts = [EncodedIds(*_digested(own, key)) for own in sets]
    everywhere = np.all([own.find(guest) >= 0 for own in hosts], axis=0)
    spent = time.process_time() - started
    assert int(everywhere.sum()) == case.common
    return spent


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
    return found.reshape(-1), np.arange(len(found) + 1) * id_digests.ID_DIGEST_BYTES


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


def floors(row: Row, clear: float, price: float) -> dict[str, float]:
    """Seconds that no program of the same method can go below, by reason, on all cores."""
    found = {"clear": clear / harness.cores()}
    if row["method"] != OPRF:
        found["curve"] = multiplications(row["sizes"]) * price / harness.cores()
    if row["link"]:
        found["link"] = line_seconds(row["sent"], Link.parse(row["link"]))
    return found


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """``WHAT.CASE.METHOD``; and by how much a method that took fewer ids is slower for each."""
    found: dict[str, float] = {}
    for row in rows:
        at = f"{row['data']}.{row['method']}"
        guest, *hosts = row["sizes"]
        found |= {
            f"seconds.{at}": row["seconds"],
            f"cpu_guest.{at}": row["cpu"][guest],
            f"cpu_host.{at}": max(row["cpu"][host] for host in hosts),
            f"gb_guest.{at}": row["peak"][guest] / GB,
            f"gb_host.{at}": max(row["peak"][host] for host in hosts) / GB,
            f"bytes_per_id.{at}": bytes_per_id(row),
            **{f"floor_{why}.{at}": seconds for why, seconds in row["floors"].items()},
        }
        if row["link"]:
            found[f"target_link.{at}"] = 1.2 * row["floors"]["link"] + 10.0
    for row in rows:
        other = next((r for r in rows if r["data"] == row["data"] and r["method"] == ECDH), None)
        if row["method"] != ECDH and other is not None:
            found[f"times_faster_an_id.{row['data']}"] = _an_id(other) / _an_id(row)
    return found


def bytes_per_id(row: Row) -> float:
    """Bytes of all messages, both ways, for each id of the larger set of guest and hosts."""
    return float(sum(row["kinds"].values()) / max(row["sizes"].values()))


def _an_id(row: Row) -> float:
    return float(row["seconds"] / max(row["sizes"].values()))


QUESTION = Question(
    *("alignment", __doc__ or "", {"align": Part(measure, [case.name for case in CASES])}),
    full=Plan(),
    quick=Plan(500, compared=("1m",)),
    figures=figures,
    options={
        "ids": {"type": int, "metavar": "N", "help": "of a set at most"},
        "link": {"type": Link.parse, "metavar": "20mbit,50ms", "help": "of cases that have one"},
        "method": {"type": lambda text: (text,), "help": f"only {OPRF} or {ECDH}"},
    },
    settings={"ids of ecdh at most": ECDH_IDS_MAX},
)

if __name__ == "__main__":
    QUESTION.main()
