"""What a host adds to a node's sums: how much, whatever is averaged, and when it is the same."""

import math

import numpy as np
import pytest

from fedboost.core.groups import Segments
from fedboost.core.split import Candidates, candidates
from fedboost.crypto.secrets import Secrets
from fedboost.encrypted.cells.candidates import CategoricalColumn, NodeCandidates
from fedboost.encrypted.scheme import host_noise
from fedboost.encrypted.scheme.host_noise import MOST, HostNoise, NoiseScale
from fedboost.encrypted.scheme.params import EncryptedTreeParams
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings
from fedboost.protocols.hybridtree.params import HybridTreeParams
from fedboost.protocols.secureboost.params import SecureBoostParams
from tests import tiers

SIGMA = 1 << 20
NOISE = HostNoise(NoiseScale(np.array([SIGMA, SIGMA])), Secrets(bytes(32)))
ROWS = np.arange(64, dtype=np.int32)  # which fill a field
BINS = 8
SAMPLE = tiers.examples(20_000)  # numbers drawn, of which standard errors are taken


def listed(missing):
    """The candidates of two columns; rows lack the second one where `missing`."""
    return candidates(np.array([BINS, BINS], np.int32), np.array([False, missing]))


def offered(own, grouped=()):
    """These candidates and columns of so many categories."""
    columns = [
        CategoricalColumn(10 + place, Segments.one_per_bin(count), missing=False)
        for place, count in enumerate(grouped)
    ]
    return NodeCandidates(own, tuple(columns), np.arange(len(own) + sum(grouped)))


