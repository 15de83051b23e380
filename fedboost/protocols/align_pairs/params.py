"""What a job may say about its alignment: nothing yet; ids are named in the job's data section."""

from fedboost.settings import Settings


class AlignPairsParams(Settings):
    """No parameters."""
