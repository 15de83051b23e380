from fedboost.messages import exchange_pb2 as _exchange_pb2
from fedboost.messages import fault_pb2 as _fault_pb2
from fedboost.messages import job_pb2 as _job_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SchemesRequest(_message.Message):
    __slots__ = ("spec",)
    SPEC_FIELD_NUMBER: _ClassVar[int]
    spec: bytes
    def __init__(self, spec: _Optional[bytes] = ...) -> None: ...

class SchemesReply(_message.Message):
    __slots__ = ("named", "denied", "too_small")
    NAMED_FIELD_NUMBER: _ClassVar[int]
    DENIED_FIELD_NUMBER: _ClassVar[int]
    TOO_SMALL_FIELD_NUMBER: _ClassVar[int]
    named: _containers.RepeatedScalarFieldContainer[str]
    denied: _containers.RepeatedScalarFieldContainer[str]
    too_small: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, named: _Optional[_Iterable[str]] = ..., denied: _Optional[_Iterable[str]] = ..., too_small: _Optional[_Iterable[str]] = ...) -> None: ...

class Proposal(_message.Message):
    __slots__ = ("manifest",)
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    manifest: bytes
    def __init__(self, manifest: _Optional[bytes] = ...) -> None: ...

class Agreement(_message.Message):
    __slots__ = ("signature",)
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    signature: bytes
    def __init__(self, signature: _Optional[bytes] = ...) -> None: ...

class Room(_message.Message):
    __slots__ = ("held",)
    HELD_FIELD_NUMBER: _ClassVar[int]
    held: bool
    def __init__(self, held: _Optional[bool] = ...) -> None: ...

class BeginRequest(_message.Message):
    __slots__ = ("job", "manifest_sha256", "attempt", "signatures")
    JOB_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_SHA256_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    job: str
    manifest_sha256: bytes
    attempt: int
    signatures: _containers.RepeatedCompositeFieldContainer[Signature]
    def __init__(self, job: _Optional[str] = ..., manifest_sha256: _Optional[bytes] = ..., attempt: _Optional[int] = ..., signatures: _Optional[_Iterable[_Union[Signature, _Mapping]]] = ...) -> None: ...

class Signature(_message.Message):
    __slots__ = ("party", "signature")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    party: str
    signature: bytes
    def __init__(self, party: _Optional[str] = ..., signature: _Optional[bytes] = ...) -> None: ...

class BeginReply(_message.Message):
    __slots__ = ("stages_done", "kept")
    STAGES_DONE_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    stages_done: _containers.RepeatedScalarFieldContainer[str]
    kept: _containers.RepeatedCompositeFieldContainer[Kept]
    def __init__(self, stages_done: _Optional[_Iterable[str]] = ..., kept: _Optional[_Iterable[_Union[Kept, _Mapping]]] = ...) -> None: ...

class Kept(_message.Message):
    __slots__ = ("stage", "round", "within")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    WITHIN_FIELD_NUMBER: _ClassVar[int]
    stage: str
    round: int
    within: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, stage: _Optional[str] = ..., round: _Optional[int] = ..., within: _Optional[_Iterable[int]] = ...) -> None: ...

class StageRequest(_message.Message):
    __slots__ = ("job", "attempt", "stage", "round", "within")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    WITHIN_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    stage: str
    round: int
    within: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., stage: _Optional[str] = ..., round: _Optional[int] = ..., within: _Optional[_Iterable[int]] = ...) -> None: ...

class StageReply(_message.Message):
    __slots__ = ("told",)
    TOLD_FIELD_NUMBER: _ClassVar[int]
    told: _job_pb2.StatusReport
    def __init__(self, told: _Optional[_Union[_job_pb2.StatusReport, _Mapping]] = ...) -> None: ...

class StepCall(_message.Message):
    __slots__ = ("job", "attempt", "stage", "turns", "awaits", "rounds", "among", "spares", "loop")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    AWAITS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    AMONG_FIELD_NUMBER: _ClassVar[int]
    SPARES_FIELD_NUMBER: _ClassVar[int]
    LOOP_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    stage: str
    turns: _containers.RepeatedCompositeFieldContainer[Turn]
    awaits: bool
    rounds: _containers.RepeatedScalarFieldContainer[int]
    among: _containers.RepeatedScalarFieldContainer[str]
    spares: bool
    loop: str
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., stage: _Optional[str] = ..., turns: _Optional[_Iterable[_Union[Turn, _Mapping]]] = ..., awaits: _Optional[bool] = ..., rounds: _Optional[_Iterable[int]] = ..., among: _Optional[_Iterable[str]] = ..., spares: _Optional[bool] = ..., loop: _Optional[str] = ...) -> None: ...

