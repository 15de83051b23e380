"""What a relay costs: throughput beside a direct connection, memory, and a tree over a slow line.

Throughput is of one gRPC stream between two processes, with mutual TLS, direct and through a relay
in a third process; CPU seconds are of all of them. Memory is the relay's while the receiver has
stopped reading. Trees are of the lattice scheme over 20 Mbit/s and 50 ms there and back, on daemons
that reach one another, and on daemons that only dial a relay halfway between them.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import psutil
import yaml

from benchmarks import boosting, links, tables
from benchmarks.boosting import LATTICE
from benchmarks.encryption_link import TIMERS
from benchmarks.links import Link
from benchmarks.question import Part, Question
from benchmarks.rows import Row, of
from fedboost.ground.errors import UnreachableError
from fedboost.runtime.cluster.cluster import ClusterProcesses, _free_ports
from fedboost.runtime.cluster.local import COORDINATOR
from fedboost.runtime.relay.answering import AnsweredCalls
from fedboost.runtime.relay.dialing import open_dialer, relay_link
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.addresses import Reach, RelayAddress, Timers
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.server import bind_server
from fedboost.runtime.transport.tls import ServerCertificates, TlsFiles

RELAY, CALLER, CALLED = "relay", "bank", "telco"
PIECE_BYTES = 1 << 18
METHOD = "/benchmark.Sink/Take"
SLOW = Link.parse_round_trip("20mbit,50ms")
DATA = "default_credit"
READY_S = 30.0


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    megabytes: int = 500
    stalled_megabytes: int = 1000
    stalled_s: float = 15.0
    repeats: int = 3
    rows: int | None = None
    trees: int = 3


def files(folder: Path, name: str) -> TlsFiles:
    """A daemon's certificate."""
    return TlsFiles(ca=folder / "ca.pem", cert=folder / f"{name}.pem", key=folder / f"{name}.key")


# Throughput and memory


def throughput(_: str, plan: Plan) -> Iterator[Row]:
    """A row of each transfer, and one with the relay's memory while the receiver reads nothing."""
    with tempfile.TemporaryDirectory() as at:
        folder = Path(at)
        leaves = [Leaf("party", CALLER), Leaf("party", CALLED), Leaf("relay", RELAY)]
        authority.create_certificates(folder, leaves, Term(datetime.now(UTC)))
        direct, relay_port = _free_ports(2)
        with relay(folder, relay_port) as relaying, _sink(folder, direct, relay_port) as sink:
            processes = [psutil.Process(), psutil.Process(relaying.pid), psutil.Process(sink.pid)]
            for number in range(plan.repeats):
                for way in ("direct", RELAY):
                    began = sum(_cpu_s(process) for process in processes)
                    through = relay_port if way == RELAY else None
                    seconds = asyncio.run(_send(folder, direct, through, plan.megabytes))
                    yield {
                        "what": "transfer", "way": way, "number": number,
                        "mb_per_s": plan.megabytes / seconds,
                        "cpu_s": sum(_cpu_s(process) for process in processes) - began,
                    }  # fmt: skip
            with suppress(UnreachableError):
                asyncio.run(
                    _send(folder, direct, relay_port, plan.stalled_megabytes, plan.stalled_s)
                )
            peaks = [process.memory_info().rss / 1e6 for process in processes]
            yield {"what": "stalled", "relay_mb": peaks[1], "sender_mb": peaks[0]}


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


