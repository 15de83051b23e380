"""Checks of `fedboost doctor`: store, tables, every link both ways with versions and clocks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc

from fedboost.ground.build_version import build_version
from fedboost.ground.disk import check_room
from fedboost.ground.errors import (
    ConfigError,
    FedboostError,
    PolicyError,
    StoreError,
    UnreachableError,
)
from fedboost.messages import job_pb2, job_pb2_grpc, party_pb2_grpc
from fedboost.runtime.config.daemons import (
    CoordinatorConfig,
    DaemonConfig,
    DaskWorkers,
    PartyConfig,
)
from fedboost.runtime.jobs.wire_numbers import SpokenNumbers, highest_common_number
from fedboost.runtime.relay.dialing import open_dialer, relay_link
from fedboost.runtime.transport import faults
from fedboost.runtime.transport.channel import Dialer
from fedboost.runtime.transport.expiry import EXPIRY_FAILED, expiry_warning
from fedboost.runtime.transport.identity import (
    CertificateFaultError,
    CertificateRole,
    Peer,
    read_certificate,
    read_roots,
)
from fedboost.runtime.transport.roots import Roots
from fedboost.runtime.transport.tls import load_identity

ROOM_BYTES = 4 << 20  # for a few checkpoints of a small job; with less, none goes far
CLOCK_SKEW_MAX_S = 60.0  # certificates and journals of two machines drift apart beyond this


@dataclass(frozen=True)
class LinkTarget:
    """A daemon at the other end of a link."""

    role: CertificateRole
    address: str


@dataclass(frozen=True)
class LinkCheck:
    """One check, with its error if it failed, or a warning about what will fail."""

    what: str
    error: FedboostError | None = None
    note: str = ""
    warning: str = ""


def open_links(config: DaemonConfig, role: CertificateRole) -> Dialer:
    """Return the links out of a daemon."""
    claim = f"{role}:{config.name}"
    relay, reach = config.dialed_relay, config.reach
    return open_dialer(config.tls, config.timers, claim, relay, reach, checks_callees=True)


def link_targets(config: DaemonConfig) -> dict[str, LinkTarget]:
    """Return the daemons that a configuration names, by name."""
    if isinstance(config, PartyConfig):
        targets = {name: LinkTarget("party", at.address) for name, at in config.peers.items()}
        targets[config.coordinator.name] = LinkTarget("coordinator", config.coordinator.address)
        return targets
    assert isinstance(config, CoordinatorConfig)
    return {name: LinkTarget("party", at.address) for name, at in config.parties.items()}


async def say_hello(dialer: Dialer, known: dict[str, LinkTarget], name: str) -> job_pb2.HelloReply:
    """Return the greeting of the daemon `name`; raise the fault of the link, or if
    the two have no number of the wire in common."""
    target = known.get(name)
    if target is None:
        raise ConfigError(f"no address is known for {name[:64]!r}", todo="add it to the settings")
    reply = await _call_daemon(dialer, name, target, "Hello", job_pb2.HelloRequest())
    assert isinstance(reply, job_pb2.HelloReply)
    if reply.name != name or reply.role != target.role:
        raise ConfigError(
            f"{target.address} is {reply.role} {reply.name}, not {name}",
            todo="correct the address in the settings file",
        )
    here = SpokenNumbers.of_this_build("this daemon")
    highest_common_number([here, SpokenNumbers.of_reply(name, reply)])
    return reply


def check_asker(config: DaemonConfig, caller: Peer, name: str) -> None:
    """Raise PolicyError for a caller without the right to know our links to `name`.

    A known daemon may ask about itself, like `fedboost doctor` on its machine; our coordinator, and
    users who may read jobs here, may ask about all daemons.
    """
    known = link_targets(config).get(caller.name)
    if known is not None and known.role == caller.role and caller.name == name:
        return
    if isinstance(config, PartyConfig):
        named = {"coordinator": (config.coordinator.name,), "user": config.policy.approvers}
    else:
        assert isinstance(config, CoordinatorConfig)
        named = {"user": config.users.read}
    if caller.name not in named.get(caller.role, ()):
        raise PolicyError(
            f"{caller} may not ask {config.name} about its links",
            todo=f"ask the owner of {config.name} to look: fedboost doctor",
            party=config.name,
        )


def without_address(error: FedboostError, ours: str, name: str) -> FedboostError:
    """Return the public part of a link's error: its names, without an address."""
    what = f"{ours} does not reach {name}"
    if not isinstance(error, UnreachableError):
        what = f"{ours} reaches who answers for {name}, and cannot work with it"
    return type(error)(what, todo=f"fedboost doctor, on the machine of {ours}", party=ours)


