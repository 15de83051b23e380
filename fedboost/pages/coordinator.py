"""The coordinator's page: its jobs, their progress, and the user's actions on them."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode

import yaml
from aiohttp import web

from fedboost import protocols
from fedboost.ground.errors import ConfigError, FedboostError
from fedboost.ground.settings import parse_settings, parse_yaml
from fedboost.job import JobSpec
from fedboost.messages import job_pb2
from fedboost.pages import board, choosing, frame, parts, runs
from fedboost.pages.board import EarlierUses, May
from fedboost.pages.choosing import Choice
from fedboost.pages.following import Followed
from fedboost.pages.frame import NavLink, PageContent
from fedboost.pages.gate import PageGate
from fedboost.pages.runs import Datasets
from fedboost.report import page as report
from fedboost.report.html import Html, join, tag
from fedboost.report.tables import listed_names
from fedboost.runtime.coordinator.node import CoordinatorNode
from fedboost.runtime.jobs.submitted import check_spec, read_spec, submit_jobs
from fedboost.runtime.store.store import FINAL

EARLIER_SHOWN = 5  # jobs to begin with
FOLLOWS_S = 2.0  # between two looks at a page
COORDINATOR_NEWS = {  # messages about finished actions, by a word in the address
    "submitted": "The job is submitted.",
    "all": "The jobs of all guests are submitted.",
    "resumed": "The job continues.",
    "cancelled": "The job is cancelled.",
    "tagged": "The tags are changed.",
}
EXAMPLE = """\
name: credit
protocol: secureboost
parties: {{guest: {guest}, hosts: [{hosts}]}}
data:
  {data}
validation: {{fraction: 0.3, seed: 7}}
params:
  objective: binary:logistic
  n_estimators: 25
  max_depth: 5
"""


def coordinator_site(node: CoordinatorNode) -> web.Application:
    """Return the application that serves the page of a coordinator's settings."""
    links = (NavLink("/", "Jobs"), NavLink(runs.PATH, "Runs"), NavLink("/submit", "Submit"))
    gate = PageGate(node.config, "coordinator", links)
    handlers = _Pages(node, gate)
    app = gate.guarded_application()
    app.add_routes(
        [
            web.get("/", handlers.jobs),
            web.get(runs.PATH, handlers.show_runs),
            web.post(runs.PATH, handlers.change_chosen),
            web.get(runs.COMPARED_PATH, handlers.show_comparison),
            web.get("/submit", handlers.show_submit_form),
            web.post("/submit", handlers.submit),
            web.get("/jobs/{job}", handlers.job),
            web.get("/jobs/{job}/report", handlers.report),
            web.get("/jobs/{job}/cancel", handlers.show_cancel_form),
            web.post("/jobs/{job}/cancel", handlers.cancel),
            web.post("/jobs/{job}/resume", handlers.resume),
        ]
    )
    return app


