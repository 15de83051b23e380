"""Folders: their room, and who may read them."""

import errno
import os
import stat

import pytest

from fedboost.ground.disk import check_room, make_folder, make_own_folder, replace_file
from fedboost.ground.errors import StoreError


def test_a_folder_with_room_says_how_much_and_holds_nothing_more(tmp_path):
    assert check_room(tmp_path, 4096) > 4096
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_room_is_refused_and_no_fuller(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("fedboost.ground.disk.os.fsync", full)
    with pytest.raises(StoreError, match="No space left") as refused:
        check_room(tmp_path, 4096)
    assert refused.value.todo == "free some space"
    assert list(tmp_path.iterdir()) == []


def test_a_new_folder_is_ours_alone(tmp_path):
    make_folder(tmp_path / "new" / "inner")
    assert mode(tmp_path / "new") == mode(tmp_path / "new" / "inner") == 0o700


def test_a_folder_that_is_there_keeps_its_mode(tmp_path):
    tmp_path.chmod(0o1777)
    make_folder(tmp_path)
    assert mode(tmp_path) == 0o1777


def test_a_folder_of_our_own_is_closed_to_others(tmp_path):
    tmp_path.chmod(0o775)
    make_own_folder(tmp_path)
    assert mode(tmp_path) == 0o700


def test_a_folder_that_several_users_share_is_never_closed(tmp_path):
    tmp_path.chmod(0o1777)
    with pytest.raises(StoreError, match="several users share the folder") as refused:
        make_own_folder(tmp_path)
    assert refused.value.todo == "name a folder inside it that serves nothing else"
    assert mode(tmp_path) == 0o1777


def test_a_file_has_one_writer_at_a_time(tmp_path):
    path = tmp_path / "scores.csv"
    with replace_file(path, 0o644) as first:
        first.write(b"first")
        with (
            pytest.raises(StoreError, match="another command is writing the file") as refused,
            replace_file(path, 0o644) as second,
        ):
            second.write(b"second")
        assert refused.value.todo == "wait until it ends, or choose another name"
    assert path.read_bytes() == b"first"
    assert [*tmp_path.iterdir()] == [path]


def test_what_a_killed_writer_left_stops_nobody(tmp_path):
    path = tmp_path / "scores.csv"
    (tmp_path / "scores.csv.new").write_bytes(b"half a")
    with replace_file(path, 0o644) as file:
        file.write(b"whole")
    assert path.read_bytes() == b"whole"
    assert [*tmp_path.iterdir()] == [path]


def mode(folder):
    return stat.S_IMODE(folder.stat().st_mode)
