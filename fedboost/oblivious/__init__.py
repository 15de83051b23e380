"""Ids in common by an oblivious pseudorandom function: both sides of its messages, for protocols.

    host ── Greeting ──► guest ── Start ──► hosts       sizes, nonces: the key of the ids' digests
    guest ── SampleCount ──► hosts                      enough ids in common, before anything opens
    host ── Choice ──► guest                            the keys of the oblivious transfers
    guest ── Part ──► host ── Tags or Hint ──► guest ── Named ──► host        part after part

A function of an id that only both of a pair can compute: the guest of the ids that it has asked
for, without the host learning which, the host of all. The mathematics is `fedboost.crypto.oprf`.

Modules:
    guest   a guest's side, with all its hosts
    host    a host's side
    method  which alignments take this way
    side    what both remember
"""
