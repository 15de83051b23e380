"""The stages of a job, rehearsed: phases and memory for all its rows and rounds."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedboost import flow, protocols
from fedboost.core import forest
from fedboost.core.params import TreeParams
from fedboost.crypto.oprf.sizes import OprfSizes, announced_size
from fedboost.crypto.set_sizes import check_curve, padded_size
from fedboost.flow import Protocol, RowsUsed
from fedboost.ground.errors import ConfigError, ProtocolError
from fedboost.ground.settings import Settings
from fedboost.job import Alignment
from fedboost.oblivious.method import ECDH, method_for
from fedboost.runtime.estimate.phases import Phase, Shares, grow_phases, value_at_all_rows
from fedboost.runtime.estimate.rehearsal import Rehearsal
from fedboost.runtime.estimate.scenes import TableSample

ROUNDS = 2  # later rounds of a job cost as much as these
COLUMNS_TWO_ROUNDS_MAX = (
    500  # of all tables; with more, or a tree per class, one round of a kind is enough
)
TRACED, TIMED = (8, 2), (2, 1)  # one row in so many, in the rehearsals for memory and for time
IN_FLIGHT = 5.0  # parts of a stream that are in memory as messages
MESSAGE_COPIES = 2.0  # of a message in memory: encoded and decoded
IDS, OPRF_IDS = 192, 16_384  # of the largest set of ids in the rehearsal, by method
ID_COPIES = 4.5  # of ids and points: numbers and keys, and the copies at worker processes
PARTS, ROW_BYTES = 2, 37.0  # of an oblivious function: parts at once; bytes kept per row


@dataclass
class Stage:
    """One stage: its costs, the memory of each party besides its table, and the assumptions."""

    name: str
    phases: Sequence[Phase] = ()
    memory: Mapping[str, float] = field(default_factory=dict)  # bytes by party
    # Encrypted rows among them, which are in files for large tables.
    rows: Mapping[str, float] = field(default_factory=dict)
    assumed: Sequence[str] = ()
    answers: str = ""  # the form of hosts' encrypted sums, if there are several


def rehearse(params: Any, sample: TableSample) -> list[Stage]:
    """Return the rehearsed stages of a job; a ConfigError for a job without training."""
    spec = sample.scene.spec
    protocol = protocols.load_protocol(spec.protocol)
    if protocol.leaves != "model":
        raise ConfigError(
            f"a job of {protocol.name} cannot be estimated", todo="estimate one that trains"
        )
    stages = []
    for name in protocols.stages_of_job(spec, params):
        if name == spec.protocol:
            stages.append(_rehearse_training(protocol, params, sample))
        elif protocols.load_protocol(name).leaves == "rows":
            stages.append(_rehearse_alignment(protocols.load_protocol(name), sample))
        else:
            stages.append(Stage(name, assumed=(f"the stage {name} is not counted",)))
    return stages


def _rehearse_alignment(protocol: Protocol[Settings], sample: TableSample) -> Stage:
    """Rehearse an alignment of sets of ids that overlap as the tables' do."""
    scene = sample.scene
    alignment = scene.spec.alignment
    settings = alignment if isinstance(alignment, Alignment) else Alignment()
    params = Alignment(method=method_for(settings, scene.rows[scene.guest]))
    for rows in scene.rows.values():
        check_curve(rows) if params.method == ECDH else padded_size(rows, None)
    most = IDS if params.method == ECDH else OPRF_IDS
    stage = _measure_stage(
        lambda each: _run_to_end(Rehearsal(protocol, params, sample.ids_sample(most // each)))
    )
    memory = {party: ID_COPIES * n_bytes for party, n_bytes in stage.memory.items()}
    if params.method != ECDH:
        each = {party: n_bytes / scene.rows[party] for party, n_bytes in stage.memory.items()}
        guests, *hosts = (scene.rows[party] for party in scene.parties)
        largest = announced_size(guests, max(hosts))
        for party, rows in scene.rows.items():
            sizes = OprfSizes(guests, rows, largest)
            at_work = PARTS * (sizes.guest_cap if party == scene.guest else sizes.host_cap)
            memory[party] = each[party] * min(rows, at_work) + ROW_BYTES * rows
    return replace(stage, memory=memory)


def _rehearse_training(protocol: Protocol[Settings], params: Any, sample: TableSample) -> Stage:
    """Rehearse a few rounds of the training on some rows; later ones grow like the last."""
    table, assumed = sample.scene.spec.parties.table(), list[str]()
    if getattr(params, "split", "") == "unscored":
        assumed += ["unscored splits: counted like scored ones, though hosts choose by themselves"]
    kinds = [
        protocol.round_kind(params, table, number) if protocol.round_kind else None
        for number in range(params.n_estimators)
    ]
    rounds = next(n for n in range(1, len(kinds) + 1) if set(kinds[:n]) == set(kinds))
    many_trees = isinstance(params, TreeParams) and params.trees_per_round > 1
    is_slow = many_trees or sum(sample.scene.columns.values()) > COLUMNS_TWO_ROUNDS_MAX
    rounds = min(len(kinds), max(1 if is_slow else ROUNDS, rounds))
    short = _shortened(params, rounds)

    stage = _measure_stage(
        lambda each: _run_with_earlier(Rehearsal(protocol, short, sample.thinned(each)))
    )
    trees, part = _trees_by_kind(kinds, params), _trees_by_kind(kinds, short)
    for phase in stage.phases:
        if phase.round is not None and phase.round < rounds:
            phase.repeat(trees[kinds[phase.round]] / part[kinds[phase.round]])
    return replace(stage, assumed=assumed)


def _run_with_earlier(job: Rehearsal) -> Rehearsal:
    """Run a job with the results of earlier stages, and with the disclosure that it reuses."""
    if job.protocol.tables.rows is RowsUsed.GUESTS:
        job.artefacts = {job.table.guest: {job.protocol.before[0]: job.sample.alignment_result()}}
    if job.protocol.used_disclosure(job.params) is not None:
        alone = job.params.model_copy(update={"reuse": None})
        earlier = _run_to_end(Rehearsal(job.protocol, alone, job.sample, job.artefacts))
        job.artefacts = {
            party: {flow.DISCLOSURE: left.disclosure}
            for party, left in earlier.left.items()
            if left.disclosure is not None
        }
    return _run_to_end(job)


def _measure_stage(rehearsed: Callable[[int], Rehearsal]) -> Stage:
    """Return a stage for all rows, from rehearsals with one row in so many."""
    rehearsed(TRACED[0])  # compiles code before anything is measured
    tracemalloc.start()
    try:
        traced = [rehearsed(each) for each in TRACED]
    finally:
        tracemalloc.stop()
    timed = [rehearsed(each) for each in TIMED]
    phases = grow_phases(timed[0].phases, timed[1].phases, _row_shares(timed))
    memory, rows = {}, {}
    for party in timed[1].actors:
        plain, encrypted = (
            value_at_all_rows(one.held[party][kind], two.held[party][kind], _row_shares((one, two)))
            for kind, (one, two) in enumerate((traced, timed))
        )
        carried = MESSAGE_COPIES * max(_message_bytes(phase, party) for phase in phases)
        memory[party] = plain + encrypted + carried
        fewer, more = (at.actors[party].cipher.tally.rows for at in timed)
        rows[party] = value_at_all_rows(fewer, more, _row_shares(timed))
    return Stage(timed[1].protocol.name, phases, memory, rows, answers=timed[1].answers)


def _row_shares(rehearsals: Sequence[Rehearsal]) -> Shares:
    fewer, more = (rehearsal.sample.share for rehearsal in rehearsals)
    return fewer, more


def _message_bytes(phase: Phase, party: str) -> float:
    """Return the bytes of messages that a party has in memory."""
    return sum(
        n_bytes * min(1.0, IN_FLIGHT / max(1.0, messages))
        for link, n_bytes, messages in phase.sent()
        if party in link
    )


def _run_to_end(rehearsal: Rehearsal) -> Rehearsal:
    """Run a rehearsal to its end; it waits for nothing, so it needs no event loop."""
    walk = rehearsal.run()
    try:
        walk.send(None)
    except StopIteration:
        return rehearsal
    raise ProtocolError(f"the walk of {rehearsal.protocol.name} waits for more than its steps")


def _shortened(params: Any, rounds: int) -> Any:
    """Return the settings with so many rounds, without an earlier model."""
    changed = {
        "n_estimators": rounds,
        "early_stopping_rounds": None,
        "warm_start": None,
        "split": "scored",
    }
    fields = type(params).model_fields
    return params.model_copy(update={key: v for key, v in changed.items() if key in fields})


def _trees_by_kind(kinds: Sequence[object], params: Any) -> Counter[object]:
    """Return the trees of the rounds of each kind; a round without trees counts as 1."""
    sizes = (
        forest.trees_each_round(params)
        if isinstance(params, TreeParams)
        else [1] * params.n_estimators
    )
    counts = Counter[object]()
    for kind, size in zip(kinds, sizes, strict=False):
        counts[kind] += int(size)
    return counts
