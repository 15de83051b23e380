"""What a user hands in: a job file's content, checked as far as one can without the parties."""

from __future__ import annotations

import hashlib
import json
import re

from fedboost import flow, protocols
from fedboost.errors import ConfigError, FedboostError
from fedboost.job import JobSpec
from fedboost.settings import parse

KEY_BYTES = 16  # of what a caller draws for one submission


def submission_id(spec: JobSpec, submitter: str, key: str) -> str:
    """The id of a submission: the job's name, and a hash by which the same one is known again."""
    stem = re.sub(r"[^a-z0-9]+", "-", spec.name.lower()).strip("-")[:40]
    told = json.dumps([submitter, key, spec.model_dump_json()])
    return f"{stem}-{hashlib.sha256(told.encode()).hexdigest()[:8]}"


def read_spec(text: bytes) -> JobSpec:
    """A job file's content, checked as far as one can without the parties."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError("the job is not JSON") from None
    spec = parse(JobSpec, raw)
    table = spec.parties.table()  # one guest
    protocol = protocols.named(spec.protocol)
    params = parse(protocol.params, spec.params, section="params")
    if spec.alignment is not None and protocols.aligns(spec, params) is None:
        raise ConfigError(
            f"a job of {spec.protocol} like this one aligns no rows",
            todo="leave alignment out",
            key="alignment",
        )
    adds_up = flow.AGGREGATOR in protocol.modules
    if adds_up and table.aggregator is None:
        raise ConfigError(
            f"{spec.protocol} needs an aggregator and parties names none",
            todo=f"aggregator: a party of its own, or {table.guest}",
            key="parties.aggregator",
        )
    if table.aggregator is not None and not adds_up:
        raise ConfigError(
            f"{spec.protocol} has no part for an aggregator",
            todo="leave it out",
            key="parties.aggregator",
        )
    return spec


def check(spec: JobSpec, **where: str) -> None:
    """Refuses, by a ConfigError, what a coordinator would refuse, and guests without a bag."""
    try:
        if spec.parties.guests is not None and not protocols.named(spec.protocol).bags:
            bags = [name for name, known in protocols.known().items() if known.bags]
            raise ConfigError(
                f"{spec.protocol} trains with one guest, and the job names several",
                todo=f"name one as guest: NAME; {', '.join(bags)} trains a model for each",
                key="parties.guests",
            )
        for one in spec.one_each():
            read_spec(one.model_dump_json().encode())
    except FedboostError as error:
        raise error.at(**where) from None