class _Pages:
    """Handlers of pages and forms; the node checks the user's rights."""

    def __init__(self, node: CoordinatorNode, gate: PageGate) -> None:
        self._node, self._gate = node, gate
        self._followed = Followed(node, lambda: gate.user)

    @property
    def _rights_of_user(self) -> May:
        users, name = self._node.config.users, self._gate.user.name
        return May(submit=name in users.submit, cancel=name in users.cancel)

    async def jobs(self, request: web.Request) -> web.Response:
        """Show all jobs."""
        going_on, ended = await self._followed.jobs(board.ENDED_SHOWN)
        active = [await self._followed.status(job) for job in going_on]
        news = COORDINATOR_NEWS.get(request.query.get("done", ""), "")
        main = await asyncio.to_thread(board.jobs_page, active, ended, self._rights_of_user, news)
        return self._gate.answer(request, PageContent("Jobs", main, "/", follows_s=FOLLOWS_S))

    # Runs

    async def show_runs(
        self,
        request: web.Request,
        choice: Choice | None = None,
        refused: FedboostError | None = None,
    ) -> web.Response:
        """Show every job in one list, filtered and sorted by the address or by a `choice`."""
        choice = choice or _choice_in_address(request)
        every, news = (
            await self._followed.all_runs(),
            COORDINATOR_NEWS.get(request.query.get("done", ""), ""),
        )
        banner = parts.success_note(news) if refused is None else frame.error_box(refused)
        main = await asyncio.to_thread(
            runs.list_page, every, choice, self._gate.session(request), banner
        )
        status = 200 if refused is None else 422
        return self._gate.answer(request, PageContent("Runs", main, runs.PATH, status=status))

    async def change_chosen(self, request: web.Request) -> web.Response:
        """Compare the chosen jobs, or add or remove their tags."""
        form = await request.post()
        ids = [str(id_) for id_ in form.getall("job", [])]
        tags = str(form.get("tags", "")).replace(",", " ").split()
        back = dict(parse_qsl(str(form.get("back", ""))))
        try:
            if not ids:
                raise ConfigError("no job is chosen", todo="choose jobs by the boxes in the list")
            if form.get("act") == "compare":
                there = urlencode([("job", id_) for id_ in ids])
                raise web.HTTPSeeOther(f"{runs.COMPARED_PATH}?{there}")
            if not tags:
                raise ConfigError("there is no tag", todo="write tags into the field")
            adds = form.get("act") == "tag"
            await asyncio.to_thread(self._node.tag, self._gate.user, ids, tags, adds=adds)
        except FedboostError as error:
            return await self.show_runs(
                request, choosing.read_choice(runs.PATH, back, runs.SELECTS), error
            )
        raise web.HTTPSeeOther(f"{runs.PATH}?{urlencode({**back, 'done': 'tagged'})}")

    async def show_comparison(self, request: web.Request) -> web.Response:
        """Show runs beside each other: those named in the address, or all that match its filter."""
        every, ids = await self._followed.all_runs(), request.query.getall("job", [])
        if ids:  # at most one page of the list
            by_id = {run.job.id: run for run in every}
            fitting = shown = [by_id[id_] for id_ in dict.fromkeys(ids) if id_ in by_id]
            further = join()
        else:
            choice = _choice_in_address(request, runs.COMPARED_PATH)
            fitting = await asyncio.to_thread(runs.chosen_runs, every, choice)
            shown, further = choosing.rows_of_page(choice, fitting, runs.COMPARED_PER_PAGE)
        curves = await self._followed.curves(shown)
        main = await asyncio.to_thread(runs.comparison_page, shown, curves, len(fitting), further)
        return self._gate.answer(request, PageContent("Runs compared", main, runs.PATH))

    async def job(self, request: web.Request) -> web.Response:
        """Show one job."""
        journal = await self._followed.journal(request.match_info["job"])
        session, news = (
            self._gate.session(request),
            COORDINATOR_NEWS.get(request.query.get("done", ""), ""),
        )
        main = await asyncio.to_thread(board.job_page, journal, session, self._rights_of_user, news)
        follows = 0.0 if journal.status.state in FINAL else FOLLOWS_S
        content = PageContent(journal.status.name, main, "/", follows_s=follows)
        return self._gate.answer(request, content)

    async def report(self, request: web.Request) -> web.Response:
        """Return the job's whole report, like `fedboost job report`."""
        journal = await self._followed.journal(request.match_info["job"])
        text = await asyncio.to_thread(report.render_page, journal)
        return self._gate.report(text.encode())

    async def resume(self, request: web.Request) -> web.Response:
        """Resume a job."""
        id_ = request.match_info["job"]
        await self._node.resume(self._gate.user, job_pb2.JobId(id=id_))
        raise web.HTTPSeeOther(f"/jobs/{id_}?done=resumed")

    async def show_cancel_form(self, request: web.Request) -> web.Response:
        """Ask before a job is cancelled."""
        journal = await self._followed.journal(request.match_info["job"])
        main = board.cancel_form(journal.status, self._gate.session(request))
        return self._gate.answer(request, PageContent(f"Cancel {journal.status.name}?", main, "/"))

    async def cancel(self, request: web.Request) -> web.Response:
        """End a job for good."""
        id_ = request.match_info["job"]
        await self._node.cancel(self._gate.user, job_pb2.JobId(id=id_))
        raise web.HTTPSeeOther(f"/jobs/{id_}?done=cancelled")

    # Handing in

    async def show_submit_form(self, request: web.Request) -> web.Response:
        """Show the form, filled with an example or an earlier job."""
        text, earlier = "", request.query.get("from")
        if earlier is not None:
            journal = await self._followed.journal(earlier)
            text = await asyncio.to_thread(_job_as_file, journal.spec)
        return await self._submit_page(request, text)

    async def submit(self, request: web.Request) -> web.Response:
        """Check the job, and submit it unless only a check was requested."""
        form = await request.post()
        text = await asyncio.to_thread(_submitted_text, form)
        try:
            jobs = await asyncio.to_thread(_parse_jobs, text)
            if form.get("act") == "check":
                self._node.config.users.judge("submit", self._gate.user.name)
                sets = runs.datasets_of_runs(await self._followed.all_runs())
                sound = f"{', '.join(job.name for job in jobs)}: sound. "
                later = "The parties decide about it after it is submitted."
                checked = join(parts.success_note(sound + later), *_unknown_datasets(jobs, sets))
                return await self._submit_page(request, text, news=checked)
            ids = await self._submit_all(jobs, str(form.get("key", "")))
        except FedboostError as error:
            news = frame.error_box(error, "The job was not submitted")
            return await self._submit_page(request, text, news=news, status=422)
        there = f"/jobs/{ids[0]}?done=submitted" if len(ids) == 1 else "/?done=all"
        raise web.HTTPSeeOther(there)

    async def _submit_all(self, jobs: tuple[JobSpec, ...], key: str) -> list[str]:
        async def submit_one(job: JobSpec) -> str:
            spec = read_spec(job.model_dump_json().encode())
            return (await self._node.submit_here(self._gate.user, spec, key)).id

        return [*(await submit_jobs(jobs, submit_one)).values()]

    async def _submit_page(
        self, request: web.Request, text: str, news: Html | str = "", status: int = 200
    ) -> web.Response:
        mine = [run for run in await self._followed.all_runs() if run.is_mine]
        known = runs.datasets_of_runs(mine)
        sets = {party: known.get(party, {}) for party in self._node.config.parties}
        earlier = EarlierUses(sets, [(run.job.id, run.job.name) for run in mine[:EARLIER_SHOWN]])
        about = {name: _about_protocol(name) for name in protocols.all_names()}
        session = self._gate.session(request)
        main = board.submit_form(text or _example_job(sets), session, about, earlier, news)
        content = PageContent("Submit a job", main, "/submit", status=status)
        return self._gate.answer(request, content)


