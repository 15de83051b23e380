"""Numbers of the formats that daemons of different builds exchange, or that outlive a process.

    format      number               written in
    wire        WIRE_VERSION         a daemon's Hello; a job's manifest, which all its parties sign
    manifest    WIRE_VERSION         the manifest itself: its text belongs to the wire
    checkpoint  CHECKPOINT_FORMAT    `format` of each checkpoint
    ledger      LEDGER_FORMAT        the hash before the first row
    store       STORE_VERSION        `user_version` of store.sqlite
    shard       SHARD_FORMAT         `format` among a model's facts
    export      EXPORT_VERSION       `version` of an exported shard
    sweep       SWEEP_FORMAT         `format` of a sweep's record

A change of a format raises its number, and owes more: see docs/development/releases.md.
"""

# Messages, calls, tables of steps, manifests, and every result that two parties must compute alike.
# Since 2 a number names one wire: builds before it differ, and all say 1.
WIRE_VERSION = 2
# Consecutive, up to WIRE_VERSION: a job has one of them from its manifest to its end.
WIRE_VERSIONS_SPOKEN = range(2, WIRE_VERSION + 1)
CHECKPOINT_FORMAT = 6  # since 6 arrays lie as they are
LEDGER_FORMAT = 2  # others are refused: a rewritten row is no record
STORE_VERSION = 12  # older stores are migrated: see `runtime.store.schema`
SHARD_FORMAT = 4  # since 4 hosts of federboost-vertical keep the facts of their noisy buckets
EXPORT_VERSION = 1
SWEEP_FORMAT = 1
