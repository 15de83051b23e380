"""What is estimated that a job of `benchmarks.scale` holds."""

from benchmarks import scale
from fedboost.runtime.estimate.estimate import held_bytes
from fedboost.runtime.estimate.setting import StatedSizes, from_words


def held(rows):
    """Bytes of each party, with so many rows."""
    both = {"guest": rows, "host": rows}
    stages = from_words(scale.job(), StatedSizes(both, dict.fromkeys(both, scale.COLUMNS))).stages
    return {party: held_bytes(party, rows, scale.COLUMNS + 2, stages) for party in both}
