"""All parties of a job in one process: the same nodes, sessions and codec, without a network."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedboost import protocols
from fedboost.core.gradient_bits import BITS_MAX
from fedboost.data.selection import source_for_selection
from fedboost.data.sources import SourceSpec
from fedboost.ground import wire
from fedboost.ground.errors import ConfigError, UnreachableError
from fedboost.ground.settings import parse_settings
from fedboost.ground.workers import Workers
from fedboost.job import JobSpec, Parties
from fedboost.messages import job_pb2
from fedboost.messages.exchange_pb2 import Envelope, RecallReply, RecallRequest
from fedboost.messages.party_pb2 import StepCall, StepReply
from fedboost.runtime.config.daemons import CoordinatorConfig, PartyConfig, Users
from fedboost.runtime.config.policy import Policy, PredictPolicy
from fedboost.runtime.jobs.submitted import SUBMISSION_KEY_BYTES, check_spec, submission_request
from fedboost.runtime.store.store import Store
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.addresses import PinnedAddress, Remote, Timers
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.identity import Identity, Peer
from fedboost.runtime.transport.tls import TlsFiles, load_identity

if TYPE_CHECKING:
    from fedboost.runtime.coordinator.node import CoordinatorNode
    from fedboost.runtime.party.node.halting import WriteReport
    from fedboost.runtime.party.node.node import PartyNode

COORDINATOR, USER = "coordinator", "user"
DATASET = "data"  # name of every party's table in our own clusters
NOWHERE = "127.0.0.1:9"  # address that is never dialled


class LocalLinks:
    """Messages go straight to the receiver's node, cut and put together as on the wire."""

    def __init__(self, nodes: Mapping[str, PartyNode]) -> None:
        self._nodes = nodes

    async def deliver(self, envelope: Envelope, payload: bytes) -> None:
        """Deliver a message to the receiver, like over gRPC."""
        node = self._nodes.get(envelope.receiver)
        if node is None:
            raise _absent_party_error(envelope.receiver)
        caller = Peer("party", envelope.sender, fingerprint="", serial=0)
        arrived = Envelope.FromString(wire.encode(envelope))
        with node.admit(caller, arrived):
            pieces = [
                wire.piece_data(piece, envelope.sender) for piece in wire.cut_payload(payload)
            ]
            await node.accept(caller, arrived, b"".join(pieces))

    async def recall(self, party: str, peer: str) -> RecallReply:
        """See `signed_heads.Recalls`."""
        node = self._nodes.get(peer)
        if node is None:
            raise _absent_party_error(peer)
        return await node.recall(Peer("party", party, fingerprint="", serial=0), RecallRequest())


def _absent_party_error(party: str) -> UnreachableError:
    return UnreachableError(f"{party} is not there", party=party, todo="")


class LocalControl:
    """The coordinator's calls to one party, without a network; implements `walk.Control`."""

    def __init__(self, node: PartyNode, coordinator: str) -> None:
        self._node = node
        self._caller = Peer("coordinator", coordinator, fingerprint="", serial=0)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._node, name)

        async def call_node(request: Any) -> Any:
            return await method(self._caller, type(request).FromString(wire.encode(request)))

        return call_node

    async def run_step(
        self, request: StepCall, _: Callable[[StepReply], None] | None = None
    ) -> StepReply:
        """Run steps; no signs of life are needed."""
        return await self._node.run_step(self._caller, StepCall.FromString(wire.encode(request)))

    async def reaches(self, _: str) -> bool:
        """Return True: nothing lies between parties of one process."""
        return True

    async def hello(self, *, retries: bool = True) -> job_pb2.HelloReply:
        """Return the party's identity."""
        return await self._node.hello(self._caller, job_pb2.HelloRequest())


@dataclass(frozen=True)
class LocalCluster:
    """A coordinator and its parties in this process."""

    coordinator: CoordinatorNode
    parties: dict[str, PartyNode]
    user: Peer
    identity: Identity  # the user's

    def rehearse(self) -> Self:
        """Make results include the verdict of default policies between organisations."""
        for node in self.parties.values():
            node.parts.start_rehearsing()
        return self

    async def run(
        self, spec: JobSpec, hear: Callable[[job_pb2.Event], None] | None = None
    ) -> job_pb2.JobJournal:
        """Submit a job and wait until it rests; `hear` receives its events. Return its journal."""
        jobs = LocalClient(self)
        job = await jobs.submit(spec.model_dump_json().encode())
        async for event in self.events(job):
            if hear is not None:
                hear(event)
        return await jobs.journal(job)

    def events(self, job: str) -> AsyncIterator[job_pb2.Event]:
        """Yield the job's journal as it grows, until the job rests."""
        return LocalClient(self).watch(job)


