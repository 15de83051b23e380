"""The pages of real daemons in a real browser: who gets in, and all that an owner or user does."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from fedboost.runtime.cluster.cluster import ClusterProcesses, _free_ports
from fedboost.runtime.cluster.local import COORDINATOR, USER
from tests.conftest import ROOT
from tests.e2e import world
from tests.support import browser as browsers
from tests.support import small_jobs
from tests.support.browser import Browser, faults

# What pages say, their unit tests show; each change clicks through some of it in a browser.
SOME = pytest.mark.some(6, of="pages of real daemons")
pytestmark = [SOME, pytest.mark.e2e, pytest.mark.xdist_group("pages")]
PICTURES = ROOT / "docs" / "pictures"
AUDIT_MS = 150_000  # it gives way to everything else on the machine
JOB = """\
name: credit
purpose: Credit risk of new customers
protocol: secureboost
parties: {guest: bank, hosts: [telco, shop]}
data:
  bank:  {dataset: data, label: y}
  telco: {dataset: data}
  shop:  {dataset: data}
validation: {fraction: 0.3, seed: 7}
params:
  objective: binary:logistic
  n_estimators: 8
  max_depth: 3
  max_bin: 16
  eval_metric: [auc, logloss]
  encryption: {scheme: plain}
"""
LONG = """\
name: patience
protocol: echo
parties: {guest: bank, hosts: [shop]}
data: {bank: {dataset: data}, shop: {dataset: data}}
params: {rounds: 1000, parts: 4, numbers: 100}
"""


@dataclass(eq=False)
class Town:
    """Daemons with pages, and a browser."""

    cluster: ClusterProcesses
    browser: Browser
    draws: bool  # pictures for the documents

    @cache  # noqa: B019  one town
    def link(self, name: str) -> str:
        """What the owner is given to sign in."""
        kind = "coordinator" if name == COORDINATOR else "party"
        return world.fedboost(kind, "page", "--config", self.cluster.config(name)).out.strip()

    def tab(self, name: str, **how: bool) -> Any:
        """A tab in which somebody has signed in."""
        tab = self.browser.tab(**how)
        tab.goto(self.link(name))
        tab.wait_for_selector("text=Sign out")
        return tab

    def draw(self, tab: Any, name: str, height: int = 820) -> None:
        """A picture for the documents, where they are to be renewed; `height` in pixels."""
        if self.draws:
            PICTURES.mkdir(exist_ok=True)
            width = tab.viewport_size["width"]
            whole = tab.evaluate("document.documentElement.scrollHeight")
            shown = {"x": 0, "y": 0, "width": width, "height": min(height, whole)}
            tab.screenshot(path=PICTURES / f"pages-{name}.png", full_page=True, clip=shown)


@pytest.fixture(scope="module")
def town(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    tables = small_jobs.tables("secureboost", rows=600)
    sources = {name: world.write(folder / f"{name}.parquet", t) for name, t in tables.items()}
    cluster = world.WarmCluster(
        folder / "c", world.spec(world.job()), sources, timers=world.TIMERS, workers=1
    )
    ports = dict(zip((COORDINATOR, "telco", "bank"), _free_ports(3), strict=True))
    for name, port in ports.items():
        page = {"page": {"listen": f"127.0.0.1:{port}", "user": USER}}
        world.edit(cluster, name, partial(dict.update, **page))
    world.edit(cluster, "telco", lambda raw: raw["policy"].update(approve="always"))
    draws = request.config.getoption("--rewrite")
    with browsers.browser() as browser, cluster:
        yield Town(cluster, browser, draws)
        assert world.tracebacks(cluster) == []
        assert all(p.poll() is None for p in cluster.processes.values())
        assert browser.strangers == [], "a page has asked another machine"
        assert browser.complaints == []


@pytest.fixture(scope="module")
def board(town):
    """The coordinator's page."""
    return town.tab(COORDINATOR)


@pytest.fixture(scope="module")
def house(town):
    """telco's page for its owner."""
    return town.tab("telco")


@pytest.fixture
def trained(town, board):
    """A job of the town that has finished, whichever test comes first."""
    jobs = json.loads(world.ask(town.cluster, "job", "list", "--json").out)["jobs"]
    if not any(job["state"] == "finished" for job in jobs):
        job = submit(board, JOB)
        shows(board, "waits for telco, the owner’s approval")
        assert world.owner(town.cluster, "telco", "approve", job, "--yes").code == 0
        assert world.ask(town.cluster, "job", "watch", job).code == 0


