"""Owners of the columns that each layer uses; all parties derive them from the job alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedboost.core import forest
from fedboost.encrypted.host import meter
from fedboost.flow import Releases, Table

if TYPE_CHECKING:
    from fedboost.protocols.secureboost.params import SecureBoostParams


@dataclass(frozen=True)
class Plan:
    """The trees of one round: first layers that `hosts` offer splits for, then the guest's own."""

    hosts: tuple[str, ...]  # that work with the guest; empty for a tree of the guest alone
    host_layers: int  # layers from the root with candidates of hosts
    guest_competes: bool  # whether the guest's columns compete in those layers, too
    guest_layers: int  # layers below them, of the guest alone


def loop_name(params: SecureBoostParams) -> str:
    """Return the name of the outermost loop: tree, or round if it may have several trees."""
    return "tree" if params.forest is None and params.trees_per_round == 1 else "round"


def of_round(params: SecureBoostParams, table: Table, number: int) -> Plan:
    """Return the plan of round `number` from 0 (SecureBoost+, sections 5.1 and 5.2)."""
    if params.mode == "layered":
        return Plan(table.hosts, params.host_depth, False, params.guest_depth)
    if params.mode == "mix":
        parties = (table.guest, *table.hosts)
        owner = parties[number // params.trees_per_party % len(parties)]
        if owner == table.guest:
            return Plan((), 0, True, params.max_depth)
        return Plan((owner,), params.max_depth, False, 0)
    return Plan(table.hosts, params.max_depth, True, 0)


def tree_batches(params: SecureBoostParams) -> Iterator[tuple[int, int, int]]:
    """Yield the trees that grow at once: round, number of the first one in the job, and count."""
    starts = forest.first_tree_numbers(params).tolist()
    for number, size in enumerate(forest.trees_each_round(params).tolist()):
        for first in range(starts[number], starts[number + 1], size):
            yield number, first, size


def next_tree_batch(
    params: SecureBoostParams, table: Table, host: str, after: int
) -> tuple[int, int, int]:
    """Return the first batch of trees behind tree `after` of the job that `host` takes part in.

    A batch of no trees follows the last one.
    """
    for number, first, size in tree_batches(params):
        if first > after and host in of_round(params, table, number).hosts:
            return number, first, size
    return params.n_estimators, int(forest.first_tree_numbers(params)[-1]), 0


def releases(params: SecureBoostParams, table: Table, host: str, columns: int | None) -> Releases:
    """Return the releases of a host's sums, by the trees that it takes part in."""
    rounds: dict[int, range] = {}
    layers = 1
    for number, first, size in tree_batches(params):
        planned = of_round(params, table, number)
        if host in planned.hosts:
            layers = planned.host_layers  # the same in all of them
            start = rounds[number].start if number in rounds else first
            rounds[number] = range(start, first + size)  # the batches of a round's classes
    trees = meter.Trees(list(rounds.values()), layers)
    return meter.forecast_releases(params, trees, table.hosts.index(host) + 1, columns)
