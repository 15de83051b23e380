"""Copies of bytes between a connection and a line, or between two lines, in both directions.

A slow receiver stops its sender: each direction holds a few pieces and no more. A receiver that
takes nothing for a minute loses the line: while we wait for it, we do not see its sender go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from aiohttp import ClientError, ClientWebSocketResponse, WSMsgType
from aiohttp.web import WebSocketResponse

RelayLine: TypeAlias = ClientWebSocketResponse[bool] | WebSocketResponse

LINE_PIECE_BYTES = 1 << 18  # read at once, sent as one message
LINE_BYTES_MAX = LINE_PIECE_BYTES + 1  # of a line; a larger message closes it
CLOSE_S = 2.0  # wait for the other end to agree that a line is closed
STALLED_S = 60.0  # a receiver takes a piece in this time; gRPC gives up on it far sooner
GIVE_UP_S = 5.0  # to close a line whose other end reads nothing

Count: TypeAlias = Callable[[int], None]


async def join_connection(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: RelayLine
) -> None:
    """Copy bytes between a connection and a line until one of them ends; close both."""

    async def send() -> None:
        while piece := await reader.read(LINE_PIECE_BYTES):
            async with asyncio.timeout(STALLED_S):
                await line.send_bytes(piece)

    async def receive() -> None:
        while (message := await line.receive()).type is WSMsgType.BINARY:
            writer.write(message.data)
            async with asyncio.timeout(STALLED_S):
                await writer.drain()

    try:
        await _until_one_ends(send(), receive())
    finally:
        writer.close()
        await close_line(line)


async def join_lines(one: RelayLine, other: RelayLine, count: Count) -> None:
    """Copy messages between two lines until one of them ends; close both.

    `count` receives the bytes of each message that was passed on.
    """

    async def copy(source: RelayLine, target: RelayLine) -> None:
        while (message := await source.receive()).type is WSMsgType.BINARY:
            async with asyncio.timeout(STALLED_S):
                await target.send_bytes(message.data)
            count(len(message.data))

    try:
        await _until_one_ends(copy(one, other), copy(other, one))
    finally:
        await asyncio.gather(close_line(one), close_line(other))


async def close_line(line: RelayLine) -> None:
    """Close a line, even if its other end reads nothing and never answers."""
    try:
        async with asyncio.timeout(GIVE_UP_S):
            await line.close()
    except (OSError, ClientError):  # a TimeoutError is an OSError
        pass


async def _until_one_ends(*copies: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.ensure_future(copy) for copy in copies]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            lost = OSError, ClientError, asyncio.CancelledError
            if isinstance(ended, BaseException) and not isinstance(ended, lost):
                raise ended
