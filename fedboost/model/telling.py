"""Noisy buckets: a host of vertical FederBoost tells its columns as buckets, with noise by id and
bucket.

A bucket of an id has the same noise each time it is told: in every attempt and order of its job,
beside any other rows, in jobs that use the disclosure again, and in predictions from the same
table. So repeated tellings reveal no more than one. Another bucket of the id has other noise, and
so has every bucket of another table: both are charged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core.binning import BinCodes, Binning
from fedboost.core.bins import SparseBins
from fedboost.crypto.noise import ValueNoise
from fedboost.crypto.secrets import Secrets
from fedboost.data.frame import FrameValues
from fedboost.flow import NoisyValues, StageContext
from fedboost.ground.errors import ConfigError
from fedboost.ground.ids import EncodedIds
from fedboost.ground.settings import Settings

Ids = NDArray[np.uint8]
TELLING = "telling"  # its key in notebooks and in the facts of a shard
Lasting = Callable[[str], Secrets]  # see `flow.StageContext`


@dataclass(frozen=True)
class ToldBuckets:
    """Told buckets of some rows, and the values behind them."""

    ids: Ids  # (n, columns)
    noisy: NoisyValues | None  # None: they are true


@dataclass(frozen=True)
class Telling:
    """Settings that a host fixed when it first told its columns; JSON except for the binning."""

    job: str  # the job that first told them
    mark: str  # of the noise's secret
    id_columns: tuple[str, ...]
    columns: tuple[str, ...]
    categories: Mapping[str, list[str]]  # of each categorical column, by bucket
    binning: Binning
    missing: tuple[bool, ...]  # by column: whether its last bucket holds missing values
    epsilon: float | None  # of the noise on each value; None: no noise

    @property
    def count(self) -> NDArray[np.int32]:
        """Number of buckets of each column, with that of missing values, int32 (columns,)."""
        return self.binning.n_bins + np.array(self.missing, np.int32)

    def tell_values(
        self, values: FrameValues, ids: EncodedIds, context: StageContext[Settings]
    ) -> ToldBuckets:
        """Return the told buckets of values float32 (n, columns) of these ids of the party's table.

        A missing value in a column that had none counts as the last bucket.
        """
        bins = self.binning.transform(values)
        if isinstance(bins, SparseBins):
            bins = bins.dense()
        told = np.asfortranarray(np.minimum(bins, (self.count - 1).astype(np.uint8)))
        if self.epsilon is None:
            return ToldBuckets(told, None)
        secret, codes = self._secret(context.secrets.lasting), np.empty_like(told)
        noise = ValueNoise(secret, ids)
        for c, count in enumerate(self.count.tolist()):
            # Under other cut points an id would have another bucket: its noise must differ, too.
            settled = (self.columns[c], repr(self.epsilon), count, self._bucket_meaning(c))
            purpose = (context.dataset, *settled)
            codes[:, c] = noise.codes(told[:, c], *purpose)
            told[:, c] = noise.randomised(told[:, c], count, self.epsilon, *purpose)
        name = secret.derive("record", context.dataset).hex()
        noisy = NoisyValues(name, self.epsilon, self.columns, noise.ids, codes)
        return ToldBuckets(told, noisy)

    def for_model_values(self) -> Telling:
        """Return the same for values with the model's category indices, not a table's codes."""
        indices = {
            c: np.arange(len(codes), dtype=np.int32) for c, codes in self._category_codes.items()
        }
        return replace(self, binning=replace(self.binning, categories=indices))

    def select_columns(self, chosen: Sequence[int]) -> Telling:
        """Return the settings of these columns."""
        codes = {
            i: self._category_codes[c] for i, c in enumerate(chosen) if c in self._category_codes
        }
        cuts = tuple(self.binning.cuts[c] for c in chosen)
        return replace(
            self,
            columns=tuple(self.columns[c] for c in chosen),
            binning=Binning(self.binning.max_bin, cuts, codes),
            missing=tuple(self.missing[c] for c in chosen),
        )

    def values(self, buckets: Ids) -> NDArray[np.float32]:
        """Return values in the told buckets, float32 (n, columns), as the model's trees read them.

        They are the lowest value of a bucket, NaN for missing values, and the index of a category.
        """
        values = np.empty(buckets.shape, np.float32, order="F")
        for c, cuts in enumerate(self.binning.cuts):
            by_category = c in self.binning.categories
            low = np.arange(self.binning.n_bins[c]) if by_category else np.append(-np.inf, cuts)
            lowest = np.append(low, np.nan).astype(np.float32)
            values[:, c] = lowest[buckets[:, c]]
        return values

    def facts(self) -> dict[str, Any]:
        """Return the settings as JSON for `read_telling`."""
        cuts = self.binning
        return {
            "job": self.job,
            "mark": self.mark,
            "id": list(self.id_columns),
            "columns": list(self.columns),
            "categories": dict(self.categories),
            "missing": list(self.missing),
            "epsilon": self.epsilon,
            "max_bin": cuts.max_bin,
            "cuts": [column_cuts.tolist() for column_cuts in cuts.cuts],
            "codes": {str(c): codes.tolist() for c, codes in cuts.categories.items()},
        }

    @property
    def _category_codes(self) -> Mapping[int, BinCodes]:
        return self.binning.categories

    def _secret(self, lasting: Lasting) -> Secrets:
        secret = lasting(self.job)
        if mark_of(secret) != self.mark:
            raise ConfigError(
                "the noise of this model cannot be drawn again: the store has another key",
                todo="restore store.key from the backup of the store that trained the model, "
                "or train again",
            )
        return secret

    def _bucket_meaning(self, column: int) -> bytes:
        """Return the cut points and categories of a column's buckets."""
        texts = json.dumps(self.categories.get(self.columns[column], [])).encode()
        return self.binning.cuts[column].tobytes() + texts


def read_telling(facts: Mapping[str, Any]) -> Telling:
    """Return the settings that `Telling.facts` wrote."""
    cuts = tuple(np.array(column_cuts, np.float32) for column_cuts in facts["cuts"])
    codes = {int(c): np.array(codes, np.int32) for c, codes in facts["codes"].items()}
    return Telling(
        job=facts["job"],
        mark=facts["mark"],
        id_columns=tuple(facts["id"]),
        columns=tuple(facts["columns"]),
        categories=facts["categories"],
        binning=Binning(facts["max_bin"], cuts, codes),
        missing=tuple(facts["missing"]),
        epsilon=facts["epsilon"],
    )


def mark_of(secret: Secrets) -> str:
    """Return a mark that identifies a secret and reveals nothing else about it."""
    return secret.derive("mark").hex()
