"""Every protocol's table fits its modules, and the code keeps to what may be used at all."""

import ast
import inspect

import pytest

from fedboost import protocols
from fedboost.flow import EVERYBODY, GUEST, HOST, Protocol, Role, Step, Table
from fedboost.ground.settings import Settings, parse_settings
from fedboost.messages.protocol.echo_pb2 import Answer, Call
from fedboost.messages.reveals import REVEALS
from tests.conftest import ROOT
from tests.support.each import each

KNOWN = sorted(protocols.load_all().values(), key=lambda p: p.name)
SOURCES = sorted((ROOT / "fedboost").rglob("*.py"))


@pytest.mark.parametrize("protocol", KNOWN, ids=lambda p: p.name)
def test_a_role_has_one_function_for_each_of_its_steps(protocol):
    for step in protocol.flow:
        for role in step.roles:
            function = getattr(protocol.module(role), step.name)
            taken = list(inspect.signature(function).parameters)
            given = 1 + (step.takes is not None) + bool(step.hears)
            assert len(taken) == given, (step.name, role)
            assert inspect.isgeneratorfunction(function) == step.streams
    for module in map(protocol.module, protocol.modules):
        for name in ("begin", "snapshot", "restore", "finish", "bytes_max"):
            assert callable(getattr(module, name)), (module.__name__, name)


@pytest.mark.parametrize("protocol", KNOWN, ids=lambda p: p.name)
def test_every_message_is_given_and_taken_and_says_what_it_reveals(protocol):
    given = {s.gives for s in protocol.flow if s.gives}
    assert given == {s.takes for s in protocol.flow if s.takes}
    for kind in given:
        reveals, protected = REVEALS[kind.DESCRIPTOR.full_name]
        assert reveals.endswith(".")
        assert protected.endswith(".")


@pytest.mark.parametrize("protocol", KNOWN, ids=lambda p: p.name)
def test_a_step_comes_only_after_steps_of_its_role(protocol):
    names = [s.name for s in protocol.flow]
    assert len(set(names)) == len(names)
    for step in protocol.flow:
        own = {s.name for s in protocol.flow if set(step.roles) & set(s.roles)}
        for before in step.after or ():
            assert before is None or before in own
        assert protocol.step(step.name) is step


def test_no_stage_needs_a_protocol_that_is_not_there():
    for protocol in KNOWN:
        assert all(name in protocols.load_all() for name in protocol.before)


@pytest.mark.parametrize(
    ("name", "timed_as"),
    [
        *[("align", "align"), ("align-pairs", "align"), ("predict", "predict"), ("echo", "echo")],
        *[("secureboost", "train"), ("gbun", "train")],
    ],
)
def test_a_result_calls_stages_by_what_they_leave(name, timed_as):
    assert protocols.load_protocol(name).timing_name == timed_as


# Roles and order

ONE = Step("one", GUEST, gives=Call, streams=True)
TWO = Step("two", HOST, takes=Call, gives=Answer)
THREE = Step("three", EVERYBODY, takes=Answer, after=("one", "three"))
FOUR = Step("four", EVERYBODY)


async def no_walk(run):
    """Nothing."""


SMALL = Protocol("small", Settings, (ONE, TWO, THREE, FOUR), no_walk, {})


@pytest.mark.parametrize(
    ("role", "step", "last", "may"),
    [
        (GUEST, ONE, None, True),
        (GUEST, ONE, "one", False),
        (HOST, TWO, None, True),
        (HOST, TWO, "three", False),
        (GUEST, THREE, "one", True),
        (GUEST, THREE, None, False),
        (GUEST, THREE, "three", True),
        (GUEST, FOUR, "three", True),
        (GUEST, FOUR, "one", False),
        (HOST, FOUR, "three", True),
        (HOST, FOUR, "two", False),
    ],
)
def test_a_step_follows_the_one_above_or_those_it_names(role, step, last, may):
    assert SMALL.may_follow(role, step, last) is may