def _choice_in_address(request: web.Request, path: str = runs.PATH) -> Choice:
    at = positive_number(request.query.get("page", "1"))
    return choosing.read_choice(path, request.query, runs.SELECTS, at)


def positive_number(text: str, otherwise: int = 1) -> int:
    """Read a positive number in an address; return `otherwise` for anything else."""
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
    return value or otherwise


def _submitted_text(form: Any) -> str:
    """Return a form's job: the file's content, or else the text."""
    file = form.get("file")
    raw = file.file.read() if isinstance(file, web.FileField) else b""
    if raw:
        return str(raw.decode("utf-8", "replace"))
    return str(form.get("text", "")).replace("\r\n", "\n").removeprefix("\n")


def _parse_jobs(text: str) -> tuple[JobSpec, ...]:
    """Read the jobs of a file, checked without asking the parties."""
    if not text.strip():
        raise ConfigError("there is no job", todo="choose a file, or write the job into the field")
    where = {"file": "the form"}
    spec = parse_settings(JobSpec, parse_yaml(text.encode(), **where), **where)
    check_spec(spec, **where)
    return spec.split_by_guest()


def _example_job(sets: Datasets) -> str:
    """Return an example job between two parties, on their data sets in earlier jobs."""
    labelled = (party for party, datasets in sets.items() if any(datasets.values()))
    guest = next(labelled, next(iter(sets), "bank"))
    hosts = sorted((p for p in sets if p != guest), key=lambda p: not sets[p])[:1] or ["telco"]
    lines = []
    for party in (guest, *hosts):
        name, label = next(iter(sets.get(party, {}).items()), ("NAME", ""))
        label_entry = f", label: {label or 'y'}" if party == guest else ""
        lines.append(f"{party}: {{dataset: {name}{label_entry}}}")
    return EXAMPLE.format(guest=guest, hosts=", ".join(hosts), data="\n  ".join(lines))


def _unknown_datasets(jobs: Sequence[JobSpec], sets: Datasets) -> Iterator[Html]:
    """Yield a sentence for each data set that no earlier job of the user has named."""
    wanted = {(party, use.dataset or "") for job in jobs for party, use in job.data.items()}
    for party, name in sorted(wanted):
        known = listed_names(list(sets.get(party, {})))
        if known and name not in sets[party]:
            words = f"{party}: no earlier job of yours named the data set {name}, but {known}."
            yield tag("p", words, class_="warned")


def _job_as_file(spec: bytes) -> str:
    """Return an earlier job in the form of a file, without defaults."""
    raw = parse_settings(JobSpec, json.loads(spec)).model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump(raw, sort_keys=False, allow_unicode=True)


def _about_protocol(name: str) -> str:
    """Describe a protocol by the first sentence of its package."""
    package = importlib.import_module(f"{protocols.__name__}.{name.replace('-', '_')}")
    return (package.__doc__ or "").partition("\n")[0]
