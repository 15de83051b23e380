"""Reports of a guest to the coordinator about a model: metrics, curves, importance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedboost.core import metrics, objectives, roc_curves
from fedboost.core.metrics import GIVES_AWAY
from fedboost.core.params import TreeParams
from fedboost.core.tree import Tree
from fedboost.flow import StageContext
from fedboost.ground import wire
from fedboost.ground.arrays import Floats
from fedboost.ground.settings import Settings
from fedboost.messages.job_pb2 import Curve, Importance, Metric, Warned
from fedboost.model import vertical
from fedboost.model.vertical import GuestNode

RowParts = Mapping[str, NDArray[np.int32]]  # rows by their use: train, validation


def as_metrics(measured: Mapping[str, Mapping[str, float]]) -> list[Metric]:
    """Return values by part and name as messages."""
    return [
        Metric(split=part, name=name, value=value)
        for part, values in measured.items()
        for name, value in values.items()
    ]


def measure_parts(
    params: TreeParams, margin: Floats, y: Floats, weight: Floats, parts: RowParts
) -> dict[str, dict[str, float]]:
    """Return the job's metrics by part and name; margin float64 (n, outputs), y and weight (n,)."""
    prediction, values = objectives.transform(params.objective, margin), {}
    for part, rows in parts.items():
        chosen = slice(None) if len(rows) == len(y) else rows  # all rows need no copy
        part_rows = y[chosen], prediction[chosen], weight[chosen]
        values[part] = {name: metrics.evaluate(name, *part_rows, params) for name in params.metrics}
    return values


def label_warning(host: str) -> Warned:
    """Return the guest's warning that a host's column may hold the label."""
    text = (
        f"{host}: a column alone nearly gives the answer (AUC beyond {0.5 + GIVES_AWAY:g}). "
        "Ask its owner whether the column is known at prediction time."
    )
    return Warned(party=host, warning=text)


def importance(context: StageContext[Settings], nodes: Iterable[GuestNode]) -> list[Importance]:
    """Return gain and splits: the guest's columns by name, every host's as one sum."""
    parties, names = (context.party, *context.table.hosts), context.data.columns
    summed = sorted(vertical.gain_by_column(nodes).items(), key=lambda item: -item[1][0])
    return [
        Importance(
            party=parties[owner],
            feature=names[column] if column >= 0 else "",
            gain=gain,
            splits=count,
        )
        for (owner, column), (gain, count) in summed
    ]


def importance_of(
    party: str, names: Sequence[str], rounds: Iterable[Iterable[Tree]]
) -> list[Importance]:
    """Return gain and splits of each column of a whole model, greatest gain first."""
    gain, splits = np.zeros(len(names)), np.zeros(len(names), np.int64)
    for tree in (tree for trees in rounds for tree in trees):
        features = tree.feature[~tree.is_leaf]
        np.add.at(gain, features, tree.gain[~tree.is_leaf])
        np.add.at(splits, features, 1)
    return [
        Importance(party=party, feature=names[c], gain=gain[c], splits=int(splits[c]))
        for c in np.argsort(-gain, kind="stable").tolist()
        if splits[c]
    ]


def curve_messages(y: Floats, prediction: Floats, parts: RowParts) -> list[Curve]:
    """Return ROC, precision-recall and KS curves of a binary prediction float64 (n,)."""
    drawn = []
    for part, rows in parts.items():
        if y[rows].min() == y[rows].max():
            continue
        curves = roc_curves.curves(y[rows], prediction[rows])
        for name, x, height in (
            ("roc", curves.false_positive_rate, curves.true_positive_rate),
            ("pr", curves.true_positive_rate, curves.precision),
            ("ks", curves.share, curves.true_positive_rate - curves.false_positive_rate),
        ):
            drawn.append(Curve(name=name, split=part, x=wire.pack(x), y=wire.pack(height)))
    return drawn
