"""Calls through a relay: who is reached, what is said where nobody is, and what survives."""

import asyncio
import logging
import ssl
from datetime import UTC, datetime

import pytest

from fedboost.ground.errors import UnreachableError
from fedboost.runtime.relay import server
from fedboost.runtime.transport.authority import revoke_certificates, rotate_certificates
from fedboost.runtime.transport.certificates import Term
from tests.support.relays import (
    MEMBERS,
    address,
    caller,
    certificates,
    daemon,
    files,
    hello,
    running_relay,
    until,
)

NOT_VALID = r"certificate of the relay .* is not valid"
UNKNOWN = r"the relay does not know us"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("others"))


async def test_the_called_daemon_sees_the_callers_own_certificate(folder):
    async with running_relay(folder) as (_, port), daemon(folder, "telco", address(port)) as telco:
        node, _, calls = telco
        await until(lambda: calls.is_connected)
        async with caller(folder, "bank", address(port)) as bank:
            await hello(bank, "telco")
        async with caller(folder, "ana", address(port), role="user") as ana:
            await hello(ana, "telco")
    assert node.callers == ["party bank", "user ana"]


@pytest.mark.parametrize("reach", ["direct", "outbound", "auto"])
async def test_reach_says_whether_an_address_that_answers_is_dialled(folder, reach):
    async with (
        running_relay(folder) as (relay, port),
        daemon(folder, "telco", address(port)) as (node, own, calls),
    ):
        await until(lambda: calls.is_connected)
        async with caller(folder, "bank", address(port), reach) as bank:
            await hello(bank, "telco", f"127.0.0.1:{own}")
            assert bank.routes.is_relayed("telco") == (reach == "outbound")
        passed = dict(relay.reading("fedboost_relay_bytes_total"))
        assert bool(passed) == (reach == "outbound")
    assert node.callers == ["party bank"]


async def test_auto_takes_the_relay_where_the_address_does_not_answer(folder, caplog):
    caplog.set_level(logging.INFO)
    async with (
        running_relay(folder) as (_, port),
        daemon(folder, "telco", address(port)) as (node, _, calls),
    ):
        await until(lambda: calls.is_connected)
        async with caller(folder, "bank", address(port), "auto") as bank:
            await hello(bank, "telco", "127.0.0.1:9")
            await hello(bank, "telco", "127.0.0.1:9")
    assert node.callers == ["party bank"] * 2
    [said] = [r.message for r in caplog.records if "through the relay" in r.message]
    assert said == "telco does not answer at 127.0.0.1:9: it is called through the relay"


async def test_auto_goes_back_to_an_address_that_answers_again(folder, monkeypatch):
    monkeypatch.setattr("fedboost.runtime.relay.routes.DIRECT_AGAIN_S", 0.0)
    async with (
        running_relay(folder) as (_, port),
        daemon(folder, "telco", address(port)) as (_, own, calls),
    ):
        await until(lambda: calls.is_connected)
        async with caller(folder, "bank", address(port), "auto") as bank:
            at = f"127.0.0.1:{own}"
            bank.routes.target("telco", at)
            assert bank.routes.change_route("telco")
            await hello(bank, "telco", at)
            await until(lambda: not bank.routes.is_relayed("telco"))
            await hello(bank, "telco", at)


async def test_an_absent_daemon_is_named(folder):
    async with (
        running_relay(folder) as (_, port),
        caller(folder, "bank", address(port)) as bank,
    ):
        with pytest.raises(UnreachableError, match="shop has no line to the relay"):
            await hello(bank, "shop")


async def test_a_relay_that_is_not_there_is_named(folder):
    async with caller(folder, "bank", address(9)) as bank:
        with pytest.raises(UnreachableError, match=r"relay at 127\.0\.0\.1:9 cannot"):
            await hello(bank, "telco")


async def test_a_relay_with_another_certificate_is_refused(folder, other):
    async with running_relay(other) as (_, port):
        async with caller(folder, "bank", address(port)) as bank:
            with pytest.raises(UnreachableError, match=NOT_VALID):
                await hello(bank, "telco")
        async with caller(folder, "bank", address(port, ca=other / "ca.pem")) as bank:
            with pytest.raises(UnreachableError, match="closed the connection"):
                await hello(bank, "telco")


async def test_a_relay_of_another_name_is_refused(folder):
    async with (
        running_relay(folder) as (_, port),
        caller(folder, "bank", address(port, name="other")) as bank,
    ):
        with pytest.raises(UnreachableError, match=NOT_VALID):
            await hello(bank, "telco")


async def test_the_daemon_behind_the_relay_must_have_the_called_name(folder):
    """A relay that joins the wrong two is found out by the certificate inside."""
    async with (
        running_relay(folder) as (relay, port),
        daemon(folder, "shop", address(port)) as (node, _, calls),
    ):
        await until(lambda: calls.is_connected)
        relay._controls["telco"] = relay._controls["shop"]
        async with caller(folder, "bank", address(port)) as bank:
            with pytest.raises(UnreachableError, match="certificate of relay is not telco's"):
                await hello(bank, "telco")
    assert node.callers == []


@pytest.mark.parametrize("who", ["stranger", "relay"])
async def test_only_members_may_dial_in(folder, who):
    async with running_relay(folder) as (relay, port):
        async with caller(folder, who, address(port)) as dialer:
            with pytest.raises(UnreachableError, match=UNKNOWN):
                await hello(dialer, "telco")
        assert relay.reading("fedboost_relay_refused_total") == [((), 1.0)]


