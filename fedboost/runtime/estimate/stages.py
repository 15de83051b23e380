"""The stages of a job, rehearsed: phases and memory of all its rows and rounds."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedboost import flow, protocols
from fedboost.core import forest
from fedboost.core.params import TreeParams
from fedboost.errors import ConfigError, ProtocolError
from fedboost.flow import Artefact, Protocol, RowsUsed
from fedboost.job import Alignment, JobSpec
from fedboost.oblivious.method import ECDH, method_for
from fedboost.runtime.cluster.local import permissive
from fedboost.runtime.estimate.phases import Phase, grown, line
from fedboost.runtime.estimate.rehearsal import Cast, Rehearsal
from fedboost.runtime.estimate.samples import TableSample, set_sizes

ROUNDS = 2  # the later rounds of a job grow like these
COLUMNS = 500  # of all tables; with more, or a tree for each class, one round of a kind is enough
TRACED, TIMED = (8, 2), (2, 1)  # one row of so many, in the rehearsals of memory and of time
IN_FLIGHT = 5.0  # parts of a stream that are in memory as messages
COPIES = 2.0  # of a message in memory: encoded, and as it is used
IDS, OPRF_IDS = 192, 16_384  # of the largest set of ids that is aligned, by the method
ID_COPIES = 4.5  # of ids and points: numbers and keys, and what worker processes are given


@dataclass
class Stage:
    """One stage: what it takes, what each party holds beside its table, what has been assumed."""

    name: str
    phases: Sequence[Phase] = ()
    memory: Mapping[str, float] = field(default_factory=dict)  # bytes by party
    assumed: Sequence[str] = ()


def rehearse(spec: JobSpec, params: Any, sample: TableSample) -> list[Stage]:
    """The stages of a job; a ConfigError where it trains nothing."""
    protocol = protocols.named(spec.protocol)
    if protocol.leaves != "model":
        raise ConfigError(
            f"a job of {protocol.name} cannot be estimated", todo="estimate one that trains"
        )
    found = []
    for name in protocols.stages(spec, params):
        if name == spec.protocol:
            found.append(_trained(spec, protocol, params, sample))
        elif protocols.named(name).leaves == "rows":
            found.append(_aligned(spec, name, sample))
        else:
            found.append(Stage(name, assumed=(f"the stage {name} is not counted",)))
    return found


def _aligned(spec: JobSpec, name: str, sample: TableSample) -> Stage:
    """An alignment of sets of ids that lie to one another as the tables' do."""
    protocol, scene = protocols.named(name), sample.scene
    settings = spec.alignment if isinstance(spec.alignment, Alignment) else Alignment()
    params = Alignment(method=method_for(settings, scene.rows[scene.guest]))
    most = IDS if params.method == ECDH else OPRF_IDS

    def cast(each: int) -> Cast:
        frames, share = set_sizes(sample, most // each)
        masks = {party: np.zeros(frame.n_rows, np.bool_) for party, frame in frames.items()}
        return Cast(protocol, params, spec.parties.table(), frames, masks, {}, _limits(spec), share)

    found = _measured([cast(each) for each in TRACED], [cast(each) for each in TIMED])
    return replace(found, memory={p: ID_COPIES * own for p, own in found.memory.items()})


def _trained(spec: JobSpec, protocol: Protocol, params: Any, sample: TableSample) -> Stage:
    table, assumed = spec.parties.table(), list[str]()
    if getattr(params, "split", "") == "unscored":
        assumed += ["unscored splits: counted like scored ones, though hosts choose by themselves"]
    kinds = _kinds(protocol, params, table)
    rounds = next(n for n in range(1, len(kinds) + 1) if set(kinds[:n]) == set(kinds))
    many_trees = isinstance(params, TreeParams) and params.trees_per_round > 1
    is_slow = many_trees or sum(sample.scene.columns.values()) > COLUMNS
    rounds = min(len(kinds), max(1 if is_slow else ROUNDS, rounds))
    short = _shortened(params, rounds)
    traced, timed = (
        [_cast(spec, protocol, short, sample.thinned(each)) for each in shares]
        for shares in (TRACED, TIMED)
    )
    found = _measured(traced, timed)
    all_, seen = _sizes(params), _sizes(short)
    whole, part = Counter[object](), Counter[object]()
    for kind, size in zip(kinds, all_, strict=True):
        whole[kind] += size
    for kind, size in zip(kinds, seen, strict=False):
        part[kind] += size
    for phase in found.phases:
        if phase.round is not None and phase.round < rounds:
            phase.repeat(whole[kinds[phase.round]] / part[kinds[phase.round]])
    return replace(found, assumed=assumed)


def _cast(spec: JobSpec, protocol: Protocol, params: Any, sample: TableSample) -> Cast:
    """The job on a sample; with what an earlier job has disclosed, if it uses that."""
    artefacts: dict[str, dict[str, Artefact]] = {}
    if protocol.rows is RowsUsed.GUESTS:
        artefacts[spec.parties.table().guest] = {protocol.before[0]: sample.met()}
    cast = Cast(
        protocol,
        params,
        spec.parties.table(),
        sample.frames,
        sample.held_out(spec),
        artefacts,
        _limits(spec),
        sample.share,
    )
    if protocol.used_disclosure(params) is None:
        return cast
    earlier = _run(replace(cast, params=params.model_copy(update={"reuse": None})))
    told = {
        party: {flow.DISCLOSURE: left.disclosure}
        for party, left in earlier.left.items()
        if left.disclosure is not None
    }
    return replace(cast, artefacts=told)


def _measured(traced: Sequence[Cast], timed: Sequence[Cast]) -> Stage:
    """A stage of all rows, from two shares of them each."""
    _run(traced[0])  # loads what is compiled, at a time that nobody measures
    tracemalloc.start()
    try:
        held = [_run(cast).held for cast in traced]
    finally:
        tracemalloc.stop()
    small, large = (_run(cast) for cast in timed)
    phases = grown(small.phases, large.phases, (timed[0].share, timed[1].share))
    memory = {}
    for party in large.actors:
        own = line(held[0][party][0], held[1][party][0], (traced[0].share, traced[1].share))
        shares = timed[0].share, timed[1].share
        encrypted = line(small.held[party][1], large.held[party][1], shares)
        carried = COPIES * max(_carried(phase, party) for phase in phases)
        memory[party] = own + encrypted + carried
    return Stage(large.protocol.name, phases, memory)


def _carried(phase: Phase, party: str) -> float:
    """Bytes of messages that a party has in memory."""
    found = 0.0
    for (sender, receiver), n_bytes, messages in phase.sent():
        if party in (sender, receiver):
            found += n_bytes * min(1.0, IN_FLIGHT / max(1.0, messages))
    return found


def _run(cast: Cast) -> Rehearsal:
    """A rehearsal at its end; it waits for nothing, so it needs no loop of events."""
    rehearsal = Rehearsal(cast)
    walk = rehearsal.run()
    try:
        walk.send(None)
    except StopIteration:
        return rehearsal
    raise ProtocolError(f"the walk of {cast.protocol.name} waits for what is no step")


def _shortened(params: Any, rounds: int) -> Any:
    """The same job with so many rounds, on its own."""
    changed = {
        "n_estimators": rounds,
        "early_stopping_rounds": None,
        "warm_start": None,
        "split": "scored",
    }
    fields = type(params).model_fields
    return params.model_copy(update={key: v for key, v in changed.items() if key in fields})


def _kinds(protocol: Protocol, params: Any, table: flow.Table) -> list[object]:
    if protocol.round_kind is None:
        return [None] * params.n_estimators
    return [protocol.round_kind(params, table, number) for number in range(params.n_estimators)]


def _sizes(params: Any) -> list[int]:
    """Trees of each round; 1 where rounds have none."""
    if not isinstance(params, TreeParams):
        return [1] * params.n_estimators
    return [int(size) for size in forest.sizes(params)]


def _limits(spec: JobSpec) -> dict[str, Any]:
    return {party: permissive(party, spec) for party in spec.parties.table().of(tuple(flow.Role))}
