"""A coordinator and all parties of a job as real daemons on this machine, for trials and notebooks.

with Cluster("job.yaml", {"bank": bank, "telco": "telco.parquet"}) as cluster:
    result = cluster.client().submit(cluster.job).wait()
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pyarrow.parquet as pq

from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import ConfigError
from fedboost.job import JobSpec
from fedboost.runtime.cluster import cluster as daemons
from fedboost.runtime.cluster.local import COORDINATOR, USER, complete_spec
from fedboost.sdk.client import Client, JobLike, read_job
from fedboost.sdk.party import PartyClient
from fedboost.sdk.tables import TableLike, rows_of


class Cluster:
    """Daemons with certificates and settings files; a context manager that ends all of them.

    One person has the data of all organisations here, so no policy limits what tables reveal.
    Results have a `rehearsal`: what default policies would allow.
    """

    def __init__(
        self,
        job: JobLike,
        data: Mapping[str, str | Path | TableLike],
        *,
        folder: str | Path | None = None,
    ) -> None:
        """Prepare the files; `data` are the parties' tables by name: files, or tables with an id
        column.

        Like ``fedboost cluster run``, the job may leave out data sets, and a label called `y`. All
        files are in `folder`, for a later cluster to use; without `folder` they are deleted at the
        end. Raise ConfigError for an invalid job or table.
        """
        self._stack = ExitStack()
        with ExitStack() as undone:
            place = folder or undone.enter_context(tempfile.TemporaryDirectory(prefix="fedboost-"))
            self.folder = Path(place).absolute()
            sources = {party: self._source_of_table(party, table) for party, table in data.items()}
            raw, where = read_job(job)
            self.job: JobSpec = complete_spec(raw, sources, **where)
            self._daemons = daemons.TrialProcesses(self.folder, self.job, sources)
            self._stack = undone.pop_all()

    def start(self) -> Self:
        """Start every daemon; for notebooks, where a `with` would have to fit into one cell."""
        try:
            self._stack.enter_context(self._daemons)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every daemon, and the connections made by `client` and `party`."""
        self._stack.close()

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties with a daemon here."""
        return self._daemons.names

    @property
    def certs(self) -> Path:
        """Folder with all certificates, the one user's included."""
        return self.folder / "certs"

    def address(self, name: str = COORDINATOR) -> str:
        """Return where a daemon listens, the coordinator's or a party's: ``NAME@HOST:PORT``."""
        known = self._daemons.addresses
        if name not in known:
            raise ConfigError(f"{name!r} is not here", todo=f"name one of: {', '.join(known)}")
        return f"{name}@{known[name]}"

    def client(self) -> Client:
        """Return the user's client of the coordinator, closed with the cluster."""
        return self._stack.enter_context(Client(self.address(), tls=self.certs, user=USER))

    def party(self, name: str) -> PartyClient:
        """Return the same user as the owner of a party, closed with the cluster."""
        return self._stack.enter_context(PartyClient(self.address(name), tls=self.certs, user=USER))

    def config(self, name: str) -> Path:
        """Return the settings file of a daemon, for commands with ``--config``."""
        return self._daemons.config(name)

    def _source_of_table(self, party: str, table: str | Path | TableLike) -> SourceSpec:
        if isinstance(table, str | Path):
            path = Path(table).absolute()
            if not path.is_file():
                raise ConfigError(
                    "this is no file" if path.exists() else "there is no such file",
                    party=party,
                    file=str(table),
                    todo="check the path",
                )
            return SourceSpec(path=str(path))
        path = self.folder / "data" / f"{party}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = rows_of(table, f"the table of {party}")
        pq.write_table(rows.as_sheet()[0].dense(), path)
        return SourceSpec(path=str(path), id_format=rows.id_format, missing=rows.missing)
