"""What trees under encryption need: ciphertexts made, added, answered and read, and their bytes.

Counts are those of the walk: gradients once a round, sums of candidates once a layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fedboost import needs
from fedboost.crypto.lattice.answers import AnswerShape
from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.schemes import SCHEMES, is_lattice
from fedboost.encrypted import keys, schemes
from fedboost.encrypted.host_tree import CELLS_OCTETS_MAX, KEPT_OCTETS_MAX
from fedboost.encrypted.params import EncryptedTreeParams
from fedboost.encrypted.ring import tree_scheme
from fedboost.needs import GrowthCounts, Phase, PhaseTally, Scene

ENCRYPT, RECEIVE, ADD, ADD_FEW = "encrypt", "receive", "add", "add, few rows"
SUBTRACT, RUN, ANSWER, DECRYPT = "subtract", "prefix sum", "answer", "decrypt"
START = "tables of a key"  # for each core of a party that encrypts or answers
OPERATIONS = (ENCRYPT, RECEIVE, ADD, ADD_FEW, SUBTRACT, RUN, ANSWER, DECRYPT, START)
FEW = 0.5  # of the rows: a layer that adds up fewer reads them scattered
PLAIN_OCTETS = 32
PRICED_CAPACITY = 16  # sums in a package where operations are timed
KEY_STEPS, LAYER_STEPS = 2.0, 5.0  # calls of the walk


@dataclass(frozen=True)
class Cipher:
    """A job's scheme: how its primitives are called and how large its ciphertexts are."""

    params: EncryptedTreeParams
    rows: int  # that trees learn from at most

    @cached_property
    def name(self) -> str:
        """The scheme and, where it has one, its key's bits."""
        own = self.params.encryption
        modular = own.scheme not in ("plain",) and not is_lattice(own.scheme)
        return f"{own.scheme}-{own.key_bits}" if modular else own.scheme

    def op(self, operation: str) -> str:
        """A primitive's name."""
        return f"{self.name}: {operation}"

    @property
    def outputs(self) -> int:
        """Of a leaf."""
        return self.params.n_outputs // self.params.trees_per_round

    @property
    def is_ring(self) -> bool:
        """Whether it is a lattice scheme."""
        return is_lattice(self.params.encryption.scheme)

    @cached_property
    def width(self) -> int:
        """Bytes of a ciphertext of a scheme whose ciphertexts are numbers."""
        scheme, bits = self.params.encryption.scheme, self.params.encryption.key_bits
        octets = {"plain": PLAIN_OCTETS, "paillier": bits // 4}  # modulo n²
        return octets.get(scheme, bits // 8)

    @cached_property
    def lanes(self) -> int:
        """Ciphertexts of a row."""
        return 1 if self.is_ring else len(self._layout.lanes)

    @cached_property
    def capacity(self) -> int:
        """Sums in a package of an answer."""
        return 1 if self.is_ring else self._layout.lanes[0].capacity

    @cached_property
    def _layout(self) -> GhLayout:
        own = self.params.encryption
        room = SCHEMES[own.scheme].plaintext_bits(own.key_bits)
        return keys.layout(
            self.params, schemes.of(self.params).bits_of(self.params, self.n), self.n, room
        )

    @cached_property
    def _budget(self) -> Budget:
        return tree_scheme(self.params.encryption.scheme).budget(self.params, self.n)

    @property
    def n(self) -> int:
        """The rows, two at least: one is no job."""
        return max(2, self.rows)

    @property
    def cell_octets(self) -> float:
        """Bytes of a cell in memory."""
        if not self.is_ring:
            return float(self.lanes * self.width)
        return 8.0 * (self._budget.parameters.ring + 2 * self.outputs)

    def row_octets(self) -> float:
        """Bytes of a row's gradients."""
        if not self.is_ring:
            return float(self.lanes * self.width)
        own = self._budget.parameters
        return float(2 * self.outputs * own.word_octets)

    def answer_octets(self, sums: float, nodes: float, rows: float) -> float:
        """Bytes of so many sums of nodes with so many rows each."""
        if not self.is_ring:
            each = self.lanes * -(-sums // (max(1.0, nodes) * self.capacity))
            return each * nodes * self.width
        budget = self._budget
        width = budget.width(max(2, min(self.n, round(rows))))
        return sums * AnswerShape(budget.parameters, 2 * self.outputs, width).octets


@dataclass(frozen=True)
class Crowd:
    """One guest and one host while some trees grow on rows of theirs."""

    scene: Scene
    cipher: Cipher
    host: str
    trees: int  # that grow at once
    rows: float  # whose gradients travel
    each: float  # rows of a tree


def keyed(stage: str, scene: Scene, cipher: Cipher) -> Phase:
    """The key and its tables, at every party's cores."""
    tally = PhaseTally()
    for party in scene.parties:
        tally.add(party, cipher.op(START), 1.0)
    for host in scene.hosts:
        tally.send((scene.guest, host), 2.0 * cipher.width + 256)
    return tally.phase(stage, "agree on a key", calls=KEY_STEPS)


def gradients(stage: str, crowds: Sequence[Crowd], times: float, *, apart: bool) -> Phase:
    """Gradients to every host; `apart` where hosts have rows, so ciphertexts, of their own."""
    tally = PhaseTally()
    for place, crowd in enumerate(crowds):
        cipher, scene = crowd.cipher, crowd.scene
        count = crowd.rows * cipher.lanes
        if apart or not place:
            tally.add(scene.guest, cipher.op(ENCRYPT), count)
            tally.add(scene.guest, needs.TREE_ROW, crowd.rows)
        tally.add(crowd.host, cipher.op(RECEIVE), count)
        octets = crowd.rows * cipher.row_octets() + crowd.rows / 8
        tally.send((scene.guest, crowd.host), octets, 1.0 + octets / (1 << 24))
    return tally.phase(stage, "encrypt gradients", times=times)


def layers(
    stage: str, crowds: Sequence[Crowd], growth: GrowthCounts, span: tuple[int, int], times: float
) -> list[Phase]:
    """Every layer of `span`: sums at the hosts, answers to the guest, divisions to all."""
    found = []
    for layer, (opened, share) in enumerate(growth.layers(*span)):
        tally = PhaseTally()
        for crowd in crowds:
            _sums(tally, crowd, (layer, opened, share))
        found.append(tally.phase(stage, "grow a layer", exchanges=4.0, times=times))
    return found


def _sums(tally: PhaseTally, crowd: Crowd, at: tuple[int, float, float]) -> None:
    layer, opened, share = at
    cipher, scene, host = crowd.cipher, crowd.scene, crowd.host
    params, trees = cipher.params, crowd.trees
    columns = scene.columns[host] * params.column_rate
    if not params.histogram_subtraction:
        share = 1.0
    add = ADD if layer == 0 or share > FEW else ADD_FEW
    tally.add(host, cipher.op(add), trees * crowd.each * share * columns * cipher.lanes)
    nodes = opened * trees
    cells = nodes * scene.cells(host) * params.column_rate * cipher.lanes
    sums = nodes * scene.candidates(host) * params.column_rate
    if layer and params.histogram_subtraction:
        tally.add(host, cipher.op(SUBTRACT), cells / 2)
    tally.add(host, cipher.op(RUN), cells)
    packed = PRICED_CAPACITY / cipher.capacity if not cipher.is_ring else 1.0
    tally.add(host, cipher.op(ANSWER), sums * cipher.lanes * min(3.0, packed**0.5))
    tally.add(scene.guest, cipher.op(DECRYPT), sums * cipher.lanes * packed)
    rows = crowd.each / max(1.0, opened)
    tally.send((host, scene.guest), cipher.answer_octets(sums, nodes, rows))
    divided = trees * crowd.each / 8
    tally.send((scene.guest, host), divided + 16 * nodes, 2.0)
    tally.send((host, scene.guest), divided / 2 + 64)


def local_layers(
    stage: str, scene: Scene, growth: GrowthCounts, span: tuple[int, int], rows: float, times: float
) -> Phase:
    """Layers that the guest looks at on its own columns."""
    tally = PhaseTally()
    for opened, share in growth.layers(*span):
        tally.add(scene.guest, needs.HISTOGRAM, rows * share * scene.columns[scene.guest])
        tally.add(scene.guest, needs.NODE, opened * scene.cells(scene.guest))
    tally.add(scene.guest, needs.TREE_ROW, rows)
    return tally.phase(stage, "grow on own columns", exchanges=0.0, times=times)


def host_octets(
    scene: Scene, cipher: Cipher, host: str, rows: float, growth: GrowthCounts
) -> float:
    """Bytes that a host holds: the rows' ciphertexts, the cells of two layers, an answer."""
    opened = max(growth.opened)
    layer = opened * scene.cells(host) * cipher.cell_octets
    cells = min(layer, float(KEPT_OCTETS_MAX)) + min(layer, float(CELLS_OCTETS_MAX))
    sums = opened * scene.candidates(host)
    answer = cipher.answer_octets(sums, opened, rows / max(1.0, opened))
    held = rows * cipher.row_octets() * (2.0 if cipher.is_ring else 1.0)
    return held + cells + 2.0 * answer


def guest_octets(scene: Scene, cipher: Cipher, rows: float, growth: GrowthCounts) -> float:
    """Bytes that a guest holds: gradients on their way, and answers of all hosts."""
    opened = max(growth.opened)
    answers = sum(
        cipher.answer_octets(opened * scene.candidates(host), opened, rows / max(1.0, opened))
        for host in scene.hosts
    )
    part = min(rows * cipher.row_octets(), float(1 << 24) if not cipher.is_ring else 1e12)
    return 2.0 * answers + 4.0 * part + 64.0 * rows


def rate(params: EncryptedTreeParams) -> float:
    """Share of the rows that one tree learns from."""
    if params.goss is not None:
        return params.goss.top_rate + params.goss.other_rate
    if params.forest is None:
        return params.subsample
    moving = params.forest.dynamic
    return params.forest.subsample if moving is None else sum(moving.subsample) / 2


def together(share: float, trees: int) -> float:
    """Share of the rows that any of some trees learns from."""
    return 1.0 - (1.0 - share) ** trees


def by_party(scene: Scene, found: Mapping[str, float]) -> dict[str, float]:
    """The same with every party in it."""
    return {party: found.get(party, 0.0) for party in scene.parties}
