"""Replay of a guest: the jobs that it covers, and names for the messages that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from fedboost.encrypted.scheme import schemes
from fedboost.ground import wire
from fedboost.job import AUTO
from fedboost.messages.array_pb2 import Array
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.messages.protocol.secureboost_pb2 import Frontier
from fedboost.protocols.secureboost.params import SecureBoostParams

if TYPE_CHECKING:
    from fedboost.protocols.secureboost.guest import Guest


def obstacle(params: SecureBoostParams) -> str:
    """Return the reason why a job with these settings cannot be replayed; empty if it can."""
    scheme = params.encryption.scheme
    if params.warm_start is not None:
        return "a job with warm_start cannot be replayed: its margins come from an earlier model"
    if scheme != AUTO and not schemes.SCHEMES[scheme].replays:
        able = [name for name, known in schemes.SCHEMES.items() if known.replays]
        return f"jobs under {scheme} cannot be replayed, only those under {', '.join(able)}"
    return ""


def describe_message(guest: object, step: str, honest: Message, left: Message | None) -> str:
    """Name tree and nodes of a message that honest training sends otherwise.

    `left` is the message that the guest sent, if it was kept.
    """
    from fedboost.protocols.secureboost.guest import Guest  # with numpy, which a coordinator lacks

    assert isinstance(guest, Guest)
    tree = f"tree {guest.trees_closed}"
    if isinstance(honest, pb.EncryptedGradients):
        return f"tree {honest.tree}, node 0: gradients of its rows from {honest.first_row} on"
    if isinstance(honest, pb.WonSplits):
        nodes = _differing_nodes(_winners, honest, left, guest.growing.tree_batch.opened)
        return f"{_nodes_in_words(guest, nodes)}: who has won"
    if isinstance(honest, Frontier):
        nodes = _differing_nodes(_open_or_divided, honest, left, guest.growing.tree_batch.opened)
        return f"{_nodes_in_words(guest, nodes)}: which nodes are open, and how those above divide"
    return f"{tree}: {step}"


def _differing_nodes(
    read: Callable[[Any], Mapping[int, object]], honest: Message, left: Message | None,
    opened: Iterable[int],
) -> list[int]:  # fmt: skip
    """Return the nodes that two messages describe differently, or all open nodes."""
    if left is None:
        return list(opened)
    ours, theirs = read(honest), read(left)
    differing = [n for n in sorted({*ours, *theirs}) if ours.get(n) != theirs.get(n)]
    return differing or list(opened)


def _nodes_in_words(guest: Guest, nodes: Iterable[int]) -> str:
    """Return trees and nodes in words; nodes by their heap ids."""
    from fedboost.encrypted.tree.batch import STRIDE  # with numpy as well

    by_tree: dict[int, list[int]] = {}
    for number in nodes:
        slot, node = divmod(number, STRIDE)
        by_tree.setdefault(guest.trees_closed + slot, []).append(node)
    texts = []
    for tree, members in by_tree.items():
        many = "s" if len(members) > 1 else ""
        texts.append(f"tree {tree}, node{many} {', '.join(map(str, members))}")
    return "; ".join(texts)


def _winners(message: pb.WonSplits) -> dict[int, list[int]]:
    """Return the candidates that share the best gain, by node."""
    nodes, tied = _numbers(message.nodes), _numbers(message.tied)
    candidates, sizes = _numbers(message.candidates), [1] * sum(tied)
    if message.HasField("sizes"):
        sizes = _numbers(message.sizes)
    winners, choice, at = {}, 0, 0
    for node, count in zip(nodes, tied, strict=True):
        length = sum(sizes[choice : choice + count])
        winners[node] = candidates[at : at + length]
        choice, at = choice + count, at + length
    return winners


def _open_or_divided(message: Frontier) -> dict[int, bool]:
    """Return the nodes that are open or were divided, by their numbers."""
    divided = dict.fromkeys(_numbers(message.divided), False)
    return divided | dict.fromkeys(_numbers(message.open), True)


def _numbers(array: Array) -> list[int]:
    return [int(value) for value in wire.unpack(array, "i4", (None,), "the nodes")]
