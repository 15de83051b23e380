"""What a link's failure is called, seen on real sockets; packets are dropped in a namespace."""

import asyncio
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import grpc
import pytest

from fedboost.ground.errors import UnreachableError
from fedboost.messages import job_pb2, party_pb2_grpc
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.addresses import Timers
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.channel import Dialer
from fedboost.runtime.transport.tls import TlsFiles

NAMES = ("bank", "shop", "mill")
TIMERS = Timers(keepalive_s=1.0, keepalive_timeout_s=1.0, call_s=5.0)


def certificates(folder):
    authority.create_certificates(
        folder, [Leaf("party", name) for name in NAMES], Term(datetime.now(UTC))
    )
    return folder


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("theirs"))


@pytest.fixture(scope="module")
def ended(ours, tmp_path_factory):
    """Certificates of our CA that ended yesterday."""
    folder = tmp_path_factory.mktemp("ended")
    for name in ("ca.pem", "ca.key"):
        shutil.copy(ours / name, folder / name)
    term = Term(datetime.now(UTC) - timedelta(days=8), days=7)
    authority.create_certificates(folder, [Leaf("party", "shop")], term)
    return folder


def files(folder, name):
    return TlsFiles(ca=folder / "ca.pem", cert=folder / f"{name}.pem", key=folder / f"{name}.key")


async def failure(folder, address):
    """The error of bank's call to shop."""
    dialer = Dialer(files(folder, "bank"), TIMERS)
    try:
        await dialer.call(
            ("shop", address),
            lambda channel: party_pb2_grpc.PartyStub(channel).Hello(
                job_pb2.HelloRequest(), timeout=TIMERS.call_s
            ),
        )
    except UnreachableError as error:
        return error
    finally:
        await dialer.close()
    return None


@contextmanager
def listening(answer):
    """The address of a socket that does `answer` with each connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def plain(connection):
    connection.recv(64)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def silent(connection):
    while connection.recv(1 << 16):
        pass


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (plain, "{} does not speak TLS"),
        (silent, "{} takes connections and says nothing"),
        (socket.socket.close, "shop closed the connection"),
    ],
)
def test_a_listener_that_is_no_daemon_is_described(ours, answer, what):
    with listening(answer) as address:
        error = asyncio.run(failure(ours, address))
    assert (error.what, error.where) == (
        what.format(address),
        {"party": "shop", "address": address},
    )
    assert error.todo


def test_nobody_at_the_port_is_a_daemon_to_start(ours):
    error = asyncio.run(failure(ours, "127.0.0.1:9"))
    assert error.what == "shop is not there"
    assert "start shop's daemon" in error.todo


@pytest.mark.parametrize(
    ("folder", "name", "what"),
    [
        ("theirs", "shop", "the certificate of shop is not one of our CA's"),
        ("ended", "shop", "the certificate of shop, or of its CA, has expired"),
        ("ours", "mill", "the certificate of {} is not shop's"),
    ],
)
async def test_another_ca_an_end_and_another_name_are_told_apart(request, ours, folder, name, what):
    shown = files(request.getfixturevalue(folder), name)
    server = grpc.aio.server()
    credentials = grpc.ssl_server_credentials(
        [(shown.key.read_bytes(), shown.cert.read_bytes())], shown.ca.read_bytes(), True
    )
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    error = await failure(ours, f"127.0.0.1:{port}")
    await server.stop(0)
    assert error.what == what.format(f"127.0.0.1:{port}")


DROPPED = "10.77.0.2:7100"
NETWORK = f"""
set -e
ip link set lo up
ip link add here type veth peer name there
ip addr add 10.77.0.1/24 dev here
ip link set here up
ip link set there up
ip neigh add {DROPPED.split(":", maxsplit=1)[0]} lladdr 02:00:00:00:00:09 dev here
exec "$@"
"""


def test_dropped_packets_are_not_blamed_on_certificates(ours):
    """In a network namespace where every packet to the peer is lost, as behind a firewall."""
    enter = ["unshare", "--user", "--map-root-user", "--net"]
    if not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("needs unshare and ip, of Debian's util-linux and iproute2")
    if subprocess.run([*enter, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody make network namespaces")
    asks = (
        "import asyncio, pathlib, sys\n"
        "from tests.unit.runtime.transport.test_broken_links import DROPPED, failure\n"
        "print(asyncio.run(failure(pathlib.Path(sys.argv[1]), DROPPED)).what)\n"
    )
    said = subprocess.run(
        [*enter, "sh", "-c", NETWORK, "sh", sys.executable, "-c", asks, str(ours)],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert said.stdout.strip() == f"nothing answers at {DROPPED}: shop cannot be reached", said
