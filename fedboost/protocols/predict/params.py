"""What a job may say about a prediction."""

from pydantic import Field

from fedboost.settings import Settings


class PredictParams(Settings):
    """Which model, and how many rows at once."""

    model: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,79}$")  # the id of the job that trained it
    batch_rows: int = Field(1 << 18, ge=1, le=1 << 22)  # bounds memory and the largest message
