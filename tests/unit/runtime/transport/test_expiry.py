"""A certificate that ends is announced; one that has ended makes its daemon absent, by name."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from fedboost.cli.certs import show
from fedboost.ground.errors import PeerError, UnreachableError
from fedboost.runtime.cluster.local import tls_of
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.daemons import access
from fedboost.runtime.transport import authority, channel
from fedboost.runtime.transport.addresses import Remote, Timers
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.channel import Dialer
from fedboost.runtime.transport.expiry import expiry_warning, remaining_text

NOW = datetime.now(UTC).replace(microsecond=0)
LEAVES = [Leaf("party", "bank"), Leaf("coordinator", "coord"), Leaf("user", "ana")]


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (timedelta(days=14), "14 days"),
        (timedelta(days=1, hours=23), "47 hours"),
        (timedelta(days=8, hours=23), "9 days"),
        (timedelta(hours=1, minutes=59), "119 minutes"),
        (timedelta(seconds=119), "119 seconds"),
        (timedelta(seconds=40), "40 seconds"),
    ],
)
def test_a_time_is_written_in_a_unit_that_shows_it(left, said):
    assert remaining_text(left) == said


def test_a_warning_begins_two_weeks_before_the_end():
    end = datetime(2027, 1, 15, 12, 0, tzinfo=UTC)
    assert expiry_warning(end, end - timedelta(days=14, seconds=1)) == ""
    assert expiry_warning(end, end - timedelta(days=14)) == (
        "ends in 14 days, on 2027-01-15 12:00 UTC: fedboost certs rotate"
    )
    assert expiry_warning(end, end).startswith("expired on 2027-01-15 12:00 UTC")


@pytest.fixture
def certs(tmp_path):
    """Certificates that ended yesterday."""
    authority.create_certificates(tmp_path, [Leaf("party", "shop")], Term(NOW))
    authority.create_certificates(tmp_path, LEAVES, Term(NOW - timedelta(days=8), days=7))
    return tmp_path


@pytest.mark.parametrize("leaf", LEAVES[:2])
def test_a_daemon_whose_certificate_has_ended_is_absent_and_named(certs, leaf):
    pem = (certs / f"{leaf.name}.pem").read_bytes()
    with pytest.raises(UnreachableError, match=f"of {leaf.role} {leaf.name} expired on ") as ended:
        Authorities(tls_of(certs, "bank")).verify(pem)
    assert "fedboost certs rotate" in ended.value.todo
    assert ended.value.where == ({"party": "bank"} if leaf.role == "party" else {})


def test_a_user_whose_certificate_has_ended_ends_the_job(certs):
    pem = (certs / "ana.pem").read_bytes()
    with pytest.raises(PeerError, match="expired on "):
        Authorities(tls_of(certs, "bank")).verify(pem)


def test_a_certificate_counts_for_signatures_of_its_time_and_for_no_later_ones(certs):
    """Ends are asked of the time of a signature, and then they are its signer's fault."""
    authorities, pem = Authorities(tls_of(certs, "shop")), (certs / "shop.pem").read_bytes()
    assert authorities.verify(pem, NOW + timedelta(days=Term.days - 1)).name == "shop"
    with pytest.raises(PeerError, match="expired on "):
        authorities.verify(pem, NOW + timedelta(days=Term.days + 1))


def test_a_list_of_certificates_shows_those_that_end_soon(certs):
    authority.create_certificates(certs, [Leaf("party", "late")], Term(NOW, days=9))
    shown = CliRunner().invoke(show, ["--out", str(certs)], env={"COLUMNS": "200"}).output
    states = {row.split()[1]: row for row in shown.splitlines() if row.startswith("│")}
    assert "│ 9 days" in states["late"]
    assert "│ in use, ends soon" in states["late"]
    assert "│ expired " in states["bank"]
    assert "soon" not in states["shop"]


class Later(datetime):
    """A clock after the end of all certificates."""

    @classmethod
    def now(cls, tz=None):
        """Return a time in a year and a day."""
        return datetime.now(tz) + timedelta(days=Term.days + 1)


def test_a_daemon_whose_own_certificate_has_ended_says_so_of_itself(tmp_path, monkeypatch):
    authority.create_certificates(tmp_path, LEAVES, Term(NOW))
    files = tls_of(tmp_path, "bank")
    dialer = Dialer(files, Timers(), checks_callees=True)
    monkeypatch.setattr(channel, "datetime", Later)

    async def call():
        await dialer.call(("telco", "127.0.0.1:1"), lambda _: pytest.fail("called"))

    with pytest.raises(UnreachableError, match="certificate of party bank expired on ") as ended:
        asyncio.run(call())
    assert ended.value.where["party"] == "bank"


@pytest.mark.parametrize(
    ("days", "said"), [(90, []), (9, ["our certificate ends in 9 days, on "] * 2)]
)
def test_a_daemon_warns_daily_of_its_certificates_end(tmp_path, monkeypatch, caplog, days, said):
    authority.create_certificates(tmp_path, LEAVES, Term(NOW, days=days))
    config = PartyConfig(
        name="bank",
        listen="127.0.0.1:7101",
        tls=tls_of(tmp_path, "bank"),
        coordinator=Remote(name="coord", address="127.0.0.1:7100"),
        store=tmp_path / "store",
    )
    pauses_s = []

    async def sleep(seconds):
        pauses_s.append(seconds)
        if len(pauses_s) == 2:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with caplog.at_level(logging.WARNING), pytest.raises(asyncio.CancelledError):
        asyncio.run(access.DaemonAccess(config, "party").warn_of_expiry_daily())
    found = [one.getMessage() for one in caplog.records]
    assert [one[: len("our certificate ends in 9 days, on ")] for one in found] == said
    assert pauses_s == [86_400.0] * 2
