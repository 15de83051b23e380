"""A backup is the store as of one moment, and whatever was changed in it is found."""

import io
import tarfile
import threading

import pytest

from fedboost.ground.errors import StoreError
from fedboost.runtime.store.backups import (
    DATABASE,
    KEY,
    SUMS,
    move_store,
    restore_backup,
    write_backup,
)
from fedboost.runtime.store.store import JobState, Store


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store", "party bank") as made:
        made.add_job("j1", "credit", b"{}", JobState.RUNNING)
        for name in ("models/m1/model.json", "jobs/j1/secureboost/3.npz"):
            (made.folder / name).parent.mkdir(parents=True)
            (made.folder / name).write_text("{}")
        yield made


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_store_that_is_in_use_comes_back_elsewhere(store, tmp_path):
    file, there = tmp_path / "b.tar", tmp_path / "there"
    written = write_backup(store.folder, file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert written.bytes == file.stat().st_size
    store.add_event("j1", {"lost": {"party": "shop"}})  # after the backup
    assert restore_backup(file, there).files == written.files
    held, back = files(store.folder), files(there)
    assert back.keys() == held.keys() - {"store.lock", f"{DATABASE}-wal", f"{DATABASE}-shm"}
    assert all(back[name] == held[name] for name in back if name != DATABASE)
    with Store(there, "party bank") as again:
        assert again.job("j1").state is JobState.RUNNING
        assert again.events("j1") == []


def test_a_backup_beside_a_busy_daemon_is_of_one_moment(store, tmp_path):
    """Each transaction adds two events: a backup has both or neither."""
    stopped = threading.Event()

    def busy():
        while not stopped.is_set():
            store.add_event("j1", {"a": 1}, {"b": 2})

    writer = threading.Thread(target=busy)
    writer.start()
    try:
        for n in range(3):
            write_backup(store.folder, tmp_path / f"{n}.tar")
    finally:
        stopped.set()
        writer.join()
    for n in range(3):
        restore_backup(tmp_path / f"{n}.tar", tmp_path / f"r{n}")
        with Store(tmp_path / f"r{n}", "party bank") as again:
            assert len(again.events("j1")) % 2 == 0


def test_without_the_key_no_secret_is_in_the_file(store, tmp_path):
    assert KEY in files(store.folder)
    write_backup(store.folder, tmp_path / "b.tar", with_key=False)
    with tarfile.open(tmp_path / "b.tar") as archive:
        assert KEY not in archive.getnames()


def read(archive, entry):
    content = archive.extractfile(entry)
    assert content is not None
    return content.read()


def rewritten(file, change):
    """The archive with `change(name, content)` in place of each entry; None leaves it out."""
    out = io.BytesIO()
    with tarfile.open(file) as old, tarfile.open(fileobj=out, mode="w") as new:
        for entry in old:
            content = change(entry.name, read(old, entry))
            if content is not None:
                entry.size = len(content)
                new.addfile(entry, io.BytesIO(content))
    file.write_bytes(out.getvalue())


def flip(content):
    return bytes([content[0] ^ 1]) + content[1:]


def test_every_changed_or_missing_entry_is_refused(store, tmp_path):
    write_backup(store.folder, tmp_path / "b.tar")
    whole = (tmp_path / "b.tar").read_bytes()
    with tarfile.open(tmp_path / "b.tar") as archive:
        names = archive.getnames()
    assert len(names) >= 5
    for target in names:
        for change in (flip, lambda _: None):
            (tmp_path / "b.tar").write_bytes(whole)
            rewritten(
                tmp_path / "b.tar",
                lambda name, data, to=target, how=change: how(data) if name == to else data,
            )
            with pytest.raises(StoreError, match="the backup is damaged"):
                restore_backup(tmp_path / "b.tar", tmp_path / "there")
            assert not (tmp_path / "there").exists()
            assert not (tmp_path / "there.new").exists()
    (tmp_path / "b.tar").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match="the backup is damaged"):
        restore_backup(tmp_path / "b.tar", tmp_path / "there")


def test_an_entry_cannot_leave_the_folder(store, tmp_path):
    write_backup(store.folder, tmp_path / "b.tar")
    with tarfile.open(tmp_path / "b.tar", "a") as archive:
        entry = tarfile.TarInfo("../outside")
        entry.size = 1
        archive.addfile(entry, io.BytesIO(b"x"))
    with pytest.raises(StoreError, match="the backup is damaged"):
        restore_backup(tmp_path / "b.tar", tmp_path / "deep" / "there")
    assert not list(tmp_path.rglob("outside"))


def test_nothing_is_overwritten(store, tmp_path):
    write_backup(store.folder, tmp_path / "b.tar")
    with pytest.raises(StoreError, match="the file is there already"):
        write_backup(store.folder, tmp_path / "b.tar")
    with pytest.raises(StoreError, match="the folder is not empty"):
        restore_backup(tmp_path / "b.tar", store.folder)
    with pytest.raises(StoreError, match="there is no store yet"):
        write_backup(tmp_path / "nowhere", tmp_path / "c.tar")


def test_a_store_that_was_moved_is_opened_there_and_no_more_here(store, tmp_path):
    with pytest.raises(StoreError, match="another daemon"):
        move_store(store.folder, tmp_path / "b.tar")
    assert not (tmp_path / "b.tar").exists()
    store.close()
    move_store(store.folder, tmp_path / "b.tar")
    with pytest.raises(StoreError, match="this store was moved"):
        Store(store.folder, "party bank")
    restore_backup(tmp_path / "b.tar", tmp_path / "there")
    with Store(tmp_path / "there", "party bank") as again:
        assert again.job("j1").name == "credit"


def test_the_list_of_hashes_is_that_of_sha256sum(store, tmp_path):
    write_backup(store.folder, tmp_path / "b.tar")
    with tarfile.open(tmp_path / "b.tar") as archive:
        assert archive.getnames()[-1] == SUMS
        lines = read(archive, archive.getmember(SUMS)).decode().splitlines()
    assert all(len(line.split("  ")[0]) == 64 for line in lines)