def check_certificates(config: DaemonConfig, role: CertificateRole) -> list[LinkCheck]:
    """Check our certificate and key, and whether a CA could certify somebody else's names."""
    what = f"certificate of {role} {config.name}"
    if config.tls is None:
        return [LinkCheck(what, note="none: insecure_loopback")]
    try:
        ours = load_identity(config.tls, role=role, name=config.name)
        config.tls.check_key_mode()
        roots = config.tls.read().roots
    except ConfigError as error:
        return [LinkCheck(what, error)]
    note, warning = f"valid until {ours.not_after:%Y-%m-%d}", _end_warning(ours.not_after)
    own = LinkCheck(what, note=note, warning=warning)
    if _ends_now(ours.not_after):
        fault = ConfigError(f"the certificate {warning}", file=str(config.tls.cert))
        own = LinkCheck(what, fault)
    return [own, *check_authorities(config, roots)]


def check_authorities(config: DaemonConfig, roots: Roots) -> list[LinkCheck]:
    """Warn of several CAs that may each certify every name without a CA of its own."""
    count = len(read_roots(roots.own))
    pinned = {name for (_, name), _ in roots.pinned}
    free = [name for name in link_targets(config) if name not in pinned]
    if count == 1 or not free:
        return []
    warning = (
        f"each of the {count} CAs in tls.ca may certify {', '.join(free)} and every user: name the "
        "CA of another organisation by `ca` beside its address instead"
    )
    return [LinkCheck("CAs", warning=warning)]


def _end_warning(not_after: datetime) -> str:
    return expiry_warning(not_after, datetime.now(UTC))


def _ends_now(not_after: datetime) -> bool:
    """Return whether a certificate ends too soon for a job to begin."""
    return not_after - datetime.now(UTC) <= EXPIRY_FAILED


def check_store(config: DaemonConfig) -> LinkCheck:
    """Check whether the daemon's store has space for a job's files."""
    what, folder = f"store {config.store}", Path(config.store)
    if not folder.exists():
        return LinkCheck(what, note="none yet: the daemon makes it")
    try:
        free = check_room(folder, ROOM_BYTES)
    except StoreError as error:
        return LinkCheck(what, error)
    if free < ROOM_BYTES:
        short = StoreError(
            f"{free / 1e6:.1f} MB are free", todo="free some space", file=str(folder)
        )
        return LinkCheck(what, short)
    return LinkCheck(what, note=f"{free / 1e9:.1f} GB free")


def check_tables(config: DaemonConfig) -> list[LinkCheck]:
    """Tell of each data set whether its table can be reached, by the names of its columns."""
    from fedboost.data.reading import columns_of

    findings = []
    for name, source in config.datasets.items() if isinstance(config, PartyConfig) else ():
        what = f"data set {name} ({source.name})"
        try:
            count, kind = len(columns_of(source)), source.kind.name
            note = f"{kind}, {count} columns" if count else kind
            findings.append(LinkCheck(what, note=note))
        except FedboostError as error:
            findings.append(LinkCheck(what, error))
    return findings


def check_workers(config: DaemonConfig) -> list[LinkCheck]:
    """Return whether a party's workers on Dask are reachable and run our versions."""
    from fedboost.runtime.party.workers.dask_part_workers import DaskPartWorkers

    if not isinstance(config.workers, DaskWorkers):
        return []
    what, part_workers = (
        f"workers {config.workers.address or 'on this machine'}",
        DaskPartWorkers(config.workers, config.tls),
    )
    try:
        return [LinkCheck(what, note=part_workers.check())]
    except FedboostError as error:
        return [LinkCheck(what, error)]
    finally:
        part_workers.close()


