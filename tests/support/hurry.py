"""An event loop whose clock jumps to the next timer when nothing else is to be done."""

import asyncio
import selectors


class _Hurried(selectors.DefaultSelector):
    """Sleeps by moving the clock; waits really only for threads, when no timer is set."""

    def __init__(self):
        super().__init__()
        self.now = 1000.0

    def select(self, timeout=None):
        """What is ready now; nothing, and a later clock, where a timer comes first."""
        ready = super().select(0 if timeout is not None else None)
        if not ready and timeout is not None:
            self.now += timeout
        return ready


class HurriedLoop(asyncio.SelectorEventLoop):
    """For code without threads: an hour of waiting takes no time."""

    def __init__(self):
        self._clock = _Hurried()
        super().__init__(self._clock)

    def time(self):
        """The clock that jumps."""
        return self._clock.now


def hurried(work):
    """Runs a coroutine on such a loop, to its end."""
    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        return runner.run(work)
