"""Conversion of a party's transcript of a job for the attacks; `encrypted.record` defines its
content.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedboost.audit import attacks
from fedboost.audit.attacks import AttackPlan, Groupings, GuestView
from fedboost.audit.findings import Finding
from fedboost.audit.releases import KnownReleases, ReleasedTree
from fedboost.core import objectives
from fedboost.encrypted import record
from fedboost.flow import Artefact
from fedboost.ground.arrays import Bits, Floats
from fedboost.ground.errors import ConfigError


@dataclass(frozen=True)
class AuditResult:
    """The result of an audit."""

    trees: int  # that the transcript holds
    rows: int
    columns: Sequence[str]  # a host's columns that could be drawn
    findings: Sequence[Finding] = field(default_factory=tuple)
    equations_per_row: float | None = None  # of a host, about one bin


def run_audit(
    kept: Artefact, plan: AttackPlan, progress: Callable[[int, int], None] = lambda done, of: None
) -> AuditResult:
    """Attack a host's own bins, or the labels by a guest's disclosures.

    Raise ConfigError if the transcript ends before the first tree, or a guest's before the job.
    """
    if not tree_numbers(kept):
        raise ConfigError(
            "the job's transcript holds no tree with released sums",
            todo="audit a job that has kept a round, with a mode or split in which hosts offer "
            "sums",
        )
    if kept.facts["kind"] == record.HOST:
        given = known_releases(kept)
        findings = attacks.attack_host(given, plan, progress=progress)
        ratio, columns = given.equations_per_row(), kept.facts["columns"]
        return AuditResult(len(given.trees), given.n_rows, columns, findings, ratio)
    if record.Y not in kept.arrays:
        raise ConfigError(
            "the job is not over, and a guest's transcript has its labels at the end only",
            todo="audit it when it has finished",
        )
    loss, training = _row_losses(kept), np.asarray(kept.arrays[record.TRAINING], np.bool_)
    findings = attacks.attack_guest(host_views(kept), loss, training, progress)
    return AuditResult(len(tree_numbers(kept)), len(loss), (), findings)


def tree_numbers(kept: Artefact) -> list[int]:
    """Return the numbers of the trees in a transcript, rising; of a host, only trees with sums."""
    indices = (name.split(".") for name in kept.arrays)
    trees = sorted({int(place[0]) for place in indices if place[0].isdecimal()})
    if kept.facts["kind"] == record.GUEST:
        return trees
    return [n for n in trees if len(kept.arrays[record.of_tree(n, record.NODES)])]


def known_releases(kept: Artefact) -> KnownReleases:
    """Return the releases in a host's transcript."""
    views = []
    for number in tree_numbers(kept):
        names = (record.AT, record.NODES, record.USED, record.GROUPS)
        at, nodes, used, groups = (kept.arrays[record.of_tree(number, name)] for name in names)
        views.append(
            ReleasedTree(
                at.astype(np.int16),
                nodes.astype(np.int32),
                used.astype(np.int32),
                groups.astype(np.uint16),
            )
        )
    cells = kept.arrays[record.CELLS].astype(np.uint16)
    return KnownReleases(cells, int(kept.facts["values"]), views, float(kept.facts["noise"]))


def host_views(kept: Artefact) -> list[GuestView]:
    """Return each host's view in a guest's transcript, if the host took part in a tree."""
    y, objective = np.asarray(kept.arrays[record.Y], np.float64), str(kept.facts["objective"])
    positive = binary_labels(y, objective)
    guest_views = []
    for host, name in enumerate(kept.facts["hosts"], start=1):
        names = [record.of_tree(number, record.AT, host) for number in tree_numbers(kept)]
        seen = [kept.arrays[name] for name in names if name in kept.arrays]
        rows = kept.arrays[f"{record.ROWS}.{host}"].astype(np.int64)
        if seen:
            groupings: Groupings = np.stack(seen, axis=1).astype(np.int16)
            guest_views.append(GuestView(name, groupings, positive[rows]))
    return guest_views


def binary_labels(y: Floats, objective: str) -> Bits:
    """Return labels as yes or no, bool (rows,): of several classes, whether it is the most frequent
    one; of numbers, whether it is above the median.
    """
    record = objectives.objective_record(objective)
    if record.has_chances:
        return y > 0.5
    if record.has_many_classes:
        return y == np.bincount(y.astype(np.int64)).argmax()
    return y > np.median(y)


def _row_losses(kept: Artefact) -> Floats:
    objective = kept.facts["objective"]
    y, margin = (np.asarray(kept.arrays[name], np.float64) for name in (record.Y, record.MARGIN))
    prediction = objectives.transform(objective, margin)
    return attacks.row_losses(
        y, prediction, classes=objectives.objective_record(objective).classifies
    )
