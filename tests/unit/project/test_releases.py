"""A release: the same bytes from the same files, nothing missing, one version everywhere."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from fedboost import __version__
from tests.conftest import ROOT
from tests.support.each import each

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BIN = Path(sys.executable).parent
MADE_AT = "1790000000"  # seconds; SOURCE_DATE_EPOCH
LOCKS = ("requirements-dev.lock", "requirements.lock", "requirements-demo.lock")
PLATFORMS = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28", "aarch64-apple-darwin")
PYTHONS = ("3.11", "3.12", "3.13")


def packages(lock):
    """Read the pins of a lock: name to version and hashes, without the condition."""
    text = re.sub(r" ; .*$", "", (ROOT / lock).read_text(), flags=re.M)
    pins = re.split(r"\n(?=\S)", text.strip())
    return {re.split(r"[=\s]", pin)[0]: pin.replace(" \\", "") for pin in pins}


def built(folder, umask):
    """Build wheel and sdist from a copy of the tree; give their bytes by name."""
    source = folder / "source"
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.splitlines()  # fmt: skip
    for name in files:
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/", "benchmarks/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
            (source / name).chmod(0o666 & ~umask)
    command = [BIN / "hatchling", "build", "--directory", folder / "dist"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": MADE_AT}
    subprocess.run(command, cwd=source, env=environment, check=True, capture_output=True,
                   preexec_fn=lambda: os.umask(umask))  # fmt: skip
    return {path.name: path.read_bytes() for path in (folder / "dist").iterdir()}


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """What one build gives, by name, and the folder that holds it."""
    folder = tmp_path_factory.mktemp("release")
    return built(folder, 0o022), folder / "dist"


@pytest.mark.slow
def test_two_builds_are_the_same_bytes(release, tmp_path):
    first, _ = release
    assert set(first) == {f"fedboost-{__version__}.tar.gz",
                          f"fedboost-{__version__}-py3-none-any.whl"}  # fmt: skip
    assert built(tmp_path, 0o077) == first


@pytest.mark.slow
def test_the_wheel_has_the_package_whole_and_nothing_else(release):
    (wheel,) = release[1].glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        inside = {name for name in opened.namelist() if ".dist-info/" not in name}
    tracked = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "fedboost"], cwd=ROOT,
                             check=True, capture_output=True, text=True)  # fmt: skip
    assert inside == {name for name in tracked.stdout.splitlines() if (ROOT / name).is_file()}


@pytest.mark.slow
def test_the_sdist_has_what_a_reader_and_a_builder_need(release):
    (sdist,) = release[1].glob("*.tar.gz")
    with tarfile.open(sdist) as opened:
        inside = {name.partition("/")[2] for name in opened.getnames()}
    needed = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md",
              "CONTRIBUTING.md", "CITATION.cff", "requirements.lock"}  # fmt: skip
    assert needed <= inside
    assert not any(name.startswith(("tests", "docs")) for name in inside)


def commits_in(folder):
    """The commits in the wheels and sdists of a folder, by file name."""
    found = {}
    for path in folder.glob("*.whl"):
        with zipfile.ZipFile(path) as wheel:
            found[path.name] = wheel.read("fedboost/COMMIT").decode()
    for path in folder.glob("*.tar.gz"):
        with tarfile.open(path) as sdist:
            inside = sdist.extractfile(f"{path.name.removesuffix('.tar.gz')}/fedboost/COMMIT")
            assert inside is not None
            found[path.name] = inside.read().decode()
    return found


@pytest.mark.slow
def test_builds_of_a_clone_without_tags_have_its_commit_and_a_release_has_none(release, tmp_path):
    shutil.copytree(release[1].parent / "source", tmp_path / "clone")
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (["init"], ["add", "."], [*who, "commit", "-m", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path / "clone", check=True, capture_output=True)
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(command, cwd=tmp_path / "clone", check=True, capture_output=True,
                            text=True).stdout  # fmt: skip
    build = [BIN / "hatchling", "build", "--directory", tmp_path / "dist"]
    subprocess.run(build, cwd=tmp_path / "clone", check=True, capture_output=True)
    assert commits_in(tmp_path / "dist") == dict.fromkeys(release[0], commit)
    [sdist] = (tmp_path / "dist").glob("*.tar.gz")
    shutil.unpack_archive(sdist, tmp_path / "sdist")
    [source] = (tmp_path / "sdist").iterdir()
    build = [BIN / "hatchling", "build", "-t", "wheel", "--directory", tmp_path / "again"]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    assert set(commits_in(tmp_path / "again").values()) == {commit}
    environment = {**os.environ, "HATCH_BUILD_NO_HOOKS": "true"}  # as `make release` sets it
    build = [BIN / "hatchling", "build", "--directory", tmp_path / "released"]
    subprocess.run(build, cwd=tmp_path / "clone", env=environment, check=True, capture_output=True)
    for path in (tmp_path / "released").glob("*.whl"):
        with zipfile.ZipFile(path) as wheel:
            assert "fedboost/COMMIT" not in wheel.namelist()


def test_the_version_and_its_date_stand_in_changes_and_citation():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    heads = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert heads[0] == ("Unreleased", "")
    assert heads[1] == (__version__, cited["date-released"])
    assert cited["version"] == __version__
    assert cited["license"] == PROJECT["project"]["license"]


def test_the_hooks_before_a_commit_are_targets_of_make():
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    for hook in local["hooks"]:
        assert hook["entry"].split()[0] == "make"
        assert hook["entry"].split()[1] in targets


def test_every_pin_of_a_lock_has_hashes():
    for lock in LOCKS:
        pins = packages(lock)
        assert len(pins) > 30
        assert [name for name, pin in pins.items() if "--hash=sha256:" not in pin] == []


def test_what_a_wheel_needs_is_pinned_as_in_development():
    wide, core, demo = (packages(lock) for lock in LOCKS)
    assert all(wide[name] == pin for name, pin in core.items())
    assert all(wide[name] == pin for name, pin in demo.items())
    asked = {re.split(r"[^\w.-]", one)[0].lower() for one in PROJECT["project"]["dependencies"]}
    assert asked <= set(core)


def test_the_demo_installs_what_it_compares_with_and_no_tools():
    demo, development = set(packages("requirements-demo.lock")), set(packages(LOCKS[0]))
    assert set(packages("requirements.lock")) | {"scikit-learn", "xgboost-cpu"} <= demo
    assert not demo & {"pytest", "mypy", "playwright", "pandas", "lightgbm"}
    assert len(demo) < len(development) / 3


@pytest.mark.full
def test_all_locks_resolve_from_wheels_alone_on_every_platform():
    each([(lock, to, py) for lock in LOCKS for to in PLATFORMS for py in PYTHONS], resolves)


def resolves(case):
    lock, platform, python = case
    command = [BIN / "uv", "pip", "install", "--dry-run", "--quiet", "--require-hashes",
               "--only-binary", ":all:", "--python-platform", platform, "--python-version", python,
               "--target", ROOT / "build" / "nowhere", "--requirement", ROOT / lock]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "error sending request" in done.stderr or "dns error" in done.stderr:
        pytest.skip("no registry of packages can be reached")
    assert done.returncode == 0, done.stderr