class Turn(_message.Message):
    __slots__ = ("step", "number")
    STEP_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    step: str
    number: int
    def __init__(self, step: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class StepReply(_message.Message):
    __slots__ = ("working", "turns", "step", "waits_for")
    WORKING_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    working: bool
    turns: _containers.RepeatedCompositeFieldContainer[TurnReply]
    step: str
    waits_for: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, working: _Optional[bool] = ..., turns: _Optional[_Iterable[_Union[TurnReply, _Mapping]]] = ..., step: _Optional[str] = ..., waits_for: _Optional[_Iterable[str]] = ...) -> None: ...

class EndLoopRequest(_message.Message):
    __slots__ = ("job", "attempt", "stage", "number")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    stage: str
    number: int
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., stage: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class EndLoopReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TurnReply(_message.Message):
    __slots__ = ("told", "cost")
    TOLD_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    told: _job_pb2.StatusReport
    cost: _job_pb2.StepCost
    def __init__(self, told: _Optional[_Union[_job_pb2.StatusReport, _Mapping]] = ..., cost: _Optional[_Union[_job_pb2.StepCost, _Mapping]] = ...) -> None: ...

class SignedHead(_message.Message):
    __slots__ = ("party", "text", "signature")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    party: str
    text: bytes
    signature: bytes
    def __init__(self, party: _Optional[str] = ..., text: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("job", "attempt", "stage", "round", "within", "heads")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    WITHIN_FIELD_NUMBER: _ClassVar[int]
    HEADS_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    stage: str
    round: int
    within: _containers.RepeatedScalarFieldContainer[int]
    heads: _containers.RepeatedCompositeFieldContainer[SignedHead]
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., stage: _Optional[str] = ..., round: _Optional[int] = ..., within: _Optional[_Iterable[int]] = ..., heads: _Optional[_Iterable[_Union[SignedHead, _Mapping]]] = ...) -> None: ...

class CommitReply(_message.Message):
    __slots__ = ("head",)
    HEAD_FIELD_NUMBER: _ClassVar[int]
    head: SignedHead
    def __init__(self, head: _Optional[_Union[SignedHead, _Mapping]] = ...) -> None: ...

class FinishRequest(_message.Message):
    __slots__ = ("job", "attempt", "result", "journal", "heads", "forecasts", "refused")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    HEADS_FIELD_NUMBER: _ClassVar[int]
    FORECASTS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    result: bytes
    journal: _job_pb2.JobJournal
    heads: _containers.RepeatedCompositeFieldContainer[SignedHead]
    forecasts: _containers.RepeatedScalarFieldContainer[bytes]
    refused: bool
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., result: _Optional[bytes] = ..., journal: _Optional[_Union[_job_pb2.JobJournal, _Mapping]] = ..., heads: _Optional[_Iterable[_Union[SignedHead, _Mapping]]] = ..., forecasts: _Optional[_Iterable[bytes]] = ..., refused: _Optional[bool] = ...) -> None: ...

class FinishReply(_message.Message):
    __slots__ = ("cpu_seconds", "memory_peak_bytes", "sent", "model", "head", "released", "forecast")
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    FORECAST_FIELD_NUMBER: _ClassVar[int]
    cpu_seconds: float
    memory_peak_bytes: int
    sent: _containers.RepeatedCompositeFieldContainer[_job_pb2.LinkBytes]
    model: str
    head: SignedHead
    released: _containers.RepeatedCompositeFieldContainer[_job_pb2.Released]
    forecast: bytes
    def __init__(self, cpu_seconds: _Optional[float] = ..., memory_peak_bytes: _Optional[int] = ..., sent: _Optional[_Iterable[_Union[_job_pb2.LinkBytes, _Mapping]]] = ..., model: _Optional[str] = ..., head: _Optional[_Union[SignedHead, _Mapping]] = ..., released: _Optional[_Iterable[_Union[_job_pb2.Released, _Mapping]]] = ..., forecast: _Optional[bytes] = ...) -> None: ...

