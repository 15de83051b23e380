"""Jobs of one file: one for each of its guests, one after the other; mostly there is one guest."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import click

from fedboost.cli.outcome import ended
from fedboost.errors import FedboostError
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import JobJournal
from fedboost.runtime.store.store import JobState

__all__ = ["Runs", "Turns", "together"]

# Runs one job until it rests; gives its journal and, if it finished, its result.
Runs = Callable[[JobSpec], Awaitable[tuple[JobJournal, dict[str, Any]]]]


@dataclass
class Turns:
    """The jobs of a file in turn. How each ends is said at once; the object of all comes last."""

    spec: JobSpec
    as_json: bool
    said: dict[str, dict[str, Any]] = field(default_factory=dict)  # by guest, as it ended
    code: int = 0

    async def run(self, runs: Runs) -> None:
        """Runs one job after the other until one does not finish; the later ones do not begin."""
        waiting = [one.name for one in self.spec.one_each()]
        for one in self.spec.one_each():
            waiting.remove(one.name)
            guest = one.parties.table().guest
            try:
                self.code, self.said[guest] = ended(*await runs(one), as_json=self.as_json)
            except FedboostError as error:
                if not self.said:
                    raise
                self._not_run(one, error)  # what the guests before have is not lost by it
            if self.code:
                break
        if waiting and self.code:
            click.echo(f"not begun: {', '.join(waiting)}", err=True)

    def _not_run(self, one: JobSpec, error: FedboostError) -> None:
        """Says that a job could not be handed in, or not be followed to its end."""
        for line in (f"job {one.name} could not be run to its end", *error.lines()):
            click.echo(line, err=True)
        left = {"job": None, "name": one.name, "state": JobState.FAILED, "error": error.said()}
        self.said[one.parties.table().guest] = left
        self.code = error.exit_code

    def conclude(self) -> int:
        """Prints the object that `--json` asks for; gives the exit code."""
        if self.as_json and self.spec.parties.guests is None:
            (alone,) = self.said.values()
            click.echo(json.dumps(alone))
        elif self.as_json:
            click.echo(json.dumps(together(self.spec, self.said)))
        return self.code


def together(spec: JobSpec, said: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Join what `--json` says of each job of several guests."""
    states = [one["state"] for one in said.values()]
    return {
        "name": spec.name,
        "protocol": spec.protocol,
        "state": next((s for s in states if s != JobState.FINISHED), JobState.FINISHED),
        "guests": said,
        "models": [one["model"] for one in said.values() if one.get("model")],
    }
