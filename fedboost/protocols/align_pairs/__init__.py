"""Finds the rows that the guest shares with each host, pair by pair: of few ids by Diffie-Hellman,
of many by an oblivious function (`fedboost.oblivious`), as for `align`.

    guest ── GuestSet ──────► each host     under an exponent and in an order for this host alone
    guest ◄─ HostSet ──────── each host
    guest ◄─ ReturnedSet ──── each host     the guest's set, now blinded by both
    guest ── CommonDigests ─► each host
    guest ◄─ RowsDigest ───── each host     both keep the same rows

    guest ◄─ Greeting ─ host; guest ─ Start ─► host
    GuestSet, HostSet, ReturnedSet of a sample; guest ─ SampleCount ─► host
    guest ◄─ Choice ─ host; guest ─ Part ─► host ─ Tags ─► guest ─ Named ─► host     part after part
    guest ◄─ RowsDigest ───── each host

All rows of the guest stay in the job, also rows that no host has; a host keeps the rows that it
shares with the guest, perhaps none. The guest learns which of its ids each host has, a host learns
which of its ids the guest has, and both learn the size of the other's set; if a host has many more
rows than the guest, all hosts learn the next power of two. The ids that two hosts share stay
hidden, except from the guest for its own rows: points and exponents of one pair fit no other pair.

Modules:
    guest   the guest's steps
    host    a host's steps
    pair    functions that guest and host share
    walk    order of the steps
"""

from fedboost.flow import GUEST, HOST, Protocol, RowsUsed, TableUse
from fedboost.job import Alignment
from fedboost.protocols.align_pairs.walk import FLOW, walk

PROTOCOL = Protocol(
    name="align-pairs",
    params=Alignment,
    flow=FLOW,
    walk=walk,
    modules={GUEST: f"{__name__}.guest", HOST: f"{__name__}.host"},
    leaves="rows",
    tables=TableUse(rows=RowsUsed.GUESTS),
)
