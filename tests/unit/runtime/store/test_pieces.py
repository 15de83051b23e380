"""Lists that only grow: each checkpoint writes what they have gained, and finds them whole."""

import errno
import os
import stat

import numpy as np
import pytest

from fedboost.flow import Artefact
from fedboost.ground.disk import append_file
from fedboost.ground.errors import StoreError
from fedboost.ground.state import Growing, state_class
from fedboost.runtime.store.checkpoints import Checkpoints


@state_class
class Rounds:
    """A state with lists of every kind of value that grow."""

    done: int
    splits: Growing[tuple[int, np.float32]]
    history: Growing[dict[str, dict[str, float]]]
    leaves: Growing[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]


def begun():
    return Rounds(done=0, splits=[], history=[], leaves=[])


def advance(rounds):
    """One more round; some rounds add nothing to a list."""
    number = rounds.done
    rounds.done += 1
    rounds.splits += [(number, np.float32(number / 3))] * (number % 3)
    rounds.history.append({"train": {"auc": number / 7}})
    rounds.leaves.append(np.full((number % 2, 2), number, np.float64))


def save(checkpoints, folder, rounds, place=None):
    taken = Artefact.from_state(rounds)
    checkpoints.save(folder, place or (rounds.done,), taken.facts, taken.arrays, taken.grown)


def found(folder, place):
    kept = Checkpoints().load(folder, place)
    assert kept is not None
    return Artefact(kept.state, kept.arrays).state(Rounds)


def plain(rounds):
    leaves = [leaf.tolist() for leaf in rounds.leaves]
    return rounds.done, rounds.splits, rounds.history, leaves


def after(rounds):
    """What so many rounds come to."""
    expected = begun()
    for _ in range(rounds):
        advance(expected)
    return plain(expected)


def files(folder):
    return sorted(folder.glob("grown-*"))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "jobs" / "j1" / "train"


@pytest.fixture
def five(folder):
    """Five rounds, each kept, and what kept them."""
    checkpoints, rounds = Checkpoints(), begun()
    for _ in range(5):
        advance(rounds)
        save(checkpoints, folder, rounds)
    return checkpoints, rounds


@pytest.mark.usefixtures("five")
def test_both_checkpoints_find_the_lists_as_they_were(folder):
    assert len(files(folder)) == 1
    for place in (4, 5):
        assert plain(found(folder, (place,))) == after(place)


def test_a_checkpoint_costs_what_its_round_has_brought(folder):
    checkpoints, rounds, sizes = Checkpoints(), begun(), []
    for _ in range(300):
        advance(rounds)
        save(checkpoints, folder, rounds)
        sizes.append(sum(path.stat().st_size for path in folder.iterdir()))
    gained = np.diff([files(folder)[0].stat().st_size, *sizes])[1:]
    assert np.ptp(gained[50:]) < 600
    others = [path for path in folder.iterdir() if path not in files(folder)]
    assert sum(path.stat().st_size for path in others) < 6000


def test_an_attempt_that_went_back_begins_a_file_of_its_own(folder, five):
    checkpoints, _ = five
    checkpoints.discard_after(folder, (4,))
    checkpoints.let_go()
    rounds = found(folder, (4,))
    advance(rounds)
    rounds.leaves[-1] = np.array([[7.0, 7.0]])  # grown otherwise this time
    save(checkpoints, folder, rounds)
    assert found(folder, (5,)).leaves[-1].tolist() == [[7.0, 7.0]]
    assert plain(found(folder, (4,))) == after(4)
    assert len(files(folder)) == 2, "one for each attempt"
    advance(rounds)
    save(checkpoints, folder, rounds)
    assert len(files(folder)) == 1, "no checkpoint names the old one"
    assert len(found(folder, (6,)).history) == 6


@pytest.mark.parametrize("which", ["shorter", "another list"])
def test_lists_that_are_not_those_of_before_are_written_whole(folder, five, which):
    """Nobody has to say that an attempt went back."""
    checkpoints, rounds = five
    other = begun()
    for _ in range(3 if which == "shorter" else 6):
        advance(other)
    if which == "shorter":
        for name in ("splits", "history", "leaves"):
            getattr(rounds, name)[:] = getattr(other, name)
        other, rounds.done = rounds, 3
    save(checkpoints, folder, other, (6,))
    assert plain(found(folder, (6,))) == after(other.done)
    assert plain(found(folder, (5,))) == after(5)


def test_lists_that_gain_more_while_a_checkpoint_is_written_are_kept_as_they_were(folder):
    rounds = begun()
    advance(rounds)
    taken = Artefact.from_state(rounds)
    advance(rounds)
    Checkpoints().save(folder, (1,), taken.facts, taken.arrays, taken.grown)
    assert plain(found(folder, (1,))) == after(1)


def test_a_disk_that_was_full_for_a_while_leaves_no_gap(folder, five, monkeypatch):
    checkpoints, rounds = five
    [file] = files(folder)
    size = file.stat().st_size
    for refused in (0, 1, 2):  # the pieces, the arrays, the JSON
        advance(rounds)
        with monkeypatch.context() as patch:
            patch.setattr("fedboost.ground.disk.os.fsync", full_after(refused))
            with pytest.raises(StoreError, match="No space left"):
                save(checkpoints, folder, rounds)
        if not refused:
            assert file.stat().st_size == size, "half a piece would keep the disk full"
        assert plain(found(folder, (5,))) == after(5)
    save(checkpoints, folder, rounds)
    assert plain(found(folder, (8,))) == after(8)


def full_after(times):
    """An `fsync` for files that works so many times; folders are always kept."""
    real, done = os.fsync, [0]

    def fsync(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            return real(handle)
        done[0] += 1
        if done[0] > times:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(handle)

    return fsync


@pytest.mark.usefixtures("five")
@pytest.mark.parametrize("harm", ["flip", "cut", "gone"])
def test_pieces_that_were_changed_are_nothing_to_go_on_from(folder, harm):
    [file] = files(folder)
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(content if harm == "flip" else content[: len(content) // 3])
    assert Checkpoints().loadable_checkpoints(folder) == []
    with pytest.raises(StoreError):
        Checkpoints().load(folder)


@pytest.mark.usefixtures("five")
def test_a_piece_that_is_half_written_harms_only_its_own_checkpoint(folder):
    [file] = files(folder)
    with file.open("ab") as more:
        more.write(b"half a piece")
    assert plain(found(folder, (5,))) == after(5)
    file.write_bytes(file.read_bytes()[:-20])
    assert [kept.place for kept in Checkpoints().loadable_checkpoints(folder)] == [(4,)]


def test_another_attempt_s_file_is_not_written_over(tmp_path):
    path = tmp_path / "grown"
    append_file(path, 0, b"first", 0o600)
    with pytest.raises(StoreError, match="File exists"):
        append_file(path, 0, b"other", 0o600)
    append_file(path, 3, b"more", 0o600)
    assert path.read_bytes() == b"firmore"