async def check_links(
    config: DaemonConfig, dialer: Dialer, ours: CertificateRole
) -> list[LinkCheck]:
    """Return a finding for every link out of this daemon and every link into it."""
    known = link_targets(config)
    findings = await _check_relay(config)
    for name, target in known.items():
        findings.append(await _link_out(dialer, known, name))
        findings.append(await _link_in(dialer, name, target, config.name))
    this = LinkTarget(ours, config.listen)
    try:
        await _call_daemon(dialer, config.name, this, "Hello", job_pb2.HelloRequest())
        findings.append(LinkCheck(f"our own daemon on {config.listen}"))
    except FedboostError as error:
        findings.append(LinkCheck(f"our own daemon on {config.listen}", error))
    return findings


async def _check_relay(config: DaemonConfig) -> list[LinkCheck]:
    relay = config.dialed_relay
    if relay is None:
        return []
    what, link = f"relay ({relay.address})", relay_link(config.tls, config.timers, relay)
    try:
        member, is_called = await link.membership()
        warning = "" if is_called else "our daemon has no line to it: no call arrives here"
        return [LinkCheck(what, note=f"knows us as {member}", warning=warning)]
    except FedboostError as error:
        return [LinkCheck(what, error)]
    finally:
        await link.close()


async def _link_out(dialer: Dialer, known: dict[str, LinkTarget], name: str) -> LinkCheck:
    what = f"here -> {name} ({known[name].address})"
    try:
        await say_hello(dialer, known, name)  # opens the connection, which is not timed
        started = time.time()
        reply = await say_hello(dialer, known, name)
    except FedboostError as error:
        return LinkCheck(what, error)
    now = time.time()
    skew = reply.clock - (started + now) / 2
    if abs(skew) > CLOCK_SKEW_MAX_S:
        wrong = ConfigError(
            f"the clock of {name} is off by {skew:+.0f} s", todo="set both clocks (NTP)", party=name
        )
        return LinkCheck(what, wrong)
    way = "through the relay, " if dialer.routes.is_relayed(name) else ""
    note = f"{way}round trip {1000 * (now - started):.1f} ms, clock {skew:+.1f} s"
    if reply.version != build_version():
        note += f", fedboost {reply.version} (here {build_version()})"
    return _with_expiry(LinkCheck(what, note=note), name, reply.certificate)


def _with_expiry(check: LinkCheck, name: str, certificate: str) -> LinkCheck:
    """Return a check of a link with a warning or an error if the daemon's certificate ends soon."""
    if not certificate:
        return check
    try:
        not_after = read_certificate(certificate.encode()).not_valid_after_utc
    except CertificateFaultError:
        return check
    warning = _end_warning(not_after)
    if not warning:
        return check
    said = f"the certificate of {name} {warning}"
    if _ends_now(not_after):
        return LinkCheck(check.what, UnreachableError(said, party=name))
    return LinkCheck(check.what, note=check.note, warning=said)


async def _link_in(dialer: Dialer, name: str, target: LinkTarget, ours: str) -> LinkCheck:
    what = f"{name} -> here"
    try:
        reply = await _call_daemon(
            dialer, name, target, "CheckLink", job_pb2.CheckLinkRequest(name=ours)
        )
    except FedboostError as error:
        return LinkCheck(what, error)
    assert isinstance(reply, job_pb2.CheckLinkReply)
    return LinkCheck(what, faults.error_of_fault(reply.fault) if reply.HasField("fault") else None)


async def _call_daemon(
    dialer: Dialer, name: str, target: LinkTarget, method: str, request: object
) -> object:
    stub = party_pb2_grpc.PartyStub if target.role == "party" else job_pb2_grpc.CoordinatorStub

    def start_call(channel: grpc.aio.Channel) -> Any:
        call = getattr(stub(channel), method)
        return call(request, timeout=dialer.timers.call_s, metadata=dialer.metadata)

    return await dialer.call((name, target.address), start_call)
