"""What an owner reads of a job before approving it."""

import pytest

from fedboost import protocols
from fedboost.flow import GUEST, HOST
from fedboost.ground.settings import parse_settings
from fedboost.runtime.policy import declared

PLAIN = {"scheme": "plain"}


@pytest.mark.parametrize(
    ("name", "params", "role", "words"),
    [
        ("federboost-vertical", {"epsilon": 2.0}, HOST, "ε 2 on each value"),
        ("federboost-vertical", {"epsilon": None}, HOST, "none: our values leave as they are"),
        ("federboost-vertical", {"epsilon": 2.0}, GUEST, "none"),
        ("secureboost", {}, HOST, "none on our sums"),
        ("secureboost", {"host_noise": 1.5}, HOST, "1.5 on our sums (host_noise)"),
        (
            "secureboost",
            {"encryption": PLAIN},
            HOST,
            "none, and the scheme plain hides nothing",
        ),
        ("align", {}, HOST, "none"),
    ],
)
def test_an_owner_reads_which_noise_hides_the_values(name, params, role, words):
    protocol = protocols.load_protocol(name)
    assert (
        declared._noise_in_words(protocol, parse_settings(protocol.params, params), role) == words
    )
