"""The memory and disk of a job at one party, as that party can estimate before it begins.

The party knows only its own table: the estimate gives the other tables the same rows and columns.
"""

from __future__ import annotations

from fedboost.data.outline import read_outline
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import ConfigError
from fedboost.job import JobSpec
from fedboost.runtime.estimate.estimate import file_bytes, held_bytes
from fedboost.runtime.estimate.setting import StatedSizes, from_words
from fedboost.runtime.party.job.memory import Space
from fedboost.runtime.process.workers import ProcessWorkers


def footprint(spec: JobSpec, party: str, source: SourceSpec) -> Space:
    """Return the memory and disk of a job at a party, without those of an idle daemon.

    A separate process makes the estimate and leaves no memory behind. A DataError or ConfigError if
    the party's table cannot be read.
    """
    with ProcessWorkers(1) as apart:
        (room,) = apart.map(estimated, [(spec.model_dump_json(), party, source)])
    return room


def estimated(spec: str, party: str, source: SourceSpec) -> Space:
    """Return the same, estimated in this process; `spec` is the job as JSON."""
    shape, job = read_outline(source), JobSpec.model_validate_json(spec)
    [job] = [part for part in job.split_by_guest() if party in part.parties.parties_with_data][:1]
    parties = job.parties.parties_with_data
    rows, columns = (dict.fromkeys(parties, n) for n in (shape.rows, len(shape.columns)))
    try:
        stages = from_words(job, StatedSizes(rows, columns)).stages
    except ConfigError:  # a job without training: mostly its table is in memory
        stages = []
    table = shape.rows, len(shape.columns)
    return Space(held_bytes(party, *table, stages), file_bytes(party, *table, stages))
