"""Calls of the coordinator in a walk: steps, rounds and checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum
from typing import Any

from fedboost.flow.roles import Table
from fedboost.flow.steps import Step

# Progress of a job: rounds done of the walk's outermost loop and, inside the next round, of each
# running loop, outermost first. Places are compared as tuples.
Place = tuple[int, ...]
START: Place = (0,)
LOOP: Place = (*START, 0)  # before the first round, with the state for it

UNBOUNDED = 1 << 20  # `most` of a loop that only a party's answer ends


class CheckpointPolicy(Enum):
    """Frequency of checkpoints in a loop, at every party."""

    EACH = 1
    NOW_AND_THEN = 2  # at least a second after the last checkpoint (Timers.keep_s)
    NOTHING = 3


class Run(ABC):
    """Coordinator's interface to a walk: calls steps, counts rounds."""

    params: Any
    table: Table
    broken_off: tuple[Step, ...] = ()  # steps that are left of a round that lost a host

    @abstractmethod
    def __call__(
        self,
        *steps: Step,
        at: str | None = None,
        among: tuple[str, ...] = (),
        spares: bool = False,
    ) -> Awaitable[None]:
        """Call a step at every party of its role (or only `at`), and wait for the slowest.

        Several steps are called at once: each party does its steps in their order, as soon as their
        messages have arrived, without waiting for the coordinator in between. `among` names the
        hosts that take part in this part of the walk: only they do a host's step, and only their
        messages are sent and awaited; empty means all remaining hosts. `spares` continues without
        lost hosts, from here to the end of the job, but waits for a lost host that also adds up. If
        the other parties settle a loss by a step that `hears`, later attempts leave the host out as
        well. Before they do, they keep the last place they have passed, so that no attempt needs
        the host again for an earlier place.
        """

    async def loop(
        self,
        name: str,
        most: int,
        *steps: Step,
        first: tuple[Step, ...] = (),
        among: tuple[str, ...] = (),
        slowly: Walk | None = None,
        around: tuple[tuple[Step, ...], tuple[Step, ...]] = ((), ()),
    ) -> bool:
        """Call `steps` in each round of a loop (`rounds`); return whether any round was left.

        `first` are called before the first of them in this attempt, in one call with it. `around`
        are steps before and after the steps of each call; as many of a round's first steps as
        follow in `around` may report on the round before.

        Several rounds may be called at once, so that no party waits for the coordinator between two
        of them. One party's last step of a round may end the loop. Each other party then ends it as
        well, or takes that step's message in its first step of a round, so that it never begins a
        round too many. A round that may be slow (`is_quick`) is walked by `slowly`, if there is
        one. If a spared host is lost, all other parties finish the steps that any of them has done;
        `slowly` walks the `broken_off` steps of the round, and the whole next one. So no party's
        first step in a call may wait for other parties; `around` prevents that.
        """
        before = first
        for _ in self.rounds(name, most, keeps=CheckpointPolicy.NOW_AND_THEN):
            if slowly is not None and not self.is_quick:
                await slowly(self)
                continue
            await self(*before, *around[0], *steps, *around[1], among=among)
            before = ()
        return before != first

    @property
    def present(self) -> tuple[str, ...]:
        """Return the remaining hosts; empty while no host is lost."""
        return ()

    @property
    def is_resumed(self) -> bool:
        """Return whether the stage resumes after a place that all parties have kept."""
        return False

    @property
    def is_quick(self) -> bool:
        """Return whether a round probably ends before a checkpoint inside it would be due."""
        return False

    @abstractmethod
    def keep(self, keeps: CheckpointPolicy = CheckpointPolicy.NOW_AND_THEN) -> None:
        """Keep the state before a walk's loop, by default only if it took long."""

    @abstractmethod
    def rounds(
        self, name: str, most: int, *, keeps: CheckpointPolicy | None = None
    ) -> Iterator[int]:
        """Count the rounds of a loop: at most `most`, fewer if a party's answer ends it.

        Progress is that of the outermost loop of a walk that keeps something. A job resumes after
        the last place that all parties have kept: the outermost loop keeps each of its rounds,
        inner loops none, unless `keeps` says otherwise. An attempt that resumes inside a round
        walks through the round as usual, but its loops begin at the kept rounds. The steps before
        these loops are done again, by parties that know the results of the loops. Of several loops
        in one round, only one may keep.
        """


Walk = Callable[[Run], Awaitable[None]]
