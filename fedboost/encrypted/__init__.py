"""Trees over encrypted gradients: what guest and hosts of encrypted protocols do alike.

    guest ── EncryptionKey ──────────► host      once a job
    guest ── EncryptedGradients ─────► host      once for trees that grow at once
    guest ◄─ CandidateSums ─────────── host  ┐
    guest ── WonSplits ──────────────► host  │   once a layer
    guest ◄─ RowDivisions ──────────── host  ┘

A host adds up gradients that it cannot read and offers splits without their names; the guest
decrypts sums, chooses, and hears how the rows divide. Protocols add what comes before and between:
whose columns compete, where trees begin, and which rows they learn from.

SecureBoost+ (Chen et al., 2021), sections 2 and 4.

Modules:
    adding        where the cells of nodes are added up
    answers       a host's answers of one layer: sums and row divisions
    candidates    candidates of one node, in canonical and in secret order
    capacity      how many bits the sums of a node can tell
    cells         which rows add to which cells of a histogram
    check_steps   steps of a check of gradients
    choice        the scheme of a job that leaves it open
    ciphers       the interface of a scheme for guest and host
    gradient_check  finds gradients above their declared bits
    growth        where rows stand in a tree, for guest and host
    guest_tree    a growing tree at the guest
    host_noise    noise on every sum that a host releases
    host_tree     a growing tree at a host
    keys          what both sides agree on first
    leaf_answers  leaf values that only become visible as sums
    leaf_values   leaf values that a host keeps encrypted
    meter         counts the equations that released sums are, and the rows they could place
    node_cells    makes and keeps the cells of open nodes
    offers        what the guest reads of candidates and chooses
    packed        both sides of schemes that encrypt numbers
    params        settings that encrypted protocols share
    record        keeps a transcript for audits
    release       the one way out for a host's sums
    ring          the lattice schemes, and their guest's side
    ring_answers  how answers leave under a lattice: vectors or packed
    ring_host     a host's side of the lattice schemes
    ring_shards   lattice cells with the shards that have their columns
    rounds        a guest's rounds: margins, metrics, early stopping
    schemes       schemes that a job may name
    tree_batch    trees that grow together, their nodes numbered as one
    tree_part     a tree at a shard: where rows stand, and cells
"""
