"""The coordinator's page: its jobs, how each goes on, and what its user may do with them."""

from __future__ import annotations

import asyncio
import importlib
import json
from typing import Any

import yaml
from aiohttp import web

from fedboost import protocols
from fedboost.errors import ConfigError, FedboostError
from fedboost.job import JobSpec
from fedboost.messages import job_pb2
from fedboost.pages import board, frame, parts
from fedboost.pages.board import May
from fedboost.pages.following import Followed
from fedboost.pages.frame import NavLink, PageContent, Site
from fedboost.pages.gate import REPORT_POLICY, PageGate
from fedboost.pages.sessions import Sessions
from fedboost.pages.token import page_of, token
from fedboost.report import page as report
from fedboost.report.html import Html
from fedboost.runtime.coordinator.node import CoordinatorNode
from fedboost.runtime.jobs.submitted import check, read_spec
from fedboost.runtime.store.store import FINAL, OVER
from fedboost.runtime.transport.identity import Peer
from fedboost.settings import parse, yaml_in

FOLLOWS_S = 2.0  # between two looks at a page
SAID = {  # what was done, by a word in the address
    "submitted": "The job is submitted.",
    "all": "The jobs of all guests are submitted.",
    "resumed": "The job goes on.",
    "cancelled": "The job is cancelled.",
}
EXAMPLE = """\
name: credit
protocol: secureboost
parties: {guest: bank, hosts: [telco]}
data:
  bank:  {dataset: credit, label: y}
  telco: {dataset: credit}
validation: {fraction: 0.3, seed: 7}
params:
  objective: binary:logistic
  n_estimators: 25
  max_depth: 5
"""


def coordinator_site(node: CoordinatorNode) -> web.Application:
    """The application that serves the page of a coordinator's settings."""
    config, page = node.config, page_of(node.config)
    links = (NavLink("/", "Jobs"), NavLink("/submit", "Submit"))
    site = Site("coordinator", config.name, page.user, links)
    sessions = Sessions(lambda: token(config.store), 3600 * page.session_hours)
    gate = PageGate(config, site, sessions)
    own = _Pages(node, gate, Peer("user", page.user, fingerprint="", serial=0))
    app = gate.application()
    app.add_routes(
        [
            web.get("/", own.jobs),
            web.get("/submit", own.submit_form),
            web.post("/submit", own.submit),
            web.get("/jobs/{job}", own.job),
            web.get("/jobs/{job}/report", own.report),
            web.get("/jobs/{job}/cancel", own.cancel_form),
            web.post("/jobs/{job}/cancel", own.cancel),
            web.post("/jobs/{job}/resume", own.resume),
        ]
    )
    return app


