"""Columns as networks read them: standardised, by their places among cuts, or by single cuts."""

from dataclasses import replace

import numpy as np
import pytest

from fedboost.core import column_readings, gbun
from fedboost.core.column_readings import ColumnReading
from fedboost.core.gbun import GbunParams, Normal
from fedboost.core.networks import Network
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings
from tests.unit.core.test_gbun import params_of, table


def cut_table(form="rank", n=400, **how):
    """Rows, params with few bins of many rows, and what the trainer reads of them."""
    rows = table(n=n, columns=4, **how)
    said = {"columns": form, "max_bin": 8, "quantile_tolerance": 0, "weights_per_output": 3}
    params = params_of(**said, outputs=12)
    return rows, params, ColumnReading.from_values(rows.values, params)


def naive_indicators(values, cuts):
    """The 0/1 columns written out: of each column `has a value` if it lacks some, then x ≥ cut."""
    with np.errstate(invalid="ignore"):
        return [
            np.stack([*([~np.isnan(x)] if lacks else []), *(x >= c for c in own)], axis=1)
            for x, own, lacks in zip(values.T, cuts.binning.cuts, cuts.lacks, strict=True)
        ]


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_looked_up_outputs_are_products_with_the_written_out_columns(sparse, missing):
    rows, params, reading = cut_table("bins", zero=0.5, sparse=sparse, missing=missing)
    inputs, network = reading.inputs(rows.values), Network(2, 5, params.outputs)
    found = np.concatenate(
        [inputs.forward(part, network) for part in (slice(0, 150), slice(150, 400))]
    )
    values = rows.values.toarray() if sparse else rows.values
    whole = naive_indicators(values, reading.cuts)
    columns, which, weight = column_readings._draw_inputs(network, tuple(reading.cuts.width), 3)
    expected = np.zeros((400, params.outputs))
    for i, (c, place, own) in enumerate(zip(columns, which, weight, strict=True)):
        expected[:, i // 3] += own * whole[c][:, place]
    shift = found - expected  # of sparse rows: what a 0 adds, the same for all
    np.testing.assert_allclose(shift, np.tile(shift[:1], (400, 1)), atol=1e-12)
    assert sparse or np.abs(shift).max() < 1e-12
    assert np.abs(found).max() <= inputs.reach() == 3


def test_a_column_is_drawn_as_often_whatever_number_of_cuts_it_has():
    columns, which, weight = column_readings._draw_inputs(Network(0, 1, 1000), (31, 0, 1), 4)
    assert set(columns.tolist()) == {0, 2}
    assert abs((columns == 0).mean() - 0.5) < 0.03
    assert set(which[columns == 0].tolist()) == set(range(31))
    assert set(which[columns == 2].tolist()) == {0}
    assert (np.abs(weight) <= 1.0).all()
    assert abs(weight.mean()) < 0.05


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_ranks_stand_for_places_among_cut_points(sparse):
    rows, _, reading = cut_table(zero=0.5, sparse=sparse)
    values = rows.values.toarray() if sparse else rows.values
    inputs = reading.inputs(rows.values)
    found = inputs.values.toarray() if sparse else inputs.values
    for c, own in enumerate(reading.cuts.binning.cuts):
        place = np.searchsorted(own, values[:, c], side="right") * 2.0 / len(own) - 1.0
        zero = np.searchsorted(own, 0.0, side="right") * 2.0 / len(own) - 1.0
        np.testing.assert_allclose(found[:, c], place - zero * sparse, atol=1e-6)


def test_a_rank_that_is_missing_stands_in_the_middle():
    rows, _, reading = cut_table(missing=0.3)
    found = reading.inputs(rows.values).values
    assert (found[np.isnan(rows.values)] == 0.0).all()
    assert (np.abs(found) <= 1.0).all()


def test_forms_take_turns_and_each_round_is_one_of_theirs():
    rows, _, reading = cut_table("auto")
    inputs = reading.inputs(rows.values)
    assert isinstance(inputs, column_readings.TurnInputs)
    every = slice(0, 400)
    for number in range(6):
        network = Network(number, 0, 12)
        alone = replace(reading, form=("standard", "rank", "bins")[number % 3])
        np.testing.assert_array_equal(
            inputs.forward(every, network), alone.inputs(rows.values).forward(every, network)
        )


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 5.0])
def test_sharpness_multiplies_normalised_outputs(sharpness):
    draw = np.random.default_rng(0)
    z = draw.normal(size=(50, 4))
    normal = Normal.from_sums(50, z.sum(axis=0), (z**2).sum(axis=0), sharpness)
    scores = np.exp(sharpness * (z - z.mean(axis=0)) / z.std(axis=0, ddof=1))
    np.testing.assert_allclose(
        gbun.output_shares(z.copy(), normal), scores / scores.sum(axis=1)[:, None]
    )


@pytest.mark.parametrize(
    ("said", "key"),
    [({"columns": "ranks"}, "columns"), ({"sharpness": 0.0}, "sharpness"),
     ({"weights_per_output": 0}, "weights_per_output"), ({"max_bin": 1}, "max_bin"),
     ({"quantile_tolerance": -1}, "quantile_tolerance")],
    ids=str,
)  # fmt: skip
def test_settings_of_columns_are_bounded(said, key):
    with pytest.raises(ConfigError, match=key):
        parse_settings(GbunParams, said)
