"""Refusals before anything is sent: of unsuitable tables, and of too few rows in all."""

from __future__ import annotations

import numpy as np

from fedboost.core import objectives, weight_checks
from fedboost.data.frame import Frame
from fedboost.flow import AGGREGATOR, Role
from fedboost.ground.errors import ConfigError, DataError
from fedboost.model import columns, labels
from fedboost.protocols.federboost_horizontal.params import FederBoostHorizontalParams

ROWS_PER_BIN_MIN = 80  # a search that isolates no row cannot tell bins of fewer rows apart


def check_table(
    role: Role, params: FederBoostHorizontalParams, frame: Frame, held_out: bool
) -> None:
    """Refuse a table of ours that the job cannot learn from, before anything has left us."""
    if role is AGGREGATOR:
        return
    labels.check_held_out(params, held_out)
    columns.directions(params.monotone_constraints, frame.columns, frame.categories)
    if frame.label is None:
        raise DataError("the table has no label", todo="name it in the job: label: …")
    objectives.check_labels(params, frame.label, learn=False)
    if frame.weight is not None:
        weight_checks.check_weight(frame.label, frame.weight)
    for name in params.domains:
        if name not in frame.columns:
            raise ConfigError(
                "domains names a column that the table does not have",
                column=name,
                todo="name one of the table's columns",
            )
    for name in frame.columns:
        said = params.domains.get(name)
        is_text = said is not None and isinstance(said[0], str)
        if name in frame.categories and not is_text and params.reuse is None:
            raise ConfigError(
                "a categorical column needs its categories from the job, as no party has them all",
                column=name,
                todo=f"domains: {{{name}: [first, second, …]}}",
            )
        if name not in frame.categories and is_text:
            raise ConfigError(
                "domains names categories of a column that holds numbers",
                column=name,
                todo="name the column in 'categorical' of every party, or give numbers",
            )
    _check_domains(params, frame)


def _check_domains(params: FederBoostHorizontalParams, frame: Frame) -> None:
    """Refuse values that the job does not list for their column."""
    for name, said in params.domains.items():
        column = frame.values[:, [frame.columns.index(name)]]
        cells = column.toarray() if not isinstance(column, np.ndarray) else column
        present = cells[~np.isnan(cells)]
        if name in frame.categories:
            known = [text in said for text in frame.categories[name]]
            strange = int(np.count_nonzero(~np.array(known)[present.astype(np.int64)]))
        else:
            strange = int(np.count_nonzero(~np.isin(present, np.array(said, np.float32))))
        if strange:
            raise DataError(
                f"{strange} of {frame.n_rows} values are not in the column's domain",
                column=name,
                todo="add them to domains in the job, or leave the cells empty",
            )


def check_rows(params: FederBoostHorizontalParams, rows: int) -> None:
    """Refuse more buckets than `rows` rows allow, unless the job sets quantile_tolerance."""
    if params.quantile_tolerance is None and rows < ROWS_PER_BIN_MIN * params.max_bin:
        raise ConfigError(
            f"max_bin is {params.max_bin} and all parties have {rows} training rows; "
            f"a bin needs {ROWS_PER_BIN_MIN}, so that the search isolates nobody",
            todo=f"max_bin: {max(2, rows // ROWS_PER_BIN_MIN)}, or set quantile_tolerance",
        )