class _Pages:
    """The handlers of pages and forms; the node judges what the user may do."""

    def __init__(self, node: CoordinatorNode, gate: PageGate, user: Peer) -> None:
        self._node, self._gate, self._user = node, gate, user
        self._followed = Followed(node, user)

    @property
    def _may(self) -> May:
        users, name = self._node.config.users, self._user.name
        return May(submit=name in users.submit, cancel=name in users.cancel)

    async def jobs(self, request: web.Request) -> web.Response:
        """Show all jobs."""
        every = await self._followed.jobs()
        active = [await self._followed.status(job) for job in every if job.state not in OVER]
        ended = [job for job in every if job.state in OVER]
        at = number(request.query.get("page", "1"))
        said = SAID.get(request.query.get("done", ""), "")
        main = await asyncio.to_thread(board.board, active, ended, at, self._may, said)
        return self._gate.answer(request, PageContent("Jobs", main, "/", follows_s=FOLLOWS_S))

    async def job(self, request: web.Request) -> web.Response:
        """Show one job."""
        journal = await self._followed.journal(request.match_info["job"])
        session, said = self._gate.session(request), SAID.get(request.query.get("done", ""), "")
        main = await asyncio.to_thread(board.job, journal, session, self._may, said)
        follows = 0.0 if journal.status.state in FINAL else FOLLOWS_S
        return self._gate.answer(
            request, PageContent(journal.status.name, main, "/", follows_s=follows)
        )

    async def report(self, request: web.Request) -> web.Response:
        """The job's whole report, as `fedboost job report` writes it."""
        journal = await self._followed.journal(request.match_info["job"])
        text = await asyncio.to_thread(report.render, journal)
        headers = {"Content-Security-Policy": REPORT_POLICY}
        return web.Response(text=text, content_type="text/html", headers=headers)

    async def resume(self, request: web.Request) -> web.Response:
        """Carries a job on."""
        id_ = request.match_info["job"]
        await self._node.resume(self._user, job_pb2.JobId(id=id_))
        raise web.HTTPSeeOther(f"/jobs/{id_}?done=resumed")

    async def cancel_form(self, request: web.Request) -> web.Response:
        """Asks before a job is cancelled."""
        journal = await self._followed.journal(request.match_info["job"])
        main = board.cancel(journal.status, self._gate.session(request))
        return self._gate.answer(request, PageContent(f"Cancel {journal.status.name}?", main, "/"))

    async def cancel(self, request: web.Request) -> web.Response:
        """Ends a job for good."""
        id_ = request.match_info["job"]
        await self._node.cancel(self._user, job_pb2.JobId(id=id_))
        raise web.HTTPSeeOther(f"/jobs/{id_}?done=cancelled")

    # Handing in

    async def submit_form(self, request: web.Request) -> web.Response:
        """The form, with an example or an earlier job in it."""
        text, earlier = EXAMPLE, request.query.get("from")
        if earlier is not None:
            journal = await self._followed.journal(earlier)
            text = await asyncio.to_thread(_written, journal.spec)
        return self._form(request, text)

    async def submit(self, request: web.Request) -> web.Response:
        """Checks the job, and hands it in unless it was only to be checked."""
        form = await request.post()
        text = await asyncio.to_thread(_given, form)
        try:
            jobs = await asyncio.to_thread(_read, text)
            if form.get("act") == "check":
                self._node.config.users.judge("submit", self._user.name)
                return self._form(request, text, said=parts.note(_sound(jobs)))
            ids = await self._handed_in(jobs, str(form.get("key", "")))
        except FedboostError as error:
            said = frame.refusal(error, "The job was not submitted")
            return self._form(request, text, said=said, status=422)
        there = f"/jobs/{ids[0]}?done=submitted" if len(ids) == 1 else "/?done=all"
        raise web.HTTPSeeOther(there)

    async def _handed_in(self, jobs: tuple[JobSpec, ...], key: str) -> list[str]:
        ids: list[str] = []
        for one in jobs:
            try:
                spec = read_spec(one.model_dump_json().encode())
                ids.append((await self._node.submit_here(self._user, spec, key)).id)
            except FedboostError as error:
                raise (error.at(handed_in=", ".join(ids)) if ids else error) from None
        return ids

    def _form(
        self, request: web.Request, text: str, said: Html | str = "", status: int = 200
    ) -> web.Response:
        known = {name: _about(name) for name in protocols.names()}
        parties = list(self._node.config.parties)
        main = board.submit(text, self._gate.session(request), known, parties, said)
        return self._gate.answer(
            request, PageContent("Submit a job", main, "/submit", status=status)
        )


def number(text: str, otherwise: int = 1) -> int:
    """A positive number in an address; `otherwise` for anything else."""
    found = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
    return found or otherwise


def _given(form: Any) -> str:
    """Return a form's job: the file's content, or else the text."""
    file = form.get("file")
    raw = file.file.read() if isinstance(file, web.FileField) else b""
    if raw:
        return str(raw.decode("utf-8", "replace"))
    return str(form.get("text", "")).replace("\r\n", "\n").removeprefix("\n")


def _read(text: str) -> tuple[JobSpec, ...]:
    """The jobs of a file, checked as far as one can without the parties."""
    if not text.strip():
        raise ConfigError("there is no job", todo="choose a file, or write it into the field")
    where = {"file": "the form"}
    spec = parse(JobSpec, yaml_in(text.encode(), **where), **where)
    check(spec, **where)
    return spec.one_each()


def _sound(jobs: tuple[JobSpec, ...]) -> str:
    named = ", ".join(job.name for job in jobs)
    return f"{named}: sound. Whether the parties allow it, they say once it is submitted."


def _written(spec: bytes) -> str:
    """An earlier job as a file says it, without defaults."""
    raw = parse(JobSpec, json.loads(spec)).model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump(raw, sort_keys=False, allow_unicode=True)


def _about(name: str) -> str:
    """A protocol in a sentence, that of its own package."""
    package = importlib.import_module(f"{protocols.__name__}.{name.replace('-', '_')}")
    return (package.__doc__ or "").partition("\n")[0]
