"""Trees over encrypted gradients: the parts that the guest and hosts of encrypted protocols share.

    guest ── EncryptionKey ──────────► host      once a job
    guest ── EncryptedGradients ─────► host      once for trees that grow at once
    guest ◄─ CandidateSums ─────────── host  ┐
    guest ── WonSplits ──────────────► host  │   once a layer
    guest ◄─ RowDivisions ──────────── host  ┘

A host adds up gradients that it cannot read and offers splits without their names; the guest
decrypts sums, chooses, and hears how the rows divide. Each protocol adds its own rules: the columns
that compete, the nodes where trees begin, and the rows they learn from.

SecureBoost+ (Chen et al., 2021), sections 2 and 4.

Modules:
    cells    cells of histograms, and candidates in them
    checks   checks that gradients keep to their bits
    guest    the guest: totals, offers, won splits, rounds
    host     a host: sums, the one way out for them, the meter
    lattice  both sides of lattice schemes
    number   both sides of schemes that encrypt numbers
    record   keeps a transcript for audits
    scheme   settings, choice, exactness, noise and keys of a scheme
    tree     rows of growing trees, for guest and host
"""
