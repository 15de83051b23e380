"""The guest's view of one host: its rows, and the subtrees that it grows below a tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedboost.core.bins import Dense
from fedboost.core.hybrid import HeldRows
from fedboost.core.purity import PurityLimit
from fedboost.core.sampling import Sample, TreeColumns
from fedboost.core.tree import Tree
from fedboost.crypto.secrets import Secrets
from fedboost.encrypted.guest.tree import GuestRules, GuestTree, GuestTreeBatch
from fedboost.encrypted.tree.growth import Growth
from fedboost.flow import DisclosureInfo, StageContext
from fedboost.ground.arrays import Bits, Floats, Indices, Rows, Sums
from fedboost.ground.errors import DataError
from fedboost.ground.slot import Slot
from fedboost.model import hybrid, vertical
from fedboost.model.hybrid import Below
from fedboost.model.vertical import GuestNode
from fedboost.protocols.hybridtree.params import HybridTreeParams


@dataclass
class HostView:
    """State of the guest about one host."""

    number: int  # k, the k-th host
    rows: Indices  # (m,) ascending: its rows as the guest's indices, in the host's order
    training: Bits  # (m,) whether each is a training row
    held = Slot[HeldRows]("rows that the round under way draws")  # of `training`
    # Below the growing tree
    at: Rows = field(default_factory=lambda: np.empty(0, np.int32))  # (m,) bottom node of each row
    learns: Bits = field(default_factory=lambda: np.empty(0, np.bool_))  # (m,)
    opened: list[int] = field(default_factory=list)  # nodes that this host may split
    under: dict[int, int] = field(default_factory=dict)  # the guest's heap id by the host's number
    gh: Sums = field(default_factory=lambda: np.empty((0, 0), np.int64))  # (m, columns) as sent
    exact: Sums = field(default_factory=lambda: np.empty((0, 0), np.int64))  # before rounding

    def place_rows(self, tree: Tree, leaves: Rows, first: int, secrets: Secrets) -> None:
        """Put the rows below the bottom nodes of a tree, with secret numbers for the nodes.

        `leaves` int32 (all rows,) are indices of nodes in the tree; `first` is the least number of
        a bottom node; `secrets` are for this host and tree.
        """
        (indices,) = np.nonzero(tree.is_leaf)
        slots = secrets.permutation(len(indices), "bottom nodes")
        number = np.full(tree.n_nodes, -1, np.int32)
        number[indices] = first + slots
        self.at = number[leaves[self.rows]]
        self.under = dict(zip(number[indices].tolist(), tree.node[indices].tolist(), strict=True))

    def set_gradients(self, gh: Sums, exact: Sums) -> None:
        """Keep gradients of the training rows for this tree, as sent and as the guest has them.

        Both are int64 (training rows, columns).
        """
        self.learns = self.training.copy()
        self.learns[self.training] = self.held.learns
        self.gh = self._of_all(gh)
        self.exact = self.gh if exact is gh else self._of_all(exact)

    @property
    def training_rows(self) -> Indices:
        """This host's training rows as the guest's indices, int64, ascending."""
        return self.rows[self.training]

    @property
    def sent(self) -> Sums:
        """Gradients that the host gets, int64 (n, columns)."""
        return self.gh[self.learns]

    def _of_all(self, gh: Sums) -> Sums:
        """Return gradients of all of the host's rows, 0 for held-out rows."""
        of_all = np.zeros((len(self.rows), gh.shape[1]), np.int64)
        of_all[self.training] = gh
        return of_all

    def planted_trees(self, rules: GuestRules, purity: PurityLimit | None) -> GuestTreeBatch:
        """Return the subtrees at their bottom nodes; only this host's candidates compete there.

        A bottom node is open if it has rows to learn from and is no purer than allowed.
        """
        none: Dense = np.empty((len(self.rows), 0), np.uint8, order="F")
        growth, learned = Growth.begun(self.learns, self.at), self.nodes_with_rows
        tree = GuestTree(rules, none, self.gh, growth, TreeColumns(rules.params, 0, {}))
        tree.opened = [node for node in tree.open_layer() if node in learned]
        if purity is not None:
            rows = self.rows.astype(np.int32)
            tree.opened = [n for n in tree.opened if not purity.is_exceeded(rows[self.at == n])]
        self.opened = list(tree.opened)
        return GuestTreeBatch([tree])

    @property
    def is_shown(self) -> Bits:
        """Whether each row stands at an open bottom node, bool (m,)."""
        return np.isin(self.at, self.opened)

    @property
    def shown(self) -> Rows:
        """Bottom node of each row as the host learns it, int32 (m,); NO_NODE for closed nodes.

        The host has no use for closed nodes, so it cannot tell them apart.
        """
        return np.where(self.is_shown, self.at, np.int32(hybrid.NO_BOTTOM))

    def seen(self, tree_batch: GuestTreeBatch | None) -> Rows:
        """Return the lowest node of each row that the host knows, int32 (m,), −1 for none.

        It is the bottom node, or a node below it that the host's own scored splits led to.
        """
        if tree_batch is None:
            return self.at
        [tree] = tree_batch.trees
        at = tree.growth.everyone.node_of_rows(len(self.rows))
        return np.where(self.is_shown, at, np.int32(-1))

    @property
    def about(self) -> DisclosureInfo:
        """Disclosure of the groups of rows at the bottom nodes."""
        return DisclosureInfo.from_group_sizes(np.unique(self.at, return_counts=True)[1].tolist())

    @property
    def n_training(self) -> int:
        """Number of the host's rows to learn from."""
        return int(self.training.sum())

    @property
    def sample(self) -> Sample:
        """This host's training rows that take part, as indices among its training rows."""
        (rows,) = np.nonzero(self.learns[self.training])
        chosen = rows.astype(np.int32)
        return Sample((chosen,), chosen, np.ones(len(chosen)))

    @property
    def nodes_with_rows(self) -> set[int]:
        """Bottom nodes that have rows of this host to learn from."""
        return set(np.unique(self.at[self.learns]).tolist())

    def added(self, tree: GuestTree, values: Mapping[int, Floats]) -> Floats:
        """Return the values that the subtrees add to each row, float64 (m, outputs).

        They are the `values` of leaves, and 0 at nodes without rows of this host to learn from.
        """
        added = np.zeros((len(self.rows), next(iter(values.values())).shape[0] if values else 1))
        for leaf, value in values.items():
            added[tree.growth.everyone.rows(leaf)] = value
        return added

    def finished(self, number: int, tree: GuestTree, values: Mapping[int, Floats]) -> list[Below]:
        """Return the nodes below tree `number` that have rows of this host to learn from."""
        learned, below = self.nodes_with_rows, []
        for node in tree.finished(number, values):
            if self._bottom_node(node.node) in learned:
                owner = self.number if node.owner != vertical.LEAF else vertical.LEAF
                kept = GuestNode(number, node.node, owner, node.value, node.gain, node.cover)
                under = self.under.get(node.node, hybrid.NO_BOTTOM)
                below.append(Below(self.number, kept, under))
        return below

    def hidden_nodes(self, number: int, outputs: int) -> list[Below]:
        """Return the bottom nodes of tree `number` that this host has cut without our knowledge."""
        zero, learned = np.zeros(outputs), sorted(self.nodes_with_rows)
        nodes = [GuestNode(number, node, self.number, zero, 0.0, 0.0) for node in learned]
        return [Below(self.number, node, self.under[node.node]) for node in nodes]

    def _bottom_node(self, node: int) -> int:
        """Return the bottom node above or at a node."""
        while node not in self.under:
            node = (node - 1) // 2
        return node


def host_views(context: StageContext[HybridTreeParams]) -> dict[str, HostView]:
    """Return the view of each host; a DataError names one without any training rows."""
    shared = context.artefacts["align-pairs"].arrays
    by_host = {}
    for number, host in enumerate(context.table.hosts, start=1):
        rows = shared[f"with_{host}"].astype(np.int64)
        by_host[host] = HostView(number, rows, ~context.validation[rows])
        if not by_host[host].training.any():
            raise DataError(
                f"{host} has none of the {int((~context.validation).sum())} rows to learn from",
                party=host,
                todo="check that both name the same id columns, or leave the host out",
                kind="a host has none of the rows to learn from",
            )
    return by_host
