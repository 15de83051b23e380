"""Rows and columns that a tree sees, drawn from the job's public seed; never from global state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import chain, combinations
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedboost.core import forest
from fedboost.core.fixed_point import FixedPoint
from fedboost.core.params import TreeParams
from fedboost.core.partition import layer_of
from fedboost.core.threads import Threads
from fedboost.ground.arrays import Bits, Floats, Rows, Sums
from fedboost.ground.errors import PolicyError

WORDS_AT_ONCE = 1 << 16  # numbers made of words together


class Purpose(IntEnum):
    """Purposes whose draws are independent of one another."""

    ROWS = 1
    COLUMNS = 2
    GOSS = 3
    FOREST = 4
    NETWORK = 5
    ROUNDING = 6
    LAYER_COLUMNS = 7
    NODE_COLUMNS = 8


def random_words(seed: int, purpose: Purpose, *numbers: int, n: int) -> NDArray[np.uint64]:
    """Return `n` public random words for a purpose and, say, a round; uint64 (n,).

    They are Philox's raw words; numpy promises to keep this stream, so every release draws the
    same.
    """
    return _word_stream(seed, purpose, *numbers).random_raw(n)


def _word_stream(seed: int, purpose: Purpose, *numbers: int) -> np.random.Philox:
    return np.random.Philox(np.random.SeedSequence([seed, int(purpose), *numbers]))


def round_rows(seed: int, round_number: int, n_rows: int, rate: float, party: int = 0) -> Rows:
    """Return the rows of a round, each with chance `rate` (`subsample`); int32, ascending, at least
    one if there are any.

    With rows at many parties, each draws among its own `n_rows`.
    """
    return _draw_with_chance(rate, n_rows, seed, Purpose.ROWS, round_number, *_party_key(party))


def forest_rows(
    seed: int, round_number: int, place: int, n_rows: int, rate: float, party: int = 0
) -> Rows:
    """Return the rows of the tree at `place` in the forest of a round; as `rows`."""
    return _draw_with_chance(
        rate, n_rows, seed, Purpose.FOREST, round_number, place, *_party_key(party)
    )


def _party_key(party: int) -> tuple[int, ...]:
    """Return the numbers that separate a party's draws; none for the first party, as for a lone
    table.
    """
    return (party,) if party else ()


def _rate_words(rate: float) -> tuple[int, int]:
    """Return a rate's 64 bits as two numbers for the draw.

    So rows at one rate are no subset of the rows at a larger one: two jobs whose rates differ a
    little would otherwise differ by one row.
    """
    return divmod(int(np.float64(rate).view(np.uint64)), 1 << 32)


def _uniform_numbers(words: NDArray[np.uint64]) -> Floats:
    """Return random words as numbers in [0, 1)."""
    fractions = (words >> np.uint64(11)).astype(np.float64)
    return np.ldexp(fractions, -53, out=fractions)


def _draw_with_chance(rate: float, n_rows: int, seed: int, purpose: Purpose, *numbers: int) -> Rows:
    if rate >= 1.0 or n_rows == 0:
        return np.arange(n_rows, dtype=np.int32)
    words = random_words(seed, purpose, *numbers, *_rate_words(rate), n=n_rows)
    chosen = np.flatnonzero(_uniform_numbers(words) < rate)
    return (chosen if len(chosen) else np.array([np.argmin(words)])).astype(np.int32)


@dataclass(frozen=True)
class TreeColumns:
    """Columns that a tree may use (`colsample_bytree`), and the smaller choices of its nodes.

    Each party draws max(1, ⌊rate·c⌋) of its columns for the tree, of these for a layer, of those
    for a node, so that no party needs to know another's columns.
    """

    params: TreeParams
    tree: int  # its number over all rounds
    parts: Mapping[int, Rows]  # by party number the indices of its columns, int32 ascending

    @classmethod
    def draw_columns(
        cls, params: TreeParams, tree: int, counts: Sequence[int], first: int = 0
    ) -> Self:
        """Draw the tree's columns; `counts` by party in canonical order, from number `first` on."""
        starts = np.cumsum([0, *counts]).tolist()
        parts = {}
        for party, (start, count) in enumerate(zip(starts, counts, strict=False), first):
            numbers = (params.seed, Purpose.COLUMNS, tree, party)
            places = np.arange(start, start + count, dtype=np.int32)
            parts[party] = _share_of_columns(places, params.column_rate, *numbers)
        return cls(params, tree, parts)

    @cached_property
    def all(self) -> Rows:
        """Columns of all parties, int32 ascending."""
        return np.concatenate([np.empty(0, np.int32), *self.parts.values()])

    def usable_masks(self, nodes: Sequence[int]) -> NDArray[np.bool_] | None:
        """Return a mask of the columns in `all` for each node, bool (nodes, columns); None if all
        may be used.

        Layers and nodes are known by heap ids.
        """
        if not self.params.draws_within_trees:
            return None
        masks = [np.isin(self.all, self._columns_of_node(node)) for node in nodes]
        return np.array(masks, np.bool_).reshape(len(nodes), len(self.all))

    def _columns_of_node(self, node: int) -> Rows:
        params, chosen = self.params, [np.empty(0, np.int32)]
        for party, party_columns in self.parts.items():
            layer = (params.seed, Purpose.LAYER_COLUMNS, self.tree, party, layer_of(node))
            below = (params.seed, Purpose.NODE_COLUMNS, self.tree, party, node)
            of_layer = _share_of_columns(party_columns, params.colsample_bylevel, *layer)
            chosen.append(_share_of_columns(of_layer, params.colsample_bynode, *below))
        return np.concatenate(chosen)


