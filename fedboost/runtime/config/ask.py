"""A job's request to a party, for its policy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ask:
    """A job's request to this party; every field is required, so none is forgotten.

    `dataset` is None for a role without data (aggregator); `key_bits` is None for schemes without a
    modulus and protocols without a key; `gradient_bits` is None without encrypted gradients;
    `insecure` is the scheme's own declaration; `contributors` is None without sums under masks;
    `goes_on` is True if sums continue without lost parties; `host_noise` and `gradient_check` are
    None for a guest and for protocols whose hosts release no sums; `quantile_tolerance` is None if
    the job does not set it.
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
    purpose: str | None
    guest_replayable: bool | None  # of a job with another party as guest
