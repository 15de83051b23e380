"""HybridTree beside everything else that hybrid data allows: accuracy, time, bytes, shared rules.

python -m benchmarks.hybridtree [--quick] [--json F] [--markdown F] [--data NAME]
[--part accuracy|trees|predictions|rules] [--plots FOLDER] [--from F]
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import (
    harness,
    hybridtree_accuracy,
    hybridtree_data,
    hybridtree_jobs,
    hybridtree_plots,
    hybridtree_tables,
    meta_rules,
    parts,
)
from benchmarks.harness import Report
from benchmarks.hybridtree_plan import Plan
from benchmarks.plus_tables import Row

NAME = "hybridtree"
INTRO = """# HybridTree: accuracy, time, bytes, shared rules

Written by `python -m benchmarks.hybridtree --markdown F --plots FOLDER`; run it again to refresh
it. In Li et al. (2023) the party with the labels is the *host*; here, as everywhere, it is the
guest, and the hosts have further columns of some of its rows. The paper's AD and DEV-AD (PETs
prize) and Cod-rna are not to be had: its Adult is here with its own categories instead of 123
binary columns, and beside it stands class 2 of Covertype against the rest, 100,000 training and
40,000 test rows of it.

**Accuracy.** 50 trees, learning rate 0.1, λ = 1, 32 bins (XGBoost: its default of 256); seven
layers, of HybridTree five of the guest's and two of the hosts'. The paper draws how many columns
the label holder has; here it is half of them, drawn by a seed, and Table 1 has three seeds (a table
says whose columns are whose); everything else is seed 0. The paper's accuracy of SOLO on Adult,
0.653, lies below what no model at all gets, the share of the more frequent class, which stands
under each table. HybridTree is the protocol itself, its sessions and messages in one process, with
scheme `plain`, which grows the same trees as encryption does; test rows are scored by the
prediction protocol. Test rows are dealt to hosts as training rows are.

- ALL-IN: XGBoost (`hist`) and core/local on the union of all tables; the gap is to the better one.
- SOLO: the guest without hosts. TFL: guest and hosts, to whom labels are given, grow a whole tree
  each in turn, on their own rows and columns, 50 in all.
- SecureBoost with one host, worst and best of them: the trees of core/local on the rows that both
  have, which it reproduces; by all test rows, where of the rows that the host lacks its columns are
  missing ("else missing": no training row lacked them, so this is poor), or the guest's own model
  decides ("else SOLO"); and by the host's test rows alone ("its rows").
- A model per host: as many models as hosts, each test row by that of its host. The paper does
  not compare with it.

`accuracy_gap` and `gain_over_single_host` are of scored splits, five hosts, means over seeds; the
gain is over the best host in the better of both ways to judge it by all test rows.

**Time and bytes.** Guest, hosts and coordinator are daemons of their own on one machine, on
loopback with mTLS; Paillier of 2048 bits for all. The opponent is SecureBoost with all switches of
SecureBoost+ off, as in the paper, and SecureBoost+ with all of them on. Both SecureBoost+ and
HybridTree are timed with GOSS (rates 0.2 and 0.1) as well, whose accuracy stands in Table 1;
everything else is without. Who packs sends one ciphertext a row, the opponent two, and either sends
sums besides: where rows are many and the hosts' candidates few, that bounds what is saved in bytes.
"One host" has all rows and all the hosts' columns (Tables 10 and 11, and the merged host of Table
2); "one of five hosts" has a fifth of the rows, so less to do. `speedup`, `bytes_saving` and
`speedup_plus` are of scored splits with one host, without GOSS. Wall seconds are medians of trees
after the first, CPU seconds means of the same; those by party are of all trees, keys included.
Bytes are payloads of all parties, without keys.

**Predictions.** Daemons score their training rows with models of as many trees, trained without
encryption where prediction needs none (the same trees).

**Shared rules.** 40 trees of seven layers on the union of all tables; in four readings the largest
share of trees that have the same rule: of a leaf, thresholds as they are or by eight bins of a
column; a rule whose rows end in one leaf; a rule of any node that is a meta-rule as far as at least
100 training rows tell ("held"). "Again": trees with any rule of which another tree has the same."""
TABLES = hybridtree_data.DATA
DATA = (*TABLES, *(name for name in meta_rules.DATA if name not in TABLES))


def measure_accuracy(name: str, plan: Plan) -> list[Row]:
    """All experiments on one data set, as many at once as there are cores."""
    experiments = list(plan.experiments(name))
    with ProcessPoolExecutor(harness.cores(), multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(hybridtree_accuracy.measured, experiments))


def measure_rules(name: str, plan: Plan) -> list[Row]:
    """Figure 3a."""
    params = meta_rules.PARAMS.model_copy(update={"n_estimators": plan.rule_trees})
    return meta_rules.measure([name], params, plan.rule_rows)


MEASURES: dict[str, tuple[tuple[str, ...], Callable[[str, Plan], list[Row]]]] = {
    "accuracy": (TABLES, measure_accuracy),
    "trees": (TABLES, hybridtree_jobs.measure_trees),
    "predictions": (TABLES, hybridtree_jobs.measure_predictions),
    "rules": (meta_rules.DATA, measure_rules),
}
KINDS = tuple(MEASURES)


def measure(name: str, plan: Plan, part: str) -> list[Row]:
    """Everything of one data set and part of the benchmark, in rows as JSON can say them."""
    known, found = MEASURES[part]
    return found(name, plan) if name in known else []


def timed(name: str, plan: Plan, part: str) -> list[Row]:
    """The same, and how long it took, if there was anything to do."""
    started = time.perf_counter()
    rows = measure(name, plan, part)
    spent = {"data": name, "part": part, "seconds": time.perf_counter() - started}
    return [*rows, {"what": f"seconds of {part}", **spent}] if rows else []


def settings(plan: Plan, *, quick: bool) -> dict[str, Any]:
    """What was run, in words and numbers."""
    return {
        **hybridtree_accuracy.SHAPE,
        "max_bin": hybridtree_accuracy.MAX_BIN,
        "guest_depth": 7 - hybridtree_accuracy.HOST_DEPTH,
        "host_depth": hybridtree_accuracy.HOST_DEPTH,
        "scheme": f"{hybridtree_jobs.SCHEME}, {hybridtree_jobs.KEY_BITS} bits",
        **{name.replace("_", " "): value for name, value in asdict(plan).items()},
        "quick": quick,
    }


def options(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line: that of every benchmark, and more."""
    found = harness.parse(parts.parser(NAME, __doc__ or "", DATA, KINDS), DATA, given)
    found.part = found.part or list(KINDS)
    return found


def earlier(files: Sequence[Path]) -> Report:
    """The rows of earlier runs; where two measured the same of a data set, the later file's."""
    return parts.earlier(files, DATA, hybridtree_tables.figures)


def main(given: Sequence[str] | None = None) -> None:
    """Runs the benchmark as the command line says."""
    asked = options(given)
    if asked.earlier:
        report = earlier(asked.earlier)
    else:
        plan = Plan.of(quick=asked.quick)
        report = Report(NAME, settings(plan, quick=asked.quick))
        for part in asked.part:
            for name in asked.data:
                report.rows += timed(name, plan, part)
        report.figures = hybridtree_tables.figures(report.rows)
    pictures = [] if asked.plots is None else hybridtree_plots.write(asked.plots, report.rows)
    intro = "\n\n".join([INTRO, *pictures])
    report.write(asked, hybridtree_tables.shown(report.rows), intro)


if __name__ == "__main__":
    main()
