"""What a job's author chooses, and how far the owner's file lets it go: parts, cuts, lattices."""

from dataclasses import replace

import pytest

from fedboost.crypto.lattice import parameters
from fedboost.ground.errors import ConfigError, PolicyError
from fedboost.runtime.cluster import local
from fedboost.runtime.config.policy import Policy
from tests.support.federated import run_job
from tests.support.horizontal_jobs import arrow_tables, made, parties, spec_of
from tests.support.lattices import LATTICE

THREE = parties(3)
OWNER = THREE[1]


@pytest.fixture
def owner_says(monkeypatch):
    """Lets one party's policy differ from the others' in the next cluster."""

    def differing(**limits):
        permissive = local.permissive_policy

        def policy(name, spec, *, has_data=True):
            own = permissive(name, spec, has_data=has_data)
            return own if name != OWNER else Policy.model_validate({**own.model_dump(), **limits})

        monkeypatch.setattr(local, "permissive_policy", policy)

    return differing


def done(folder):
    """A job that searches for exact cuts, over three parties."""
    job = made({"quantile_tolerance": 0, "n_estimators": 1, "max_depth": 1}, sizes=(40, 40, 40))
    return run_job(folder, arrow_tables(job), spec_of(job))


def assert_refused(finished, key):
    assert finished.state == "failed"
    assert isinstance(finished.error, PolicyError)
    assert finished.error.where["key"] == f"policy.{key}"
    assert all(rows == [] for rows in finished.ledgers.values())


def test_cuts_that_come_near_to_single_rows_need_the_owners_word(tmp_path, owner_says):
    """The defence is `quantile_tolerance_min`; with 0 the owner allows an exact search."""
    owner_says(quantile_tolerance_min=Policy().quantile_tolerance_min)
    assert_refused(done(tmp_path / "bounded"), "quantile_tolerance_min")


def test_cuts_come_near_to_single_rows_where_the_owner_sets_no_bound(tmp_path, owner_says):
    owner_says(quantile_tolerance_min=0)
    assert done(tmp_path / "open").state == "finished"


def test_a_part_that_the_owner_does_not_play_is_refused(tmp_path, owner_says):
    """The defence is `roles`: a job cannot make a host of a party that only adds up."""
    owner_says(roles=("aggregator",))
    assert_refused(done(tmp_path / "job"), "roles")


def test_a_part_is_played_that_the_owner_did_not_rule_out(tmp_path, owner_says):
    owner_says(roles=("host",), quantile_tolerance_min=0)
    assert done(tmp_path / "job").state == "finished"


def test_a_modulus_beyond_the_schemes_own_is_refused(monkeypatch):
    """The defence is the guard's table; the Standard's allowed 54 bits."""
    with pytest.raises(ConfigError, match="less than 128 bits"):
        replace(LATTICE, modulus_bits=54)
    monkeypatch.setitem(parameters.MODULUS_BITS_MOST, 2048, 54)
    assert replace(LATTICE, modulus_bits=54).modulus_bits == 54
