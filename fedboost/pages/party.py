"""A party's page for its owner: jobs to decide about, outgoing messages, data sets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

from aiohttp import web

from fedboost.data.outline import Outline
from fedboost.ground.disk import read_file
from fedboost.ground.errors import FedboostError, PolicyError
from fedboost.messages import job_pb2
from fedboost.messages.party_pb2 import DenyRequest, StepReply
from fedboost.pages import (
    approval,
    asking,
    choosing,
    frame,
    ledgers,
    owner,
    parts,
    records,
    under_way,
)
from fedboost.pages.approval import OwnedJobView
from fedboost.pages.asking import Asking
from fedboost.pages.audits import Audits
from fedboost.pages.coordinator import FOLLOWS_S, positive_number
from fedboost.pages.frame import NavLink, PageContent
from fedboost.pages.gate import PageGate
from fedboost.pages.owner import AuditView, JobRecords
from fedboost.pages.sessions import BrowserSession
from fedboost.pages.shapes import Shapes
from fedboost.pages.under_way import JobUnderWay
from fedboost.report.html import Html
from fedboost.runtime.ledger import signed_heads
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.ledger.rows import Amount, Head
from fedboost.runtime.ledger.rows import Row as LedgerRow
from fedboost.runtime.party.node.node import PartyNode
from fedboost.runtime.policy.judgement import signature_checker
from fedboost.runtime.policy.reading import outlined_job
from fedboost.runtime.store.store import FINAL, JobState, StoredJob
from fedboost.runtime.store.transcripts import Transcripts

PARTY_NEWS = {  # messages about finished actions, by a word in the address
    "approved": "You have approved the job.",
    "denied": "You have denied the job.",
    "audit": "The audit is running; its findings will appear below.",
    "again": "Reading the data sets again.",
}


RUNNING_STATES = (JobState.AGREED, JobState.RUNNING, JobState.PAUSED)


def party_site(node: PartyNode, file: Path | None) -> web.Application:
    """Return the application that serves a party's page; `file` holds its settings."""
    links = (
        NavLink("/", "Jobs"),
        NavLink("/running", "Running"),
        NavLink("/ledger", "Ledger"),
        NavLink("/told", "Disclosures"),
        NavLink("/data", "Data sets"),
    )
    gate = PageGate(node.config, "party", links)
    handlers = _Pages(node, gate, Audits(file))
    app = gate.guarded_application()
    app.cleanup_ctx.append(handlers.run_in_background)
    app.add_routes(
        [
            web.get("/", handlers.jobs),
            web.get("/jobs/{job}", handlers.job),
            web.get("/jobs/{job}/report", handlers.report),
            web.get("/jobs/{job}/approve", handlers.show_approve_form),
            web.post("/jobs/{job}/approve", handlers.approve),
            web.get("/jobs/{job}/deny", handlers.show_deny_form),
            web.post("/jobs/{job}/deny", handlers.deny),
            web.post("/jobs/{job}/audit", handlers.start_audit),
            web.get("/running", handlers.show_running),
            web.get(ledgers.PATH, handlers.ledger),
            web.get(ledgers.ROWS_PATH, handlers.show_ledger_rows),
            web.post("/ledger/verify", handlers.verify),
            web.get("/told", handlers.told),
            web.get("/data", handlers.data),
            web.post("/data", handlers.forget_shapes),
        ]
    )
    return app


