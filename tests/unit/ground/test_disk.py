"""Whether a folder has room."""

import errno
import os

import pytest

from fedboost.ground.disk import check_room
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
