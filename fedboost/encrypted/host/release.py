"""The one way out of a host for the sums of its candidates.

    group    over groups of enough rows, in a secret order           HostTree.candidates
    noise    what the job adds to every sum                          HostNoise.of_node
    charge   the equations that the sums are, and their bits         Meter.charge
    record   what leaves, for choices to come and for an audit       HostTreeBatch.note_offered
    blind    packed and re-randomised                                HostRows.blind

Who changes what a host releases changes it here or in one of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedboost.crypto.secrets import Secrets
from fedboost.encrypted.cells.candidates import NodeCandidates
from fedboost.encrypted.cells.shapes import write_shapes
from fedboost.encrypted.host.meter import Meter
from fedboost.encrypted.host.tree import HostTreeBatch
from fedboost.encrypted.scheme.capacity import NodeField
from fedboost.encrypted.scheme.ciphers import HostRows, NodeSums
from fedboost.encrypted.tree.batch import STRIDE
from fedboost.flow import DisclosureInfo, Out
from fedboost.messages.protocol import encrypted_pb2 as pb


def release(
    tree_batch: HostTreeBatch,
    rows: HostRows[Any],
    meter: Meter,
    secrets: Secrets,
    *,
    is_last: bool,
) -> Iterator[Out]:
    """Let go of the sums of all candidates of the open nodes, in parts.

    `secrets` are the attempt's own; `is_last` says that no layer with sums follows. Nodes whose
    cells fit into memory together leave together: the first part of theirs says how all their sums
    are arranged, and who is behind them.
    """
    tree_batch.begin_layer(is_last=is_last)
    meter.begin_layer()
    for batch in tree_batch.batches(rows):
        offered, sums = dict[int, NodeCandidates](), list[NodeSums[Any]]()
        fields = dict[int, NodeField]()
        for place, nodes in batch:
            tree, number = tree_batch.trees[place], tree_batch.first + place
            grouped = tree.candidates(rows, nodes, number, secrets)
            for node, (candidates, pairs) in grouped.items():
                training, order = tree.growth.training.rows(node), candidates.order
                noise = None
                if rows.noise is not None:
                    noise = rows.noise.of_node((number, node), training, candidates)[order]
                sums.append(NodeSums(number, node, len(training), pairs[order], noise))
                offered[place * STRIDE + node] = candidates
                fields[place * STRIDE + node] = NodeField.of(rows, len(training))
        if not sums:
            yield Out(send=write_shapes([]))
            return
        about = DisclosureInfo(
            rows=sum(node.rows for node in sums),
            groups=sum(len(node.sums) for node in sums),
            smallest_group=tree_batch.smallest_group(offered),
            charges=meter.charge(offered, fields),
        )
        tree_batch.note_offered(offered)
        message = write_shapes([candidates.shape for candidates in offered.values()])
        blinded = rows.blind(sums)
        message.packages.CopyFrom(next(blinded, pb.Ciphertexts()))
        yield Out(send=message, about=about)
        for packages in blinded:
            yield Out(send=pb.CandidateSums(packages=packages))
