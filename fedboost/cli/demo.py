"""`fedboost demo`: three organisations, one model, on real data, in about a minute."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from fedboost.cli.cluster import PAGES, run_job
from fedboost.cli.connect import DIRECTORY
from fedboost.cli.groups import cli
from fedboost.cli.outcome import print_outcome
from fedboost.core import objectives
from fedboost.data.holdout import validation_rows
from fedboost.data.ids import encode_ids
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import ConfigError, install_advice
from fedboost.ground.settings import parse_settings
from fedboost.job import JobSpec
from fedboost.report.consoles import plain_console
from fedboost.runtime.cluster.local import DATASET

PARTIES = {"clinic": slice(0, 10), "laboratory": slice(10, 20), "imaging": slice(20, 30)}
SHARED = 0.95  # of all patients that each organisation knows, drawn apart for each
FRACTION, SEED = 0.3, 7  # of the shared patients, held out for validation
PARAMS: dict[str, Any] = {
    "objective": objectives.class_objective(2),
    "n_estimators": 8,
    "max_depth": 3,
    "learning_rate": 0.3,
    "max_bin": 16,
    "eval_metric": ["auc", "logloss"],
}


@cli.command("demo")
@click.option(
    "--dir",
    "folder",
    type=DIRECTORY,
    default=Path("demo"),
    show_default=True,
    help="Where tables, certificates, models and the report go.",
)
@PAGES
def demo(folder: Path, pages: bool) -> int:
    """Train on scikit-learn's breast cancer table, split over three daemons, beside XGBoost.

    \b
      fedboost demo --dir demo
    """
    say = plain_console(stderr=True)
    values, y, names = _demo_data()
    rng = np.random.default_rng(SEED)
    sources, known = {}, {}
    for party, columns in PARTIES.items():
        known[party] = np.sort(rng.permutation(len(y))[: round(SHARED * len(y))])
        sources[party] = _write_party_table(
            folder, party, known[party], (values, y, names), columns
        )
    told = Text(f"{len(y)} patients, 30 measurements.", style="bold")
    told.append(
        " The clinic knows the diagnosis and 10 "
        "columns; the laboratory and the imaging centre have 10 each.\nEach knows about "
        f"{SHARED:.0%} of the patients, in an order of its own. Nobody shows its table to anybody."
        "\nWith so few patients, the sums could reveal too much. The default policy refuses such "
        "jobs; the demo's\npolicies allow them by disclosure_max: .inf, and warn.",
        style="not bold",
    )
    say.print(told)
    spec = _demo_job()
    started = time.monotonic()
    journal, result = run_job(spec, sources, folder / "cluster", pages=pages)
    code = print_outcome(journal, result, as_json=False)
    if code == 0:
        shared = set.intersection(*(set(rows.tolist()) for rows in known.values()))
        pooled = _pooled_auc(values, y, np.array(sorted(shared)))
        say.print(_comparison_table(result, pooled))
        say.print(f"report: {result['report']}")
        say.print(f"{time.monotonic() - started:.0f} s in all; every daemon has stopped")
    return code


def _demo_data() -> tuple[NDArray[np.float32], NDArray[np.int64], list[str]]:
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError:
        raise ConfigError(
            "the demo needs scikit-learn and xgboost", todo=install_advice("demo")
        ) from None
    loaded = load_breast_cancer()
    names = [str(name).replace(" ", "_") for name in loaded.feature_names]
    return loaded.data.astype(np.float32), loaded.target.astype(np.int64), names


def _write_party_table(
    folder: Path,
    party: str,
    rows: NDArray[np.int64],
    table: tuple[NDArray[np.float32], NDArray[np.int64], list[str]],
    columns: slice,
) -> SourceSpec:
    values, y, names = table
    order = np.random.default_rng(len(party)).permutation(rows)
    written: dict[str, Any] = {"id": pa.array(order + 1000)}
    if party == next(iter(PARTIES)):
        written["y"] = pa.array(y[order])
    for place in range(columns.start, columns.stop):
        written[names[place]] = pa.array(values[order, place])
    path = folder / "data" / f"{party}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(written), path)
    return SourceSpec(path=str(path))


def _demo_job() -> JobSpec:
    guest, *hosts = PARTIES
    data: dict[str, Any] = {party: {"dataset": DATASET} for party in PARTIES}
    data[guest]["label"] = "y"
    return parse_settings(
        JobSpec,
        {
            "name": "demo",
            "protocol": "secureboost",
            "parties": {"guest": guest, "hosts": hosts},
            "data": data,
            "validation": {"fraction": FRACTION, "seed": SEED},
            "params": PARAMS,
        },
    )


def _pooled_auc(
    values: NDArray[np.float32], y: NDArray[np.int64], shared: NDArray[np.int64]
) -> dict[str, float]:
    """Return the AUC of XGBoost on the pooled table, with the same rows held out."""
    import xgboost
    from sklearn.metrics import roc_auc_score

    ids = encode_ids([pa.chunked_array([pa.array(shared + 1000)])], ["id"])
    held = validation_rows(ids, FRACTION, SEED)
    settings = {
        key: value for key, value in PARAMS.items() if key not in ("eval_metric", "encryption")
    }
    model = xgboost.XGBClassifier(tree_method="hist", reg_lambda=1.0, n_jobs=1, **settings)
    model.fit(values[shared[~held]], y[shared[~held]])
    return {
        part: float(roc_auc_score(y[rows], model.predict_proba(values[rows])[:, 1]))
        for part, rows in (("train", shared[~held]), ("validation", shared[held]))
    }


def _comparison_table(result: dict[str, Any], pooled: dict[str, float]) -> Table:
    table = Table("", "fedboost, three tables", "XGBoost, one pooled table")
    for part, auc in pooled.items():
        table.add_row(f"AUC, {part}", f"{result['metrics'][part]['auc']:.4f}", f"{auc:.4f}")
    return table
