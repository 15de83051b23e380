"""A broken link is tried again for as long as its other end may still be there, and no longer."""

import asyncio
import itertools

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue

from fedboost.ground.errors import ConfigError, PeerError, UnreachableError
from fedboost.runtime.process import pulse
from fedboost.runtime.process.clock import monotonic_s
from fedboost.runtime.transport import status
from fedboost.runtime.transport.addresses import Timers
from fedboost.runtime.transport.channel import Contact, Dialer, channel_options
from fedboost.runtime.transport.health import (
    NOT_SERVING,
    SERVICE_UNKNOWN,
    SERVING,
    DaemonEndpoint,
    Health,
)
from tests.support.hurry import hurried

TIMERS = Timers()
DOWN = grpc.StatusCode.UNAVAILABLE
TARGET = ("telco", "127.0.0.1:9")


def broken(code=DOWN, error=None):
    """What gRPC raises of a call that did not come to its end, or that a daemon refused."""
    trailing = grpc.aio.Metadata()
    if error is not None:
        code, _, found = status.status_of_error(error)
        trailing = grpc.aio.Metadata(*found)
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, "gone", "")


class Link:
    """A link that answers from a moment of the loop's clock on; it notes when it was tried."""

    def __init__(self, works_at=1e9, raises=None, breaks_after=0.0, contact=None):
        self.works_at, self.raises = works_at, raises or broken()
        self.breaks_after, self.contact, self.tried = breaks_after, contact, []

    async def __call__(self, _):
        self.tried.append(monotonic_s() - 1000.0)
        if monotonic_s() >= self.works_at:
            return "done"
        if self.contact is not None:
            self.contact.made()
        await asyncio.sleep(self.breaks_after)
        raise self.raises


def called(link, retry_s=TIMERS.peer_lost_s, contact=None):
    """The answer, or the error, and the seconds it took."""

    async def run():
        dialer = Dialer(None, TIMERS)
        dialer._open = lambda *_: None  # type: ignore[method-assign]
        try:
            said = await dialer.call(TARGET, link, retry_s=retry_s, contact=contact)
        except Exception as error:
            said = error
        return said, monotonic_s() - 1000.0

    return hurried(run())


def test_a_dead_link_is_tried_again_until_the_peer_counts_as_lost_and_then_at_once_no_more():
    link = Link()
    error, took = called(link)
    assert isinstance(error, UnreachableError)
    assert took == pytest.approx(TIMERS.peer_lost_s)
    assert link.tried[-1] == pytest.approx(TIMERS.peer_lost_s), "its return is seen to the end"
    assert 5 <= len(link.tried) <= 9


@pytest.mark.parametrize("back", [0.2, 3.0, 9.0, 14.9])
def test_a_link_that_comes_back_in_time_is_no_failure(back):
    said, took = called(Link(works_at=1000.0 + back))
    assert said == "done"
    assert took <= TIMERS.peer_lost_s


def test_pauses_grow_with_jitter_between_their_bounds():
    link = Link()
    called(link, retry_s=600.0)
    pauses = [later - earlier for earlier, later in itertools.pairwise(link.tried)]
    for place, pause in enumerate(pauses[:-1]):
        most = min(TIMERS.retry_max_s, TIMERS.retry_first_s * 2**place)
        assert 0.5 * most <= pause <= most
    assert len(set(pauses[8:-1])) > 5, "all come at once"


def test_a_refusal_is_heard_once():
    link = Link(raises=broken(error=PeerError("you lied")))
    error, took = called(link)
    assert isinstance(error, PeerError)
    assert (link.tried, took) == ([0.0], 0.0)


def test_without_a_window_there_is_one_try():
    link = Link()
    error, _ = called(link, retry_s=0.0)
    assert isinstance(error, UnreachableError)
    assert len(link.tried) == 1


