from fedboost.messages import array_pb2 as _array_pb2
from fedboost.messages import fault_pb2 as _fault_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HelloRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("name", "role", "version", "wire_version", "clock", "certificate", "wire_oldest")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WIRE_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    WIRE_OLDEST_FIELD_NUMBER: _ClassVar[int]
    name: str
    role: str
    version: str
    wire_version: int
    clock: float
    certificate: str
    wire_oldest: int
    def __init__(self, name: _Optional[str] = ..., role: _Optional[str] = ..., version: _Optional[str] = ..., wire_version: _Optional[int] = ..., clock: _Optional[float] = ..., certificate: _Optional[str] = ..., wire_oldest: _Optional[int] = ...) -> None: ...

class CheckLinkRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class CheckLinkReply(_message.Message):
    __slots__ = ("fault",)
    FAULT_FIELD_NUMBER: _ClassVar[int]
    fault: _fault_pb2.Fault
    def __init__(self, fault: _Optional[_Union[_fault_pb2.Fault, _Mapping]] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("spec", "key", "certificate", "signature", "signed_at")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    SIGNED_AT_FIELD_NUMBER: _ClassVar[int]
    spec: bytes
    key: str
    certificate: bytes
    signature: bytes
    signed_at: int
    def __init__(self, spec: _Optional[bytes] = ..., key: _Optional[str] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., signed_at: _Optional[int] = ...) -> None: ...

class SubmitReply(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class JobList(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobStatus]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobStatus, _Mapping]]] = ...) -> None: ...