def _share_of_columns(
    columns: Rows, rate: float, seed: int, purpose: Purpose, *numbers: int
) -> Rows:
    """Return the share `rate` of some columns, at least one if there are any; ascending."""
    if rate >= 1.0:
        return columns
    words = random_words(seed, purpose, *numbers, n=len(columns))
    keep = max(1, int(rate * len(columns)))
    return columns[np.sort(np.argsort(words, kind="stable")[:keep])]


@dataclass(frozen=True)
class Sample:
    """Training rows that the trees of a round learn from."""

    trees: tuple[Rows, ...]  # for each tree of the round's forest; the same for every class
    rows: Rows  # (m,) used by some tree, ascending
    factor: Floats  # (m,) on their g and h
    parts: tuple[RowDraws, ...] = ()  # of each party with rows

    def fractions(self, width: int) -> Floats:
        """Return the numbers that round the rows' gradients, float64 (m, width) in [0, 1)."""
        drawn = [part.fractions(width) for part in self.parts]
        whole = drawn[0] if len(drawn) == 1 else np.concatenate(drawn)
        return whole if len(self.rows) == len(whole) else whole[self.rows]

    def scaled_gradients(self, gradients: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """Return the drawn rows' gradients with their factor, float64 (m, outputs) each, from the
        gradients of all rows that the sample is drawn from.
        """
        g, h = gradients
        if len(self.rows) < len(g):
            g, h = g[self.rows], h[self.rows]
        if (self.factor != 1.0).any():
            g, h = g * self.factor[:, None], h * self.factor[:, None]
        return g, h

    def encoded_gradients(
        self, fixed: FixedPoint, gradients: tuple[Floats, Floats], threads: Threads | None = None
    ) -> Sums:
        """Return the drawn rows' gradients with their factor, int64 (m, 2·outputs).

        gradients float64 (n, outputs) each, of all rows that the sample is drawn from.
        """
        g, h = self.scaled_gradients(gradients)
        return fixed.encode(g, h, self.fractions, threads)


@dataclass(frozen=True)
class RowDraws:
    """Draws for each training row of a party in a round, used by a tree or not."""

    seed: int
    round_number: int
    n_rows: int
    party: int

    def fractions(self, width: int) -> Floats:
        """Return numbers uniform in [0, 1), float64 (n_rows, width)."""
        position = (self.round_number, *_party_key(self.party))
        stream = _word_stream(self.seed, Purpose.ROUNDING, *position)
        numbers = np.empty(self.n_rows * width)
        for first in range(0, len(numbers), WORDS_AT_ONCE):  # saves the memory of all rows' words
            some = numbers[first : first + WORDS_AT_ONCE]
            some[:] = _uniform_numbers(stream.random_raw(len(some)))
        return numbers.reshape(self.n_rows, width)


def round_sample(
    params: TreeParams, gradients: Floats, round_number: int, this: int, party: int = 0
) -> Sample:
    """Return the rows of a round by the job's `subsample`, `goss` or `forest`.

    gradients float64 (n, k) of all training rows, or of the rows of party number `party`. Draws go
    by `round_number` over all rounds, a dynamic forest by `this`, the round of the job.
    """
    n_rows = len(gradients)
    parts = (RowDraws(params.seed, round_number, n_rows, party),)
    if params.goss is not None:
        chosen, factor = goss(gradients, params.seed, round_number, *params.goss.rates, party)
        return Sample((chosen,), chosen, factor, parts)
    trees = tree_rows(params, n_rows, round_number, this, party)
    used = trees[0] if params.forest is None else np.unique(np.concatenate(trees))
    return Sample(trees, used, np.broadcast_to(1.0, len(used)), parts)


def tree_rows(
    params: TreeParams, n_rows: int, round_number: int, this: int, party: int = 0
) -> tuple[Rows, ...]:
    """Return the rows of each tree of a round by `subsample` or `forest`; see `round_sample`.

    The draw depends only on the job and the count of rows, so every party draws the same.
    """
    rate = float(forest.row_rates(params)[this])
    if params.forest is None:
        return (round_rows(params.seed, round_number, n_rows, rate, party),)
    return tuple(
        forest_rows(params.seed, round_number, place, n_rows, rate, party)
        for place in range(int(forest.trees_each_round(params)[this]))
    )


def check_draws(
    params: TreeParams, classes: Bits, least: int, key: str, *, before: int = 0, party: int = 0
) -> None:
    """Refuse a job whose trees' sums would tell of few rows, by a PolicyError.

    Trees of a round have the same gradients, and first trees those of other jobs' first trees, so a
    difference of sums is a sum of rows. The rows that a tree leaves out, and the rows that only one
    of two trees of a round has, must be at least `least` of each class, or none. classes bool
    (classes, n) of all training rows; `before` and `party` as in `round_sample`. The rows that goss
    keeps are not known before, but their count is. `key` names the limit.
    """
    n_rows = classes.shape[1]
    if least == 1:
        counts: Iterable[int] = ()
    elif params.goss is not None:
        counts = (n_rows - sum(goss_counts(n_rows, *params.goss.rates)),)
    elif (forest.row_rates(params) >= 1.0).all():
        counts = ()
    else:
        rounds = range(params.n_estimators)
        trees = (tree_rows(params, n_rows, before + this, this, party) for this in rounds)
        counts = (fewest_apart(of_one, classes) for of_one in trees)
    if any(0 < count < least for count in counts):
        raise PolicyError(
            f"the job's draws leave too few rows: the policy asks for at least {least}, also of "
            "each class, or none, between two trees of a round, and between a tree and all rows",
            todo="use another seed, a smaller subsample, or none, or ask the party's owner",
            key=key,
        )


def fewest_apart(trees: Sequence[Rows], classes: Bits) -> int:
    """Return the smallest count, of a class, of rows that a tree leaves out or that only one of two
    trees has; 0 if all trees learn from all rows.
    """
    left_out = np.ones((len(trees), classes.shape[1]), np.bool_)
    for mask, rows in zip(left_out, trees, strict=True):
        mask[rows] = False
    apart = (a ^ b for a, b in combinations(left_out, 2))
    counts = (int(np.count_nonzero(mask & of)) for mask in chain(left_out, apart) for of in classes)
    return min((count for count in counts if count), default=0)


def sample_of_parties(
    params: TreeParams, gradients: Floats, number: int, row_groups: tuple[int, ...]
) -> Sample:
    """Return the rows of round `number`; each party draws from its rows as in `round_sample`.

    gradients float64 (n, k) of all training rows, party after party; `row_groups` their counts.
    """
    starts = np.cumsum([0, *row_groups])[:-1].astype(np.int32)
    parts = [
        round_sample(params, mine, number, number, party)
        for party, mine in enumerate(np.split(gradients, starts[1:]))
    ]
    if len(parts) == 1:
        return parts[0]
    trees = zip(*(part.trees for part in parts), strict=True)
    return Sample(
        tuple(_table_rows(starts, rows) for rows in trees),
        _table_rows(starts, [part.rows for part in parts]),
        np.concatenate([part.factor for part in parts]),
        tuple(tree for part in parts for tree in part.parts),
    )


def _table_rows(starts: Rows, parts: Sequence[Rows]) -> Rows:
    """Return the parties' own row numbers as row numbers of the joint table."""
    return np.concatenate([start + rows for start, rows in zip(starts, parts, strict=True)])


def goss(
    gradients: Floats,
    seed: int,
    round_number: int,
    top_rate: float,
    other_rate: float,
    party: int = 0,
) -> tuple[Rows, Floats]:
    """Draw rows by gradient-based one-side sampling; return them and the factor on their g and h.

    gradients float64 (n, k); rows rank by Σ_k |g|, equal ones by row number. The ⌈top_rate·n⌉ first
    stay with factor 1, ⌈other_rate·n⌉ of the others with (1 − top_rate) / other_rate (SecureBoost+,
    section 6.1; LightGBM, algorithm 2). Returns int32 (m,) ascending and float64 (m,).
    """
    n = len(gradients)
    n_top, n_other = goss_counts(n, top_rate, other_rate)
    order = np.argsort(-np.abs(gradients).sum(axis=1), kind="stable")
    rest = np.sort(order[n_top:])
    numbers = (*_party_key(party), *_rate_words(top_rate), *_rate_words(other_rate))
    words = random_words(seed, Purpose.GOSS, round_number, *numbers, n=len(rest))
    others = rest[np.argsort(words, kind="stable")[:n_other]]
    factor = np.zeros(n)
    factor[order[:n_top]] = 1.0
    factor[others] = (1.0 - top_rate) / other_rate
    chosen = np.flatnonzero(factor)
    return chosen.astype(np.int32), factor[chosen]


def goss_counts(n_rows: int, top_rate: float, other_rate: float) -> tuple[int, int]:
    """Return how many rows `goss` keeps for their gradients, and draws from the rest."""
    n_top = min(n_rows, int(np.ceil(top_rate * n_rows)))
    return n_top, min(n_rows - n_top, int(np.ceil(other_rate * n_rows)))
