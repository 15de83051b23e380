"""What `fedboost doctor` says of certificates: how long they last, and who may issue them."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from fedboost.ground.errors import ConfigError
from fedboost.runtime.cluster.local import tls_of
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.daemons import doctor
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.addresses import PinnedAddress, Remote
from fedboost.runtime.transport.certificates import Leaf, Term

NOW = datetime.now(UTC)


def certificates(folder, days=90):
    authority.create_certificates(folder, [Leaf("party", "bank")], Term(NOW, days=days))
    return folder


def checks(folder, other=None):
    """The findings at bank, which knows telco, by a CA of its own or not."""
    config = PartyConfig(
        name="bank",
        listen="127.0.0.1:7101",
        tls=tls_of(folder, "bank"),
        coordinator=Remote(name="coord", address="127.0.0.1:7100", ca=other),
        peers={"telco": PinnedAddress(address="127.0.0.1:7102", ca=other)},
        store=folder / "store",
    )
    return doctor.check_certificates(config, "party")


def test_a_certificate_that_lasts_has_no_warning(tmp_path):
    [own] = checks(certificates(tmp_path / "ours"))
    assert (own.error, own.warning) == (None, "")
    assert own.note.startswith("valid until")


def test_a_certificate_that_ends_soon_has_a_warning(tmp_path):
    [own] = checks(certificates(tmp_path / "ours", days=9))
    assert own.error is None
    assert own.warning.startswith("ends in 9 days, on ")
    assert own.warning.endswith("fedboost certs rotate")


def test_a_certificate_that_ends_now_is_a_failure(tmp_path):
    folder = tmp_path / "ours"
    certificates(folder)
    short = Term(datetime.now(UTC) - timedelta(days=1) + timedelta(seconds=40), days=1)
    authority.rotate_certificates(folder, ["bank"], short)
    [own] = checks(folder)
    assert isinstance(own.error, ConfigError)
    assert re.match(r"the certificate ends in (40|[123]\d) seconds, on ", own.error.what)
    assert own.error.where["file"] == str(folder / "bank.pem")


@pytest.mark.parametrize(
    ("left", "warning", "fails"),
    [
        (timedelta(days=15), "", False),
        (timedelta(days=8, seconds=9), "the certificate of telco ends in 8 days, on ", False),
        (timedelta(seconds=39), "the certificate of telco ends in ", True),
    ],
)
def test_a_peers_certificate_that_ends_is_shown_at_the_link(tmp_path, left, warning, fails):
    start = datetime.now(UTC) - timedelta(days=30) + left
    authority.create_certificates(tmp_path, [Leaf("party", "telco")], Term(start, days=30))
    check = doctor.LinkCheck("here -> telco", note="round trip 1 ms")
    found = doctor._with_expiry(check, "telco", (tmp_path / "telco.pem").read_text())
    assert (found.error is not None) is fails
    assert (found.error.what if found.error else found.warning).startswith(warning)
    assert (found == check) is (warning == "")


def test_several_cas_without_pins_have_a_warning_and_pinned_ones_none(tmp_path):
    ours, theirs = certificates(tmp_path / "ours"), certificates(tmp_path / "theirs")
    both = (ours / "ca.pem").read_bytes() + (theirs / "ca.pem").read_bytes()
    (ours / "ca.pem").write_bytes(both)
    _, shared = checks(ours)
    assert shared.warning.startswith("each of the 2 CAs in tls.ca may certify telco, coord")
    assert len(checks(ours, theirs / "ca.pem")) == 1


@pytest.mark.parametrize("content", ["", "no certificate"])
def test_a_pinned_ca_that_is_none_is_named(tmp_path, content):
    ours = certificates(tmp_path / "ours")
    (tmp_path / "telco-ca.pem").write_text(content)
    [own] = checks(ours, tmp_path / "telco-ca.pem")
    assert own.error is not None
    assert own.error.where["file"].endswith("telco-ca.pem")
