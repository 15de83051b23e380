"""Checkpoints: whole as they were saved, or refused."""

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.ground.disk import write_file
from fedboost.ground.errors import ProtocolError, StoreError
from fedboost.ground.mapped import mapped_array
from fedboost.runtime.store import checkpoints
from fedboost.runtime.store.checkpoints import Checkpoints
from tests import tiers

ARRAYS = {"gradient": np.arange(6.0).reshape(2, 3), "file": np.array(["a", "b"])}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "jobs" / "j1"


def test_a_checkpoint_comes_back_as_it_was(folder):
    state = {"tree": 3, "loss": [0.1, None], "nested": {"text": "ä"}, "bad": float("nan")}
    Checkpoints().save(folder, (3,), state, ARRAYS)
    found = Checkpoints().load(folder)
    assert found is not None
    assert found.place == (3,)
    assert repr(found.state) == repr(state)
    assert set(found.arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert found.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(found.arrays[name], array)
    assert "loss" not in repr(found)


def test_an_array_that_lies_in_a_file_is_kept_piece_by_piece(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "ARRAY_PIECE_BYTES", 100)
    margin = mapped_array(tmp_path, (200, 3), np.float64)
    margin[:] = np.arange(600).reshape(200, 3)
    Checkpoints().save(folder, (1,), {}, {"margin": margin, "none": margin[:0]})
    found = Checkpoints().load(folder)
    assert found is not None
    assert np.array_equal(found.arrays["margin"], margin)
    assert found.arrays["none"].shape == (0, 3)


def test_without_checkpoints_there_is_none(folder):
    assert Checkpoints().load(folder) is None
    assert Checkpoints().places(folder) == []
    with pytest.raises(StoreError):
        Checkpoints().load(folder, (1,))


@pytest.mark.parametrize("end", ["json", "arrays"])
@pytest.mark.parametrize("change", [lambda data: data[:-9], lambda data: data[::-1]])
def test_a_torn_checkpoint_is_none_to_go_on_from(folder, end, change):
    """Its party says so at `begin`, and all go on from the round before."""
    for round_ in (1, 2):
        Checkpoints().save(folder, (round_,), {"round": round_}, {"a": np.full(3, round_)})
    [torn] = folder.glob(f"checkpoint-00000002*.{end}")
    torn.write_bytes(change(torn.read_bytes()))
    assert [one.place for one in Checkpoints().loadable_checkpoints(folder)] == [(1,)]
    assert Checkpoints().places(folder) == [(1,), (2,)]
    Checkpoints().save(folder, (2,), {"round": 2}, {"a": np.full(3, 2)})
    assert [one.place for one in Checkpoints().loadable_checkpoints(folder)] == [(1,), (2,)]


def test_half_a_file_is_swept_away_by_the_next_checkpoint(folder):
    Checkpoints().save(folder, (1,), {}, {})
    (folder / "checkpoint-00000002-1234.arrays.new").write_bytes(b"half")
    Checkpoints().save(folder, (2,), {}, {})
    assert not list(folder.glob("*.new"))


def test_the_last_two_checkpoints_stay(folder):
    for round_ in range(5):
        Checkpoints().save(folder, (round_,), {"round": round_}, {"a": np.full(3, round_)})
    assert Checkpoints().places(folder) == [(3,), (4,)]
    assert len(list(folder.glob("*.arrays"))) == 2
    found = Checkpoints().load(folder, (3,))
    assert found is not None
    assert found.arrays["a"].tolist() == [3, 3, 3]


def test_a_round_saved_again_replaces_the_first(folder):
    for value in (1, 2):
        Checkpoints().save(folder, (0,), {"value": value}, {"a": np.array([value])})
    found = Checkpoints().load(folder, (0,))
    assert found is not None
    assert (found.state["value"], found.arrays["a"][0]) == (2, 2)
    assert len(list(folder.iterdir())) == 2


def test_going_back_to_a_joint_commit_discards_what_came_later(folder):
    for round_ in (6, 7):
        Checkpoints().save(folder, (round_,), {}, {})
    Checkpoints().discard_after(folder, (6,))
    assert Checkpoints().places(folder) == [(6,)]
    assert len(list(folder.glob("*.arrays"))) == 1


def test_places_inside_a_round_lie_between_its_ends(folder):
    inside = [(6, 0, 1), (6, 0, 10), (6, 1, 2)]
    for place in [(6,), *inside, (7,)]:
        Checkpoints().save(folder, place, {"place": list(place)}, {})
        found = Checkpoints().load(folder)
        assert found is not None
        assert (found.place, found.state["place"]) == (place, list(place))
    assert Checkpoints().places(folder) == [(6, 1, 2), (7,)]
    Checkpoints().discard_after(folder, (6, 1, 2))
    assert [one.place for one in Checkpoints().loadable_checkpoints(folder)] == [(6, 1, 2)]
    Checkpoints().discard_after(folder, (6,))
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("place", [(), (-1,), (1, 100_000_000)])
def test_a_place_that_no_file_can_be_called_by_is_refused(folder, place):
    with pytest.raises(ProtocolError):
        Checkpoints().save(folder, place, {}, {})


def test_a_checkpoint_of_another_version_is_refused_as_such(folder):
    Checkpoints().save(folder, (4,), {"tree": 3}, {"a": np.arange(2)})
    [path] = folder.glob("*.json")
    body = json.loads(path.read_text())
    old = {key: held for key, held in body.items() if key not in ("place", "sha256")}
    old |= {"format": 1, "round": 4}
    text = json.dumps(old, sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps({**old, "sha256": hashlib.sha256(text.encode()).hexdigest()}))
    with pytest.raises(StoreError, match="by another version of fedboost"):
        Checkpoints().load(folder)


@pytest.mark.parametrize("key", ["place", "state", "arrays", "arrays_sha256", "format"])
def test_a_checkpoint_without_one_of_its_keys_is_torn_though_its_hash_fits(folder, key):
    Checkpoints().save(folder, (4,), {"tree": 3}, {"a": np.arange(2)})
    [path] = folder.glob("*.json")
    body = json.loads(path.read_text())
    left = {name: held for name, held in body.items() if name not in (key, "sha256")}
    text = json.dumps(left, sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps({**left, "sha256": hashlib.sha256(text.encode()).hexdigest()}))
    with pytest.raises(StoreError, match="torn or was changed"):
        Checkpoints().load(folder)


@pytest.mark.parametrize("ending", ["json", "arrays"])
@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "gone"])
def test_a_torn_checkpoint_is_refused_and_the_one_before_found(folder, ending, harm):
    for round_ in (1, 2):
        Checkpoints().save(folder, (round_,), {"round": round_}, {"a": np.full(100, round_)})
    (path,) = folder.glob(f"checkpoint-00000002*.{ending}")
    content = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        path.write_bytes({"cut": content[:-3], "flip": flipped, "empty": b""}[harm])
    with pytest.raises(StoreError):
        Checkpoints().load(folder, (2,))
    found = Checkpoints().load(folder)
    assert found is not None
    assert found.state == {"round": 1}


