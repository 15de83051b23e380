"""The one way out of a host for the sums of its candidates.

    group    over groups of enough rows, in a secret order           HostTree.candidates
    noise    what the job adds to every sum                          HostNoise.of_node
    charge   the equations that the sums are, on the table's budget  Meter.charge
    record   what leaves, for choices to come and for an audit       HostTree.note_released
    blind    packed and re-randomised                                HostRows.blind

Who changes what a host releases changes it here or in one of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedboost.crypto.secrets import Secrets
from fedboost.encrypted.candidates import NodeCandidates
from fedboost.encrypted.grove import STRIDE
from fedboost.encrypted.host_tree import CELLS_OCTETS_MAX, HostGrove
from fedboost.encrypted.meter import Meter
from fedboost.encrypted.offers import write_shapes
from fedboost.encrypted.sides import HostRows, NodeSums
from fedboost.flow import About, Out
from fedboost.messages.protocol import encrypted_pb2 as pb

Batch = list[tuple[int, list[int]]]  # places of trees, and nodes of each


def release(grove: HostGrove, rows: HostRows[Any], meter: Meter, secrets: Secrets) -> Iterator[Out]:
    """Let go of the sums of all candidates of the open nodes, in parts.

    `secrets` are the attempt's own. Nodes whose cells fit into memory together leave together: the
    first part of theirs says how all their sums are arranged, and who is behind them.
    """
    grove.offered = {}
    meter.begin_layer()
    for tree in grove.trees:
        tree.begin_layer()
    for batch in _batches(grove, rows):
        offered, sums = dict[int, NodeCandidates](), list[NodeSums[Any]]()
        for place, nodes in batch:
            tree, number = grove.trees[place], grove.first + place
            found = tree.candidates(rows, nodes, number, secrets)
            for node, (candidates, own) in found.items():
                training, order = tree.growth.training.rows(node), candidates.order
                noise = None
                if rows.noise is not None:
                    noise = rows.noise.of_node((number, node), training, candidates)[order]
                sums.append(NodeSums(number, node, len(training), own[order], noise))
                offered[place * STRIDE + node] = candidates
        about = _about(grove, offered, meter)
        grove.offered |= offered
        for place, nodes in batch:
            grove.trees[place].note_released(nodes)
        yield from _parts(offered, sums, rows, about)


def _batches(grove: HostGrove, rows: HostRows[Any]) -> Iterator[Batch]:
    """The open nodes, tree by tree, in batches whose cells fit into memory together; one at least,
    which may be empty.
    """
    batch: Batch = []
    room = CELLS_OCTETS_MAX
    for place, tree in enumerate(grove.trees):
        each = max(1, tree.octets(rows))
        left = list(tree.opened)
        while left:
            if each > room and batch:
                yield batch
                batch, room = [], CELLS_OCTETS_MAX
            fits = max(1, room // each)
            batch.append((place, left[:fits]))
            room, left = room - each * len(left[:fits]), left[fits:]
    yield batch


def _about(grove: HostGrove, offered: dict[int, NodeCandidates], meter: Meter) -> About:
    """Who is behind the sums of some nodes, and what these are charged with."""
    if not offered:
        return About()
    at = [grove.at(number) for number in offered]
    rows = sum(len(tree.growth.training.rows(node)) for tree, node in at)
    count = sum(candidates.shape.n_sums for candidates in offered.values())
    smallest = [own for tree, node in at if (own := tree.smallest_group(node)) is not None]
    return About(rows, count, min(smallest, default=None), charges=meter.charge(offered))


def _parts(
    offered: dict[int, NodeCandidates],
    sums: list[NodeSums[Any]],
    rows: HostRows[Any],
    about: About,
) -> Iterator[Out]:
    """The blinded sums; the first part says how they are arranged, whether or not there are any."""
    message = write_shapes([candidates.shape for candidates in offered.values()])
    if not sums:
        yield Out(send=message, about=about)
        return
    blinded = rows.blind(sums)
    message.packages.CopyFrom(next(blinded, pb.Ciphertexts()))
    yield Out(send=message, about=about)
    for packages in blinded:
        yield Out(send=pb.CandidateSums(packages=packages))
