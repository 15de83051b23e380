"""What `encryption.scheme: auto` becomes: for whom, for how many rows, for which settings."""

from typing import Any

import pytest

from fedboost.encrypted.scheme import choice, loading
from fedboost.encrypted.scheme.choice import ALWAYS, ORDER, SchemeOffer, choose_scheme, make_offer
from fedboost.encrypted.scheme.params import EncryptedTreeParams, policy_demands
from fedboost.encrypted.scheme.schemes import SCHEMES
from fedboost.ground.errors import ConfigError, PeerError
from fedboost.ground.settings import parse_settings
from fedboost.job import AUTO, ChosenScheme, PassedOver, encryption_of
from fedboost.protocols.hybridtree.params import HybridTreeParams

JOB = EncryptedTreeParams()
ROWS_MOST = 1 << 21  # that leave a message of `lattice` eight bits
ROWS_LARGE = 1 << 27  # that leave one of `lattice-large` ten
DENIED = "telco's policy does not allow lattice"
MANY = "bank's table may have more rows than lattice adds up"


def chosen(params=JOB, *, rows=1000, **allowed):
    """The choice for bank, whose table has so many rows, telco and whoever says what it allows."""
    offers = {
        "bank": make_offer(params, allowed.get("bank"), rows),
        "telco": make_offer(params, allowed.get("telco"), None),
        "shop": make_offer(params, allowed.get("shop"), None),
    }
    found = choose_scheme(params, offers)
    choice.check_choice(params, found)
    return found.scheme, found.reason_text


def test_every_scheme_that_hides_gradients_has_a_place_in_the_order():
    assert set(ORDER) == {name for name, scheme in SCHEMES.items() if scheme.secure}
    assert set(ALWAYS) < set(ORDER)


def test_a_job_that_names_none_gets_lattice_where_every_policy_allows_it():
    assert choice.is_open(JOB)
    assert chosen() == ("lattice", "every party's policy allows it")
    assert chosen(telco=["paillier", "lattice"]) == ("lattice", "every party's policy allows it")


def test_one_party_that_denies_lattice_is_named_and_paillier_runs():
    assert chosen(telco=["paillier"]) == ("paillier", DENIED)


def test_several_parties_that_deny_are_named():
    why = "telco's and shop's policies do not allow lattice"
    assert chosen(telco=["paillier"], shop=["paillier"]) == ("paillier", why)


@pytest.mark.parametrize("name", sorted({*ORDER} - {*ALWAYS}))
def test_another_scheme_runs_only_where_a_policy_names_it_and_all_allow_it(name):
    assert chosen(telco=["paillier", name]) == (name, DENIED)
    scheme, why = chosen(telco=["paillier", name], shop=["lattice", "paillier"])
    assert scheme == "paillier"
    assert why == f"{DENIED}; shop's policy does not allow {name}"


def test_a_named_scheme_does_not_come_before_lattice():
    everything = [name for name in ORDER]
    assert chosen(bank=everything, telco=everything)[0] == "lattice"


@pytest.mark.parametrize(
    ("bits", "most"), [(None, ROWS_MOST), (8, 1 << 20), (12, 1 << 16), (15, 1 << 13)]
)
def test_more_rows_than_lattice_adds_up_get_the_larger_lattice(bits, most):
    params = EncryptedTreeParams(precision_bits=bits)
    assert chosen(params, rows=most)[0] == "lattice"
    assert chosen(params, rows=most + 1) == ("lattice-large", MANY)


@pytest.mark.parametrize(("bits", "most"), [(None, ROWS_LARGE), (9, ROWS_LARGE), (12, 1 << 24)])
def test_more_rows_than_any_lattice_adds_up_fall_back(bits, most):
    params = EncryptedTreeParams(precision_bits=bits)
    assert chosen(params, rows=most) == ("lattice-large", MANY)
    more = f"{MANY}; bank's table may have more rows than lattice-large adds up"
    assert chosen(params, rows=most + 1) == ("paillier", more)


def test_the_larger_lattice_runs_where_policies_allow_it_and_settings_let_it():
    why = f"{MANY}; telco's policy does not allow lattice-large"
    assert chosen(rows=ROWS_MOST + 1, telco=["lattice", "paillier"]) == ("paillier", why)
    packed = parse_settings(EncryptedTreeParams, {"encryption": {"answers": "packed"}})
    assert chosen(packed)[0] == "lattice"
    with pytest.raises(ConfigError, match="answers of lattice-large cannot be packed"):
        chosen(packed, rows=ROWS_MOST + 1)
    with pytest.raises(ConfigError, match="answers of lattice-large cannot be packed: leave"):
        parse_settings(
            EncryptedTreeParams, {"encryption": {"answers": "packed", "scheme": "lattice-large"}}
        )