def test_a_link_that_breaks_after_long_silence_is_tried_once_more():

    contact = Contact(at=1000.0)
    link = Link(breaks_after=600.0)
    said, _ = called(link, contact=contact)
    assert isinstance(said, UnreachableError)
    assert len(link.tried) == 2
    said, _ = called(Link(works_at=1000.1, breaks_after=600.0), contact=Contact(at=1000.0))
    assert said == "done"


def test_a_long_call_that_breaks_after_signs_of_life_is_made_again():
    contact = Contact(at=1000.0)

    class Alive(Link):
        async def __call__(self, _):
            self.tried.append(monotonic_s() - 1000.0)
            if monotonic_s() >= self.works_at:
                return "done"
            for _ in range(300):
                contact.made()
                await asyncio.sleep(2.0)
            raise self.raises

    link = Alive(works_at=1000.0 + 600.0)
    said, took = called(link, contact=contact)
    assert said == "done"
    assert 600.0 < took < 601.0


def test_links_have_the_settings_that_notice_a_dead_end():
    found = dict(channel_options(TIMERS))
    assert found["grpc.keepalive_time_ms"] == 10_000
    assert found["grpc.keepalive_timeout_ms"] == 5_000
    assert found["grpc.keepalive_permit_without_calls"] == 1
    assert found["grpc.http2.max_pings_without_data"] == 0
    assert found["grpc.http2.min_recv_ping_interval_without_data_ms"] < 10_000
    assert found["grpc.max_reconnect_backoff_ms"] <= 2_000


# Health


class Context:
    """A call's context, as far as the health service asks it."""

    async def abort(self, code, _):
        """Ends the call."""
        raise broken(code)


def test_health_is_of_the_whole_daemon_and_of_each_service():
    async def run():
        health = Health(["fedboost.Party"])
        for service in ("", "fedboost.Party"):
            said = await health.check(StringValue(value=service), Context())
            assert said.value == SERVING
            assert said.SerializeToString() == b"\x08\x01"  # HealthCheckResponse{SERVING}
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await health.check(StringValue(value="fedboost.Coordinator"), Context())
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        health.stop()
        assert (await health.check(StringValue(), Context())).value == NOT_SERVING

    hurried(run())


def test_a_blocked_loop_is_not_healthy_and_healthy_again_soon(monkeypatch):
    at = [0.0]
    monkeypatch.setattr(pulse, "monotonic_s", lambda: at[0])

    async def state_after(seconds):
        at[0] += seconds
        return (await health.check(StringValue(), Context())).value

    health = Health(["fedboost.Party"])
    for seconds, state in ((2.9, SERVING), (3.1, NOT_SERVING), (0.5, NOT_SERVING), (0.6, SERVING)):
        assert asyncio.run(state_after(seconds)) == state


@pytest.mark.parametrize(
    ("listen", "called"),
    [
        ("127.0.0.1:7100", "127.0.0.1:7100"),
        ("0.0.0.0:7100", "127.0.0.1:7100"),
        ("[::]:7100", "[::1]:7100"),
        ("bank.example.org:7100", "bank.example.org:7100"),
    ],
)
def test_a_daemon_is_checked_at_an_address_that_can_be_called(listen, called):
    assert DaemonEndpoint(name="bank", listen=listen).local_address() == called


def test_a_daemon_at_any_free_port_cannot_be_checked():
    with pytest.raises(ConfigError, match="names no port"):
        DaemonEndpoint(name="bank", listen="127.0.0.1:0").check_health()


def test_whoever_watches_health_hears_the_end():
    async def run():
        health = Health(["fedboost.Party"])
        known = health.watch(StringValue(), Context())
        other = health.watch(StringValue(value="other"), Context())
        assert (await anext(known)).value == SERVING
        assert (await anext(other)).value == SERVICE_UNKNOWN
        health.stop()
        assert [said.value async for said in known] == [NOT_SERVING]
        assert [said.value async for said in other] == []

    hurried(run())
