"""Ids in common by an oblivious pseudorandom function: both sides of its messages, for protocols.

    host ── Greeting ──► guest ── Start ──► hosts       sizes, nonces: the key of the ids' digests
    guest ── SampleCount ──► hosts                      enough ids in common, before anything opens
    host ── Choice ──► guest                            the keys of the oblivious transfers
    guest ── Part ──► host ── Tags or Hint ──► guest ── Named ──► host        part after part

The function of an id can be computed only by both parties together: the guest computes it for the
ids it requested, hidden from the host; the host computes it for all its ids. The mathematics is in
`fedboost.crypto.oprf`.

Modules:
    guest   a guest's side, with all its hosts
    host    a host's side
    method  choice between this method and the curve
    side    state of both sides
"""
