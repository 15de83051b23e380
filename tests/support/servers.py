"""Places where tables lie, as real servers on loopback: PostgreSQL, and what speaks S3."""

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

STARTED_S = 30.0
BUCKET, REGION = "lake", "us-east-1"
OWNER_PASSWORD = "correct-horse-battery"
PARENT = "/dev/shm" if Path("/dev/shm").is_dir() else None  # which other users may enter


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def postgres_programs() -> Path:
    """The folder of PostgreSQL's programs; the test is skipped where there is none."""
    found = shutil.which("postgres")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if found is not None:
        folders.append(Path(found).resolve().parent)
    for folder in folders:
        if (folder / "initdb").exists():
            return folder
    pytest.skip("PostgreSQL is not installed: apt install postgresql")


@dataclass
class PostgresServer:
    """A PostgreSQL whose owner is called ``owner``."""

    port: int
    process: subprocess.Popen[bytes]

    def address(self, user: str = "owner", password: str = OWNER_PASSWORD) -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/postgres"

    def run(self, *statements: str) -> None:
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.address(), autocommit=True) as connection:
            for statement in statements:
                with connection.cursor() as cursor:
                    cursor.execute(statement)

    def write(self, name: str, table: pa.Table) -> None:
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.address()) as connection, connection.cursor() as cursor:
            cursor.adbc_ingest(name, table)
            connection.commit()


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    """A server of its own, as a user who is not root."""
    programs = postgres_programs()
    folder = Path(tempfile.mkdtemp(dir=PARENT))
    how: dict[str, Any] = {"cwd": folder, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}}
    if os.getuid() == 0:
        shutil.chown(folder, "nobody", "nogroup")
        how |= {"user": "nobody", "group": "nogroup", "extra_groups": []}
    (folder / "password").write_text(OWNER_PASSWORD)
    (folder / "password").chmod(0o644)
    made = [str(programs / "initdb"), "-D", "db", "-U", "owner", "-A", "scram-sha-256", "--no-sync"]
    subprocess.run([*made, "--pwfile=password"], check=True, stdout=subprocess.DEVNULL, **how)
    port = free_port()
    settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
    words = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
    command = [str(programs / "postgres"), "-D", "db", "-p", str(port), *words]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **how)
    server = PostgresServer(port, process)
    try:
        _wait(lambda: server.run("select 1"))
        yield server
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait()
        shutil.rmtree(folder)


@dataclass
class S3Server:
    """An S3 storage with one bucket; `keys` of a user whose other keys are refused."""

    port: int
    process: subprocess.Popen[bytes]
    keys: dict[str, str] = field(default_factory=dict)

    @property
    def query(self) -> str:
        """What a path's address says of the storage."""
        return f"?region={REGION}&scheme=http&endpoint_override=127.0.0.1:{self.port}"

    def files(self, **more: Any) -> Any:
        """The storage as a file system of its owner."""
        from pyarrow import fs

        where = {"endpoint_override": f"127.0.0.1:{self.port}", "scheme": "http", "region": REGION}
        return fs.S3FileSystem(**where, **self.keys, allow_bucket_creation=True, **more)

    def new_key(self) -> dict[str, str]:
        """Another key of the same user."""
        made = self._iam().create_access_key(UserName="bank")["AccessKey"]
        return {"access_key": made["AccessKeyId"], "secret_key": made["SecretAccessKey"]}

    def drop_key(self, keys: Mapping[str, str]) -> None:
        """What was a key is none any more."""
        self._iam().delete_access_key(UserName="bank", AccessKeyId=keys["access_key"])

    def _iam(self) -> Any:
        import boto3

        keys = self.keys or {"access_key": "nobody", "secret_key": "nobody"}
        return boto3.client(
            "iam",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            region_name=REGION,
            aws_access_key_id=keys["access_key"],
            aws_secret_access_key=keys["secret_key"],
        )

    def begin(self) -> None:
        """A user with a key, who may do all; from now on nobody else may do anything."""
        allowed = {"Effect": "Allow", "Action": "*", "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        self._iam().create_user(UserName="bank")
        self._iam().put_user_policy(UserName="bank", PolicyName="all", PolicyDocument=policy)
        self.keys = self.new_key()
        url = f"http://127.0.0.1:{self.port}/moto-api/reset-auth"
        text = {"Content-Type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(url, b"0", text, method="POST")).close()
        self.files().create_dir(BUCKET)


@contextmanager
def s3() -> Iterator[S3Server]:
    """A server of its own."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        _wait(lambda: socket.create_connection(("127.0.0.1", port)).close())
        server = S3Server(port, process)
        server.begin()
        yield server
    finally:
        process.kill()
        process.wait()


@contextmanager
def silent(*pids: int) -> Iterator[None]:
    """Inside, these processes take connections and answer nothing."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _wait(is_there: Any) -> None:
    until = time.monotonic() + STARTED_S
    while True:
        try:
            is_there()
            return
        except Exception:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


@contextmanager
def flight_sql(password: str) -> Iterator[int]:
    """A Flight SQL server whose user ``reader`` asks DuckDB; gives its port."""
    import duckdb
    from google.protobuf.any_pb2 import Any as Packed
    from pyarrow import flight

    def answer(query: str) -> pa.Table:
        found = duckdb.query(query)
        assert found is not None
        return found.to_arrow_table()

    class Entered(flight.ServerMiddleware):  # type: ignore[misc]
        def sending_headers(self) -> dict[str, str]:
            return {"authorization": f"Bearer {password}"}

    class Door(flight.ServerMiddlewareFactory):  # type: ignore[misc]
        def start_call(self, info: Any, headers: Any) -> Any:
            kind, _, given = (headers.get("authorization") or [""])[0].partition(" ")
            said = base64.b64decode(given + "==").decode() if kind == "Basic" else f"reader:{given}"
            if said != f"reader:{password}":
                raise flight.FlightUnauthenticatedError("no such user")
            return Entered()

    class Open(flight.ServerAuthHandler):  # type: ignore[misc]
        def authenticate(self, outgoing: Any, incoming: Any) -> None:
            """The door has seen to it."""

        def is_valid(self, token: bytes) -> bytes:
            return b""

    class Answers(flight.FlightServerBase):  # type: ignore[misc]
        def get_flight_info(self, context: Any, asked: Any) -> Any:
            """Of a CommandStatementQuery, whose first field is the query."""
            packed = Packed.FromString(asked.command)
            query = packed.value[2 + (packed.value[1] > 127) :].decode()
            try:
                schema = answer(f"SELECT * FROM ({query}) LIMIT 0").schema
            except duckdb.Error as error:
                raise flight.FlightServerError(str(error)) from None
            place = flight.FlightEndpoint(query.encode(), [])
            return flight.FlightInfo(schema, asked, [place], -1, -1)

        def do_get(self, context: Any, ticket: Any) -> Any:
            return flight.RecordBatchStream(answer(ticket.ticket.decode()))

    with Answers("grpc://127.0.0.1:0", Open(), middleware={"door": Door()}) as server:
        yield server.port
