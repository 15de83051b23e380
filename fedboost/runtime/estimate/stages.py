"""The stages of a job, rehearsed: phases and memory of all its rows and rounds."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedboost import flow, protocols
from fedboost.core import forest
from fedboost.core.params import TreeParams
from fedboost.errors import ConfigError, ProtocolError
from fedboost.flow import Artefact, Protocol, RowsUsed
from fedboost.job import Alignment
from fedboost.oblivious.method import ECDH, method_for
from fedboost.runtime.cluster.local import permissive
from fedboost.runtime.estimate.phases import Phase, grown, line
from fedboost.runtime.estimate.rehearsal import Cast, Rehearsal
from fedboost.runtime.estimate.scenes import TableSample

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


def rehearse(params: Any, sample: TableSample) -> list[Stage]:
    """The stages of a job; a ConfigError where it trains nothing."""
    spec = sample.scene.spec
    protocol = protocols.named(spec.protocol)
    if protocol.leaves != "model":
        raise ConfigError(
            f"a job of {protocol.name} cannot be estimated", todo="estimate one that trains"
        )
    found = []
    for name in protocols.stages(spec, params):
        if name == spec.protocol:
            found.append(_trained(protocol, params, sample))
        elif protocols.named(name).leaves == "rows":
            found.append(_aligned(protocols.named(name), sample))
        else:
            found.append(Stage(name, assumed=(f"the stage {name} is not counted",)))
    return found


def _aligned(protocol: Protocol, sample: TableSample) -> Stage:
    """An alignment of sets of ids that lie to one another as the tables' do."""
    scene = sample.scene
    said = scene.spec.alignment
    settings = said if isinstance(said, Alignment) else Alignment()
    params = Alignment(method=method_for(settings, scene.rows[scene.guest]))
    most = IDS if params.method == ECDH else OPRF_IDS

    def cast(each: int) -> Cast:
        frames, share = sample.ids(most // each)
        return _cast(protocol, params, replace(sample, frames=frames, share=share))

    found = _measured(cast)
    return replace(found, memory={p: ID_COPIES * own for p, own in found.memory.items()})


def _trained(protocol: Protocol, params: Any, sample: TableSample) -> Stage:
    """A few rounds of the training on some rows; the others grow like the last one of their
    kind.
    """
    table, assumed = sample.scene.spec.parties.table(), list[str]()
    if getattr(params, "split", "") == "unscored":
        assumed += ["unscored splits: counted like scored ones, though hosts choose by themselves"]
    kinds = [
        protocol.round_kind(params, table, number) if protocol.round_kind else None
        for number in range(params.n_estimators)
    ]
    rounds = next(n for n in range(1, len(kinds) + 1) if set(kinds[:n]) == set(kinds))
    many_trees = isinstance(params, TreeParams) and params.trees_per_round > 1
    is_slow = many_trees or sum(sample.scene.columns.values()) > COLUMNS
    rounds = min(len(kinds), max(1 if is_slow else ROUNDS, rounds))
    short = _shortened(params, rounds)

    def cast(each: int) -> Cast:
        return _informed(_cast(protocol, short, sample.thinned(each)), sample.thinned(each))

    found = _measured(cast)
    whole, part = _sizes(kinds, params), _sizes(kinds, short)
    for phase in found.phases:
        if phase.round is not None and phase.round < rounds:
            phase.repeat(whole[kinds[phase.round]] / part[kinds[phase.round]])
    return replace(found, assumed=assumed)


def _cast(protocol: Protocol, params: Any, sample: TableSample) -> Cast:
    spec, table = sample.scene.spec, sample.scene.spec.parties.table()
    return Cast(
        protocol=protocol,
        params=params,
        table=table,
        frames=sample.frames,
        validation=sample.held_out(),
        limits={party: permissive(party, spec) for party in table.of(tuple(flow.Role))},
        share=sample.share,
    )


def _informed(cast: Cast, sample: TableSample) -> Cast:
    """With what stages before have left, and what an earlier job has disclosed if it is used."""
    if cast.protocol.rows is RowsUsed.GUESTS:
        met: dict[str, Artefact] = {cast.protocol.before[0]: sample.met()}
        cast = replace(cast, artefacts={cast.table.guest: met})
    if cast.protocol.used_disclosure(cast.params) is None:
        return cast
    earlier = _run(replace(cast, params=cast.params.model_copy(update={"reuse": None})))
    told = {
        party: {flow.DISCLOSURE: left.disclosure}
        for party, left in earlier.left.items()
        if left.disclosure is not None
    }
    return replace(cast, artefacts=told)


def _measured(cast: Callable[[int], Cast]) -> Stage:
    """A stage of all rows, from rehearsals with one row of so many each."""
    traced, timed = [cast(each) for each in TRACED], [cast(each) for each in TIMED]
    _run(traced[0])  # loads what is compiled, at a time that nobody measures
    tracemalloc.start()
    try:
        held = [_run(one).held for one in traced]
    finally:
        tracemalloc.stop()
    small, large = (_run(one) for one in timed)
    shares = timed[0].share, timed[1].share
    phases = grown(small.phases, large.phases, shares)
    memory = {}
    for party in large.actors:
        own = line(held[0][party][0], held[1][party][0], (traced[0].share, traced[1].share))
        encrypted = line(small.held[party][1], large.held[party][1], shares)
        carried = COPIES * max(_carried(phase, party) for phase in phases)
        memory[party] = own + encrypted + carried
    return Stage(large.protocol.name, phases, memory)


def _carried(phase: Phase, party: str) -> float:
    """Bytes of messages that a party has in memory."""
    return sum(
        n_bytes * min(1.0, IN_FLIGHT / max(1.0, messages))
        for link, n_bytes, messages in phase.sent()
        if party in link
    )


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


def _sizes(kinds: Sequence[object], params: Any) -> Counter[object]:
    """Trees of the rounds of each kind; 1 for a round that has none."""
    sizes = forest.sizes(params) if isinstance(params, TreeParams) else [1] * params.n_estimators
    found = Counter[object]()
    for kind, size in zip(kinds, sizes, strict=False):
        found[kind] += int(size)
    return found
