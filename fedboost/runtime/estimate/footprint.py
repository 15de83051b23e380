"""The memory and disk that a job takes of one party, as that party can tell before it begins.

It knows its own table alone: others' are taken to have as many rows and columns.
"""

from __future__ import annotations

from fedboost.data.outline import outline
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import ConfigError
from fedboost.job import JobSpec
from fedboost.runtime.estimate.estimate import file_bytes, held_bytes
from fedboost.runtime.estimate.setting import Said, from_words
from fedboost.runtime.party.job.memory import Space
from fedboost.runtime.process.workers import ProcessWorkers


def footprint(spec: JobSpec, party: str, source: SourceSpec) -> Space:
    """Return what a job takes of a party, besides what its daemon has anyway.

    Estimated in a process of its own, which leaves no memory behind. A DataError or ConfigError
    where the party's table cannot be read.
    """
    with ProcessWorkers(1) as apart:
        (room,) = apart.map(estimated, [(spec.model_dump_json(), party, source)])
    return room


def estimated(spec: str, party: str, source: SourceSpec) -> Space:
    """Return the same, estimated in this process; `spec` is the job as JSON."""
    shape, job = outline(source), JobSpec.model_validate_json(spec)
    [job] = [part for part in job.one_each() if party in part.parties.with_data][:1]
    parties = job.parties.with_data
    rows, columns = (dict.fromkeys(parties, n) for n in (shape.rows, len(shape.columns)))
    try:
        stages = from_words(job, Said(rows, columns)).stages
    except ConfigError:  # it trains nothing: its table is most of what it holds
        stages = []
    table = shape.rows, len(shape.columns)
    return Space(held_bytes(party, *table, stages), file_bytes(party, *table, stages))
