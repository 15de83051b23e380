"""The one way out of a host for the sums of its candidates.

    group    over groups of enough rows, in a secret order           HostTree.candidates
    noise    the job's noise on every sum                            HostNoise.of_node
    charge   the equations that the sums give, and their bits        Meter.charge
    record   the offer, for choices to come and for an audit         HostTreeBatch.note_offered
    blind    packed and re-randomised                                HostRows.blind

A change to a host's releases is made here or in one of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fedboost.crypto.secrets import Secrets
from fedboost.encrypted.cells.adding import PlacedTree
from fedboost.encrypted.cells.candidates import NodeCandidates
from fedboost.encrypted.cells.request import CandidateTerms, CellRequest
from fedboost.encrypted.cells.shapes import write_shapes
from fedboost.encrypted.host.meter import Meter
from fedboost.encrypted.host.tree import HostTreeBatch
from fedboost.encrypted.scheme.capacity import NodeField
from fedboost.encrypted.scheme.ciphers import HostRows
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
    """Yield the sums of all candidates of the open nodes, in parts.

    `secrets` are the attempt's own; `is_last` says that no layer with sums follows. Nodes whose
    cells fit into memory together leave together: the first of their parts describes the
    arrangement of all their sums, and the rows behind them.
    """
    tree_batch.begin_layer(is_last=is_last)
    meter.begin_layer()
    for batch in tree_batch.batches(rows):
        offered, fields = dict[int, NodeCandidates](), dict[int, NodeField]()
        requests, asked = dict[PlacedTree[Any], CellRequest](), list[CandidateTerms]()
        for place, nodes in batch:
            tree, number = tree_batch.trees[place], tree_batch.first + place
            grouped, request = tree.candidates(rows, nodes, number, secrets)
            sums = []
            for candidates, terms in zip(grouped, request.sums, strict=True):
                training = tree.growth.training.rows(terms.node)
                noise = None
                if rows.noise is not None:
                    noise = rows.noise.of_node((number, terms.node), training, candidates)
                sums.append(replace(terms, noise=noise)[candidates.order])
                offered[place * STRIDE + terms.node] = candidates
                fields[place * STRIDE + terms.node] = NodeField.of(rows, terms.rows)
            requests[tree.placed(rows)] = replace(request, sums=sums)
            asked += sums
        if not asked:
            yield Out(send=write_shapes([]))
            return
        about = DisclosureInfo(
            rows=sum(terms.rows for terms in asked),
            groups=sum(map(len, asked)),
            smallest_group=tree_batch.smallest_group(offered),
            charges=meter.charge(offered, fields),
        )
        tree_batch.note_offered(offered)
        message = write_shapes([candidates.shape for candidates in offered.values()])
        blinded = rows.blind(requests)
        message.packages.CopyFrom(next(blinded, pb.Ciphertexts()))
        yield Out(send=message, about=about)
        for packages in blinded:
            yield Out(send=pb.CandidateSums(packages=packages))