def submit(board, text: str) -> str:
    """Hands in a job on the page; gives its id."""
    go(board, "/submit")
    board.get_by_label("or its text").fill(text)
    board.get_by_role("button", name="Submit", exact=True).click()
    board.wait_for_selector("text=The job is submitted.")
    path: str = urlsplit(board.url).path
    return path.rpartition("/")[2]


def go(tab, path: str) -> None:
    """Another page of the same daemon."""
    at = urlsplit(tab.url)
    tab.goto(f"{at.scheme}://{at.netloc}{path}")


def shows(tab, words: str, where: str = "main") -> None:
    """Waits until the page says so by itself."""
    tab.locator(where, has_text=words).first.wait_for()


def test_nobody_gets_in_without_the_token(town):
    tab = town.browser.tab()
    at = town.link("telco").partition("/sign-in")[0]
    tab.goto(f"{at}/ledger")
    assert tab.url == f"{at}/sign-in?next=/ledger"
    assert "BlindedSet" not in tab.content()
    tab.fill("#token", "guessed")
    tab.get_by_role("button", name="Sign in").click()
    shows(tab, "this is not the token of this page")
    tab.goto(town.link("telco"))
    tab.wait_for_selector("text=Sign out")
    assert "token" not in tab.url
    tab.click("text=Sign out")
    tab.goto(f"{at}/")
    assert "/sign-in" in tab.url
    log = town.cluster.log("telco").read_text()
    assert town.link("telco").partition("token=")[2] not in log


def test_what_is_wrong_with_a_job_is_said_beside_its_text(board):
    board.click("nav >> text=Submit")
    board.fill("#text", JOB.replace("max_depth", "max_dept"))
    board.get_by_role("button", name="Submit", exact=True).click()
    shows(board, "unknown key 'max_dept'", "[role=alert]")
    shows(board, "did you mean 'max_depth'?", "[role=alert]")
    assert "max_dept: 3" in board.input_value("#text")
    board.fill("#text", JOB)
    board.get_by_role("button", name="Only check").click()
    shows(board, "credit: sound.")


def test_a_job_is_submitted_approved_watched_and_audited_on_the_pages(town, board, house):
    every = town.tab(COORDINATOR)
    shows(every, "No job has ended yet.")
    job = submit(board, JOB)
    shows(board, "waits for telco, the owner’s approval")
    shows(house, "user on the page of coordinator wants to run secureboost on data", ".card")
    shows(house, "no similar job ran here; its scheme hides nothing", ".card .forecast")
    town.draw(house, "asked")
    house.click("text=Review and decide")
    shows(house, "Your policy allows this job.")
    assert not house.locator("text=CandidateSums").first.is_visible()
    house.click("#leaving summary")
    shows(house, "CandidateSums", "#leaving")
    house.click("text=Approve…")
    shows(house, "Everything is new", ".forecast")
    town.draw(house, "approve", 1400)
    house.click("#leaving summary")
    shows(house, "CandidateSums", "#leaving")
    house.get_by_role("button", name="Approve").click()  # not before it was read
    assert house.url.endswith("/approve")
    house.check("text=I have read what will leave.")
    house.get_by_role("button", name="Approve").click()
    shows(house, "You have approved the job.")
    board.wait_for_selector("svg polyline.line")
    town.draw(board, "job", 1500)
    shows(board, "finished", ".badge")
    shows(board, "Adding up encrypted gradients", "#time")
    assert "sum_candidates" not in board.inner_text("#time")
    shows(house, "finished", ".badge")
    shows(house, "Sent: ", "#passed")
    house.get_by_role("button", name="Run an audit").click()
    shows(house, "The audit is running", "#live-audit")
    go(board, f"/jobs/{job}/report")
    assert board.locator("h1", has_text="credit").is_visible()
    shows(every, "validation auc", "#ended")
    house.locator("#audit table").wait_for(timeout=AUDIT_MS)


