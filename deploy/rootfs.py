"""Gather what an image needs, and nothing else: python3 rootfs.py OUT [PACKAGE TO LEAVE OUT …].

Run in the stage that has built /opt/fedboost: OUT gets that environment, the standard library,
every shared library that both load, a shell and the certificates. Left out are tests, headers,
symbols and what fedboost never loads, more than half of it all. The library is an archive.
"""

import importlib.util
import py_compile
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

HOME = Path("/opt/fedboost")
UNUSED = (  # below site-packages; Arrow's S3 stays, tables may lie there
    *("**/tests", "**/*_tests.*", "**/RECORD", "**/*.pyi", "**/*.p[yx][xdi]", "**/*.[ach]"),
    *(f"{name}*" for name in ("cffi", "markdown_it", "mdurl", "pip", "pycparser", "pygments")),
    *("setuptools*", "numba/cuda", "numpy/distutils", "numpy/_core/_simd*"),
    *(f"pyarrow/{name}" for name in ("include", "src", "*flight*", "*_orc*", "_substrait*")),
    *(f"pyarrow/{name}" for name in ("*_azure*", "*cpp_tests*", "*parquet_encryption*")),
    *("pyarrow/libarrow_python.so", "pyarrow/libarrow_python.so.*.*"),
    *(f"scipy/{name}" for name in ("cluster", "datasets", "differentiate", "fftpack", "integrate")),
    *(f"scipy/{name}" for name in ("interpolate", "io", "misc", "ndimage", "odr", "signal")),
    *("scipy/special/cython_special*", "scipy/stats"),
)
NOT_OF_PYTHON = shutil.ignore_patterns(
    *("test", "tests", "idlelib", "ensurepip", "lib2to3", "tkinter", "turtledemo", "pydoc_data"),
    *("site-packages", "dist-packages", "config-*", "*.a", "distutils", "venv", "xmlrpc", "curses"),
    *("turtle*", "nis.*", "_dbm.*", "_gdbm.*", "_tkinter.*", "_curses*", "_test*"),
    *("_codecs_*", "__phello__"),
)
SYSTEM = (
    *("/bin/sh", "/etc/ssl/certs/ca-certificates.crt", "/etc/nsswitch.conf", "/etc/os-release"),
    "/etc/ld.so.cache",  # where libraries lie that a base keeps elsewhere
)
# What daemons import as they start, their pages, audits and tables elsewhere.
RELAY = "fedboost.cli.relay, fedboost.runtime.daemons.relay"
DIALS = "fedboost.runtime.relay.answering, fedboost.runtime.relay.routes"  # to a relay
DAEMON = f"fedboost.cli.daemons, fedboost.runtime.daemons.daemon, {RELAY}, {DIALS}"
COORDINATOR = f"{DAEMON}, fedboost.pages.coordinator"
PARTY = f"{COORDINATOR}, fedboost.pages.party, fedboost.audit.attacks, fedboost.audit.linear"
STORAGES = "from pyarrow.fs import GcsFileSystem, HadoopFileSystem, S3FileSystem"


def main(out: Path, absent: list[str]) -> None:
    """Write the file system of an image below `out`."""
    packages = next(HOME.glob("lib/python3*/site-packages"))
    standard = Path(sysconfig.get_path("stdlib"))
    remove_unused(packages, absent)
    for compiled in (*packages.rglob("__pycache__"), *standard.rglob("__pycache__")):
        shutil.rmtree(compiled)  # of what is never imported; the rest is compiled here again:
    program = f"import {COORDINATOR}" if absent else f"import {PARTY}; {STORAGES}"
    subprocess.run([HOME / "bin" / "python", "-c", program], check=True)
    if not absent:  # with the kernels, by a job of each kind, which shows that nothing lacks
        subprocess.run([HOME / "bin" / "fedboost", "warm"], check=True)
    libraries = [path for path in HOME.rglob("*.so*") if not path.is_symlink()]
    # What auditwheel has moved into NAME.libs does not load any more once it is stripped.
    whole = [path for path in libraries if not path.parent.name.endswith(".libs")]
    subprocess.run(["strip", "--strip-unneeded", *whole], check=False, stderr=subprocess.DEVNULL)
    python = Path(sys.executable).resolve()
    shutil.copytree(HOME, out / HOME.relative_to("/"), symlinks=True)
    shutil.copytree(standard, out / standard.relative_to("/"), ignore=NOT_OF_PYTHON)
    binaries = [python, Path("/bin/sh"), *libraries]
    binaries += (out / standard.relative_to("/")).rglob("*.so")
    pack(out / standard.relative_to("/"))
    for path in {*map(Path, SYSTEM), python, *loaded(binaries)}:
        if path.exists() and not path.is_relative_to(HOME):
            (out / path.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, out / path.relative_to("/"))
    (out / "tmp").mkdir(mode=0o1777)
    (out / "tmp").chmod(0o1777)
    bare = Path("/usr/local/bin/python3")  # where an environment of this base looks for it
    for name in (Path("/usr/bin/python3"), bare):
        if name.exists() and not (out / name.relative_to("/")).exists():
            (out / name.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
            (out / name.relative_to("/")).symlink_to(python)


def remove_unused(packages: Path, absent: list[str]) -> None:
    """Remove what fedboost never loads, the packages in `absent`, and what is there twice."""
    for pattern in (*UNUSED, *(f"{name}*" for name in absent)):
        for path in packages.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for double in packages.glob("scipy.libs/*"):  # auditwheel's names have their files' hashes
        if (packages / "numpy.libs" / double.name).exists():
            double.unlink()
            double.symlink_to(f"../numpy.libs/{double.name}")


def pack(folder: Path) -> None:
    """Put the modules of Python's library into the archive in which Python looks for them first.

    Two stay: by one Python knows its home, the other is read before there is a decompressor. No
    time of a file counts: an archive's are local, and containers may have another zone.
    """
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    packed = folder.with_name(f"python{sys.version_info.major}{sys.version_info.minor}.zip")
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(folder)
            if name.parts[0] in ("os.py", "encodings", "lib-dynload"):
                continue
            archive.write(path, name)
            compiled = Path(importlib.util.cache_from_source(str(path)))
            if compiled.exists():
                py_compile.compile(str(path), str(compiled), str(packed / name), True,
                                   invalidation_mode=unchecked)  # fmt: skip
                archive.write(compiled, name.with_suffix(".pyc"))
                compiled.unlink()
            path.unlink()


def loaded(binaries: list[Path]) -> set[Path]:
    """List the shared libraries that programs and libraries load, and the loader itself."""
    said = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout
    words = {word for line in said.splitlines() for word in line.split() if word.startswith("/")}
    return {Path(word) for word in words if not word.endswith(":")}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
