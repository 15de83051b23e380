"""How many trees of a pooled model share a split rule: figure 3a of HybridTree, for others to call.

The paper's AD, DEV-AD and Cod-rna are not to be had; its Adult is a9a, the same rows in 123 binary
columns. It does not say how the model of figure 3a was trained: the settings are section 5.1's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks import rule_shares, tables
from benchmarks.plus_tables import Row
from fedboost.core import binning, local
from fedboost.core.binning import Binning
from fedboost.core.local import Trained
from fedboost.core.params import TreeParams
from fedboost.core.tree import Tree
from fedboost.model import conditions
from fedboost.model.conditions import Rule, RuleMatch, in_words

DATA = ("a9a", "adult", "covtype", "default_credit", "give_credit")
FILES = {"a9a": "a9a_train", "adult": "adult_train"}
ONE_CLASS = {"covtype": 1}  # against the rest; classes count from 0, so the paper's second
ROWS_MAX, SEED = 50_000, 7  # of a data set, sampled
TREES = 40
COARSE = 8  # bins of a column between whose cut points thresholds are taken for one
PARAMS = TreeParams(n_estimators=TREES, learning_rate=0.1, max_depth=7, reg_lambda=1.0)
ROWS_TOLD_MIN = 100  # of a rule, to say that it is a meta-rule

Gains = dict[Rule, tuple[int, float]]  # rows, and the gain of the best further condition


@dataclass(frozen=True, eq=False)
class Loaded:
    """A data set, and the words for its rules."""

    table: local.TrainingTable
    columns: tuple[str, ...]
    texts: dict[int, list[str]]  # of categorical columns, by their codes

    def words(self, rule: Rule, cuts: Binning) -> str:
        """The rule of trees that know categories by the bins of `cuts`."""
        said = []
        for column, asked in rule:
            known = self.texts.get(column, [])
            codes = cuts.categories.get(column, np.empty(0, np.int32)).tolist()
            said.append(in_words(self.columns[column], asked, [known[code] for code in codes]))
        return " and ".join(said)


def measure(
    names: Sequence[str] = DATA, params: TreeParams = PARAMS, rows: int = ROWS_MAX
) -> list[Row]:
    """The shares of each data set, in four readings of the paper, and of rules with a host column.

    `leaf`: trees of which the rule is a leaf; `coarse`: the same with thresholds by COARSE bins;
    `determined`: in which all its rows end in one leaf; `held`: in which it leads to any node, of
    rules that are meta-rules as far as the training rows tell. `share` is the largest over all
    rules, of all trees, with its rule in words; `repeated` the share of trees that have any rule of
    which another tree has the same; `hosts` the same over rules that ask for a host's column.
    """
    return [measured(name, params, rows) for name in names]


def measured(name: str, params: TreeParams, rows: int) -> Row:
    """One data set."""
    data = load(name, rows)
    hosts = host_columns(name, data.columns)
    trained = local.train(data.table, params)
    trees = [tree for one in trained.rounds for tree in one]
    told, limit = gains_of(trained, trees, data.table), rule_shares.chance(trained.binning)
    leaves = conditions.found(trees)
    ended = rule_shares.determined([one.rule for one in leaves], trees)
    coarse = binning.fit(data.table.values, COARSE, data.table.categorical)
    readings = {
        "leaf": leaves,
        "coarse": conditions.found(trees, coarse),
        "determined": [RuleMatch(one.rule, own) for one, own in zip(leaves, ended, strict=True)],
        "held": [
            one for one in conditions.found(trees, inner=True) if _held(told.get(one.rule), limit)
        ],
    }

    def shares(found: Sequence[RuleMatch]) -> dict[str, Any]:
        best = max(found, key=lambda one: len(one.trees), default=None)
        return {
            "share": rule_shares.largest_share(found, len(trees)),
            "repeated": rule_shares.repeated_share(found, len(trees)),
            "rule": data.words(best.rule, trained.binning) if best else "",
        }

    return {
        "what": "meta_rules",
        "data": name,
        "rows": len(data.table.y),
        "columns": len(data.columns),
        "trees": len(trees),
        "max_depth": params.max_depth,
        "learning_rate": params.learning_rate,
        "train": trained.history[-1]["train"],
        "rules": len(leaves),
        "held_leaves": _share_held([told[one.rule] for one in leaves if one.rule in told], limit),
        **{what: shares(found) for what, found in readings.items()},
        "hosts": {
            what: shares([one for one in found if one.asks(hosts)])
            for what, found in readings.items()
        },
    }


def load(name: str, rows: int) -> Loaded:
    """At most so many rows of a data set."""
    if name == "adult":
        return _mixed(FILES[name], rows)
    table = tables.load(FILES.get(name, name)).sample(rows, SEED)
    y = table.y == ONE_CLASS[name] if name in ONE_CLASS else table.y
    return Loaded(local.TrainingTable(table.values, y.astype(np.float64)), table.columns, {})


def host_columns(name: str, columns: Sequence[str]) -> frozenset[int]:
    """Those that the papers' code gives to a host; where it says nothing, the second half."""
    host = tables.HOST_COLUMNS.get(name, tuple(columns[len(columns) // 2 :]))
    return frozenset(columns.index(column) for column in host)


def gains_of(trained: Trained, trees: Sequence[Tree], table: local.TrainingTable) -> Gains:
    """What the training rows say of the rule of every node, layer by layer."""
    cuts = trained.binning
    bins = cuts.transform(table.values)
    gains: Gains = {}
    for tree in trees:
        rules = conditions.node_rules(tree)
        leaves = tree.leaf_of_bins(bins, cuts.missing)
        for nodes in _layers(tree, leaves):
            found = rule_shares.further_gains(nodes, bins, table.y, cuts)
            gains |= {rules[node]: told for node, told in found.items()}
    return gains


def _layers(tree: Tree, leaves: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
    """Where each row stands after the first layer, the second, and so on to its leaf."""
    numbers = tree.node[leaves].astype(np.int64) + 1  # from 1, so that half of it is the parent's
    depth = np.frexp(numbers)[1] - 1
    for layer in range(1, int(depth.max()) + 1):
        above = (numbers >> np.maximum(0, depth - layer)) - 1
        yield np.searchsorted(tree.node, above).astype(np.int32)


def _held(told: tuple[int, float] | None, limit: float) -> bool:
    """Whether enough rows satisfy a rule, and nothing further tells about their labels."""
    return told is not None and told[0] >= ROWS_TOLD_MIN and told[1] <= limit


def _share_held(told: Sequence[tuple[int, float]], limit: float) -> float | None:
    """Of the rules with enough rows; None where there are none."""
    enough = [one for one in told if one[0] >= ROWS_TOLD_MIN]
    return sum(_held(one, limit) for one in enough) / len(enough) if enough else None


def _mixed(file: str, rows: int) -> Loaded:
    """A table of numbers and texts; texts become codes, NaN where they are missing."""
    whole = pq.read_table(tables.data_folder() / f"{file}.parquet")
    y = whole["y"].to_numpy().astype(np.float64)
    columns = tuple(name for name in whole.column_names if name not in ("id", "y"))
    read, texts = [], {}
    for place, name in enumerate(columns):
        column = whole[name].combine_chunks()
        if str(column.type) in ("string", "large_string"):
            coded = column.dictionary_encode()
            texts[place] = coded.dictionary.to_pylist()
            column = coded.indices
        read.append(column.to_numpy(zero_copy_only=False).astype(np.float32))
    values = np.asfortranarray(np.stack(read, axis=1))
    kept = np.sort(np.random.default_rng(SEED).permutation(len(y))[:rows])
    table = local.TrainingTable(np.asfortranarray(values[kept]), y[kept], categorical=tuple(texts))
    return Loaded(table, columns, texts)