class StopRequest(_message.Message):
    __slots__ = ("job", "attempt", "state", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    state: str
    reason: _fault_pb2.Fault
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., state: _Optional[str] = ..., reason: _Optional[_Union[_fault_pb2.Fault, _Mapping]] = ...) -> None: ...

class StopReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DenyRequest(_message.Message):
    __slots__ = ("id", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: str
    reason: str
    def __init__(self, id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ForgetRequest(_message.Message):
    __slots__ = ("id", "keeps_model")
    ID_FIELD_NUMBER: _ClassVar[int]
    KEEPS_MODEL_FIELD_NUMBER: _ClassVar[int]
    id: str
    keeps_model: bool
    def __init__(self, id: _Optional[str] = ..., keeps_model: _Optional[bool] = ...) -> None: ...

class OwnedJobs(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[OwnedJob]
    def __init__(self, jobs: _Optional[_Iterable[_Union[OwnedJob, _Mapping]]] = ...) -> None: ...

class OwnedJob(_message.Message):
    __slots__ = ("id", "name", "protocol", "state", "reason", "coordinator", "submitter", "parties", "dataset", "updated", "tells", "uses", "risk", "forecast", "because")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    SUBMITTER_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    TELLS_FIELD_NUMBER: _ClassVar[int]
    USES_FIELD_NUMBER: _ClassVar[int]
    RISK_FIELD_NUMBER: _ClassVar[int]
    FORECAST_FIELD_NUMBER: _ClassVar[int]
    BECAUSE_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    protocol: str
    state: str
    reason: _fault_pb2.Fault
    coordinator: str
    submitter: str
    parties: _containers.RepeatedScalarFieldContainer[str]
    dataset: str
    updated: float
    tells: str
    uses: _containers.RepeatedCompositeFieldContainer[Use]
    risk: str
    forecast: str
    because: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., protocol: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[_Union[_fault_pb2.Fault, _Mapping]] = ..., coordinator: _Optional[str] = ..., submitter: _Optional[str] = ..., parties: _Optional[_Iterable[str]] = ..., dataset: _Optional[str] = ..., updated: _Optional[float] = ..., tells: _Optional[str] = ..., uses: _Optional[_Iterable[_Union[Use, _Mapping]]] = ..., risk: _Optional[str] = ..., forecast: _Optional[str] = ..., because: _Optional[_Iterable[str]] = ...) -> None: ...

class Use(_message.Message):
    __slots__ = ("about", "says")
    ABOUT_FIELD_NUMBER: _ClassVar[int]
    SAYS_FIELD_NUMBER: _ClassVar[int]
    about: str
    says: str
    def __init__(self, about: _Optional[str] = ..., says: _Optional[str] = ...) -> None: ...

class ReloadRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Reloaded(_message.Message):
    __slots__ = ("changed",)
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    changed: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, changed: _Optional[_Iterable[str]] = ...) -> None: ...

class OwnedModels(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[OwnedModel]
    def __init__(self, models: _Optional[_Iterable[_Union[OwnedModel, _Mapping]]] = ...) -> None: ...

class OwnedModel(_message.Message):
    __slots__ = ("id", "name", "protocol", "role", "guest", "hosts", "objective", "rounds", "trees", "whole", "created", "metrics")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    GUEST_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    TREES_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    protocol: str
    role: str
    guest: str
    hosts: _containers.RepeatedScalarFieldContainer[str]
    objective: str
    rounds: int
    trees: int
    whole: bool
    created: str
    metrics: _containers.RepeatedCompositeFieldContainer[_job_pb2.Metric]
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., protocol: _Optional[str] = ..., role: _Optional[str] = ..., guest: _Optional[str] = ..., hosts: _Optional[_Iterable[str]] = ..., objective: _Optional[str] = ..., rounds: _Optional[int] = ..., trees: _Optional[int] = ..., whole: _Optional[bool] = ..., created: _Optional[str] = ..., metrics: _Optional[_Iterable[_Union[_job_pb2.Metric, _Mapping]]] = ...) -> None: ...

class ModelId(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ShardPiece(_message.Message):
    __slots__ = ("facts", "arrays")
    FACTS_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    facts: _exchange_pb2.Piece
    arrays: _exchange_pb2.Piece
    def __init__(self, facts: _Optional[_Union[_exchange_pb2.Piece, _Mapping]] = ..., arrays: _Optional[_Union[_exchange_pb2.Piece, _Mapping]] = ...) -> None: ...
