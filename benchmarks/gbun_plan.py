"""How much of the GBUN benchmark a run does: data, grids, sizes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Self

from fedboost.core.column_readings import Form

GBUN, XGBOOST, LIGHTGBM = "GBUN", "XGBoost", "LightGBM"
SYSTEMS = (GBUN, XGBOOST, LIGHTGBM)
ACCURACY = (
    *("vehicle", "sensorless_2k", "covtype", "epsilon_5k", "reuters_moneyfx", "give_credit"),
)
SPARSE = "sparse"  # drawn at random, of any number of columns
DATA = (*ACCURACY, SPARSE)
ROWS_MAX = {"covtype": 20_000}  # of a data set, sampled
TEST, VALIDATION = 0.3, 0.2  # of the rows; of those that are left
RATES = (1e12, 100e6, 10e6, 1e6)  # bits a second, each way of each daemon; the first: no limit
COLUMNS = (100, 10_000, 1_000_000)


@dataclass(frozen=True)
class Point:
    """Settings of one model."""

    size: int  # outputs of a network, leaves of LightGBM's trees, depth of XGBoost's
    rate: float
    reg_lambda: float
    columns: Form = "standard"  # of GBUN, as what follows
    sharpness: float = 1.0
    weights: int = 4  # of an output, in bins


@dataclass(frozen=True)
class Grid:
    """The points that are tried; the paper's steps are 2 in sizes and 0.1 in the others."""

    sizes: dict[str, tuple[int, ...]]  # of trees, by system
    networks: tuple[Point, ...]  # a search of GBUN's settings, told in few points
    rates: tuple[float, ...] = (0.1, 0.3, 0.6)  # of trees
    lambdas: tuple[float, ...] = (0.1, 1.0)
    tried: int = 300  # rounds of every point
    finalists: int = 0  # the best by validation, which are trained anew for all rounds
    splits: int = 1

    def points(self, system: str) -> Iterator[Point]:
        """All of a system's."""
        if system == GBUN:
            yield from self.networks
            return
        for size, rate, reg_lambda in product(self.sizes[system], self.rates, self.lambdas):
            yield Point(size, rate, reg_lambda)


def sizes(depths: tuple[int, ...], leaves: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Of both systems of trees."""
    return {XGBOOST: depths, LIGHTGBM: leaves}


def grid_of(
    outputs: tuple[int, ...], rates: tuple[float, ...], lambdas: tuple[float, ...], columns: Form
) -> tuple[Point, ...]:
    """All combinations, with columns of one form."""
    return tuple(Point(*one, columns) for one in product(outputs, rates, lambdas))


def each(size: int, rate: float, reg_lambda: float, *columns: Form) -> tuple[Point, ...]:
    """One point with columns of several forms."""
    return tuple(Point(size, rate, reg_lambda, form) for form in columns)


FULL = {
    "vehicle": Grid(
        sizes((5, 7, 10), (32, 64)),
        (*grid_of((32, 64), (0.3, 1.0), (0.03, 0.1), "standard"),
         *each(64, 0.3, 0.1, "rank", "bins", "auto")),
        rates=(0.1, 0.3, 1.0), lambdas=(0.0, 0.1, 0.5), splits=3,
    ),
    "sensorless_2k": Grid(
        sizes((5, 8), (32, 64)),
        (*grid_of((32, 64), (0.3, 1.0), (0.03, 0.1), "bins"),
         *each(64, 0.3, 0.1, "standard", "rank", "auto")),
        rates=(0.3, 1.0), lambdas=(0.0, 0.1, 0.5),
    ),
    "covtype": Grid(
        sizes((6, 10), (32, 256)),
        (*(Point(128, 0.5, reg_lambda, "bins", 5.0, 16) for reg_lambda in (0.1, 0.3)),
         Point(128, 0.5, 0.3, "auto", 5.0, 16), Point(256, 0.5, 0.3, "bins", 5.0, 16),
         *each(128, 0.3, 0.1, "standard", "rank", "bins")),
        rates=(0.1, 0.3), tried=40, finalists=3,
    ),
    "epsilon_5k": Grid(
        sizes((5, 7, 10), (32, 128)),
        (*each(128, 0.3, 1.0, "standard", "rank", "bins", "auto"),
         *grid_of((512,), (0.1, 0.3), (0.1, 3.0), "standard")),
        rates=(0.1, 0.3), tried=100, finalists=1,
    ),
    "reuters_moneyfx": Grid(
        sizes((5, 7, 10), (32, 128)),
        (*each(64, 0.3, 0.1, "standard", "rank", "bins"),
         *grid_of((256,), (0.3,), (0.03, 0.1), "standard")),
        rates=(0.1, 0.3), tried=60, finalists=2,
    ),
    "give_credit": Grid(
        sizes((5, 7), (32, 128)),
        (*each(64, 0.3, 0.1, "standard", "rank", "bins", "auto"), Point(128, 0.3, 0.1, "auto")),
        rates=(0.1, 0.3), tried=60, finalists=1,
    ),
}  # fmt: skip
QUICK = {
    name: Grid(
        sizes((5,), (32,)), each(64, 0.3, 0.1, "auto"), rates=(0.3,), lambdas=(0.1,), tried=40
    )
    for name in ACCURACY
}


@dataclass(frozen=True)
class Plan:
    """How much of the whole a run does."""

    rows: int | None  # of a data set at most; None: all
    rounds: int
    grids: dict[str, Grid] = field(repr=False)
    columns: tuple[int, ...]
    counted: int  # rounds of which bytes are counted
    limited: dict[int, int]  # rounds by outputs, where the bandwidth is limited
    rates: tuple[float, ...]
    parties: tuple[int, ...]
    divided: dict[int, int]  # rounds by outputs, where rows are divided among parties
    dealt: int  # rows that are divided
    same: int  # rounds of the job that is compared with one table

    @classmethod
    def of(cls, *, quick: bool) -> Self:
        """The quick one, or all."""
        if quick:
            return cls(
                rows=4000, rounds=40, grids=QUICK, columns=COLUMNS, counted=2, limited={64: 3},
                rates=(RATES[0], RATES[2]), parties=(1, 2, 4), divided={64: 3},
                dealt=20_000, same=5,
            )  # fmt: skip
        return cls(
            rows=None, rounds=300, grids=FULL, columns=COLUMNS, counted=5,
            limited={64: 8, 1024: 2}, rates=RATES, parties=(1, 2, 4, 8),
            divided={64: 8, 256: 5}, dealt=100_000, same=50,
        )  # fmt: skip

    def rows_of(self, name: str) -> int:
        """The most rows that this run uses of a data set."""
        return min(self.rows or 1 << 62, ROWS_MAX.get(name, 1 << 62))