def test_the_ledger_the_account_and_the_data_sets_are_the_owners_to_read(town, house, trained):
    go(house, "/ledger")
    jobs = house.locator(".group").count()
    if jobs > 1:  # of a single one all is shown
        house.locator(".group summary").first.click()
    shows(house, "Sent: ", ".group")
    house.get_by_label("Kind").select_option("CandidateSums")
    house.get_by_role("button", name="Show", exact=True).click()
    assert 0 < house.locator(".group").count() <= jobs
    assert {*house.locator(".group tbody th:not([colspan])").all_inner_texts()} == {"CandidateSums"}
    house.locator(".group tbody a").first.click()
    shows(house, "CandidateSums", "h1")
    go(house, "/ledger/rows")
    assert house.locator("tbody tr").count() == 50
    house.locator("tbody summary").first.click()
    shows(house, "Protected:", "tbody details")
    newest = int(house.locator("tbody th").first.inner_text())
    house.click("text=Older →")
    shows(house, str(newest - 50), "tbody th")
    go(house, "/ledger")
    house.click("text=Verify the ledger")
    shows(house, "The ledger is whole")
    if jobs > 1:
        house.locator(".group summary").first.click()
    town.draw(house, "ledger")
    go(house, "/told")
    shows(house, "sums per bin and row", "svg")
    go(house, "/data")
    shows(house, "600", "dl")
    shows(house, "parquet", "dl")
    house.click("text=Columns >> visible=true")
    assert house.locator("tbody tr").count() == 5


def test_runs_are_tagged_filtered_sorted_and_compared(town, board, house, trained):
    job = submit(board, JOB.replace("max_depth: 3", "max_depth: 2"))
    go(house, "/")
    shows(house, "1 similar job ran here;", ".card .forecast")
    assert world.owner(town.cluster, "telco", "approve", job, "--yes").code == 0
    assert world.ask(town.cluster, "job", "watch", job).code == 0
    board.click("nav >> text=Runs")
    rows = board.locator("tbody tr")
    count = rows.count()
    assert count >= 2
    rows.first.locator("input").check()
    board.fill("input[name=tags]", "shallow, second")
    board.get_by_role("button", name="Add tags").click()
    shows(board, "The tags are changed.")
    board.locator("select[name=tag]").select_option("shallow")
    board.get_by_role("button", name="Show", exact=True).click()
    assert rows.count() == 1
    assert board.locator("tbody a").first.get_attribute("href") == f"/jobs/{job}"
    board.locator("select[name=tag]").select_option("")
    board.locator("select[name=state]").select_option("finished")
    board.locator("input[name=q]").fill("max_bin=16")
    board.get_by_role("button", name="Show", exact=True).click()
    for way in ("ascending", "descending"):
        board.click("thead >> text=validation auc")
        assert board.locator(f"th[aria-sort={way}]").inner_text().startswith("validation auc")
        shown = [
            float(v) for v in board.locator("td[data-label='validation auc']").all_inner_texts()
        ]
        assert shown == sorted(shown, reverse=way == "descending")
        assert len(shown) >= 2
    town.draw(board, "runs")
    for box in board.locator("tbody input").all():
        box.check()
    board.get_by_role("button", name="Compare", exact=True).click()
    assert board.locator("figure").count() == 2  # auc and logloss
    assert board.locator("figure").first.locator("polyline").count() == len(shown)
    assert "max_depth" in board.locator("#settings thead").first.inner_text().split()
    shows(board, "validation auc", "#results")
    town.draw(board, "compared", 1300)
    go(board, "/runs")
    board.get_by_role("button", name="Compare", exact=True).click()
    shows(board, "no job is chosen", "[role=alert]")


def test_an_owner_sees_at_which_step_a_job_is_and_what_has_left(town, board, house):
    job = submit(board, JOB.replace("n_estimators: 8", "n_estimators: 400"))
    shows(board, "waits for telco, the owner’s approval")
    assert world.owner(town.cluster, "telco", "approve", job, "--yes").code == 0
    go(house, "/running")
    shows(house, "secureboost: ", ".card")
    shows(house, "still expected: ", ".card svg")
    before = house.locator(".card dd").nth(1).inner_text()
    house.wait_for_function(
        "before => document.querySelectorAll('.card dd')[1].innerText !== before", arg=before
    )
    assert re.search(r"\d+ messages with [\d,]+ values, .* to bank", before)
    town.draw(house, "running")
    assert world.ask(town.cluster, "job", "cancel", job).code == 0
    shows(house, "No job is running here.")


def test_a_denied_job_says_so_on_both_pages(board, house):
    submit(board, JOB)
    go(house, "/")
    house.click("text=Review and decide")
    house.click("text=Deny…")
    house.get_by_role("button", name="Deny it").click()
    shows(house, "You have denied the job.")
    shows(house, "cancelled", ".badge")
    shows(board, "telco's owner denied the job", "[role=alert]")
    shows(board, "failed", ".badge")


