"""What networks are drawn from is stable: parties of any release draw the same."""

import json
from pathlib import Path

import numpy as np
import xxhash

from fedboost.core.networks import Network, hashed_weight
from tests.support.pair_hashes import pair_hashes

HERE = Path(__file__).parent
COLUMNS = np.array([0, 1, 255, 65536, 54_686_452, 2**32 - 1], np.uint32)
NETWORKS = ((0, 0), (1, 0), (299, 0), (0, 1), (7, 2**63 - 1))  # number and the job's seed


def test_networks_are_stable_and_hashes_are_those_of_the_xxhash_package(golden):
    """A change here makes every model of earlier releases predict something else."""
    lines = {}
    for number, seed in NETWORKS:
        network = Network(number, seed, 4)
        words = pair_hashes(COLUMNS, np.uint32(number), network.hash_seeds)
        for column, own in zip(COLUMNS.tolist(), words.tolist(), strict=True):
            data = column.to_bytes(4, "little") + number.to_bytes(4, "little")
            expected = [xxhash.xxh32(data, seed=k).intdigest() for k in network.hash_seeds.tolist()]
            assert own == expected
        hashed = [float(hashed_weight(COLUMNS[2], np.uint32(number), k)).hex()
                  for k in network.hash_seeds]  # fmt: skip
        drawn = network.weights(6).ravel()
        lines[f"network {number} of seed {seed}"] = {
            "hashes": [f"{word:08x}" for word in words.ravel().tolist()],
            "hashed_weights": hashed,
            "drawn_weights": {str(i): float(drawn[i]).hex() for i in np.flatnonzero(drawn)},
        }
    golden(HERE / "networks.json", json.dumps(lines, indent=1) + "\n")