@settings(max_examples=tiers.examples(60), deadline=None)
@given(data=st.data())
def test_any_flipped_bit_of_a_checkpoint_is_noticed(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("job")
    Checkpoints().save(folder, (1,), {"tree": 1, "loss": 0.5}, {"a": np.arange(5)})
    path = data.draw(st.sampled_from(sorted(folder.iterdir())))
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(bytes(content))
    with pytest.raises(StoreError):
        Checkpoints().load(folder, (1,))


def test_if_every_checkpoint_is_torn_it_is_said(folder):
    Checkpoints().save(folder, (1,), {}, {})
    (path,) = folder.glob("*.json")
    path.write_text("{}")
    with pytest.raises(StoreError, match="torn"):
        Checkpoints().load(folder)


def test_a_death_between_the_two_files_leaves_the_old_checkpoint(folder, monkeypatch):
    Checkpoints().save(folder, (1,), {"value": "old"}, {"a": np.zeros(2)})

    def dies(path, content, mode):
        if path.suffix == ".json":
            raise KeyboardInterrupt
        write_file(path, content, mode)

    monkeypatch.setattr("fedboost.runtime.store.checkpoints.write_file", dies)
    for round_ in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            Checkpoints().save(folder, (round_,), {"value": "new"}, {"a": np.ones(2)})
    found = Checkpoints().load(folder)
    assert found is not None
    assert (found.place, found.state["value"], found.arrays["a"].tolist()) == ((1,), "old", [0, 0])
    monkeypatch.undo()
    Checkpoints().save(folder, (1,), {}, {})
    assert len(list(folder.glob("*.arrays"))) == 1


@pytest.mark.parametrize(
    ("state", "arrays"),
    [
        ({"a": (1, 2)}, {}),
        ({1: "a"}, {}),
        ({"a": b"x"}, {}),
        ({"a": np.zeros(2)}, {}),
        ({}, {"a": np.array([{}, None])}),
    ],
)
def test_what_a_checkpoint_would_change_is_refused(folder, state, arrays):
    with pytest.raises(ProtocolError):
        Checkpoints().save(folder, (1,), state, arrays)
    assert Checkpoints().places(folder) == []


# --- secrets
