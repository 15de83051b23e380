"""Finds the rows that all parties share, by Diffie-Hellman on Curve25519, and nothing else.

    every party ── BlindedSet ──► the next ──► … ──► all have blinded it ── FullSet ──► guest
    guest ── CommonSet ──► last host ──► … ──► first host ──► guest     each host gives back
    guest ── CommonDigests ──► hosts ── RowsDigest ──► guest            all keep the same rows

Every party shuffles what it passes on, so the guest sees how many ids the sets share, never which:
only the intersection of all sets is opened. Everybody learns the ids in common and the set sizes.

Modules:
    guest   the guest's steps: compares the sets, names common rows
    host    a host's steps: returns what is common, finds its rows
    params  its settings
    ring    what guest and host share
    walk    order of the steps
"""

from fedboost.flow import GUEST, HOST, Protocol
from fedboost.protocols.align.params import AlignParams
from fedboost.protocols.align.walk import FLOW, walk

PROTOCOL = Protocol(
    name="align",
    params=AlignParams,
    flow=FLOW,
    walk=walk,
    modules={GUEST: f"{__name__}.guest", HOST: f"{__name__}.host"},
    leaves="rows",
    labelled=(),
)