class _Pages:
    """Handlers of pages and forms; the node checks the user's rights."""

    def __init__(self, node: PartyNode, gate: PageGate, audits: Audits) -> None:
        self._node, self._gate, self._audits = node, gate, audits
        self._shapes = Shapes()
        self._transcripts = Transcripts(node.config.store)
        self._over: dict[str, OwnedJobView] = {}  # jobs that do not change any more
        # The ledger added up to a row.
        self._summing, self._summed_to = threading.Lock(), 0
        self._sums: dict[tuple[str, ...], Amount] = {}

    async def run_in_background(self, _: web.Application) -> AsyncIterator[None]:
        """Run the background work of the handlers, and end it with them."""
        yield
        await self._audits.close()
        await self._shapes.close()

    # Jobs

    async def jobs(self, request: web.Request) -> web.Response:
        """Show every job that this party has seen."""
        self._check_user()
        seen = await asyncio.to_thread(self._every_job)
        at, news = (
            positive_number(request.query.get("page", "1")),
            PARTY_NEWS.get(request.query.get("done", "")),
        )
        main = await asyncio.to_thread(owner.jobs_page, seen, at, news or "")
        return self._gate.answer(request, PageContent("Jobs", main, "/", follows_s=FOLLOWS_S))

    async def job(self, request: web.Request) -> web.Response:
        """Show one job: its request, the policy's verdict, the messages, an audit's findings."""
        self._check_user()
        session, news = self._gate.session(request), PARTY_NEWS.get(request.query.get("done", ""))
        view = await asyncio.to_thread(self._view_of_job, request.match_info["job"])
        columns = await self._known_columns(view.owned.dataset)
        main = await asyncio.to_thread(self._job_page, view, session, news or "", columns)
        is_over = view.job.state in FINAL and self._audits.running is None
        shown = PageContent(view.owned.name, main, "/", follows_s=0.0 if is_over else FOLLOWS_S)
        return self._gate.answer(request, shown)

    async def report(self, request: web.Request) -> web.Response:
        """Return the report that a guest's daemon has written."""
        self._check_user()
        job = await asyncio.to_thread(self._node.store.job, request.match_info["job"])
        path = self._report_path(job.id)
        if not path.exists():
            raise web.HTTPNotFound
        return self._gate.report(await asyncio.to_thread(read_file, path))

    async def show_approve_form(self, request: web.Request) -> web.Response:
        """Show the outgoing messages, and ask for approval."""
        self._check_user()
        view = await asyncio.to_thread(self._view_of_job, request.match_info["job"])
        columns = await self._known_columns(view.owned.dataset)
        wants = await asyncio.to_thread(asking.read_request, self._node, view.job, columns)
        main = approval.approve_form(view, wants, self._gate.session(request))
        return self._gate.answer(request, PageContent(f"Approve {view.owned.name}?", main, "/"))

    async def approve(self, request: web.Request) -> web.Response:
        """Approve a job if its manifest is the one that was shown."""
        form, id_ = await request.post(), request.match_info["job"]
        stored = await asyncio.to_thread(self._node.store.job, id_)
        shown = stored.manifest_sha256.hex()
        if form.get("digest") != shown or form.get("read") != "yes":
            raise PolicyError(
                "the outgoing messages were not shown in this form",
                todo="open the job again",
                job=id_,
            )
        await self._node.approve(self._gate.user, job_pb2.JobId(id=id_))
        raise web.HTTPSeeOther(f"/jobs/{id_}?done=approved")

    async def show_deny_form(self, request: web.Request) -> web.Response:
        """Ask before a job is denied."""
        self._check_user()
        view = await asyncio.to_thread(self._view_of_job, request.match_info["job"])
        main = approval.deny_form(view, self._gate.session(request))
        return self._gate.answer(request, PageContent(f"Deny {view.owned.name}?", main, "/"))

    async def deny(self, request: web.Request) -> web.Response:
        """Refuse a job."""
        form, id_ = await request.post(), request.match_info["job"]
        denial = DenyRequest(id=id_, reason=str(form.get("reason", "")))
        await self._node.deny(self._gate.user, denial)
        raise web.HTTPSeeOther(f"/jobs/{id_}?done=denied")

    async def start_audit(self, request: web.Request) -> web.Response:
        """Start an audit of the job's record, in its own process."""
        self._check_user()
        job = await asyncio.to_thread(self._node.store.job, request.match_info["job"])
        self._audits.start(job.id)
        raise web.HTTPSeeOther(f"/jobs/{job.id}?done=audit#audit")

    async def show_running(self, request: web.Request) -> web.Response:
        """Show the running jobs: their steps, and their releases against the budget."""
        self._check_user()
        seen = await asyncio.to_thread(self._every_job)
        going = [view for view in seen if view.job.state in RUNNING_STATES]
        shown = [await self._under_way(view) for view in going]
        main = under_way.running_page(shown)
        content = PageContent("Running", main, "/running", follows_s=FOLLOWS_S)
        return self._gate.answer(request, content)

    async def _under_way(self, view: OwnedJobView) -> JobUnderWay:
        job = self._node.under_way.get(view.job.id)
        session = None if job is None else job.session
        stage = "" if session is None else session.protocol.name
        now = StepReply() if session is None else session.sign_of_life()
        amounts = await asyncio.to_thread(self._amounts_of_job, view.job.id)
        released = await asyncio.to_thread(self._node.spending.released_sums, view.job.id)
        entries = await asyncio.to_thread(self._node.spending.account.entries)
        noisy = records.noise_totals(entries, view.owned.dataset, self._node.config.policy)
        return JobUnderWay(view, stage, now, amounts, released, noisy)

    # Records

    async def ledger(self, request: web.Request, news: Html | str = "") -> web.Response:
        """Show the ledger, added up by job and kind."""
        self._check_user()
        at = positive_number(request.query.get("page", "1"))
        choice = choosing.read_choice(ledgers.PATH, request.query, ledgers.LEDGER_SELECTS, at)
        amounts, head = await asyncio.to_thread(self._summed_ledger)
        session = self._gate.session(request)
        main = await asyncio.to_thread(ledgers.ledger_page, amounts, choice, head, session, news)
        return self._gate.answer(request, PageContent("Ledger", main, ledgers.PATH))

    async def show_ledger_rows(self, request: web.Request) -> web.Response:
        """Show one page of the ledger's rows."""
        self._check_user()
        job, kind = (request.query.get(name, "")[:200] for name in ("job", "kind"))
        before = positive_number(request.query.get("before", "0"), otherwise=0)
        rows, head = await asyncio.to_thread(self._ledger_page, job, kind, before)
        main = ledgers.rows_page(rows, job, kind, head)
        return self._gate.answer(request, PageContent("Ledger", main, ledgers.PATH))

    async def verify(self, request: web.Request) -> web.Response:
        """Check every row's hash, the chain and the signed heads."""
        try:
            news = parts.success_note(await asyncio.to_thread(self._verification_result))
        except FedboostError as error:
            news = frame.error_box(error, "The ledger is not whole")
        return await self.ledger(request, news)

    async def told(self, request: web.Request) -> web.Response:
        """Show the accounts of jobs' releases."""
        self._check_user()
        entries = await asyncio.to_thread(self._node.spending.account.entries)
        main = records.accounts_page(entries, self._node.config.policy)
        return self._gate.answer(request, PageContent("Disclosures", main, "/told"))

    async def data(self, request: web.Request) -> web.Response:
        """Show the data sets' shapes."""
        self._check_user()
        declared = self._node.config.datasets
        shapes = {
            name: await self._shapes.outline_of(name, source) for name, source in declared.items()
        }
        main = records.datasets_page(self._node.config, shapes, self._gate.session(request))
        follows = FOLLOWS_S if None in shapes.values() else 0.0
        content = PageContent("Data sets", main, "/data", follows_s=follows)
        return self._gate.answer(request, content)

    async def forget_shapes(self, _: web.Request) -> web.Response:
        """Read the data sets again."""
        self._check_user()
        self._shapes.forget()
        raise web.HTTPSeeOther("/data?done=again")

    # Helpers; threads read files

    def _check_user(self) -> None:
        self._node.judge.owner(self._gate.user)

    def _every_job(self) -> list[OwnedJobView]:
        """Return all jobs, the newest first."""
        jobs = reversed(self._node.store.jobs())
        seen = [self._over.get(job.id) or self._read_view(job) for job in jobs]
        self._over = {view.job.id: view for view in seen if view.job.state in FINAL}
        return seen

    def _view_of_job(self, id_: str) -> OwnedJobView:
        return self._read_view(self._node.store.job(id_))

    def _read_view(self, job: StoredJob) -> OwnedJobView:
        decision = self._node.states.decision(job)
        try:
            return OwnedJobView(job, self._node.owned(job), decision)
        except FedboostError:  # a job of another version, only partly readable
            return OwnedJobView(job, outlined_job(job), decision)

    async def _known_columns(self, dataset: str) -> list[str]:
        """Return the columns of a data set; empty until it has been read in the background."""
        source = self._node.config.datasets.get(dataset)
        shape = None if source is None else await self._shapes.outline_of(dataset, source)
        return [name for name, _ in shape.columns] if isinstance(shape, Outline) else []

    def _job_page(
        self, view: OwnedJobView, session: BrowserSession, news: str, columns: list[str]
    ) -> list[object]:
        id_ = view.job.id
        wants: Asking | FedboostError
        try:
            wants = asking.read_request(self._node, view.job, columns)
        except FedboostError as error:
            wants = error
        known = JobRecords(
            wants, self._amounts_of_job(id_), self._audit_view(id_), self._report_path(id_).exists()
        )
        return owner.job_page(view, known, session, news)

    def _audit_view(self, id_: str) -> AuditView:
        failure = self._audits.failure(id_)
        try:
            findings = self._transcripts.findings(id_)
        except FedboostError:
            findings = []
            failure = failure or FedboostError(
                "the findings of the last audit cannot be read", todo="audit the job again"
            )
        has_record = any(self._transcripts.folder(id_).glob("part-*.npz"))
        can_start = self._audits.can_start and has_record
        return AuditView(findings, failure, self._audits.running, can_start)

    def _report_path(self, id_: str) -> Path:
        return self._node.store.folder / "reports" / f"{id_}.html"

    def _open_ledger(self) -> Ledger:
        """Return the ledger through a new connection: a long read must not hold up jobs."""
        return Ledger(self._node.store.database, read_only=True)

    def _summed_ledger(self) -> tuple[list[Amount], Head]:
        """Return the whole ledger added up: its rows stay, so only new ones are read again."""
        with self._summing, closing(self._open_ledger()) as ledger:
            head = ledger.head()
            for amount in ledger.amounts(after=self._summed_to, last=head.n):
                known = self._sums.get(amount.of)
                self._sums[amount.of] = amount if known is None else known.plus(amount)
            self._summed_to = head.n
            return list(self._sums.values()), head

    def _amounts_of_job(self, job: str) -> list[Amount]:
        with closing(self._open_ledger()) as ledger:
            return ledger.amounts(job)

    def _ledger_page(self, job: str, kind: str, before: int) -> tuple[list[LedgerRow], Head]:
        with closing(self._open_ledger()) as ledger:
            head = ledger.head()
            last = before or head.n + 1
            return ledger.latest_rows(job, kind, last, ledgers.ROWS_PER_PAGE), head

    def _verification_result(self) -> str:
        config = self._node.config
        with closing(self._open_ledger()) as ledger:
            head = signed_heads.verify_ledger(ledger, config.name, signature_checker(config))
            signed = ledger.kept()
        n_ours = sum(signature.party == config.name for signature in signed)
        return (
            f"The ledger is whole: {head.n} rows. Signed heads: {n_ours} of our own, "
            f"{len(signed) - n_ours} of our peers."
        )
