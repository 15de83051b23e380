"""Finds the rows that all parties share, and nothing else: of few ids on Curve25519, of many by an
oblivious function (`fedboost.oblivious`), as the guest's size and the job's `alignment` say.

    every party ── BlindedSet ──► the next ──► … ──► all have blinded it ── FullSet ──► guest
    guest ── CommonSet ──► last host ──► … ──► first host ──► guest     each host gives back
    guest ── CommonDigests ──► hosts ── RowsDigest ──► guest            all keep the same rows

    host ── Greeting ──► guest ── Start ──► hosts; host ◄── PairKey ──► host
    BlindedSet, FullSet of a sample; guest ── SampleCount ──► hosts     enough, before any opens
    host ── Choice ──► guest
    guest ── Part ──► host ── Tags, of several Hint ──► guest ── Named ──► host    part after part
    hosts ── RowsDigest ──► guest

In the ring every party shuffles the sets that it passes on. So the guest sees how many ids the sets
share, but not which: only the intersection of all sets is opened. All parties learn the ids in
common and the sizes of the sets.

Modules:
    guest   the guest's steps: compares the sets, names common rows
    host    a host's steps: returns common points, finds its rows
    ring    steps that guest and host share
    walk    order of the steps
"""

from fedboost.flow import GUEST, HOST, Protocol
from fedboost.job import Alignment
from fedboost.protocols.align.walk import FLOW, walk

PROTOCOL = Protocol(
    name="align",
    params=Alignment,
    flow=FLOW,
    walk=walk,
    modules={GUEST: f"{__name__}.guest", HOST: f"{__name__}.host"},
    leaves="rows",
)
