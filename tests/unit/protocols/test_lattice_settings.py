"""What a job under a lattice scheme may say, and what policies allow of it."""

import pytest

from fedboost.crypto.lattice import parameters
from fedboost.encrypted.scheme.params import policy_demands
from fedboost.ground.errors import ConfigError, PolicyError
from fedboost.ground.settings import parse_settings
from fedboost.protocols.hybridtree.params import HybridTreeParams
from fedboost.protocols.secureboost import host as host_steps
from fedboost.protocols.secureboost.params import SecureBoostParams
from fedboost.runtime.config.ask import Ask
from fedboost.runtime.config.policy import Policy
from tests.support import conversations, hybrid_jobs, secureboost_jobs
from tests.support.federated import contexts_for, now
from tests.support.lattice_jobs import LATTICE, under
from tests.unit.protocols.test_lattice_guest_attacks import BITS, ENCRYPTED, SHOP, asked_for_a_key


def ask_of(params):
    wanted = policy_demands(params)
    return Ask(
        coordinator="coord",
        peers=("telco",),
        dataset="credit",
        protocol="secureboost",
        scheme=wanted.scheme,
        key_bits=wanted.key_bits,
        gradient_bits=wanted.gradient_bits,
        insecure=wanted.insecure,
        contributors=None,
        goes_on=False,
        host_noise=wanted.host_noise,
        gradient_check=None,
        key_trees=None,
        quantile_tolerance=None,
        roles=("host",),
        purpose=None,
        guest_replayable=None,
    )


@pytest.mark.parametrize("scheme", sorted(parameters.BY_NAME))
def test_a_policy_of_eight_bits_wants_a_job_of_eight_bits(scheme):
    own = Policy(
        coordinators=("coord",),
        peers=("telco",),
        datasets=("credit",),
        protocols=("secureboost",),
        gradient_bits_max=8,
    )
    raw = {"encryption": {"scheme": scheme}, "precision_bits": None}
    many = ask_of(parse_settings(SecureBoostParams, raw))
    assert (many.key_bits, many.gradient_bits, many.insecure) == (None, BITS, False)
    with pytest.raises(PolicyError, match="allows 8 bits per gradient") as refused:
        own.judge(many)
    assert refused.value.where["key"] == "policy.gradient_bits_max"
    own.judge(ask_of(parse_settings(SecureBoostParams, {**raw, "precision_bits": 8})))


async def test_more_bits_than_the_policy_allows_are_refused_by_the_host_whatever_the_job_says():
    _, said = await asked_for_a_key()
    contexts = contexts_for(
        "secureboost",
        conversations.tables(),
        {**conversations.PARAMS, **ENCRYPTED},
        held=0.25,
        limits=Policy(gradient_bits_max=8),
    )
    me = host_steps.begin(contexts[SHOP])
    for bits in (9, BITS, 2**32 - 1):
        said.value_bits = bits
        with pytest.raises(PolicyError, match="allows 8 bits per gradient"):
            host_steps.accept_key(me, said)
    assert not type(me).side.is_set(me)


@pytest.mark.parametrize("scheme", sorted(parameters.BY_NAME))
def test_a_lattice_job_says_no_modulus(scheme):
    raw = {"encryption": {"scheme": scheme, "key_bits": 2048}}
    with pytest.raises(ConfigError, match=f"{scheme} has no modulus: leave key_bits out"):
        parse_settings(SecureBoostParams, raw)


@pytest.mark.parametrize("scheme", sorted(parameters.BY_NAME))
def test_unscored_splits_take_a_scheme_that_multiplies(scheme):
    raw = {"encryption": {"scheme": scheme}, "split": "unscored"}
    with pytest.raises(ConfigError, match=f"multiplies encrypted sums, which {scheme} cannot"):
        parse_settings(HybridTreeParams, raw)


@pytest.mark.parametrize("make", [secureboost_jobs.made, hybrid_jobs.made], ids=["boost", "hybrid"])
def test_more_bits_than_sums_leave_room_for_end_the_job_before_anything_leaves(make):
    room = under(make({"precision_bits": 16}), LATTICE).room()
    with pytest.raises(ConfigError, match="precision_bits is 16; lattice adds up") as refused:
        now(room.walk())
    assert refused.value.todo == "set precision_bits to at most 15, or leave it out"
    assert room.recorded == []
