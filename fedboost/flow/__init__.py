"""Parts of a protocol: roles, steps, the messages between them and the walk; no I/O.

A protocol is a folder below `fedboost.protocols`. Its `walk.py` holds the table of steps and their
order, as the coordinator calls them; one module per role holds one plain function per step.

Modules:
    artefact  results of a stage in a party's store
    context   a party's data, secrets and services at one stage
    limits    limits of a party's policy that protocols read
    protocol  a protocol as the runtime sees it
    roles     parties of a job, and their roles
    run       calls of the coordinator in a walk
    steps     steps, their results, and the cost of messages
"""

from fedboost.flow.artefact import DISCLOSURE, HISTORY, MODEL, Artefact
from fedboost.flow.context import (
    MemoryNotebook,
    Notebook,
    Signer,
    StageAttempt,
    StageContext,
    StageSecrets,
    StageServices,
)
from fedboost.flow.limits import PeerLimits
from fedboost.flow.protocol import (
    Asks,
    DisclosureReuse,
    ModelUse,
    PolicyFacts,
    Protocol,
    Releases,
    ReplaySupport,
    RowsUsed,
    TableUse,
)
from fedboost.flow.roles import AGGREGATOR, EVERYBODY, GUEST, HOST, Role, Table
from fedboost.flow.run import LOOP, START, UNBOUNDED, CheckpointPolicy, Place, Run, Walk
from fedboost.flow.steps import Charge, DisclosureInfo, NoisyValues, Out, Spent, Step

__all__ = [
    "AGGREGATOR",
    "DISCLOSURE",
    "EVERYBODY",
    "GUEST",
    "HISTORY",
    "HOST",
    "LOOP",
    "MODEL",
    "START",
    "UNBOUNDED",
    "Artefact",
    "Asks",
    "Charge",
    "CheckpointPolicy",
    "DisclosureInfo",
    "DisclosureReuse",
    "MemoryNotebook",
    "ModelUse",
    "NoisyValues",
    "Notebook",
    "Out",
    "PeerLimits",
    "Place",
    "PolicyFacts",
    "Protocol",
    "Releases",
    "ReplaySupport",
    "Role",
    "RowsUsed",
    "Run",
    "Signer",
    "Spent",
    "StageAttempt",
    "StageContext",
    "StageSecrets",
    "StageServices",
    "Step",
    "Table",
    "TableUse",
    "Walk",
]