class JobId(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("id", "after")
    ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    id: str
    after: int
    def __init__(self, id: _Optional[str] = ..., after: _Optional[int] = ...) -> None: ...

class JobStatus(_message.Message):
    __slots__ = ("id", "name", "protocol", "state", "reason", "waiting", "progress", "attempt", "created", "updated", "submitter", "warnings", "encryption")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    SUBMITTER_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    ENCRYPTION_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    protocol: str
    state: str
    reason: _fault_pb2.Fault
    waiting: _containers.RepeatedCompositeFieldContainer[Waiting]
    progress: Progress
    attempt: int
    created: float
    updated: float
    submitter: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    encryption: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., protocol: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[_Union[_fault_pb2.Fault, _Mapping]] = ..., waiting: _Optional[_Iterable[_Union[Waiting, _Mapping]]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., attempt: _Optional[int] = ..., created: _Optional[float] = ..., updated: _Optional[float] = ..., submitter: _Optional[str] = ..., warnings: _Optional[_Iterable[str]] = ..., encryption: _Optional[str] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("party", "step", "since")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    party: str
    step: str
    since: float
    def __init__(self, party: _Optional[str] = ..., step: _Optional[str] = ..., since: _Optional[float] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("round", "done", "of")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    OF_FIELD_NUMBER: _ClassVar[int]
    round: str
    done: int
    of: int
    def __init__(self, round: _Optional[str] = ..., done: _Optional[int] = ..., of: _Optional[int] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("number", "at", "state", "step", "round", "stage", "finished", "lost", "warned")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    WARNED_FIELD_NUMBER: _ClassVar[int]
    number: int
    at: float
    state: StateChanged
    step: StepDone
    round: RoundDone
    stage: StageDone
    finished: Finished
    lost: PartyLost
    warned: Warned
    def __init__(self, number: _Optional[int] = ..., at: _Optional[float] = ..., state: _Optional[_Union[StateChanged, _Mapping]] = ..., step: _Optional[_Union[StepDone, _Mapping]] = ..., round: _Optional[_Union[RoundDone, _Mapping]] = ..., stage: _Optional[_Union[StageDone, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., lost: _Optional[_Union[PartyLost, _Mapping]] = ..., warned: _Optional[_Union[Warned, _Mapping]] = ...) -> None: ...

class PartyLost(_message.Message):
    __slots__ = ("party", "stage", "round")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    party: str
    stage: str
    round: int
    def __init__(self, party: _Optional[str] = ..., stage: _Optional[str] = ..., round: _Optional[int] = ...) -> None: ...

class Warned(_message.Message):
    __slots__ = ("party", "warning")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    party: str
    warning: str
    def __init__(self, party: _Optional[str] = ..., warning: _Optional[str] = ...) -> None: ...

class StateChanged(_message.Message):
    __slots__ = ("state", "reason", "parties", "goes_on")
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    GOES_ON_FIELD_NUMBER: _ClassVar[int]
    state: str
    reason: _fault_pb2.Fault
    parties: _containers.RepeatedScalarFieldContainer[str]
    goes_on: bool
    def __init__(self, state: _Optional[str] = ..., reason: _Optional[_Union[_fault_pb2.Fault, _Mapping]] = ..., parties: _Optional[_Iterable[str]] = ..., goes_on: _Optional[bool] = ...) -> None: ...

class StepDone(_message.Message):
    __slots__ = ("stage", "step", "seconds", "costs", "calls", "exchanges")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    COSTS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    EXCHANGES_FIELD_NUMBER: _ClassVar[int]
    stage: str
    step: str
    seconds: float
    costs: _containers.RepeatedCompositeFieldContainer[StepCost]
    calls: int
    exchanges: int
    def __init__(self, stage: _Optional[str] = ..., step: _Optional[str] = ..., seconds: _Optional[float] = ..., costs: _Optional[_Iterable[_Union[StepCost, _Mapping]]] = ..., calls: _Optional[int] = ..., exchanges: _Optional[int] = ...) -> None: ...

class StepCost(_message.Message):
    __slots__ = ("party", "seconds", "cpu_seconds", "sent")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    party: str
    seconds: float
    cpu_seconds: float
    sent: _containers.RepeatedCompositeFieldContainer[LinkBytes]
    def __init__(self, party: _Optional[str] = ..., seconds: _Optional[float] = ..., cpu_seconds: _Optional[float] = ..., sent: _Optional[_Iterable[_Union[LinkBytes, _Mapping]]] = ...) -> None: ...

class LinkBytes(_message.Message):
    __slots__ = ("peer", "bytes", "messages")
    PEER_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    peer: str
    bytes: int
    messages: int
    def __init__(self, peer: _Optional[str] = ..., bytes: _Optional[int] = ..., messages: _Optional[int] = ...) -> None: ...

class RoundDone(_message.Message):
    __slots__ = ("stage", "progress", "seconds", "metrics")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    stage: str
    progress: Progress
    seconds: float
    metrics: _containers.RepeatedCompositeFieldContainer[Metric]
    def __init__(self, stage: _Optional[str] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., seconds: _Optional[float] = ..., metrics: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ...) -> None: ...

class StageDone(_message.Message):
    __slots__ = ("stage", "seconds", "told")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    TOLD_FIELD_NUMBER: _ClassVar[int]
    stage: str
    seconds: float
    told: StatusReport
    def __init__(self, stage: _Optional[str] = ..., seconds: _Optional[float] = ..., told: _Optional[_Union[StatusReport, _Mapping]] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("result", "told")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    TOLD_FIELD_NUMBER: _ClassVar[int]
    result: bytes
    told: StatusReport
    def __init__(self, result: _Optional[bytes] = ..., told: _Optional[_Union[StatusReport, _Mapping]] = ...) -> None: ...

class JobJournal(_message.Message):
    __slots__ = ("status", "spec", "events")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    status: JobStatus
    spec: bytes
    events: _containers.RepeatedCompositeFieldContainer[Event]
    def __init__(self, status: _Optional[_Union[JobStatus, _Mapping]] = ..., spec: _Optional[bytes] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ...) -> None: ...

class StatusReport(_message.Message):
    __slots__ = ("ends", "metrics", "counts", "curves", "importance", "best", "rounds", "privacy", "released", "warnings", "ids", "alignment", "answers")
    ENDS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    CURVES_FIELD_NUMBER: _ClassVar[int]
    IMPORTANCE_FIELD_NUMBER: _ClassVar[int]
    BEST_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    PRIVACY_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    ends: str
    metrics: _containers.RepeatedCompositeFieldContainer[Metric]
    counts: _containers.RepeatedCompositeFieldContainer[Count]
    curves: _containers.RepeatedCompositeFieldContainer[Curve]
    importance: _containers.RepeatedCompositeFieldContainer[Importance]
    best: _containers.RepeatedCompositeFieldContainer[Metric]
    rounds: _containers.RepeatedCompositeFieldContainer[RoundTold]
    privacy: _containers.RepeatedCompositeFieldContainer[Privacy]
    released: _containers.RepeatedCompositeFieldContainer[Released]
    warnings: _containers.RepeatedCompositeFieldContainer[Warned]
    ids: _containers.RepeatedCompositeFieldContainer[MatchedIds]
    alignment: str
    answers: str
    def __init__(self, ends: _Optional[str] = ..., metrics: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ..., counts: _Optional[_Iterable[_Union[Count, _Mapping]]] = ..., curves: _Optional[_Iterable[_Union[Curve, _Mapping]]] = ..., importance: _Optional[_Iterable[_Union[Importance, _Mapping]]] = ..., best: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ..., rounds: _Optional[_Iterable[_Union[RoundTold, _Mapping]]] = ..., privacy: _Optional[_Iterable[_Union[Privacy, _Mapping]]] = ..., released: _Optional[_Iterable[_Union[Released, _Mapping]]] = ..., warnings: _Optional[_Iterable[_Union[Warned, _Mapping]]] = ..., ids: _Optional[_Iterable[_Union[MatchedIds, _Mapping]]] = ..., alignment: _Optional[str] = ..., answers: _Optional[str] = ...) -> None: ...

class RoundTold(_message.Message):
    __slots__ = ("round", "done", "of", "metrics")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    OF_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    round: str
    done: int
    of: int
    metrics: _containers.RepeatedCompositeFieldContainer[Metric]
    def __init__(self, round: _Optional[str] = ..., done: _Optional[int] = ..., of: _Optional[int] = ..., metrics: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ...) -> None: ...

class Privacy(_message.Message):
    __slots__ = ("party", "noise", "epsilon_element", "epsilon_row", "moved")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    NOISE_FIELD_NUMBER: _ClassVar[int]
    EPSILON_ELEMENT_FIELD_NUMBER: _ClassVar[int]
    EPSILON_ROW_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    party: str
    noise: bool
    epsilon_element: float
    epsilon_row: float
    moved: float
    def __init__(self, party: _Optional[str] = ..., noise: _Optional[bool] = ..., epsilon_element: _Optional[float] = ..., epsilon_row: _Optional[float] = ..., moved: _Optional[float] = ...) -> None: ...

class Released(_message.Message):
    __slots__ = ("party", "planned", "counted", "before", "warn", "max", "warning", "placed")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    PLANNED_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    WARN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    PLACED_FIELD_NUMBER: _ClassVar[int]
    party: str
    planned: float
    counted: float
    before: float
    warn: float
    max: float
    warning: str
    placed: PlacedRows
    def __init__(self, party: _Optional[str] = ..., planned: _Optional[float] = ..., counted: _Optional[float] = ..., before: _Optional[float] = ..., warn: _Optional[float] = ..., max: _Optional[float] = ..., warning: _Optional[str] = ..., placed: _Optional[_Union[PlacedRows, _Mapping]] = ...) -> None: ...

class PlacedRows(_message.Message):
    __slots__ = ("planned", "counted", "before", "max")
    PLANNED_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    planned: float
    counted: float
    before: float
    max: float
    def __init__(self, planned: _Optional[float] = ..., counted: _Optional[float] = ..., before: _Optional[float] = ..., max: _Optional[float] = ...) -> None: ...

class MatchedIds(_message.Message):
    __slots__ = ("party", "brought", "matched")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    BROUGHT_FIELD_NUMBER: _ClassVar[int]
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    party: str
    brought: int
    matched: int
    def __init__(self, party: _Optional[str] = ..., brought: _Optional[int] = ..., matched: _Optional[int] = ...) -> None: ...

class Metric(_message.Message):
    __slots__ = ("split", "name", "value")
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    split: str
    name: str
    value: float
    def __init__(self, split: _Optional[str] = ..., name: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class Count(_message.Message):
    __slots__ = ("name", "count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    count: int
    def __init__(self, name: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class Curve(_message.Message):
    __slots__ = ("name", "split", "x", "y")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    X_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    name: str
    split: str
    x: _array_pb2.Array
    y: _array_pb2.Array
    def __init__(self, name: _Optional[str] = ..., split: _Optional[str] = ..., x: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., y: _Optional[_Union[_array_pb2.Array, _Mapping]] = ...) -> None: ...

class Importance(_message.Message):
    __slots__ = ("party", "feature", "gain", "splits")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    FEATURE_FIELD_NUMBER: _ClassVar[int]
    GAIN_FIELD_NUMBER: _ClassVar[int]
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    party: str
    feature: str
    gain: float
    splits: int
    def __init__(self, party: _Optional[str] = ..., feature: _Optional[str] = ..., gain: _Optional[float] = ..., splits: _Optional[int] = ...) -> None: ...
