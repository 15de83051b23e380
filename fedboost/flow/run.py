"""The coordinator's hand over a walk: steps, rounds and what is kept of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum
from typing import Any

from fedboost.flow.roles import Table
from fedboost.flow.steps import Step

# Where a job stands: rounds done of the walk's outermost loop and, inside the next one, how many of
# each loop under way, outermost first. Places are compared as tuples are.
Place = tuple[int, ...]
START: Place = (0,)
LOOP: Place = (*START, 0)  # in front of the first round, with all that it stands on

UNBOUNDED = 1 << 20  # `most` of a loop that only a party's answer ends; nobody knows its rounds


class CheckpointPolicy(Enum):
    """After which rounds of a loop every party keeps where it stands."""

    EACH = 1
    NOW_AND_THEN = 2  # those that end a second or more after what was kept last (Timers.keep_s)
    NOTHING = 3


class Run(ABC):
    """The coordinator's hand: calls steps, counts rounds."""

    params: Any
    table: Table
    broken_off: tuple[Step, ...] = ()  # of a round in which a host was lost, what is to be done

    @abstractmethod
    def __call__(
        self,
        *steps: Step,
        at: str | None = None,
        among: tuple[str, ...] = (),
        spares: bool = False,
    ) -> Awaitable[None]:
        """Has every party of a step's role do it (or only `at`), and waits for the slowest.

        Several steps are asked for at once: each party does its own in their order, as soon as
        what they take has come, and nobody waits for the coordinator in between.
        `among` names the hosts that take part in this stretch of the walk: only they do a host's
        step, and only their messages are sent and waited for; empty means all that are left.
        `spares` goes on without hosts that are gone, from here to the end of the job; one that also
        adds up is waited for. What the others settle without a host, by a step that `hears`, keeps
        it out of later attempts as well; before they do, they keep the last place they have passed,
        so that no attempt needs it again for what it was in.
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
        """Has `steps` done in each round of a loop (`rounds`), and `first` before the first of them
        in this attempt, if any is left, in one call with it; returns whether one was. `around` are
        steps in front of each call and behind it; of a round, as many of the first steps as come
        behind may tell of the round before.

        Several rounds may be asked for at once, so that nobody waits for the coordinator between
        two of them. One party's last step of a round may end the loop; each other party ends it as
        well, or takes in its first step of a round what that one gives, so that it begins none that
        does not come. A round that may be slow (`is_quick`) is walked by `slowly`, if there is one.
        Where a host is lost that is spared, all others do what any of them has done; `slowly` walks
        what is `broken_off` of the round, and the whole of the next one. For that no party's first
        step in a call may wait for others: with those in front it does not.
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
        """Return the hosts that are left; empty while nobody is gone."""
        return ()

    @property
    def is_resumed(self) -> bool:
        """Return whether the stage carries on behind a place that everybody has kept."""
        return False

    @property
    def is_quick(self) -> bool:
        """Return whether a round is likely to be over before anything inside it would be kept."""
        return False

    @abstractmethod
    def keep(self, keeps: CheckpointPolicy = CheckpointPolicy.NOW_AND_THEN) -> None:
        """In front of a walk's loop: keeps what it stands on, by default where it took its time."""

    @abstractmethod
    def rounds(
        self, name: str, most: int, *, keeps: CheckpointPolicy | None = None
    ) -> Iterator[int]:
        """Counts rounds of a loop: at most `most`, fewer when a party's answer ends it.

        Progress hangs on the outermost loop of a walk that keeps something.
        A job goes on behind the last place that everybody has kept: the outermost loop keeps each
        of its rounds, the loops inside it none, unless `keeps` says otherwise. An attempt that
        goes on inside a round walks through it as any other does, but that its loops begin where
        they were left: the steps in front of them are done again, by parties that know what the
        loops have settled. Of loops side by side in a round one may keep.
        """


Walk = Callable[[Run], Awaitable[None]]
