"""What `fedboost doctor` says of certificates and of builds."""

import re
import time
from datetime import UTC, datetime, timedelta

import pytest

from fedboost.ground.build_version import build_version
from fedboost.ground.errors import ConfigError
from fedboost.ground.formats import WIRE_VERSION
from fedboost.messages.job_pb2 import HelloReply
from fedboost.runtime.cluster.local import tls_of
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.daemons import doctor
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.addresses import PinnedAddress, Remote, Timers
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.channel import Dialer
from tests.support.federated import now

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


def link_out(monkeypatch, version, number):
    """What bank's doctor finds of telco, which runs a build."""

    async def answer(*_):
        return HelloReply(name="telco", role="party", version=version, wire_version=number,
                          wire_oldest=number, clock=time.time())  # fmt: skip

    monkeypatch.setattr(doctor, "_call_daemon", answer)
    known = {"telco": doctor.LinkTarget("party", "127.0.0.1:7102")}
    return now(doctor._link_out(Dialer(None, Timers()), known, "telco"))


def test_another_build_with_our_wire_passes_and_is_named(monkeypatch):
    found = link_out(monkeypatch, "0.9.0", WIRE_VERSION)
    assert found.error is None
    assert found.note.endswith(f", fedboost 0.9.0 (here {build_version()})")
    assert "fedboost" not in link_out(monkeypatch, build_version(), WIRE_VERSION).note


def test_a_build_with_another_wire_fails_the_link_and_the_older_is_named(monkeypatch):
    error = link_out(monkeypatch, "0.1.0", WIRE_VERSION - 1).error
    assert isinstance(error, ConfigError)
    assert error.what.startswith(f"telco runs fedboost 0.1.0 (wire {WIRE_VERSION - 1}), this ")
    assert error.todo == "upgrade telco"
    assert link_out(monkeypatch, "0.9.0", WIRE_VERSION + 1).error.todo == "upgrade this daemon"