class LocalClient:
    """One user of a cluster in this process; implements `client.Jobs`."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._coordinator, self._user = cluster.coordinator, cluster.user
        self._identity = cluster.identity

    async def submit(self, spec: bytes, key: str = "") -> str:
        """Submit a job, see `client.Jobs`; the same `key` again is the same job."""
        named = key or secrets.token_hex(SUBMISSION_KEY_BYTES)
        request = submission_request(spec, named, self._coordinator.config.name, self._identity)
        return (await self._coordinator.submit(self._user, request)).id

    async def status(self, job: str) -> job_pb2.JobStatus:
        """Return a job's status, see `client.Jobs`."""
        return await self._coordinator.status(self._user, job_pb2.JobId(id=job))

    def watch(self, job: str, after: int = 0) -> AsyncIterator[job_pb2.Event]:
        """Yield a job's events, see `client.Jobs`."""
        return self._coordinator.watch(self._user, job_pb2.WatchRequest(id=job, after=after))

    async def journal(self, job: str) -> job_pb2.JobJournal:
        """Return a job's journal, see `client.Jobs`."""
        return await self._coordinator.journal(self._user, job_pb2.JobId(id=job))

    async def resume(self, job: str) -> job_pb2.JobStatus:
        """Resume a job, see `client.Jobs`."""
        return await self._coordinator.resume(self._user, job_pb2.JobId(id=job))


def permissive_policy(name: str, spec: JobSpec, *, has_data: bool = True) -> Policy:
    """Return the policy of a party that takes part only in the jobs of one file.

    All jobs and tables are our own: no release is refused, and sums of a small table cause the
    usual warnings.
    """
    peers = tuple(party for party in spec.parties.everybody if party != name)
    protocol = protocols.load_protocol(spec.protocol)
    wanted = protocol.policy.asks(protocol.params.model_validate(spec.params))
    return Policy(
        approve="never",
        approvers=(USER,),
        coordinators=(COORDINATOR,),
        peers=peers,
        datasets=(DATASET,) if has_data else (),
        protocols=protocols.all_names(),
        allow_insecure=wanted.insecure,
        gradient_bits_max=BITS_MAX,
        epsilon_element_max=math.inf,
        epsilon_row_max=math.inf,
        disclosure_max=math.inf,
        aggregation_parties_min=2,
        group_rows_min=1,
        lattice_key_trees_max=1_000_000_000,
        aggregation_apart_min=1,
        own_rows_min=1,
        quantile_tolerance_min=0,
        holdout_rows_min=1,
        holdout_max=1.0,
        metrics_max=1_000_000_000_000,
        intersection_min=1,
        alignments_per_day=1_000_000_000,
        peer_ids_max=1_000_000_000_000_000,
        jobs_open_max=1_000_000_000,
        jobs_per_day=1_000_000_000,
        tells=("metrics", "curves", "figures"),
        predict=PredictPolicy(peers=peers, rows_per_day=1_000_000_000, exact=peers),
    )


def declared_sources(
    name: str, spec: JobSpec, sources: Mapping[str, SourceSpec]
) -> dict[str, SourceSpec]:
    """Return a party's data sets, declared as the jobs of one file need them."""
    if name not in sources:
        return {}
    return {DATASET: source_for_selection(sources[name], spec.data[name])}


@asynccontextmanager
async def open_cluster(
    folder: Path,
    spec: JobSpec,
    sources: Mapping[str, SourceSpec],
    workers: Workers,
    *,
    write_report: WriteReport | None = None,
    timers: Timers | None = None,
) -> AsyncIterator[LocalCluster]:
    """Yield a cluster in `folder` for the jobs of one file; every party's data set is called
    `data`.
    """
    from fedboost.runtime.coordinator.node import CoordinatorNode
    from fedboost.runtime.party.node.node import PartyNode
    from fedboost.runtime.policy.judgement import Trust

    names, certs = spec.parties.everybody, folder / "certs"
    await asyncio.to_thread(create_certificates, folder, names)
    addresses = dict.fromkeys((COORDINATOR, *names), NOWHERE)
    nodes: dict[str, PartyNode] = {}
    links = LocalLinks(nodes)
    waits = timers or Timers()
    async with AsyncExitStack() as stack:
        for name in names:
            config = party_config(name, folder, spec, sources, addresses, timers=waits)
            store = stack.enter_context(Store(config.store, f"party {name}"))
            trust = Trust.of_files(tls_of(certs, name), name)
            node = PartyNode(config, trust, store, links, workers)
            node.finishing.write_report = write_report
            node.parts.cpu.clock = None
            stack.callback(node.close)
            stack.push_async_callback(node.pause_all)
            nodes[name] = node
        # A caller that runs jobs in one process decides when they continue.
        leading = coordinator_config(folder, addresses, timers=waits, auto_resume=False)
        store = stack.enter_context(Store(leading.store, f"coordinator {COORDINATOR}"))
        identity = load_identity(tls_of(certs, COORDINATOR))
        controls = {name: LocalControl(node, COORDINATOR) for name, node in nodes.items()}
        coordinator = CoordinatorNode(leading, _returning(identity), store, controls.__getitem__)
        stack.push_async_callback(coordinator.close)
        user = Peer("user", USER, fingerprint="", serial=0)
        yield LocalCluster(coordinator, nodes, user, load_identity(tls_of(certs, USER)))


