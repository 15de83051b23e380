"""What every mask hides while a job runs: the counters behind invariant I3."""

import hashlib
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from fedboost.aggregation import contributor
from fedboost.crypto import masking
from fedboost.encrypted.number import leaf_answers
from tests.simulator.processes import PROCESS


@dataclass
class Hidden:
    """By party, stream and the word where it begins: digests of what it has hidden."""

    under: dict[tuple[str, str, int], set[str]] = field(default_factory=dict)

    @property
    def twice(self) -> int:
        """How many masks have hidden two plaintexts."""
        return sum(len(plaintexts) > 1 for plaintexts in self.under.values())

    def note(self, stream: bytes, start: int, plaintext: bytes) -> None:
        """The party at work hides a plaintext under a stream from a word on."""
        process = PROCESS.get()
        party = "" if process is None else process.name
        key = (party, hashlib.sha256(stream).hexdigest(), start)
        self.under.setdefault(key, set()).add(hashlib.sha256(plaintext).hexdigest())

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Inside, every mask of a sum and of an answer is noted."""
        add_stream, answer_masks = masking.add_stream, masking.answer_masks
        answers = itertools.count()

        def adding(vector: Any, key: bytes, sign: int, start: int = 0) -> None:
            self.note(key, start, vector.tobytes())
            add_stream(vector, key, sign, start)

        def answering(shape: tuple[int, int], bits: int, pairs: Any) -> Any:
            known = list(pairs)
            for pair in known:  # each answer is one of its own, whatever it holds
                self.note(pair.key, 0, str(next(answers)).encode())
            return answer_masks(shape, bits, known)

        with (
            mock.patch.object(contributor, "add_stream", adding),
            mock.patch.object(leaf_answers, "answer_masks", answering),
        ):
            yield