def test_givers_and_takers_are_found_by_message():
    assert SMALL.roles_giving(Call) == (GUEST,)
    assert SMALL.steps_taking("fedboost.echo.Answer") == [THREE]
    assert SMALL.steps_taking("fedboost.echo.Nothing") == []
    assert SMALL.step("two") is TWO
    assert SMALL.step("five") is None


@pytest.mark.parametrize(
    ("name", "params", "bins"),
    [
        ("secureboost", {"max_bin": 7}, {GUEST: 7, HOST: 7}),
        ("federboost-vertical", {"max_bin": 7, "buckets": 5}, {GUEST: 7, HOST: 5}),
        ("predict", {"model": "credit"}, {GUEST: None, HOST: None}),
    ],
)
def test_a_protocol_says_how_many_bins_a_role_has(name, params, bins):
    protocol = protocols.load_protocol(name)
    given = parse_settings(protocol.params, params)
    assert {role: protocol.tables.bins(given, role) for role in bins} == bins


def test_a_table_knows_its_parties_guest_first():
    table = Table("bank", ("telco", "shop"), "bank")
    assert table.of(EVERYBODY) == ("bank", "telco", "shop")
    assert table.of(tuple(Role)) == ("bank", "telco", "shop")
    assert table.of((HOST,)) == ("telco", "shop")
    assert Table("bank", ("telco",)).of((Role.AGGREGATOR,)) == ()
    assert [table.role_of(p) for p in ("bank", "shop", "far")] == [GUEST, HOST, None]


# What the code may not use

FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_ATTRIBUTES = {
    ("yaml", "load"), ("yaml", "load_all"), ("yaml", "unsafe_load"), ("yaml", "full_load"),
    ("yaml", "Loader"), ("yaml", "UnsafeLoader"), ("yaml", "FullLoader"),
    ("os", "system"), ("os", "popen"),
}  # fmt: skip


def offences(text):
    """What a module uses that it may not, by line."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name.partition(".")[0] for alias in node.names]
            found += [(node.lineno, n) for n in names if n in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom):
            home = (node.module or "").partition(".")[0]
            found += [(node.lineno, home)] if home in FORBIDDEN_MODULES else []
            pairs = {(home, alias.name) for alias in node.names}
            found += [(node.lineno, n) for _, n in sorted(pairs & FORBIDDEN_ATTRIBUTES)]
        elif isinstance(node, ast.Name) and node.id in FORBIDDEN_CALLS:
            found.append((node.lineno, node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if (node.value.id, node.attr) in FORBIDDEN_ATTRIBUTES:
                found.append((node.lineno, f"{node.value.id}.{node.attr}"))
        elif isinstance(node, ast.keyword):
            risky = {"allow_pickle", "shell"}
            allowed = isinstance(node.value, ast.Constant) and node.value.value is False
            found += [(node.lineno, node.arg)] if node.arg in risky and not allowed else []
    return found


def test_nothing_can_make_code_of_data():
    each(SOURCES, makes_no_code)


def makes_no_code(path):
    found = {name for _, name in offences(path.read_text())}
    # Kernels are machine code, which numba pickles; test_kernels says whose folders are read.
    assert found == ({"pickle"} if path.name == "kernel_files.py" else set())


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "import os, marshal",
        "eval('1')",
        "run = exec",
        "yaml.load(text, Loader=yaml.Loader)",
        "from yaml import unsafe_load",
        "np.load(file, allow_pickle=True)",
        "np.load(file, allow_pickle=flag)",
        "subprocess.run(line, shell=True)",
        "os.system('true')",
    ],
)
def test_the_search_finds_what_it_looks_for(text):
    assert offences(text)


def test_the_search_sees_every_module():
    assert len(SOURCES) > 80
    assert ROOT / "fedboost" / "ground" / "settings.py" in SOURCES
