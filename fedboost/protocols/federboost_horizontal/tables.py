"""A party's table with common encodings: columns in the guest's order, categories in the job's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core.binning import Binning, Cuts, cut_between
from fedboost.data.frame import Frame, FrameValues, recode_categories
from fedboost.ground.errors import ConfigError, DataError
from fedboost.protocols.federboost_horizontal.params import FederBoostHorizontalParams

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class EncodedTable:
    """A party's columns; categories as indices into the job's list, NaN for others."""

    names: tuple[str, ...]
    values: FrameValues = field(repr=False)  # float32 (n, columns), dense or sparse
    lists: Mapping[str, tuple[str, ...]]  # the categories of each categorical column
    steps: Mapping[str, Cuts] = field(repr=False)  # all values of each discrete column of numbers
    max_bin: int

    @property
    def categorical(self) -> tuple[str, ...]:
        """Columns that hold categories, in order."""
        return tuple(name for name in self.names if name in self.lists)

    @property
    def searched(self) -> NDArray[np.int64]:
        """Indices of the columns whose cut points need a search with the other parties."""
        known = {*self.lists, *self.steps}
        return np.array([i for i, name in enumerate(self.names) if name not in known], np.int64)

    def ordered(
        self, names: tuple[str, ...], categorical: tuple[str, ...], whose: str
    ) -> EncodedTable:
        """Return the same columns in the guest's order; a DataError names a missing column."""
        lacking = [name for name in names if name not in self.names]
        if lacking:
            raise DataError(
                f"the table lacks {len(lacking)} columns that {whose} has",
                column=lacking[0][:64],  # a peer's word
                todo="every party needs the same columns: name them in data: columns",
                kind="the parties have not the same columns",
            )
        more = [name for name in self.names if name not in names]
        if more:
            raise DataError(
                f"the table has {len(more)} columns that {whose} lacks",
                column=more[0],
                todo="every party needs the same columns: leave it out with data: ignore",
                kind="the parties have not the same columns",
            )
        other = sorted(set(categorical) ^ set(self.categorical))
        if other:
            raise DataError(
                f"a column holds categories here or at {whose}, and numbers at the other",
                column=other[0][:64],
                todo="name the same columns in 'categorical' of every party",
                kind="a column holds categories at one party and numbers at another",
            )
        indices = [self.names.index(name) for name in names]
        values = self.values[:, indices]
        if isinstance(values, np.ndarray):
            values = np.asfortranarray(values)
        return EncodedTable(names, values, self.lists, self.steps, self.max_bin)

    def binning_of_cuts(self, searched: Sequence[Cuts]) -> Binning:
        """Return the bins of all columns, with the cut points found for the `searched` ones."""
        cuts, codes = [np.empty(0, np.float32)] * len(self.names), {}
        for place, column_cuts in zip(self.searched.tolist(), searched, strict=True):
            cuts[place] = column_cuts
        for place, name in enumerate(self.names):
            if name in self.lists:
                codes[place] = np.arange(len(self.lists[name]), dtype=np.int32)
            elif name in self.steps:
                cuts[place] = cut_between(self.steps[name][:-1], self.steps[name][1:])
        return Binning(self.max_bin, tuple(cuts), codes)

    def earlier_binning(self, facts: Facts) -> Binning:
        """Return the bins of an earlier job, from its `cuts_facts`."""
        cuts = tuple(np.array(listed, np.float32) for listed in facts["cuts"])
        codes = {int(c): np.arange(count, dtype=np.int32) for c, count in facts["codes"].items()}
        return Binning(facts["max_bin"], cuts, codes)


def encode_table(
    frame: Frame, params: FederBoostHorizontalParams, earlier: Facts | None
) -> EncodedTable:
    """Return a party's table, in its own order or in that of an earlier job's cut points."""
    if earlier is None:
        said = params.domains
        lists = {name: tuple(map(str, said[name])) for name in frame.categories}
        steps = {n: np.array(v, np.float32) for n, v in said.items() if n not in lists}
        return _recoded(frame, lists, steps, params.max_bin)
    _require_same_columns(frame, earlier)
    lists = {name: tuple(listed) for name, listed in earlier["lists"].items()}
    table = _recoded(frame, lists, {}, earlier["max_bin"])
    # The earlier cut points keep their order, in any order of our table.
    return table.ordered(tuple(earlier["columns"]), table.categorical, "the earlier job")


def cuts_facts(binning: Binning) -> dict[str, Any]:
    """Return bins as JSON."""
    return {
        "max_bin": binning.max_bin,
        "cuts": [column_cuts.tolist() for column_cuts in binning.cuts],
        "codes": {str(c): len(codes) for c, codes in binning.categories.items()},
    }


def _require_same_columns(frame: Frame, earlier: Facts) -> None:
    if set(frame.columns) != set(earlier["columns"]):
        other = sorted(set(frame.columns) ^ set(earlier["columns"]))
        raise ConfigError(
            "the columns differ from the columns of the reused cut points",
            column=other[0],
            todo="give the columns of that job, or train without reuse",
        )
    if set(frame.categories) != set(earlier["lists"]):
        other = sorted(set(frame.categories) ^ set(earlier["lists"]))
        raise ConfigError(
            "a column holds categories in one of both jobs only",
            column=other[0],
            todo="declare it in `domains` as the earlier job did",
        )


def _recoded(
    frame: Frame, lists: Mapping[str, tuple[str, ...]], steps: Mapping[str, Cuts], max_bin: int
) -> EncodedTable:
    values = frame.values
    if lists:
        assert isinstance(values, np.ndarray)
        values = values.copy(order="F")
        for name, texts in lists.items():
            place = frame.columns.index(name)
            values[:, place] = recode_categories(values[:, place], frame.categories[name], texts)
    return EncodedTable(frame.columns, values, lists, steps, max_bin)