async def test_a_revoked_member_is_refused(tmp_path):
    folder = certificates(tmp_path)
    async with running_relay(folder) as (_, port), daemon(folder, "telco", address(port)) as telco:
        await until(lambda: telco[2].is_connected)
        async with caller(folder, "bank", address(port)) as bank:
            await hello(bank, "telco")
        revoke_certificates(folder, "bank", datetime.now(UTC))
        async with caller(folder, "bank", address(port)) as bank:
            with pytest.raises(UnreachableError, match=UNKNOWN):
                await hello(bank, "telco")


async def test_a_token_stands_for_a_certificate(folder):
    token = "t" * 32
    members = {**MEMBERS, ("party", "bank"): token}
    async with (
        running_relay(folder, members) as (_, port),
        daemon(folder, "telco", address(port)) as (node, _, calls),
    ):
        await until(lambda: calls.is_connected)
        async with caller(folder, "bank", address(port, token=token)) as bank:
            await hello(bank, "telco")
        async with caller(folder, "bank", address(port, token="u" * 32)) as bank:
            with pytest.raises(UnreachableError, match=UNKNOWN):
                await hello(bank, "telco")
    assert node.callers == ["party bank"]


async def test_a_daemon_dials_again_after_the_relay_has_gone(folder):
    async with running_relay(folder) as (_, port):
        pass
    async with (
        daemon(folder, "telco", address(port)) as (node, _, calls),
        caller(folder, "bank", address(port)) as bank,
    ):
        for _ in range(2):
            async with running_relay(folder, port=port):
                await until(lambda: calls.is_connected)
                await hello(bank, "telco", retry_s=5.0)
            await until(lambda: not calls.is_connected)
    assert node.callers == ["party bank"] * 2


async def test_a_daemon_that_dials_in_again_takes_the_place_of_its_earlier_line(folder):
    async with running_relay(folder) as (_, port), daemon(folder, "telco", address(port)) as one:
        await until(lambda: one[2].is_connected)
        link = one[2]._link
        async with (
            link.open_line("/answer") as line,
            caller(folder, "bank", address(port)) as bank,
        ):
            asking = asyncio.create_task(hello(bank, "telco"))
            message = await line.receive_json()
            assert message["from"] == "party bank"
            asking.cancel()


async def test_a_user_cannot_be_called(folder):
    async with (
        running_relay(folder) as (_, port),
        caller(folder, "ana", address(port), role="user") as ana,
    ):
        with pytest.raises(UnreachableError, match="status 403"):
            async with ana.routes._link.open_line("/answer"):
                pass


async def test_a_member_cannot_take_the_call_of_another(folder):
    async with (
        running_relay(folder) as (relay, port),
        daemon(folder, "telco", address(port)) as (node, _, calls),
    ):
        await until(lambda: calls.is_connected)
        async with caller(folder, "bank", address(port)) as bank:
            relay._announced["known"] = server.Announced(("party", "telco"))
            async with caller(folder, "shop", address(port)) as shop:
                with pytest.raises(UnreachableError):
                    async with shop.routes._link.open_line("/take/known"):
                        pass
            await hello(bank, "telco")
    assert node.callers == ["party bank"]


async def test_a_member_has_so_many_lines_and_no_more(folder, monkeypatch):
    monkeypatch.setattr(server, "LINES_MAX", 1)
    async with (
        running_relay(folder) as (relay, port),
        daemon(folder, "telco", address(port)) as (_, _, calls),
    ):
        await until(lambda: calls.is_connected)
        async with caller(folder, "bank", address(port)) as bank:
            await hello(bank, "telco")
            async with caller(folder, "shop", address(port)) as shop:
                with pytest.raises(UnreachableError, match="allows us no more lines"):
                    await hello(shop, "telco")
        await until(lambda: dict(relay.reading("fedboost_relay_lines"))[("telco",)] == 0)
        async with caller(folder, "shop", address(port)) as shop:
            await hello(shop, "telco")


async def test_the_relay_shows_its_new_certificate(tmp_path):
    folder = certificates(tmp_path)
    old = files(folder, "relay").cert.read_bytes()
    async with running_relay(folder) as (_, port), daemon(folder, "telco", address(port)) as telco:
        await until(lambda: telco[2].is_connected)
        rotate_certificates(folder, ["relay"], Term(datetime.now(UTC)))
        revoke_certificates(folder, "relay", datetime.now(UTC), superseded=True)
        async with caller(folder, "bank", address(port)) as bank:
            await hello(bank, "telco")
            connection = await asyncio.open_connection(
                "127.0.0.1", port, ssl=bank.routes._link._context(), server_hostname="relay"
            )
            shown = connection[1].get_extra_info("ssl_object").getpeercert(binary_form=True)
            assert ssl.DER_cert_to_PEM_cert(shown).encode() != old
            connection[1].close()


async def test_doctor_hears_how_the_relay_knows_us(folder):
    async with (
        running_relay(folder) as (_, port),
        caller(folder, "telco", address(port)) as telco,
    ):
        assert await telco.routes._link.membership() == ("party telco", False)
        async with daemon(folder, "telco", address(port)) as (_, _, calls):
            await until(lambda: calls.is_connected)
            assert await telco.routes._link.membership() == ("party telco", True)
