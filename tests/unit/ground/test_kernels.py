"""Kernels: compiled once for a machine, and read from folders alone that nobody else can write."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
import numba.np.linalg
import numpy as np
import pytest
from numba.core import caching, compiler, serialize, sigutils

from fedboost.ground import kernel_files, kernel_folders
from fedboost.ground.kernels import Kernel, kernel
from fedboost.runtime.cluster import warming
from tests.conftest import ROOT

FACTOR = 1  # of the kernel below; each has one of its own
JOB = """
import asyncio, json, sys, tempfile
from pathlib import Path
from types import FunctionType
from typing import Any
from fedboost.ground.kernels import marked_kernels
from fedboost.ground.workers import Serial
from fedboost.runtime.cluster import local
from fedboost.runtime.cluster import warming
from tests.support import small_jobs
from tests.support.whole_jobs import written

async def run(folder, scheme):
    spec = small_jobs.spec("secureboost", encryption={"scheme": scheme})
    sources = written(folder / "tables", small_jobs.tables("secureboost"))
    async with local.open_cluster(folder, spec, sources, Serial()) as cluster:
        return (await cluster.run(spec)).status.state

def ready():
    return {(one.name, str(types)) for one in marked_kernels() for types in one.compiled.signatures}

warmed = warming.warm_kernels()
known = ready()
with tempfile.TemporaryDirectory() as scratch:
    states = [asyncio.run(run(Path(scratch) / s, s)) for s in ("lattice", "plain")]
new = sorted(ready() - known)
print(json.dumps({"states": states, "cold": warmed.cold, "known": len(known), "new": new}))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder of our own for kernels, and nothing known of any other."""
    folder = tmp_path / "kernels"
    monkeypatch.setenv(kernel_folders.CACHE_VARIABLE, str(folder))
    known = (kernel_files.writable_folder, kernel_files.is_trusted)
    for one in known:
        one.cache_clear()
    yield folder
    for one in known:
        one.cache_clear()


def fresh(factor=2):
    """A kernel that no process has seen, and that needs no folder of its own to be new."""

    def scaled(values):
        total = 0
        for value in values:
            total += value * FACTOR
        return total

    space = {"FACTOR": factor, "__name__": __name__}
    own = FunctionType(scaled.__code__, space)
    own.__module__ = __name__
    return Kernel(own, is_inlined=False)


def compiled_by(one):
    """How many times numba compiles for a call of the kernel."""
    found: list[str] = []
    with warming.record_compilations(found):
        assert one(np.arange(4)) == 6 * one.function.__globals__["FACTOR"]
    return len(found)


@pytest.mark.some(3, of="processes of their own")
def test_after_warming_no_job_compiles_and_no_kernel_is_cold():
    """Types are counted, not compilations: what the machine has compiled before does not matter."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", JOB]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=env, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said.pop("known") > 20
    assert said == {"states": ["finished", "finished"], "cold": [], "new": []}


@pytest.mark.some(3, of="processes of their own")
def test_kernels_do_without_linear_algebra_and_others_have_it():
    code = """
import sys
import numba, numpy as np
from fedboost.core import binning
binning.fit(np.arange(4.0, dtype=np.float32).reshape(4, 1), 4)
assert "numba" in sys.modules and "scipy.linalg" not in sys.modules
assert numba.njit(lambda a, b: a.dot(b))(np.ones((2, 3)), np.ones((3, 2))).tolist() == [[3, 3]] * 2
"""
    words = [sys.executable, "-c", code]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=env, check=False)
    assert done.returncode == 0, done.stderr


def test_kernels_that_were_there_already_are_those_read_from_the_disk(place):
    """`fedboost warm` subtracted what it had compiled, parts of kernels too: -138 were there."""
    first, second = fresh(7), fresh(7)
    assert (compiled_by(first), warming.read_from_disk([first])) == (1, 0)
    assert (compiled_by(second), warming.read_from_disk([second])) == (0, 1)


def changed(part):
    """What a test says where numba has changed a private part that machine code is kept by."""
    return f"numba {numba.__version__} has changed {part}, by which kernel_files keeps machine code"


def test_numba_has_the_private_parts_by_which_machine_code_is_kept(place):
    asked = {"cache_path", "load_overload", "save_overload", "enable", "disable", "flush"}
    assert caching._Cache.__abstractmethods__ == asked, changed("what a cache is asked for")
    plain = numba.njit(lambda value: value + 1)
    assert isinstance(plain._cache, caching._Cache), changed("where a function has its cache")
    assert plain(1) == 2
    (result,) = plain.overloads.values()
    parts = [*inspect.signature(compiler.CompileResult._rebuild).parameters]
    assert parts[0] == "target_context", changed("how a result is read")
    assert len(result._reduce()) == len(parts) - 1, changed("how a result is written")
    assert serialize.dumps(result._reduce()), changed("how a result becomes bytes")
    assert result.library.has_dynamic_globals is False, changed("which results cannot be kept")
    assert result.library.codegen.magic_tuple(), changed("what names the processor")
    types, _ = sigutils.normalize_signature(result.signature)
    assert str(types) == str(result.signature.args), changed("what names a signature")
    assert callable(numba.np.linalg.ensure_blas), changed("what loads linear algebra")


def test_a_kernel_is_compiled_once_for_all_processes(place):
    assert compiled_by(fresh()) == 1
    assert compiled_by(fresh()) == 0
    (file,) = place.iterdir()
    assert file.stat().st_mode & 0o777 == 0o644


def test_a_kernel_with_another_constant_is_another_one(place):
    assert fresh(2).stamp == fresh(2).stamp != fresh(3).stamp
    assert compiled_by(fresh(2)) == 1
    assert compiled_by(fresh(3)) == 1


def test_a_kernel_depends_on_those_that_it_calls():
    space: dict[str, Any] = {"__name__": __name__}
    for body in ("1", "2"):
        exec(f"def inner():\n return {body}\ndef outer():\n return inner()", space)
        inner, outer = (kernel(space[name]) for name in ("inner", "outer"))
        space["inner"] = inner
        space[f"stamp{body}"] = outer.stamp
        assert list(outer.parts()) == [inner]
    assert space["stamp1"] != space["stamp2"]


def test_a_damaged_file_is_compiled_again(place):
    compiled_by(fresh())
    (file,) = place.iterdir()
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    assert compiled_by(fresh()) == 1
    assert compiled_by(fresh()) == 0


def test_a_folder_that_others_can_write_is_neither_read_nor_written(place, caplog):
    compiled_by(fresh())
    place.chmod(0o777)
    for known in (kernel_files.writable_folder, kernel_files.is_trusted):
        known.cache_clear()
    assert compiled_by(fresh()) == 1  # in memory
    assert len(list(place.iterdir())) == 1
    assert [one for one in caplog.messages if "no folder may hold them" in one]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_a_folder_of_somebody_else_is_not_trusted(place):
    place.mkdir()
    os.chown(place, 12345, 12345)
    assert kernel_files.writable_folder() is None


def test_kernels_are_read_where_nothing_can_be_written(place, monkeypatch):
    compiled_by(fresh())
    monkeypatch.setattr(kernel_files, "writable_folder", lambda: None)
    assert compiled_by(fresh()) == 0


def test_without_a_variable_the_installation_comes_before_the_user(monkeypatch):
    monkeypatch.delenv(kernel_folders.CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    installed, own = kernel_folders.kernel_folders()
    assert installed == Path(sys.prefix) / "share" / "fedboost" / "kernels"
    assert own == Path("/somewhere/fedboost/kernels")
