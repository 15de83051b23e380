"""Finds the rows that the guest shares with each host, pair by pair: of few ids by Diffie-Hellman,
of many by an oblivious function (`fedboost.oblivious`), as for `align`.

    guest ── GuestSet ──────► each host     under an exponent and in an order for this host alone
    guest ◄─ HostSet ──────── each host
    guest ◄─ ReturnedSet ──── each host     the guest's set, which now both have blinded
    guest ── CommonDigests ─► each host
    guest ◄─ RowsDigest ───── each host     both keep the same rows

    guest ◄─ Greeting ─ host; guest ─ Start ─► host
    GuestSet, HostSet, ReturnedSet of a sample; guest ─ SampleCount ─► host
    guest ◄─ Choice ─ host; guest ─ Part ─► host ─ Tags ─► guest ─ Named ─► host     part after part
    guest ◄─ RowsDigest ───── each host

All rows of the guest stay in the job, also those that no host has; a host keeps those that it
shares with the guest, which may be none. The guest learns which of its ids each host has, a host
which of its own the guest has, and either how many rows the other has; where a host has many more
than the guest, all hosts learn the next power of two. Nobody learns what two hosts share, but for
the guest among its own rows: the points and exponents of one pair fit no other's.

Modules:
    guest   the guest's steps
    host    a host's steps
    pair    what guest and host share
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
