"""Real proxies on loopback, each with settings and a log in a folder of the test."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedboost.runtime.cluster.cluster import _free_ports
from fedboost.runtime.transport.addresses import split_address

STARTED_S = 30.0
LOGIN = "bank:geheim-22"


@dataclass(frozen=True)
class Proxy:
    """A proxy that runs."""

    address: str
    ca: Path | None = None  # of a proxy that replaces certificates


def program(name: str) -> str:
    """The path of a program; skips where it is not installed."""
    path = shutil.which(name, path=os.pathsep.join((os.environ["PATH"], "/usr/sbin")))
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


@contextmanager
def tinyproxy(folder: Path, ports: Sequence[int] = ()) -> Iterator[Proxy]:
    """tinyproxy, which allows CONNECT to these ports alone, or to all."""
    address = _address()
    allowed = "".join(f"ConnectPort {port}\n" for port in ports)
    settings, logged = folder / "tinyproxy.conf", folder / "tinyproxy.log"
    settings.write_text(
        f'Port {split_address(address)[1]}\nListen 127.0.0.1\nLogFile "{logged}"\n'
        f"LogLevel Connect\nMaxClients 500\nTimeout 600\n{allowed}"
    )
    with _running([program("tinyproxy"), "-d", "-c", str(settings)], address, folder):
        yield Proxy(address)


@contextmanager
def squid(folder: Path) -> Iterator[Proxy]:
    """squid with Basic authentication by LOGIN."""
    address, found = _address(), program("squid")
    with tempfile.TemporaryDirectory(prefix="squid-") as text:
        place = Path(text)
        judge = place / "judge"
        judge.write_text(
            f'#!/bin/sh\nwhile read -r line; do [ "$line" = "{LOGIN.replace(":", " ")}" ]'
            " && echo OK || echo ERR; done\n"
        )
        judge.chmod(0o755)
        settings = place / "squid.conf"
        settings.write_text(
            f"http_port {address}\nauth_param basic program {judge}\n"
            "auth_param basic children 1\nauth_param basic realm fedboost\n"
            "acl known proxy_auth REQUIRED\nhttp_access allow known\nhttp_access deny all\n"
            f"access_log none\ncache_log {place / 'cache.log'}\ncache deny all\n"
            f"pid_filename {place / 'squid.pid'}\ncoredump_dir {place}\npinger_enable off\n"
            "shutdown_lifetime 0 seconds\nmax_filedescriptors 1024\nvisible_hostname localhost\n"
            "cache_effective_user nobody\n"
        )
        if os.getuid() == 0:  # squid does not run as root, and nobody else may enter our folders
            shutil.chown(place, "nobody")
        shared = f"squid{split_address(address)[1]}"  # the name of its shared memory
        command = [found, "-N", "-d1", "-n", shared, "-f", str(settings)]
        with _running(command, address, folder):
            yield Proxy(address)


@contextmanager
def mitmproxy(folder: Path, authority: Path) -> Iterator[Proxy]:
    """mitmdump, which shows certificates of its own CA and trusts servers of `authority`."""
    address, home = _address(), folder / "mitmproxy"
    host, port = split_address(address)
    command = [program("mitmdump"), "--listen-host", host, "--listen-port", str(port)]
    for setting in (
        f"confdir={home}", f"ssl_verify_upstream_trusted_ca={authority}", "flow_detail=1",
        "termlog_verbosity=info",
    ):  # fmt: skip
        command += ["--set", setting]
    with _running(command, address, folder):
        yield Proxy(address, home / "mitmproxy-ca-cert.pem")


def _address() -> str:
    return f"127.0.0.1:{_free_ports(1)[0]}"


@contextmanager
def _running(command: list[str], address: str, folder: Path) -> Iterator[None]:
    """Runs a program that listens at an address, until the caller has done."""
    out = folder / f"{Path(command[0]).name}.out"
    with out.open("wb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        until = time.monotonic() + STARTED_S
        while not _answers(address):
            assert process.poll() is None, out.read_text()
            assert time.monotonic() < until, f"{command[0]} does not listen: {out.read_text()}"
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(address: str) -> bool:
    try:
        socket.create_connection(split_address(address), 1).close()
    except OSError:
        return False
    return True
