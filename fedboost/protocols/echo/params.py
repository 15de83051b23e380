"""Settings of an echo."""

from pydantic import Field

from fedboost.ground.settings import Settings


class EchoParams(Settings):
    """How many numbers to call, and how often."""

    rounds: int = Field(3, ge=1, le=1000)
    parts: int = Field(4, ge=1, le=1000)  # messages a call consists of
    numbers: int = Field(1000, ge=1, le=1 << 17)  # 8 bytes each, in every part