def test_rows_count_as_the_next_power_of_two_so_that_noise_does_not_measure_them():
    """Noise is worth rows: a coordinator that varies it learns rows to a factor of two."""
    said: list[dict[str, str]] = [
        dict(
            make_offer(EncryptedTreeParams(precision_bits=12, host_noise=noise), None, rows).against
        )
        for noise in (1.0, 20.0, 64.0)
        for rows in (33_000, 50_000, 65_536)
    ]
    assert said[0] == said[1] == said[2]
    assert said[3] == said[4] == said[5]


def test_rows_of_a_table_that_is_not_known_do_not_count():
    assert make_offer(JOB, None, None).against == {}


@pytest.mark.parametrize(
    ("params", "why"),
    [
        (
            HybridTreeParams(split="unscored"),
            "split: unscored multiplies encrypted sums, which lattice cannot",
        ),
        (
            EncryptedTreeParams(precision_bits=16),
            "precision_bits is 16, and lattice has 15 at most",
        ),
        (
            parse_settings(EncryptedTreeParams, {"encryption": {"key_bits": 3072}}),
            "key_bits is of a modulus, and lattice has no modulus",
        ),
    ],
    ids=["multiplies", "precision", "modulus"],
)
def test_settings_that_lattice_cannot_do_fall_back(params, why):
    assert chosen(params) == ("paillier", why)
    assert chosen(params, rows=ROWS_MOST + 1)[0] == "paillier"


def test_noise_of_hosts_runs_under_lattice():
    assert chosen(EncryptedTreeParams(host_noise=1.0))[0] == "lattice"


def test_no_scheme_that_suits_all_is_refused_with_what_is_against_each():
    with pytest.raises(ConfigError, match=f"{DENIED}; shop's policy does not allow paillier") as no:
        chosen(telco=["paillier"], shop=["lattice"])
    assert no.value.where["key"] == "encryption.scheme"


def test_a_job_that_names_its_scheme_leaves_no_choice():
    named = parse_settings(EncryptedTreeParams, {"encryption": {"scheme": "paillier"}})
    assert not choice.is_open(named)
    choice.check_choice(named, None)
    with pytest.raises(PeerError, match="but the job names one"):
        choice.check_choice(named, ChosenScheme(scheme="lattice"))
    with pytest.raises(PeerError, match="but the job names one"):
        choice.check_choice(
            object(), ChosenScheme(scheme="lattice")
        )  # of a protocol without encryption


UNSCORED = HybridTreeParams(split="unscored")
SETTINGS = PassedOver(scheme="lattice", why="settings", what="something")


@pytest.mark.parametrize(
    ("params", "said", "words"),
    [
        (JOB, None, "names no encryption scheme"),
        (JOB, ChosenScheme(scheme="plain"), "choice of plain does not follow"),
        (JOB, ChosenScheme(scheme="rot13"), "choice of rot13 does not follow"),
        (UNSCORED, ChosenScheme(scheme="lattice"), "choice of lattice does not follow"),
        (JOB, ChosenScheme(scheme="paillier", passed=(SETTINGS,)), "does not follow"),
        (UNSCORED, ChosenScheme(scheme="paillier", passed=(SETTINGS,)), "does not follow"),
    ],
    ids=["none", "plain", "unknown", "impossible", "untrue", "misquoted"],
)
def test_a_choice_that_the_rule_cannot_have_made_is_refused(params, said, words):
    with pytest.raises(PeerError, match=words):
        choice.check_choice(params, said)


def test_an_open_job_asks_for_no_scheme_yet_and_trains_under_none():
    assert policy_demands(JOB).scheme == AUTO
    assert not policy_demands(JOB).insecure
    with pytest.raises(ConfigError, match="has not been chosen yet"):
        loading.tree_scheme(JOB)


def test_a_choice_stands_in_the_place_of_auto_only():
    found = ChosenScheme(scheme="lattice")
    said: list[dict[str, Any]] = [{}, {"encryption": {}}, {"encryption": {"scheme": AUTO}}]
    for one in said:
        assert found.fill_scheme(one)["encryption"] == {"scheme": "lattice"}
    named = {"encryption": {"scheme": "paillier"}, "max_depth": 2}
    assert found.fill_scheme(named) == named
    keyed = ChosenScheme(scheme="paillier").fill_scheme({"encryption": {"key_bits": 3072}})
    assert keyed == {"encryption": {"scheme": "paillier", "key_bits": 3072}}


def test_a_job_says_which_encryption_it_has_and_why():
    assert encryption_of({}, None) == {}
    assert encryption_of({"encryption": "x"}, None) == {}
    named = encryption_of({"encryption": {"scheme": "paillier"}}, None)
    assert named == {"scheme": "paillier", "because": "the job names it"}
    chosen_one = encryption_of({}, ChosenScheme(scheme="lattice"))
    assert chosen_one == {"scheme": "lattice", "because": "every party's policy allows it"}


def test_an_offer_that_names_nothing_has_nothing_against_anything():
    assert choose_scheme(JOB, {"bank": SchemeOffer()}).scheme == "lattice"
