"""Metrics of a party, counted at its border, around its node and its links."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fedboost.messages import party_pb2
from fedboost.messages.exchange_pb2 import Envelope, RecallReply
from fedboost.messages.party_pb2 import StepCall, StepReply
from fedboost.protocols import OTHER, shown_step
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.daemons.metrics import DaemonMetrics, Reading
from fedboost.runtime.party.node.node import PartyNode
from fedboost.runtime.party.node.parts import PeerCalls
from fedboost.runtime.policy.account import share_placed_for_guests, sums_for_guests
from fedboost.runtime.policy.same_tables import Owned
from fedboost.runtime.transport.identity import Identity, Peer


class PartyMetrics(DaemonMetrics):
    """Metrics of a party: its steps, its messages, and the releases of its data sets."""

    def __init__(
        self,
        config: PartyConfig,
        identity: Callable[[], Identity],
        worker_memory: Callable[[], int],
    ) -> None:
        super().__init__(config, "party", identity)
        self._worker_memory = worker_memory
        self._node: PartyNode | None = None
        self._counted: dict[str, tuple[int, str, int]] = {}  # the last step of each job, by place

    def count_calls_of(self, node: PartyNode) -> CountedParty:
        """Return a wrapper of the node that counts its calls."""
        self._node = node
        return CountedParty(node, self)

    def count_payloads_of(self, links: PeerCalls) -> CountedLinks:
        """Return a wrapper of the links that counts their payloads."""
        return CountedLinks(links, self)

    def count_payload(self, direction: str, peer: str, envelope: Envelope) -> None:
        """Count a payload that left (out) or came (in)."""
        other = self.name(peer)
        self.count("fedboost_payloads_total", direction, other)
        self.count("fedboost_payload_bytes_total", direction, other, by=envelope.payload_bytes)

    def count_steps(self, call: StepCall, reply: StepReply) -> None:
        """Count steps that were done; an answer that is given again counts once."""
        place = call.attempt, call.stage, max((turn.number for turn in call.turns), default=0)
        if self._counted.get(call.job) == place:
            return
        self._counted[call.job] = place
        # Of a loop that has ended there are fewer.
        for turn, spent in zip(call.turns, reply.turns, strict=False):
            stage, step = shown_step(call.stage, turn.step)
            self.observe("fedboost_own_step_seconds", spent.cost.seconds, stage, step)
            self.count("fedboost_own_step_cpu_seconds_total", stage, by=spent.cost.cpu_seconds)

    def count_checkpoint(self, stage: str) -> None:
        """Count a checkpoint."""
        self.count("fedboost_checkpoints_total", self.stage(stage))

    def forget_job(self, job: str) -> None:
        """Forget a job that is over here."""
        self._counted.pop(job, None)

    def read(self) -> Iterator[Reading]:
        """Yield the gauges, see `DaemonMetrics`."""
        yield from super().read()
        assert self._node is not None
        policy = self._node.config.policy  # the current one: a reload may change it
        yield "fedboost_disclosed_sums_limit", ("warn",), policy.disclosure_warn
        yield "fedboost_disclosed_sums_limit", ("max",), policy.disclosure_max
        unknown, declared = self._node.unknown_categories, self._node.config.datasets
        for dataset in declared:
            for column, share in unknown.get(dataset, {}).items():
                yield "fedboost_unknown_categories_share", (dataset, column), share
        yield "fedboost_worker_memory_peak_bytes", (), self._worker_memory()

    def store_readings(self) -> Iterator[Reading]:
        """Yield the gauges from the store, see `DaemonMetrics`."""
        yield from super().store_readings()
        assert self._node is not None
        yield "fedboost_ledger_rows", (), self._node.ledger.head().n
        yield from self._release_readings()

    def _release_readings(self) -> Iterator[Reading]:
        """Yield the releases of data sets, as the policy counts them; undeclared data sets share
        one name, with their maximum.
        """
        assert self._node is not None
        config, account = self._node.config, self._node.spending.account
        entries = account.entries()
        sums: dict[tuple[str, str], float] = {}
        placed: dict[tuple[str, str], float] = {}
        noise: dict[str, float] = {}

        def label_of_table(table: Owned) -> str:
            return table.dataset if table.dataset in config.datasets else OTHER

        for table, guest in {(e.table, e.guest) for e in entries if e.sums or e.placed}:
            of_table = account.others(table)
            key = (label_of_table(table), self.name(guest))
            guests = config.policy.together(guest)
            sums[key] = max(sums.get(key, 0.0), sums_for_guests(of_table, guests))
            placed[key] = max(placed.get(key, 0.0), share_placed_for_guests(of_table, guests))
        for entry in entries:
            if entry.noise:
                dataset = label_of_table(entry.table)
                noise[dataset] = noise.get(dataset, 0.0) + entry.noise
        for labels, value in sums.items():
            yield "fedboost_disclosed_sums", labels, value
        for labels, value in placed.items():
            yield "fedboost_disclosed_placed", labels, value
        for dataset, value in noise.items():
            yield "fedboost_disclosed_epsilon_row", (dataset,), value


class CountedParty:
    """A party's node that counts its steps, payloads and checkpoints."""

    def __init__(self, node: PartyNode, metrics: PartyMetrics) -> None:
        self._node, self._metrics = node, metrics

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    async def run_step(self, caller: Peer, request: StepCall) -> StepReply:
        """Run a step and count it, see `PartyNode`."""
        reply = await self._node.run_step(caller, request)
        self._metrics.count_steps(request, reply)
        return reply

    async def commit(self, caller: Peer, request: party_pb2.CommitRequest) -> party_pb2.CommitReply:
        """Commit and count the checkpoint, see `PartyNode`."""
        reply = await self._node.commit(caller, request)
        self._metrics.count_checkpoint(request.stage)
        return reply

    async def finish(self, caller: Peer, request: party_pb2.FinishRequest) -> party_pb2.FinishReply:
        """Finish a job and forget its counters, see `PartyNode`."""
        reply = await self._node.finish(caller, request)
        if request.result:
            self._metrics.forget_job(request.job)
        return reply

    async def stop(self, caller: Peer, request: party_pb2.StopRequest) -> party_pb2.StopReply:
        """Stop a job and forget its counters, see `PartyNode`."""
        reply = await self._node.stop(caller, request)
        self._metrics.forget_job(request.job)
        return reply

    async def accept(self, caller: Peer, envelope: Envelope, payload: bytes) -> bool:
        """Accept a message and count it, see `PartyNode`."""
        had = await self._node.accept(caller, envelope, payload)
        if not had:
            self._metrics.count_payload("in", caller.name, envelope)
        return had


@dataclass(frozen=True)
class CountedLinks:
    """A party's links to its peers that count every delivered payload."""

    links: PeerCalls
    metrics: PartyMetrics

    async def recall(self, party: str, peer: str) -> RecallReply:
        """Ask a peer, see `PeerCalls`."""
        return await self.links.recall(party, peer)

    async def deliver(self, envelope: Envelope, payload: bytes) -> None:
        """Deliver a message and count it, see `Links`."""
        await self.links.deliver(envelope, payload)
        self.metrics.count_payload("out", envelope.receiver, envelope)
