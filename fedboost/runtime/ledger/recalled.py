"""What peers remember of our own ledger: more than we do, where our store was restored.

A store from a backup has forgotten what was told since, and would tell as much again. Peers keep
the heads that we have signed: before the first job with each of them, after every start, we ask
for the newest and look for its row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from fedboost.errors import PeerError, PolicyError
from fedboost.messages.exchange_pb2 import RecallReply
from fedboost.runtime.ledger import signed_heads
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.ledger.signed_heads import Check


class Recalls(Protocol):
    """How a peer is asked."""

    async def recall(self, own: str, peer: str) -> RecallReply:
        """The newest head of `own` that `peer` keeps."""


class Recalled:
    """One party's look at what its peers remember."""

    def __init__(self, party: str, ledger: Ledger, links: Recalls, check: Check) -> None:
        self._party, self._ledger, self._links, self._check = party, ledger, links, check
        self._asked: set[str] = set()  # since this process began

    async def refuse_gaps(self, peers: Iterable[str]) -> None:
        """A PolicyError where a peer remembers a row that we lack and our owner does not know of.

        An UnreachableError where one of them does not answer.
        """
        for peer in peers:
            if peer not in self._asked:
                self._compare(peer, await self._links.recall(self._party, peer))
                self._asked.add(peer)
        gaps = [gap for gap in self._ledger.gaps() if not gap.seen]
        if gaps:
            last = max(gaps, key=lambda gap: gap.n)
            raise PolicyError(
                f"the ledger of {self._party} lacks rows that it has signed: its store was restored"
                " from a backup, and its account has forgotten what they told",
                todo="its owner runs: fedboost ledger restored",
                private=f"{last.peer} keeps the signature of row {last.n} in job {last.job}",
                party=self._party,
            )

    def _compare(self, peer: str, reply: RecallReply) -> None:
        if not reply.text:
            return
        try:
            signed = signed_heads.read(self._party, reply.text)
            self._check(self._party, reply.text, reply.signature, signed.at)
            if signed.party != self._party:
                raise PeerError("it is another party's")
        except PeerError as error:
            what = f"{peer} brought a head that we have not signed"
            raise PeerError(what, private=error.what, party=peer) from None
        rows = self._ledger.rows(first=signed.n, last=signed.n)
        if signed.n and (not rows or rows[0].hash != signed.hash):
            self._ledger.note_gap(signed.n, signed.hash, signed.job, peer)