@contextmanager
def relay(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A relay's process; its members are all owners of certificates in the folder."""
    members = {
        path.stem: {"role": "coordinator"} if path.stem == COORDINATOR else {}
        for path in folder.glob("*.key")
        if path.stem not in ("ca", RELAY)
    }
    tls = {key: str(path) for key, path in files(folder, RELAY).model_dump().items()}
    config = {"name": RELAY, "listen": f"127.0.0.1:{port}", "tls": tls, "members": members}
    path = folder / "relay.yaml"
    path.write_text(yaml.safe_dump(config))
    with _process("-m", "fedboost", RELAY, "serve", "--config", str(path)) as process:
        yield process


@contextmanager
def _process(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _sink(folder: Path, port: int, relay_port: int) -> Iterator[subprocess.Popen[bytes]]:
    with _process("-m", "benchmarks.relay", str(folder), str(port), str(relay_port)) as process:
        yield process


async def _send(
    folder: Path, port: int, relay_port: int | None, megabytes: int, stalls_s: float = 0.0
) -> float:
    """Seconds of a transfer; with `stalls_s` its receiver reads nothing and it breaks off then."""
    reach: Reach = "direct" if relay_port is None else "outbound"
    dialer = open_dialer(files(folder, CALLER), Timers(), f"party:{CALLER}",
                         _address(relay_port), reach)  # fmt: skip
    piece = os.urandom(PIECE_BYTES)

    async def pieces(count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield piece

    async def transfer(count: int) -> None:
        metadata = (("stalls", str(stalls_s)),)
        await dialer.call(
            (CALLED, f"127.0.0.1:{port}"),
            lambda channel: channel.stream_unary(METHOD)(
                pieces(count), timeout=stalls_s or None, metadata=metadata if count > 1 else ()
            ),
            retry_s=READY_S,
        )

    try:
        await transfer(1)  # opens the connection
        began = time.monotonic()
        async with asyncio.timeout(stalls_s or None):
            await transfer(megabytes * 1_000_000 // PIECE_BYTES)
        return time.monotonic() - began
    except TimeoutError:
        return time.monotonic() - began
    finally:
        await dialer.close()


def _address(port: int | None) -> RelayAddress | None:
    return None if port is None else RelayAddress(address=f"127.0.0.1:{port}", name=RELAY)


async def _take(folder: Path, port: int, relay_port: int) -> None:
    """Receive streams, as the called daemon, directly and from the relay."""

    async def take(pieces: AsyncIterator[bytes], context: Any) -> bytes:
        stalls_s = float(dict(context.invocation_metadata()).get("stalls", 0.0))
        async for _ in pieces:
            await asyncio.sleep(stalls_s)
        return b""

    tls = files(folder, CALLED)
    server, _ = bind_server(ServerCertificates(tls), f"127.0.0.1:{port}", Timers())
    service, name = METHOD[1:].split("/")
    handlers = {name: grpc.stream_unary_rpc_method_handler(take)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    await server.start()
    address = _address(relay_port)
    assert address is not None
    link = relay_link(tls, Timers(), address)
    await AnsweredCalls(link, ("127.0.0.1", port), Timers()).answer_calls()


# A tree over a slow line


def tree(name: str, plan: Plan) -> Iterator[Row]:
    """A row of each job: the seconds of its trees behind the first one, direct and relayed."""
    table = tables.load(name).sample(plan.rows)

    @contextmanager
    def direct(made: ClusterProcesses) -> Iterator[None]:
        with links.shaped(made, SLOW):
            yield

    for number in range(plan.repeats):
        for way, around in (("direct", direct), (RELAY, relayed)):
            with boosting.daemons(table, LATTICE, around, TIMERS) as train:
                done = train(1 + plan.trees, LATTICE, {}, held_out=False)
            seconds = [lap.seconds for lap in done.trees[1:]]
            yield {"what": "tree", "way": way, "number": number, "seconds": median(seconds)}


@contextmanager
def relayed(made: ClusterProcesses) -> Iterator[None]:
    """All daemons of a cluster only dial out, to a relay halfway between them."""
    folder = made.folder / "certs"
    authority.create_certificates(folder, [Leaf("relay", RELAY)], Term(datetime.now(UTC)))
    [port] = _free_ports(1)
    address = {"address": f"127.0.0.1:{port}", "name": RELAY}
    for name in (COORDINATOR, *made.names):
        raw = yaml.safe_load(made.config(name).read_text())
        made.config(name).write_text(yaml.safe_dump({**raw, "reach": "outbound", "relay": address}))
    with relay(folder, port), links.shaped(made, SLOW, relay=RELAY):
        yield


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """Medians, and ratios to the direct connection."""
    found: dict[str, float] = {}
    for what, key in (("transfer", "mb_per_s"), ("transfer", "cpu_s"), ("tree", "seconds")):
        ways = {way: [row[key] for row in of(rows, what) if row["way"] == way]
                for way in ("direct", RELAY)}  # fmt: skip
        if all(ways.values()):
            found |= {f"{key}.{way}": median(values) for way, values in ways.items()}
            found[f"{key}.ratio"] = found[f"{key}.{RELAY}"] / found[f"{key}.direct"]
    for row in of(rows, "stalled"):
        found |= {"stalled.relay_mb": row["relay_mb"], "stalled.sender_mb": row["sender_mb"]}
    return found


QUESTION = Question(
    name="relay",
    about="What a relay costs in throughput, memory and seconds of a tree.",
    parts={"throughput": Part(throughput), "tree": Part(tree, (DATA,))},
    full=Plan(),
    quick=Plan(megabytes=20, stalled_megabytes=50, stalled_s=2.0, repeats=1, rows=200, trees=1),
    figures=figures,
)


if __name__ == "__main__":
    asyncio.run(_take(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