def create_certificates(folder: Path, parties: Sequence[str]) -> None:
    """Make the certificates of a cluster's daemons and of its user in `folder`/certs."""
    leaves = [Leaf("coordinator", COORDINATOR), Leaf("user", USER)]
    leaves += [Leaf("party", name) for name in parties]
    authority.create_certificates(folder / "certs", leaves, Term(datetime.now(UTC)))


def party_config(
    name: str,
    folder: Path,
    spec: JobSpec,
    sources: Mapping[str, SourceSpec],
    addresses: Mapping[str, str],
    **more: Any,
) -> PartyConfig:
    """Return a party's file; `addresses` of all daemons by name, `more` keys as they are."""
    peers = {
        party: PinnedAddress(address=addresses[party])
        for party in spec.parties.everybody
        if party != name
    }
    return PartyConfig(
        name=name,
        listen=addresses[name],
        tls=tls_of(folder / "certs", name),
        coordinator=Remote(name=COORDINATOR, address=addresses[COORDINATOR]),
        peers=peers,
        store=folder / "var" / name,
        datasets=declared_sources(name, spec, sources),
        policy=permissive_policy(name, spec, has_data=name in sources),
        **more,
    )


def coordinator_config(
    folder: Path, addresses: Mapping[str, str], **more: Any
) -> CoordinatorConfig:
    """Return the coordinator's file; see `party_config`."""
    return CoordinatorConfig(
        name=COORDINATOR,
        listen=addresses[COORDINATOR],
        tls=tls_of(folder / "certs", COORDINATOR),
        parties={
            name: PinnedAddress(address=address)
            for name, address in addresses.items()
            if name != COORDINATOR
        },
        store=folder / "var" / COORDINATOR,
        users=Users(submit=(USER,), read=(USER,), cancel=(USER,)),
        **more,
    )


def _returning(value: Any) -> Any:
    return lambda: value


def tls_of(certs: Path, name: str) -> TlsFiles:
    """Return the files of one daemon or user in a folder from `certs create`."""
    return TlsFiles(ca=certs / "ca.pem", cert=certs / f"{name}.pem", key=certs / f"{name}.key")


def complete_spec(raw: object, sources: Mapping[str, SourceSpec], **where: str) -> JobSpec:
    """Return the job with `data:` filled in from `--data`: data set, and the label `y` of each
    guest.
    """
    if not isinstance(raw, dict):
        raise ConfigError("expected keys and values", todo="see configs/job-credit.yaml", **where)
    stated = raw.get("data")
    data: dict[str, Any] = dict(stated) if isinstance(stated, dict) else {}
    labelled = _check_named(raw.get("parties"), sources, where)
    name = str(raw.get("protocol"))
    scores = name in protocols.all_names() and protocols.load_protocol(name).leaves == "predictions"
    for party in sources:
        entry = data.get(party) or {}
        if not isinstance(entry, dict):
            continue  # refused below, by its key
        label = {"label": "y"} if party in labelled and not scores else {}
        data[party] = {**label, **entry, "dataset": DATASET}
    spec = parse_settings(JobSpec, {**raw, "data": data}, **where)
    check_spec(spec, **where)
    return spec


def _check_named(
    parties: object, sources: Mapping[str, SourceSpec], where: dict[str, str]
) -> set[str]:
    """Refuse tables of other parties and parties without a table; ill-typed parties are refused
    later.

    Return the guests.
    """
    try:
        named = parse_settings(Parties, parties, **where)
    except ConfigError:
        return set()
    everybody = set(named.parties_with_data)
    for party in sorted(set(sources) - everybody):
        todo = "name it among the job's hosts, or leave its --data out"
        raise ConfigError(f"--data names {party}, which has no part in the job", todo=todo, **where)
    for party in sorted(everybody - set(sources)):
        raise ConfigError(f"--data is missing for {party}", todo=f"--data {party}=FILE", **where)
    return everybody - set(named.hosts)
