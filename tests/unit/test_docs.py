"""The documents say what the code does: commands exist, links lead somewhere, tables are fresh."""

import importlib.util
import re
import shlex

import click
import pytest

from fedboost import errors, protocols
from fedboost.messages.reveals import REVEALS
from fedboost.runtime.config import Timers
from fedboost.runtime.policy import Policy
from fedboost.runtime.store import JobState
from fedboost.settings import parse, read_yaml
from tests.conftest import ROOT
from tests.shown_commands import FENCE, check, commands

DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "deploy").glob("*.md")),
    *sorted((ROOT / "tests").rglob("*.md")),
]
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
names = [str(path.relative_to(ROOT)) for path in DOCUMENTS]


def anchors(text: str) -> set[str]:
    """The names by which headings are linked to."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_there_are_commands_to_check():
    readme = (ROOT / "README.md").read_text()
    assert len(commands(readme, "fedboost")) >= 20
    assert {tuple(args[:1]) for args in commands(readme, "make")} >= {("demo",), ("test",)}


@pytest.mark.parametrize(
    "wrong",
    [
        "fedboost jobs list",
        "fedboost job submit JOB.yaml --wach",
        "fedboost job submit",
        "x=$(fedboost model show)",
        "fedboost certs create --days never &",
    ],
)
def test_a_command_that_does_not_exist_is_found(wrong):
    (args,) = commands(f"```console\n$ {wrong}\n```\n", "fedboost")
    with pytest.raises((AssertionError, click.ClickException)):
        check(args)


@pytest.mark.parametrize("document", DOCUMENTS, ids=names)
def test_every_command_shown_exists_with_its_options(document):
    for args in commands(document.read_text(), "fedboost"):
        try:
            check(args)
        except (AssertionError, click.ClickException) as error:
            pytest.fail(f"fedboost {shlex.join(args)}: {error}")


@pytest.mark.parametrize("document", DOCUMENTS, ids=names)
def test_every_make_target_shown_exists(document):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = [word for args in commands(document.read_text(), "make") for word in args]
    assert {word for word in shown if "=" not in word and not word.startswith("-")} <= targets


@pytest.mark.parametrize("document", DOCUMENTS, ids=names)
def test_every_link_leads_somewhere(document):
    for target in LINK.findall(FENCE.sub("", document.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = document if not path else document.parent / path
        assert there.exists(), f"{document.name} links to {target}"
        assert there.resolve().is_relative_to(ROOT.resolve()), f"{target} leaves the project"
        if anchor:
            assert anchor in anchors(there.read_text()), f"{document.name} links to {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=names)
def test_every_job_shown_can_be_read(document):
    import yaml

    from fedboost.cli.cluster import complete
    from fedboost.data.sources import SourceSpec
    from fedboost.job import Parties

    for language, block in FENCE.findall(document.read_text()):
        raw = yaml.safe_load(block) if language == "yaml" else None
        if isinstance(raw, dict) and {"protocol", "parties"} <= set(raw):
            everybody = parse(Parties, raw["parties"]).with_data
            complete(raw, {party: SourceSpec(path="x.csv") for party in everybody})


@pytest.fixture(scope="module")
def generate():
    """The module that writes documents."""
    path = ROOT / "docs" / "generate.py"
    spec = importlib.util.spec_from_file_location("docs_generate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_disclosure_table_is_fresh(generate):
    assert generate.FILE.read_text() == generate.render(), "run: make docs"


def test_the_tables_of_who_learns_what_are_fresh(generate):
    text = generate.PRIVACY.read_text()
    assert text == generate.filled(text), "run: make docs"
    assert len(re.findall(r"^\| guest \|", text, re.MULTILINE)) > 10
    assert len(re.findall(r"^\| host \|", text, re.MULTILINE)) > 10


def test_every_comment_says_to_whom_a_message_reveals_something(generate):
    for protocol in protocols.known().values():
        for step in protocol.flow:
            if step.gives is not None:
                kind = step.gives.DESCRIPTOR.full_name
                named = {role for roles, _ in generate.told(REVEALS[kind][0]) for role in roles}
                taken = {str(role) for one in protocol.taker(kind) for role in one.roles}
                assert taken <= named, kind


def test_a_comment_that_reveals_to_nobody_is_found(generate):
    both = generate.told("to the guest, one thing; to the hosts, that it is so.")
    assert both == [(("guest",), "one thing"), (("host",), "that it is so")]
    for wrong in ("one thing.", "to whom it may concern, one thing.", "to the guest and so on."):
        with pytest.raises(ValueError, match="to nobody"):
            generate.told(wrong)


def test_every_message_says_what_it_reveals_and_how_it_is_protected():
    sent = {
        step.gives.DESCRIPTOR.full_name
        for protocol in protocols.known().values()
        for step in protocol.flow
        if step.gives is not None
    }
    assert sent
    assert set(REVEALS) == sent
    assert all(reveals.strip() and protected.strip() for reveals, protected in REVEALS.values())


def test_every_comment_that_reveals_reached_the_table():
    for path in (ROOT / "protos" / "fedboost" / "protocol").glob("*.proto"):
        text = path.read_text()
        said = re.findall(r"^// Reveals:", text, re.MULTILINE)
        package = f"fedboost.{path.stem}."
        assert len(said) == sum(name.startswith(package) for name in REVEALS), path.name


def test_operations_name_every_timer_policy_key_state_and_exit_code():
    text = (ROOT / "docs" / "operations.md").read_text()
    for key in (*Timers.model_fields, *Policy.model_fields, "peers", "rows_per_day"):
        assert f"`{key}`" in text, key
    for state in JobState:
        assert f"`{state}`" in text, state
    codes = {kind.exit_code for kind in errors.BY_CODE.values()} | {0, 130}
    for code in codes:
        assert re.search(rf"^\| {code} \|", text, re.MULTILINE), code


def test_operations_give_the_timers_defaults():
    text = (ROOT / "docs" / "operations.md").read_text()
    shown = dict(re.findall(r"^\| `(\w+_s)` \| ([\d.]+) \|", text, re.MULTILINE))
    assert shown == {name: f"{field.default:g}" for name, field in Timers.model_fields.items()}


SAMPLES = sorted((ROOT / "configs").glob("job-*.yaml"))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_the_sample_jobs_are_ones_that_this_version_runs(path):
    from fedboost.job import JobSpec

    job = parse(JobSpec, read_yaml(path))
    protocol = protocols.named(job.protocol)
    parse(protocol.params, job.params, section="params")


def test_the_sample_job_shows_how_columns_of_text_are_named():
    import yaml

    from fedboost.data.selection import Selection

    text = (ROOT / "configs" / "job-credit.yaml").read_text()
    (shown,) = re.findall(r"^  # of a table with text or codes in it: (.+)$", text, re.MULTILINE)
    assert parse(Selection, yaml.safe_load(shown)).categorical == ["city"]


def test_the_readme_shows_how_columns_of_text_are_named():
    import yaml

    from fedboost.cli.cluster import complete
    from fedboost.data.sources import SourceSpec

    readme = (ROOT / "README.md").read_text()
    (shown,) = re.findall(r"`(data: \{telco: .+?\}\})`", readme)
    job, *_ = [block for language, block in FENCE.findall(readme) if language == "yaml"]
    sources = {party: SourceSpec(path="x.csv") for party in ("bank", "telco")}
    spec = complete(yaml.safe_load(job) | yaml.safe_load(shown), sources)
    assert spec.data["telco"].categorical == ["city"]


def test_the_lock_holds_everything_the_project_asks_for():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted += extra
    pinned = re.findall(r"^([\w.-]+)==[\w.]+", (ROOT / "requirements-dev.lock").read_text(), re.M)
    locked = {re.sub(r"[-_.]+", "-", name).lower() for name in pinned}
    asked = {re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", one)[0]).lower() for one in wanted}
    assert asked <= locked
    assert not locked & {"fedboost", "pip"}


def test_documents_name_no_path_of_somebodys_machine():
    for document in DOCUMENTS:
        assert not re.search(r"(?<![\w.])/(root|home|tmp|work)/", document.read_text()), document
