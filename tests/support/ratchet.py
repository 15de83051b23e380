"""Ceilings that may only fall: a measured figure of each package, and the most that it may be."""

from collections.abc import Mapping

SLACK_SHARE = 0.25  # of a ceiling: how far a figure may lie below it before the ceiling has to fall
SLACK = 2.0  # the same for small ceilings


def check_ceilings(
    measured: Mapping[str, float], ceilings: Mapping[str, float], command: str
) -> None:
    """Raise an AssertionError that lists the packages above their ceiling, or far below it.

    `command` prints the offenders and today's figures.
    """
    wrong = [
        f"{package}: {figure:g} is above {ceilings.get(package, 0.0):g}"
        for package, figure in measured.items()
        if figure > ceilings.get(package, 0.0)
    ]
    wrong += [
        f"{package}: {measured.get(package, 0.0):g} is far below {ceiling:g}; lower the ceiling"
        for package, ceiling in ceilings.items()
        if ceiling - measured.get(package, 0.0) > max(SLACK, SLACK_SHARE * ceiling)
    ]
    assert not wrong, "\n".join([*wrong, f"see: {command}"])
