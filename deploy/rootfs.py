"""Gather what an image needs, and nothing else: python3 rootfs.py OUT [PACKAGE TO LEAVE OUT …].

Run in the stage that has built /opt/fedboost: OUT gets that environment, the standard library,
every shared library that both load, a shell and the certificates. Left out are tests, headers,
symbols and what fedboost never loads, more than half of it all.
"""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HOME = Path("/opt/fedboost")
UNUSED = (  # below site-packages
    *("**/tests", "numba/cuda", "pyarrow/include", "pyarrow/src", "pyarrow/*flight*"),
    *("pyarrow/_substrait*", "pyarrow/*_s3*", "**/*.pyi", "**/*.p[yx][xdi]", "**/*.h", "**/*.a"),
    *("pyarrow/libarrow_python.so", "pyarrow/libarrow_python.so.*.*", "pygments*", "markdown_it*"),
    *(f"scipy/{name}" for name in ("cluster", "datasets", "differentiate", "fftpack", "integrate")),
    *(f"scipy/{name}" for name in ("interpolate", "io", "misc", "ndimage", "odr", "signal")),
    *(
        "scipy/stats",
        "cffi*",
        "mdurl*",
        "pip*",
        "setuptools*",
        "pycparser*",
        "**/RECORD",
    ),
)
NOT_OF_PYTHON = shutil.ignore_patterns(
    *("test", "tests", "idlelib", "ensurepip", "lib2to3", "tkinter", "turtledemo", "pydoc_data"),
    *("site-packages", "dist-packages", "config-*", "*.a", "distutils", "venv", "xmlrpc", "curses"),
    *("turtle*", "nis.*", "_dbm.*", "_gdbm.*", "_tkinter.*", "_curses*", "_test*"),
    "_codecs_*",
)
SYSTEM = (
    *("/bin/sh", "/etc/ssl/certs/ca-certificates.crt", "/etc/nsswitch.conf", "/etc/os-release"),
    "/etc/ld.so.cache",  # where libraries lie that a base keeps elsewhere
)


def main(out: Path, absent: list[str]) -> None:
    """Write the file system of an image below `out`."""
    packages = next(HOME.glob("lib/python3*/site-packages"))
    for pattern in (*UNUSED, *(f"{name}*" for name in absent)):
        for path in packages.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if not absent:  # kernels; and a job of each kind shows that nothing lacks
        subprocess.run([HOME / "bin" / "fedboost", "warm"], check=True)
    libraries = [path for path in HOME.rglob("*.so*") if not path.is_symlink()]
    # What auditwheel has moved into NAME.libs does not load any more once it is stripped.
    whole = [path for path in libraries if not path.parent.name.endswith(".libs")]
    subprocess.run(["strip", "--strip-unneeded", *whole], check=False, stderr=subprocess.DEVNULL)
    python = Path(sys.executable).resolve()
    standard = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(HOME, out / HOME.relative_to("/"), symlinks=True)
    shutil.copytree(standard, out / standard.relative_to("/"), ignore=NOT_OF_PYTHON)
    binaries = [
        python,
        Path("/bin/sh"),
        *libraries,
        *(out / standard.relative_to("/")).rglob("*.so"),
    ]
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


def loaded(binaries: list[Path]) -> set[Path]:
    """List the shared libraries that programs and libraries load, and the loader itself."""
    said = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout
    words = {word for line in said.splitlines() for word in line.split() if word.startswith("/")}
    return {Path(word) for word in words if not word.endswith(":")}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
