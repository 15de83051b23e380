"""Parties of a cluster in one process that are lost at a moment of the test's choosing."""

import asyncio
from dataclasses import dataclass, field

import pytest

from fedboost.ground.errors import FedboostError, UnreachableError
from fedboost.runtime.cluster import local

# Drawn from on each change: what jobs do whose hosts are lost, at this step or at that.
SOME = pytest.mark.some(12, of="lost hosts")
LOST = "shop"  # who is lost, if nobody else is named
CALLS = ("propose", "begin", "open_stage", "run_step", "commit", "close_stage", "finish", "stop")


@dataclass
class Fate:
    """When a party is lost, by the n-th time of a step at it, and whether it is."""

    step: str
    when: str  # asked, done; or as a message of the step leaves (sends, sent) or comes (told)
    times: int = 1
    party: str = LOST
    is_lost: bool = False
    seen: int = 0
    missed: set[str] = field(default_factory=set)  # steps and calls in which others missed it

    def comes(self, when, *steps):
        """Whether this is the moment; from here on the party is lost."""
        if self.is_lost or when != self.when or self.step not in steps:
            return False
        self.seen += 1
        self.is_lost = self.seen == self.times
        return self.is_lost

    def gone(self):
        """What everybody who calls the party finds."""
        return UnreachableError(f"{self.party} is not there", party=self.party)


def bind(monkeypatch, cluster, *fates):
    """Has parties of a cluster meet their fates, as far as anybody else can see."""
    for fate in fates:
        _bind(monkeypatch, cluster, fate)


def _bind(monkeypatch, cluster, fate):
    node, tasks = cluster.parties[fate.party], set()

    def end():
        tasks.add(asyncio.ensure_future(node.pause_all()))

    def guarded(name, call):
        async def guard(caller, request):
            steps = [turn.step for turn in request.turns] if name == "run_step" else [name]
            if fate.comes("asked", *steps):
                end()
            if fate.is_lost:
                fate.missed.add(steps[0])
                raise fate.gone()
            try:
                reply = await call(caller, request)
            except FedboostError:
                if not fate.is_lost:
                    raise
                reply = None
            if fate.comes("done", *steps):
                end()
            if fate.is_lost:
                raise fate.gone()
            return reply

        return guard

    for name in CALLS:
        monkeypatch.setattr(node, name, guarded(name, getattr(node, name)))
    deliver = local.LocalLinks.deliver

    async def delivered(self, envelope, payload):
        ours, to_us = envelope.sender == fate.party, envelope.receiver == fate.party
        if (ours and fate.comes("sends", envelope.step)) or (
            to_us and fate.comes("told", envelope.step)
        ):
            end()
        if fate.is_lost and (ours or to_us):
            if to_us:
                fate.missed.add(envelope.step)
            raise fate.gone()
        await deliver(self, envelope, payload)
        if ours and fate.comes("sent", envelope.step):
            end()

    monkeypatch.setattr(local.LocalLinks, "deliver", delivered)
