"""Trees over encrypted gradients: what guest and hosts of encrypted protocols do alike.

    guest ── EncryptionKey ──────────► host      once a job
    guest ── EncryptedGradients ─────► host      once for trees that grow at once
    guest ◄─ CandidateSums ─────────── host  ┐
    guest ── WonSplits ──────────────► host  │   once a layer
    guest ◄─ RowDivisions ──────────── host  ┘

A host adds up gradients that it cannot read and offers splits without their names; the guest
decrypts sums, chooses, and hears how the rows divide. Protocols add what comes before and between:
whose columns compete, where trees begin, and which rows they learn from.

`params` are the settings, `schemes` the encryption that they may name, `keys` the beginning,
`gradients` the stream; `cells` and `host_tree` a host's side of a tree, `candidates` what it offers
for a node, `release` the one way out for its sums; `guest_tree` is the guest's side, `offers` what
it reads and chooses; `growth` is where rows stand on either, `grove` the trees that grow at once.
SecureBoost+ (Chen et al., 2021), sections 2 and 4.
"""
