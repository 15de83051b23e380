"""The shapes of a party's data sets, read in the background, once for each state of a file."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fedboost.data.outline import Outline, file_stamp, read_outline
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import FedboostError


@dataclass(frozen=True)
class _Known:
    stamp: tuple[int, int] | None
    shape: Outline | FedboostError


class Shapes:
    """The shapes of tables, read one at a time. All methods belong to the event loop's thread."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._one = asyncio.Semaphore(1)

    async def outline_of(self, name: str, source: SourceSpec) -> Outline | FedboostError | None:
        """Return the data set's shape, or the error of reading it; None while it is being read."""
        now = await asyncio.to_thread(file_stamp, source)
        known = self._known.get(name)
        if known is not None and known.stamp == now:
            return known.shape
        if name not in self._reading:
            self._reading[name] = asyncio.create_task(self._read_shape(name, source, now))
        return None

    def forget(self) -> None:
        """Read every data set again when it is asked for."""
        self._known.clear()

    async def close(self) -> None:
        """Cancel running reads."""
        for task in self._reading.values():
            task.cancel()
        await asyncio.gather(*self._reading.values(), return_exceptions=True)

    async def _read_shape(self, name: str, source: SourceSpec, now: tuple[int, int] | None) -> None:
        try:
            async with self._one:
                shape: Outline | FedboostError = await asyncio.to_thread(read_outline, source)
        except FedboostError as error:
            shape = error
        finally:
            self._reading.pop(name, None)
        self._known[name] = _Known(now, shape)
