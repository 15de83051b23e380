"""Agreement of a job's daemons on a number of the wire: builds differ, their numbers must meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedboost.ground.build_version import build_version
from fedboost.ground.errors import ConfigError
from fedboost.ground.formats import WIRE_VERSION, WIRE_VERSIONS_SPOKEN
from fedboost.messages.job_pb2 import HelloReply


@dataclass(frozen=True)
class SpokenNumbers:
    """Numbers of the wire that one daemon speaks: consecutive ones."""

    daemon: str
    version: str  # of its build
    oldest: int
    newest: int

    @classmethod
    def of_this_build(cls, daemon: str) -> SpokenNumbers:
        """Return the numbers of a daemon that runs this build."""
        return cls(daemon, build_version(), WIRE_VERSIONS_SPOKEN[0], WIRE_VERSION)

    @classmethod
    def of_reply(cls, daemon: str, said: HelloReply) -> SpokenNumbers:
        """Return the numbers of a daemon that has answered a Hello.

        A build without a number of its own oldest one speaks its newest alone.
        """
        oldest = min(said.wire_oldest or said.wire_version, said.wire_version)
        return cls(daemon, said.version, oldest, said.wire_version)


def highest_common_number(daemons: Sequence[SpokenNumbers]) -> int:
    """Return the highest number that all daemons speak.

    A ConfigError names the daemons that must be upgraded for a common one.
    """
    ahead = max(daemons, key=lambda daemon: daemon.oldest)
    behind = [daemon for daemon in daemons if daemon.newest < ahead.oldest]
    if not behind:
        return min(daemon.newest for daemon in daemons)
    found = [f"{one.daemon} runs fedboost {one.version} (wire {one.newest})" for one in behind]
    raise ConfigError(
        f"{', '.join(found)}, {ahead.daemon} needs wire {ahead.oldest}",
        todo=f"upgrade {', '.join(one.daemon for one in behind)}",
    )
