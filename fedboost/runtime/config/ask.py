"""What a job wants of a party, as its policy judges it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ask:
    """What a job wants of this party; every field must be said, so that none is forgotten.

    `dataset` is None for a role without data (aggregator); `key_bits` is None for schemes
    without a modulus and protocols without a key; `gradient_bits` is None where no encrypted
    gradients travel; `insecure` is what the scheme declares of itself; `contributors` is None
    where nothing is added up under masks; `goes_on` says whether sums go on over fewer where some
    are lost; `host_noise` and `gradient_check` are None for a guest and for protocols whose hosts
    release no sums; `quantile_tolerance` is None where the job does not say one.
    """

    coordinator: str
    peers: tuple[str, ...]
    dataset: str | None
    protocol: str
    scheme: str | None
    key_bits: int | None
    gradient_bits: int | None
    insecure: bool
    contributors: int | None
    goes_on: bool
    host_noise: float | None
    gradient_check: bool | None
    key_trees: int | None
    quantile_tolerance: int | None
    roles: tuple[str, ...]
    guest_replayable: bool | None  # of a job whose guest is another party
