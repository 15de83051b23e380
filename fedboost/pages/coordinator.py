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
from fedboost.ground.settings import parse, yaml_in
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
from fedboost.report.tables import names
from fedboost.runtime.coordinator.node import CoordinatorNode
from fedboost.runtime.jobs.submitted import check, hand_in, read_spec
from fedboost.runtime.store.store import FINAL

EARLIER_SHOWN = 5  # jobs to begin with
FOLLOWS_S = 2.0  # between two looks at a page
SAID = {  # messages about finished actions, by a word in the address
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
    app = gate.application()
    app.add_routes(
        [
            web.get("/", handlers.jobs),
            web.get(runs.PATH, handlers.runs),
            web.post(runs.PATH, handlers.chosen),
            web.get(runs.COMPARED_PATH, handlers.compared),
            web.get("/submit", handlers.submit_form),
            web.post("/submit", handlers.submit),
            web.get("/jobs/{job}", handlers.job),
            web.get("/jobs/{job}/report", handlers.report),
            web.get("/jobs/{job}/cancel", handlers.cancel_form),
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
    def _may(self) -> May:
        users, name = self._node.config.users, self._gate.user.name
        return May(submit=name in users.submit, cancel=name in users.cancel)

    async def jobs(self, request: web.Request) -> web.Response:
        """Show all jobs."""
        going_on, ended = await self._followed.jobs(board.ENDED_SHOWN)
        active = [await self._followed.status(job) for job in going_on]
        news = SAID.get(request.query.get("done", ""), "")
        main = await asyncio.to_thread(board.board, active, ended, self._may, news)
        return self._gate.answer(request, PageContent("Jobs", main, "/", follows_s=FOLLOWS_S))

    # Runs

    async def runs(
        self,
        request: web.Request,
        choice: Choice | None = None,
        refused: FedboostError | None = None,
    ) -> web.Response:
        """Show every job in one list, filtered and sorted by the address or by a `choice`."""
        choice = choice or _choice(request)
        every, news = await self._followed.runs(), SAID.get(request.query.get("done", ""), "")
        banner = parts.note(news) if refused is None else frame.refusal(refused)
        main = await asyncio.to_thread(
            runs.listed, every, choice, self._gate.session(request), banner
        )
        status = 200 if refused is None else 422
        return self._gate.answer(request, PageContent("Runs", main, runs.PATH, status=status))

    async def chosen(self, request: web.Request) -> web.Response:
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
            return await self.runs(request, choosing.read(runs.PATH, back, runs.SELECTS), error)
        raise web.HTTPSeeOther(f"{runs.PATH}?{urlencode({**back, 'done': 'tagged'})}")

    async def compared(self, request: web.Request) -> web.Response:
        """Show runs beside each other: those named in the address, or all that match its filter."""
        every, ids = await self._followed.runs(), request.query.getall("job", [])
        if ids:  # at most one page of the list
            by_id = {run.job.id: run for run in every}
            fitting = shown = [by_id[id_] for id_ in dict.fromkeys(ids) if id_ in by_id]
            further = join()
        else:
            choice = _choice(request, runs.COMPARED_PATH)
            fitting = await asyncio.to_thread(runs.chosen, every, choice)
            shown, further = choosing.page_of(choice, fitting, runs.COMPARED_PER_PAGE)
        curves = await self._followed.curves(shown)
        main = await asyncio.to_thread(runs.compared, shown, curves, len(fitting), further)
        return self._gate.answer(request, PageContent("Runs compared", main, runs.PATH))

    async def job(self, request: web.Request) -> web.Response:
        """Show one job."""
        journal = await self._followed.journal(request.match_info["job"])
        session, news = self._gate.session(request), SAID.get(request.query.get("done", ""), "")
        main = await asyncio.to_thread(board.job, journal, session, self._may, news)
        follows = 0.0 if journal.status.state in FINAL else FOLLOWS_S
        content = PageContent(journal.status.name, main, "/", follows_s=follows)
        return self._gate.answer(request, content)

    async def report(self, request: web.Request) -> web.Response:
        """Return the job's whole report, like `fedboost job report`."""
        journal = await self._followed.journal(request.match_info["job"])
        text = await asyncio.to_thread(report.render, journal)
        return self._gate.report(text.encode())

    async def resume(self, request: web.Request) -> web.Response:
        """Resume a job."""
        id_ = request.match_info["job"]
        await self._node.resume(self._gate.user, job_pb2.JobId(id=id_))
        raise web.HTTPSeeOther(f"/jobs/{id_}?done=resumed")

    async def cancel_form(self, request: web.Request) -> web.Response:
        """Ask before a job is cancelled."""
        journal = await self._followed.journal(request.match_info["job"])
        main = board.cancel(journal.status, self._gate.session(request))
        return self._gate.answer(request, PageContent(f"Cancel {journal.status.name}?", main, "/"))

    async def cancel(self, request: web.Request) -> web.Response:
        """End a job for good."""
        id_ = request.match_info["job"]
        await self._node.cancel(self._gate.user, job_pb2.JobId(id=id_))
        raise web.HTTPSeeOther(f"/jobs/{id_}?done=cancelled")

    # Handing in

    async def submit_form(self, request: web.Request) -> web.Response:
        """Show the form, filled with an example or an earlier job."""
        text, earlier = "", request.query.get("from")
        if earlier is not None:
            journal = await self._followed.journal(earlier)
            text = await asyncio.to_thread(_written, journal.spec)
        return await self._form(request, text)

    async def submit(self, request: web.Request) -> web.Response:
        """Check the job, and submit it unless only a check was requested."""
        form = await request.post()
        text = await asyncio.to_thread(_given, form)
        try:
            jobs = await asyncio.to_thread(_read, text)
            if form.get("act") == "check":
                self._node.config.users.judge("submit", self._gate.user.name)
                sets = runs.datasets(await self._followed.runs())
                sound = f"{', '.join(job.name for job in jobs)}: sound. "
                later = "The parties decide about it after it is submitted."
                checked = join(parts.note(sound + later), *_unknown(jobs, sets))
                return await self._form(request, text, news=checked)
            ids = await self._handed_in(jobs, str(form.get("key", "")))
        except FedboostError as error:
            news = frame.refusal(error, "The job was not submitted")
            return await self._form(request, text, news=news, status=422)
        there = f"/jobs/{ids[0]}?done=submitted" if len(ids) == 1 else "/?done=all"
        raise web.HTTPSeeOther(there)

    async def _handed_in(self, jobs: tuple[JobSpec, ...], key: str) -> list[str]:
        async def submit(job: JobSpec) -> str:
            spec = read_spec(job.model_dump_json().encode())
            return (await self._node.submit_here(self._gate.user, spec, key)).id

        return [*(await hand_in(jobs, submit)).values()]

    async def _form(
        self, request: web.Request, text: str, news: Html | str = "", status: int = 200
    ) -> web.Response:
        mine = [run for run in await self._followed.runs() if run.is_mine]
        known = runs.datasets(mine)
        sets = {party: known.get(party, {}) for party in self._node.config.parties}
        earlier = EarlierUses(sets, [(run.job.id, run.job.name) for run in mine[:EARLIER_SHOWN]])
        about = {name: _about(name) for name in protocols.names()}
        session = self._gate.session(request)
        main = board.submit(text or _example(sets), session, about, earlier, news)
        content = PageContent("Submit a job", main, "/submit", status=status)
        return self._gate.answer(request, content)


def _choice(request: web.Request, path: str = runs.PATH) -> Choice:
    at = number(request.query.get("page", "1"))
    return choosing.read(path, request.query, runs.SELECTS, at)


def number(text: str, otherwise: int = 1) -> int:
    """Read a positive number in an address; return `otherwise` for anything else."""
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
    return value or otherwise


def _given(form: Any) -> str:
    """Return a form's job: the file's content, or else the text."""
    file = form.get("file")
    raw = file.file.read() if isinstance(file, web.FileField) else b""
    if raw:
        return str(raw.decode("utf-8", "replace"))
    return str(form.get("text", "")).replace("\r\n", "\n").removeprefix("\n")


def _read(text: str) -> tuple[JobSpec, ...]:
    """Read the jobs of a file, checked without asking the parties."""
    if not text.strip():
        raise ConfigError("there is no job", todo="choose a file, or write the job into the field")
    where = {"file": "the form"}
    spec = parse(JobSpec, yaml_in(text.encode(), **where), **where)
    check(spec, **where)
    return spec.one_each()


def _example(sets: Datasets) -> str:
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


def _unknown(jobs: Sequence[JobSpec], sets: Datasets) -> Iterator[Html]:
    """Yield a sentence for each data set that no earlier job of the user has named."""
    wanted = {(party, use.dataset or "") for job in jobs for party, use in job.data.items()}
    for party, name in sorted(wanted):
        known = names(list(sets.get(party, {})))
        if known and name not in sets[party]:
            words = f"{party}: no earlier job of yours named the data set {name}, but {known}."
            yield tag("p", words, class_="warned")


def _written(spec: bytes) -> str:
    """Return an earlier job in the form of a file, without defaults."""
    raw = parse(JobSpec, json.loads(spec)).model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump(raw, sort_keys=False, allow_unicode=True)


def _about(name: str) -> str:
    """Describe a protocol by the first sentence of its package."""
    package = importlib.import_module(f"{protocols.__name__}.{name.replace('-', '_')}")
    return (package.__doc__ or "").partition("\n")[0]
