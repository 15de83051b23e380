"""Folders: their room, and who may read them."""

import errno
import os
import stat

import pytest

from fedboost.ground.disk import check_room, make_folder, make_own_folder
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


def mode(folder):
    return stat.S_IMODE(folder.stat().st_mode)