def test_a_dead_party_is_shown_and_the_job_is_cancelled_by_two_clicks(town, board):
    job = submit(board, LONG)
    shows(board, "of 1,000 calls", "progress + p")
    town.cluster.kill("shop")
    board.locator(".waits", has_text="shop, its return").wait_for(timeout=1000 * world.SHOWN_S)
    shows(board, "paused", ".badge")
    go(board, "/")
    shows(board, "waits for shop, its return", ".card")
    town.draw(board, "board")
    town.cluster.start("shop")
    town.cluster.wait("shop")
    shows(board, "running", ".card .badge")
    go(board, f"/jobs/{job}")
    board.click("text=Cancel…")
    shows(board, "The job ends for good")
    board.get_by_role("button", name="Cancel the job").click()
    shows(board, "The job is cancelled.")
    shows(board, "cancelled by user", "[role=alert]")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", [COORDINATOR, "telco"])
def test_every_page_is_readable_on_a_phone_and_by_whoever_sees_little(town, name, dark, trained):
    tab = town.tab(name, phone=True, dark=dark)
    job = tab.locator("a[href^='/jobs/']").last.get_attribute("href")
    own = ["/submit", "/runs", "/runs/compare", f"{job}/report"]
    if name != COORDINATOR:
        own = ["/running", "/ledger", "/ledger/rows", "/told", "/data"]
    for path in ("/", job, *own):
        go(tab, path)
        if not path.endswith("/report"):
            assert faults(tab) == [], path
        assert tab.evaluate("document.documentElement.scrollWidth") <= browsers.PHONE["width"]
    if dark and name != COORDINATOR:
        go(tab, job)
        town.draw(tab, "phone")


def test_a_keyboard_reaches_the_content_and_everything_that_it_does(town, board):
    go(board, "/")
    board.keyboard.press("Tab")
    assert board.evaluate("document.activeElement.textContent") == "Skip to the content"
    board.keyboard.press("Enter")
    assert board.evaluate("document.activeElement.id") == "main"
    board.keyboard.press("Tab")
    assert board.evaluate("document.activeElement.textContent") == "Submit a job"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert board.evaluate(outline) == "solid"


def test_without_scripts_a_reload_shows_the_same(town):
    link = town.link(COORDINATOR)
    tab = town.browser.tab(scripts=False)
    tab.goto(link)
    tab.fill("#token", link.partition("token=")[2])
    tab.click("button")
    shows(tab, "Jobs", "h1")
    submit(tab, JOB)
    tab.click("text=Cancel…")
    tab.click("button:text-is('Cancel the job')")
    shows(tab, "The job is cancelled.")


def test_whoever_draws_another_token_signs_everybody_out(town):
    tab = town.tab("bank")
    told = world.fedboost("party", "page", "--config", town.cluster.config("bank"), "--new")
    tab.reload()
    assert "/sign-in" in tab.url
    tab.goto(told.out.strip())
    tab.wait_for_selector("text=Sign out")
    path = town.cluster.store("bank") / "page-token"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_page_says_that_its_daemon_is_gone_and_goes_on_when_it_is_back(town, board):
    go(board, "/")
    board.wait_for_selector("text=Sign out")
    town.cluster.kill(COORDINATOR)
    shows(board, "The daemon has not answered since", "#lost")
    town.cluster.start(COORDINATOR)
    town.cluster.wait(COORDINATOR)
    shows(board, "Sign in to coordinator")
    board.goto(town.link(COORDINATOR))
    shows(board, "Jobs", "h1")


def test_a_cluster_of_ones_own_shows_its_pages_until_it_is_stopped(tmp_path):
    tables = {"bank": world.toy(label=True), "telco": world.toy(columns=3)}
    options: list[object] = []
    for name, table in tables.items():
        world.write(tmp_path / f"{name}.parquet", table)
        options += ["--data", f"{name}={name}.parquet"]
    world.job_file(tmp_path, world.echo(hosts=("telco",)))
    command = [sys.executable, "-m", "fedboost", "cluster", "run", "job.yaml", *options, "--page"]
    with subprocess.Popen(
        list(map(str, command)),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        # What runs these tests may itself have been started without Ctrl-C, as a shell's `&` does.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as running:
        assert running.stderr is not None
        links = []
        for line in running.stderr:
            links += re.findall(r"^the page of \w+: (http://127\.0\.0\.1:\d+/sign-in)#token=", line)
            if "the pages stay until you press Ctrl-C" in line:
                break
        assert len(links) == 3
        for link in links:
            with urlopen(link, timeout=10) as answer:
                assert answer.status == 200
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) == 0
