"""The jobs whose estimate is compared with what they take: one of each protocol, on real tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedboost.data.sources import SourceSpec
from fedboost.data.split import SplitPlan, split_table
from fedboost.ground.settings import parse
from fedboost.job import JobSpec
from fedboost.runtime.cluster.local import DATASET

GUEST = "bank"
HELD = {"fraction": 0.3, "seed": 7}
TREES = {"max_depth": 5, "max_bin": 32}
PAILLIER = {"encryption": {"scheme": "paillier", "key_bits": 2048}}


@dataclass(frozen=True)
class Case:
    """One job: its table, how it is dealt, and what is trained."""

    name: str
    data: str
    protocol: str
    layout: str  # vertical, horizontal or hybrid
    hosts: tuple[str, ...]
    guest_columns: int  # of the vertical layout
    params: Mapping[str, Any]
    rounds: tuple[int, int]  # quick, and all

    def spec(self, *, quick: bool) -> JobSpec:
        """The job."""
        parties: dict[str, Any] = {"guest": GUEST, "hosts": list(self.hosts)}
        own = (GUEST, *self.hosts)
        data: dict[str, Any] = {party: {"dataset": DATASET} for party in own}
        labelled = own if self.layout == "horizontal" else (GUEST,)
        for party in labelled:
            data[party]["label"] = "y"
        if self.layout == "horizontal":
            parties["aggregator"] = GUEST
        raw = {
            "name": self.name,
            "protocol": self.protocol,
            "parties": parties,
            "data": data,
            "validation": HELD,
            "params": {**self.params, "n_estimators": self.rounds[not quick]},
        }
        return parse(JobSpec, raw)

    def deal(self, table: pa.Table, folder: Path) -> dict[str, SourceSpec]:
        """The parties' tables as files."""
        folder.mkdir(parents=True, exist_ok=True)
        found = {}
        for party, own in split_table(table, self._plan(table)).items():
            pq.write_table(own, folder / f"{party}.parquet")
            found[party] = SourceSpec(path=str(folder / f"{party}.parquet"))
        return found

    def _plan(self, table: pa.Table) -> SplitPlan:
        names = [name for name in table.column_names if name not in ("id", "y")]
        parties: list[dict[str, Any]] = [{"name": party} for party in (GUEST, *self.hosts)]
        if self.layout != "horizontal":
            first = self.guest_columns
            each = -(-(len(names) - first) // len(self.hosts))
            parties[0]["columns"] = names[:first]
            for place, party in enumerate(parties[1:]):
                party["columns"] = names[first + place * each : first + (place + 1) * each]
        if self.layout == "hybrid":
            parties = [{"name": GUEST, "columns": names[: self.guest_columns]}, *(
                {"name": host} for host in self.hosts)]  # fmt: skip
        return parse(SplitPlan, {"layout": self.layout, "parties": parties})


CASES = (
    Case("paillier", "default_credit", "secureboost", "vertical", ("telco",), 10,
         {**TREES, **PAILLIER}, (2, 10)),
    Case("lattice", "give_credit", "secureboost", "vertical", ("telco",), 5,
         {**TREES, "encryption": {"scheme": "lattice"}}, (5, 20)),
    Case("vertical", "susy_30k", "federboost-vertical", "vertical", ("telco",), 9,
         {**TREES, "buckets": 16}, (50, 200)),
    Case("horizontal", "susy_30k", "federboost-horizontal", "horizontal", ("north", "south"), 0,
         {"max_depth": 4, "max_bin": 24}, (20, 100)),
    Case("gbun", "covtype", "gbun", "horizontal", ("north", "south"), 0,
         {"objective": "multi:softprob", "num_class": 7, "outputs": 64}, (5, 20)),
    Case("hybridtree", "default_credit", "hybridtree", "hybrid", ("shop", "mill"), 10,
         {"guest_depth": 4, "host_depth": 2, "max_bin": 32, **PAILLIER}, (2, 10)),
)  # fmt: skip