def sampled(own, grouped=(), count=SAMPLE):
    """The noise of so many nodes' sums in units of σ, float64 (count, sums)."""
    nodes = -(-count // 2)  # of which each has a gradient's and a hessian's
    found = [NOISE.of_node((0, n), ROWS, offered(own, grouped)) for n in range(nodes)]
    return np.concatenate([np.stack(found)[:, :, k] for k in (0, 1)]) / SIGMA


def least_errors(covariance, known):
    """The standard errors of the best unbiased estimates of unknowns that sums are made of.

    known (sums, unknowns): what each sum holds of each unknown.
    """
    information = known.T @ np.linalg.inv(covariance) @ known
    return np.sqrt(np.diag(np.linalg.inv(information)))


def cuts_and_missing():
    """A column's cuts with missing rows: what each candidate's sum holds of each cut's own and of
    the missing rows', where the guest knows the node's total.
    """
    own = listed(True)
    chosen = np.flatnonzero(own.column == 1)
    known = np.zeros((len(chosen), BINS))
    for place, candidate in enumerate(chosen):
        if own.bin[candidate] < BINS - 1:
            known[place, own.bin[candidate]] = 1
            known[place, -1] = own.missing_left[candidate]
        else:
            known[place, -1] = -1  # all who are present: the total without the missing
    return chosen, known


@pytest.mark.some(10, of="distributions")
def test_a_cut_without_missing_rows_has_noise_of_sigma_and_of_nobody_else():
    noise = sampled(listed(False), count=4000)
    assert np.allclose(noise.std(axis=0), 1, atol=0.06)
    apart = np.corrcoef(noise.T) - np.eye(noise.shape[1])
    assert np.abs(apart).max() < 0.08


@pytest.mark.some(10, of="distributions")
def test_nobody_averages_a_cut_or_missing_rows_below_sigma():
    chosen, known = cuts_and_missing()
    noise = sampled(listed(True))[:, chosen]
    assert least_errors(np.cov(noise.T), known).min() > 0.97
    # Of running sums, and of any cell between two of them.
    cells = np.linalg.inv(np.tril(np.ones((BINS - 1, BINS - 1))))
    known[:, :-1] = known[:, :-1] @ np.linalg.inv(cells)
    assert least_errors(np.cov(noise.T), known).min() > 0.97


def test_with_as_much_noise_for_each_sum_alone_missing_rows_would_be_averaged():
    _, known = cuts_and_missing()
    assert least_errors(np.eye(len(known)), known)[-1] < 0.6


@pytest.mark.some(10, of="distributions")
@pytest.mark.parametrize("count", [2, 3, 9])
def test_nobody_averages_a_category_below_sigma(count):
    own = candidates(np.array([], np.int32), np.array([], np.bool_))
    noise = sampled(own, (count,))
    known = np.concatenate([np.eye(count - 1), -np.ones((1, count - 1))])  # the total is known
    assert least_errors(np.cov(noise.T), known)[0] > 0.97
    assert least_errors(np.eye(count), known)[0] < 0.97


def test_a_lone_category_is_the_node_itself():
    own = candidates(np.array([], np.int32), np.array([], np.bool_))
    assert abs(sampled(own, (1,), 4000).std() - 1) < 0.06


def test_the_same_question_has_the_same_answer_and_another_one_another():
    own = listed(True)
    asked = offered(own, (3, 2))
    once = NOISE.of_node((3, 4), ROWS, asked)
    assert once.shape == (len(own) + 5, 2)
    again = HostNoise(NOISE.scale, Secrets(bytes(32)))
    assert np.array_equal(again.of_node((3, 4), ROWS.copy(), asked), once)
    fewer = Candidates(own.column[1:], own.bin[1:], own.missing_left[1:])
    others = [
        NOISE.of_node((3, 5), ROWS, asked),
        NOISE.of_node((4, 4), ROWS, asked),
        NOISE.of_node((3, 4), ROWS[1:], asked),
        NOISE.of_node((3, 4), ROWS, offered(fewer, (3, 2))),
        NOISE.of_node((3, 4), ROWS, offered(own, (2, 3))),
        HostNoise(NOISE.scale, Secrets(bytes(range(32)))).of_node((3, 4), ROWS, asked),
    ]
    for other in others:
        assert not np.isin(other, once).any()


def test_noise_belongs_to_the_ciphertexts_and_their_key_to_the_bit():
    rows = np.arange(40_000, dtype=np.uint64).reshape(20_000, 2)
    asked = offered(listed(True))
    once = NOISE.bound_to(rows, b"key").of_node((0, 0), ROWS, asked)
    assert np.array_equal(NOISE.bound_to(rows.copy(), b"key").of_node((0, 0), ROWS, asked), once)
    other = rows.copy()
    other[-1, -1] ^= np.uint64(1)
    for changed in ((other, b"key"), (rows, b"kez"), (rows[:-1], b"key"), (rows, b"")):
        again = NOISE.bound_to(*changed)
        assert again.scale is NOISE.scale
        assert not np.isin(again.of_node((0, 0), ROWS, asked), once).any()
    assert not np.isin(NOISE.of_node((0, 0), ROWS, asked), once).any()


def test_no_noise_is_beyond_the_declared_bound():
    few = HostNoise(NoiseScale(np.array([1, 1])), Secrets(bytes(32)))
    most = max(
        np.abs(few.of_node((0, n), ROWS, offered(listed(True), (2,)))).max() for n in range(2000)
    )
    assert 7 <= most <= MOST
    assert few.scale.most.tolist() == [2 * MOST, 2 * MOST]


def test_numbers_beyond_the_bound_are_cut(monkeypatch):
    monkeypatch.setattr(host_noise, "MOST", 1)
    found = NOISE.of_node((0, 0), ROWS, offered(listed(True), (2,)))
    assert np.abs(found).max() == SIGMA


def test_noise_prints_nothing():
    assert repr(NOISE) == "HostNoise(hidden)"


def params_of(kind=SecureBoostParams, **said):
    return parse_settings(kind, said)


@pytest.mark.parametrize("bits", [8, 15, 44])
@pytest.mark.parametrize("sigma", [1e-9, 0.1, 0.5, 1.0, 1 / 3, 64.0])
def test_the_noise_is_worth_as_many_rows_as_are_reckoned_with(sigma, bits):
    params = params_of(host_noise=sigma)
    scale = NoiseScale.of(params, bits)
    assert scale.sigma.any()
    assert scale.sigma.tolist() == [max(1, math.floor(sigma * 2**bits))] * 2
    assert (scale.most <= host_noise.spare_rows(params) << bits).all()
    assert host_noise.spare_rows_added(params) >= 2 * 256 * MOST * sigma


@pytest.mark.parametrize("rows", [1, 2, 3, 40, 64, 65, 1000, 1 << 20])
@pytest.mark.parametrize("spare", [0, 12, 1536])
def test_noise_is_as_much_wider_as_a_field_is_than_its_rows_need(rows, spare):
    scale = NoiseScale(np.array([1 << 40, 0]), spare)
    field = 1 << math.ceil(math.log2(rows + spare)) if rows + spare > 1 else 1
    sigma, none = scale.sigma_of(rows).tolist()
    assert sigma == (field << 40) // (rows + spare)
    assert 1 << 40 <= sigma < 2 << 40
    assert none == 0
    assert scale.most.tolist() == [2 * MOST << 40, 0]


def test_a_node_whose_field_is_half_empty_has_nearly_twice_the_noise():
    drawn = {
        rows: np.concatenate(
            [
                NOISE.of_node((0, n), np.arange(rows, dtype=np.int32), offered(listed(False)))
                for n in range(400)
            ]
        )
        for rows in (64, 65)
    }
    assert drawn[65].std() / drawn[64].std() == pytest.approx(128 / 65, rel=0.04)


def test_every_output_has_noise():
    said = {"objective": "multi:softprob", "num_class": 3, "host_noise": 0.5}
    assert NoiseScale.of(params_of(**said), 10).sigma.tolist() == [512] * 2
    assert NoiseScale.of(params_of(**said, multi_output=True), 10).sigma.tolist() == [512] * 6


def test_a_gradient_of_hybridtree_is_measured_without_the_room_for_what_moves_it():
    assert NoiseScale.of(params_of(HybridTreeParams, host_noise=1.0), 20).sigma.tolist() == [
        1 << 16,
        1 << 20,
    ]


def test_a_job_has_no_noise_unless_it_says_so():
    assert EncryptedTreeParams().host_noise == 0.0
    scale = NoiseScale.of(params_of(), 20)
    assert not scale.sigma.any()
    assert scale.most.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("kind", "said", "why"),
    [
        (SecureBoostParams, {"host_noise": -0.1}, "greater than or equal"),
        (SecureBoostParams, {"host_noise": 65.0}, "less than or equal"),
        (SecureBoostParams, {"host_noise": float("nan")}, "host_noise"),
        (
            SecureBoostParams,
            {
                "host_noise": 1.0,
                "encryption": {"scheme": "iterative-affine"},
                "allow_insecure": True,
            },
            "use another scheme, or leave host_noise out",
        ),
        (HybridTreeParams, {"host_noise": 1.0, "split": "unscored"}, "leave it out"),
    ],
)
def test_noise_that_cannot_be_is_refused(kind, said, why):
    with pytest.raises(ConfigError, match=why):
        parse_settings(kind, said)
