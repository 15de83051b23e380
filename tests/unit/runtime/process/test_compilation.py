"""Kernels that are new on this machine are counted while a job runs."""

import threading

from fedboost.ground import kernel_folders
from fedboost.runtime.process.compilation import count_new_kernels


def test_kernels_that_any_process_adds_are_counted(tmp_path, monkeypatch):
    monkeypatch.setenv(kernel_folders.CACHE_VARIABLE, str(tmp_path))
    (tmp_path / "known-1.kernel").touch()
    counts, counted = [], threading.Event()

    def tell(kernels):
        counts.append(kernels)
        counted.set()

    with count_new_kernels(tell):
        (tmp_path / "tmp-of-a-kernel").touch()
        (tmp_path / "new-2.kernel").touch()
        assert counted.wait(30)
    assert counts == [1]
    assert not [one for one in threading.enumerate() if one.name == "count-kernels"]


def test_without_a_folder_or_new_kernels_nothing_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv(kernel_folders.CACHE_VARIABLE, str(tmp_path / "none"))
    assert kernel_folders.kernel_names() == frozenset()
    counts: list[int] = []
    with count_new_kernels(counts.append):
        pass
    assert counts == []
