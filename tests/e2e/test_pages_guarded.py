"""What a page refuses: strangers' hosts and forms, guesses, large bodies, words that are code."""

import asyncio
import re
import socket
import ssl
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import ClientError, ClientResponse, ClientSession
from aiohttp.test_utils import TestClient, TestServer

from fedboost.ground.workers import Serial
from fedboost.pages import gate, token
from fedboost.pages.coordinator import coordinator_site
from fedboost.pages.party import party_site
from fedboost.pages.serving import coordinator_companion, party_companion
from fedboost.runtime.cluster import local
from fedboost.runtime.cluster.cluster import _free_ports
from fedboost.runtime.cluster.local import COORDINATOR, USER
from fedboost.runtime.config.page import Page
from fedboost.runtime.store.store import JobState
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.certificates import Term
from tests.e2e import world

pytestmark = pytest.mark.e2e
EVIL = """<script>alert(1)</script>"><img src=x onerror=alert(1)>"""
PAGE = Page(listen="127.0.0.1:7180", user=USER)


def field(name: str, text: str) -> str:
    """What a form on a page sends along."""
    found = re.search(f'name="{name}" value="([^"]+)"', text)
    assert found is not None
    return found[1]


@dataclass
class Door:
    """One page, and whoever knocks."""

    client: TestClient[Any, Any]
    node: Any

    async def get(self, path: str, **headers: str) -> ClientResponse:
        return await self.client.get(path, headers=headers, allow_redirects=False)

    async def post(self, path: str, form: dict[str, str], **headers: str) -> ClientResponse:
        own = {"Origin": str(self.client.make_url("")).rstrip("/"), **headers}
        return await self.client.post(path, data=form, headers=own, allow_redirects=False)

    async def sign_in(self, given: str | None = None, **headers: str) -> ClientResponse:
        own = token.read_token(self.node.config.store) if given is None else given
        return await self.post("/sign-in", {"token": own}, **headers)

    async def csrf(self, path: str = "/") -> str:
        return field("csrf", await (await self.get(path)).text())


@asynccontextmanager
async def town(folder):
    """Both pages of a cluster in this process; `doors` by name."""
    table = world.write(folder / "bank.parquet", world.toy(label=True))
    other = world.write(folder / "telco.parquet", world.toy(columns=3))
    spec = world.spec(world.job(hosts=("telco",)))
    sources = {"bank": table, "telco": other}
    async with local.open_cluster(folder / "c", spec, sources, Serial()) as cluster:
        nodes: dict[str, Any] = {
            COORDINATOR: cluster.coordinator,
            "telco": cluster.parties["telco"],
        }
        doors = {}
        for name, node in nodes.items():
            node.config = node.config.model_copy(update={"page": PAGE})
            app = coordinator_site(node) if name == COORDINATOR else party_site(node, None)
            doors[name] = Door(TestClient(TestServer(app)), node)
            await doors[name].client.start_server()
        try:
            yield cluster, doors
        finally:
            for door in doors.values():
                await door.client.close()


@pytest.mark.parametrize("name", [COORDINATOR, "telco"])
async def test_every_page_and_form_asks_whoever_is_not_signed_in_to_do_so(tmp_path, name):
    async with town(tmp_path) as (_, doors):
        door = doors[name]
        routes = {
            (route.method, route.resource.canonical)
            for route in door.client.server.app.router.routes()
        }
        assert len(routes) > 12
        for method, path in routes:
            if method == "HEAD" or path in ("/sign-in", "/static/{name}"):
                continue
            there = path.replace("{job}", "any")
            answer = await (door.get(there) if method == "GET" else door.post(there, {}))
            assert answer.status == 303, there
            assert answer.headers["Location"].startswith("/sign-in"), there


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:7180",
        "127.0.0.1.evil.example",
        "localhost.:80",
        "",
        "[::1",
        "@",
    ],
)
async def test_a_name_that_a_stranger_points_at_this_machine_is_refused(tmp_path, host):
    async with town(tmp_path) as (_, doors):
        for door in doors.values():
            await door.sign_in()
            for path in ("/", "/sign-in", "/static/pages.js"):
                answer = await door.get(path, Host=host)
                assert answer.status in (400, 403), (path, host)


@pytest.mark.parametrize("host", ["localhost:9000", "LOCALHOST:9000", "[::1]:80", "127.0.0.1"])
async def test_the_page_is_there_through_a_tunnel_from_another_port(tmp_path, host):
    async with town(tmp_path) as (_, doors):
        door = doors[COORDINATOR]
        assert (await door.get("/sign-in", Host=host)).status == 200
        answer = await door.sign_in(Host=host, Origin=f"http://{host}")
        assert answer.status == 303


async def test_a_form_of_another_site_does_nothing(tmp_path):
    async with town(tmp_path) as (cluster, doors):
        door = doors[COORDINATOR]
        await door.sign_in()
        csrf = await door.csrf("/submit")
        text = world.spec(world.echo(hosts=("telco",))).model_dump_json()
        form = {"text": text, "act": "submit"}
        good = {**form, "csrf": csrf}
        for given, headers in (
            (good, {"Origin": "http://evil.example"}),
            (good, {"Origin": "null"}),
            (good, {"Origin": "http://localhost:1"}),
            (good, {"Sec-Fetch-Site": "cross-site"}),
            (good, {"Sec-Fetch-Site": "same-site"}),
            (form, {}),
            ({**form, "csrf": csrf[:-1]}, {}),
            ({**form, "csrf": ""}, {}),
        ):
            answer = await door.post("/submit", given, **headers)
            assert answer.status == 403, headers
        assert cluster.coordinator.store.jobs() == []
        assert (await door.post("/submit", good)).status == 303
        assert len(cluster.coordinator.store.jobs()) == 1


async def test_a_form_that_is_sent_twice_is_one_job(tmp_path):
    async with town(tmp_path) as (cluster, doors):
        door = doors[COORDINATOR]
        await door.sign_in()
        page = await (await door.get("/submit")).text()
        text = world.spec(world.echo(hosts=("telco",))).model_dump_json()
        form = {"text": text, "act": "submit", **{n: field(n, page) for n in ("csrf", "key")}}
        there = [(await door.post("/submit", form)).headers["Location"] for _ in range(2)]
        assert there[0] == there[1]
        assert len(cluster.coordinator.store.jobs()) == 1
        form["key"] = field("key", await (await door.get("/submit")).text())
        await door.post("/submit", form)
        assert len(cluster.coordinator.store.jobs()) == 2


async def test_ten_guesses_a_minute_and_no_more(tmp_path):
    async with town(tmp_path) as (_, doors):
        door, other = doors["telco"], doors[COORDINATOR]
        assert (await door.sign_in()).status == 303
        assert (await door.sign_in(token.read_token(other.node.config.store))).status == 403
        for guess in range(9):
            assert (await door.sign_in(f"guess {guess}")).status == 403
        answer = await door.sign_in("one guess more")
        assert (answer.status, answer.headers["Retry-After"]) == (429, "60")
        assert (await door.get("/")).status == 200, "whoever has signed in is not locked out"
        assert (await door.sign_in()).status == 303, "nor whoever has the token"


async def test_the_cookie_is_for_the_page_alone(tmp_path):
    async with town(tmp_path) as (_, doors):
        for name, door in doors.items():
            said = (await door.sign_in()).headers["Set-Cookie"]
            assert re.match(r"fedboost-(coordinator|party)-[a-z]+=[\w-]{43};", said), name
            for part in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"):
                assert part in said
            assert token.read_token(door.node.config.store) not in said


@pytest.mark.parametrize("there", ["//evil.example", "https://evil.example", "/\\evil", "x", ""])
async def test_signing_in_leads_to_no_other_site(tmp_path, there):
    async with town(tmp_path) as (_, doors):
        door = doors["telco"]
        own = token.read_token(door.node.config.store)
        answer = await door.post("/sign-in", {"token": own, "next": there})
        assert answer.headers["Location"] == "/"


async def test_every_answer_has_the_headers_that_keep_others_out(tmp_path):
    async with town(tmp_path) as (_, doors):
        door = doors["telco"]
        await door.sign_in()
        for path in ("/", "/ledger", "/nowhere", "/jobs/none", "/sign-in", "/static/pages.css"):
            answer = await door.get(path)
            for header in gate.HEADERS:
                assert header in answer.headers, (path, header)
            assert "unsafe" not in answer.headers["Content-Security-Policy"]
            kept = answer.headers["Cache-Control"]
            assert kept == "no-store" or path.startswith("/static/")


@pytest.mark.parametrize(
    "path", ["/static/..%2Fgate.py", "/static/../gate.py", "/static/gate.py", "/jobs/..%2F..%2Fx"]
)
async def test_no_path_leads_to_a_file_that_is_none_of_the_pages(tmp_path, path):
    async with town(tmp_path) as (_, doors):
        door = doors["telco"]
        await door.sign_in()
        assert (await door.get(path)).status == 404


async def test_what_others_have_written_is_shown_as_text(tmp_path):
    async with town(tmp_path) as (cluster, doors):
        id_ = await _run(cluster)
        for node in (doors[COORDINATOR].node, doors["telco"].node):
            with node.store.transaction() as sql:
                sql.execute("UPDATE jobs SET name = ?, reason = ?", (EVIL, EVIL))
        for door in doors.values():
            await door.sign_in()
            for path in ("/", f"/jobs/{id_}", f"/ledger?job={EVIL}", f"/?done={EVIL}"):
                text = await (await door.get(path)).text()
                assert "<script>alert" not in text, path
                assert "<img" not in text, path
        answer = await doors[COORDINATOR].get("/submit")
        csrf = await doors[COORDINATOR].csrf("/submit")
        for evil in (f"</textarea>{EVIL}", f"name: '{EVIL}'", f"{EVIL}: 1"):
            form = {"csrf": csrf, "text": evil, "act": "submit"}
            answer = await doors[COORDINATOR].post("/submit", form)
            text = await answer.text()
            assert answer.status == 422
            assert "<script>alert" not in text
            assert "<img" not in text


async def _run(cluster) -> str:
    """A small job from its start to its end; gives its id."""
    status = (await cluster.run(world.spec(world.job(hosts=("telco",))))).status
    assert status.state == "finished"
    return str(status.id)


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(tmp_path):
    async with town(tmp_path) as (_, doors):
        door = doors[COORDINATOR]
        await door.sign_in()
        form = {"csrf": await door.csrf("/submit"), "text": "x" * (gate.BODY_BYTES_MAX + 1)}
        assert (await door.post("/submit", form)).status == 413
        assert (await door.get("/")).status == 200


async def test_a_page_that_fails_says_so_and_the_node_goes_on(tmp_path, monkeypatch, caplog):
    async with town(tmp_path) as (cluster, doors):
        door = doors[COORDINATOR]
        await door.sign_in()

        def broken(*_):
            raise ValueError("secret words")

        monkeypatch.setattr(cluster.coordinator.store, "newest_jobs", broken)
        answer = await door.get("/")
        assert answer.status == 500
        text = await answer.text()
        assert "the page failed unexpectedly" in text
        assert "secret words" not in text
        monkeypatch.undo()
        assert (await door.get("/")).status == 200
    assert "secret words" in caplog.text


async def test_a_token_that_others_could_read_closes_the_page(tmp_path):
    async with town(tmp_path) as (_, doors):
        door = doors["telco"]
        await door.sign_in()
        (door.node.config.store / token.SIGN_IN_FILE).chmod(0o644)
        for answer in (await door.get("/"), await door.sign_in("guess")):
            assert answer.status == 500
            assert "could be read by others" in await answer.text()
        token.renew_token(door.node.config.store)
        assert (await door.get("/")).status == 303
        assert (await door.sign_in()).status == 303


async def test_the_page_may_do_what_its_user_may_and_no_more(tmp_path):
    async with town(tmp_path) as (cluster, doors):
        door, house = doors[COORDINATOR], doors["telco"]
        await door.sign_in()
        csrf = await door.csrf()
        users = door.node.config.users.model_copy(update={"submit": (), "cancel": ()})
        door.node.config = door.node.config.model_copy(update={"users": users})
        text = world.spec(world.echo(hosts=("telco",))).model_dump_json()
        for act in ("check", "submit"):
            answer = await door.post("/submit", {"csrf": csrf, "text": text, "act": act})
            assert "user may not submit jobs here" in await answer.text()
        assert "Submit a job" not in await (await door.get("/")).text()
        assert cluster.coordinator.store.jobs() == []
        await house.sign_in()
        policy = house.node.config.policy.model_copy(update={"approvers": ("olga",)})
        house.node.config = house.node.config.model_copy(update={"policy": policy})
        house.node.judge.config = house.node.config
        for path in ("/", "/ledger", "/told", "/data"):
            answer = await house.get(path)
            assert answer.status == 403, path
            assert "approvals by the user user" in await answer.text()


async def test_only_the_job_that_was_shown_is_approved(tmp_path):
    async with town(tmp_path) as (cluster, doors):
        house = doors["telco"]
        policy = house.node.config.policy.model_copy(update={"approve": "always"})
        house.node.config = house.node.config.model_copy(update={"policy": policy})
        house.node.judge.config = house.node.config
        running = asyncio.create_task(_run(cluster))
        while not house.node.store.jobs(JobState.WAITING):
            await asyncio.sleep(0.01)
        id_ = house.node.store.jobs()[0].id
        await house.sign_in()
        text = await (await house.get(f"/jobs/{id_}/approve")).text()
        digest, csrf = field("digest", text), field("csrf", text)
        for form in ({}, {"digest": digest}, {"read": "yes"}, {"read": "yes", "digest": "0" * 64}):
            answer = await house.post(f"/jobs/{id_}/approve", {"csrf": csrf, **form})
            assert answer.status == 403
        assert house.node.states.decision(house.node.store.job(id_)) is None
        good = {"csrf": csrf, "read": "yes", "digest": digest}
        assert (await house.post(f"/jobs/{id_}/approve", good)).status == 303
        assert await running == id_
        late = await house.post(f"/jobs/{id_}/approve", good)
        assert late.status == 409


async def test_an_owner_reads_what_would_leave_and_what_the_policy_says_of_it(tmp_path):
    async with town(tmp_path) as (cluster, doors):
        id_ = await _run(cluster)
        house = doors["telco"]
        await house.sign_in()
        text = await (await house.get(f"/jobs/{id_}")).text()
        for words in ("Your policy allows this job", "CandidateSums", "plain hides nothing"):
            assert words in text
        assert "in the clear" in text
        strict = house.node.config.policy.model_copy(update={"allow_insecure": False})
        house.node.config = house.node.config.model_copy(update={"policy": strict})
        house.node.judge.config = house.node.config
        text = await (await house.get(f"/jobs/{id_}")).text()
        assert "Your policy refuses this job" in text
        assert text.count("✗ refused") == 1
        assert "✓ allowed" not in text


async def test_a_look_at_a_page_that_has_not_changed_costs_no_page(tmp_path, monkeypatch):
    async with town(tmp_path) as (cluster, doors):
        id_ = await _run(cluster)
        while not cluster.coordinator.attempts.is_settled(id_):
            await asyncio.sleep(0.01)
        for door in doors.values():
            await door.sign_in()
            if door is doors["telco"]:  # a job's page shows the columns of a table once it is read
                await _read_shapes(door)
            for path in ("/", f"/jobs/{id_}"):
                mark = (await door.get(path)).headers["ETag"]
                for later_s in (0, 90):  # the time that has passed is no change
                    with monkeypatch.context() as patch:
                        patch.setattr(time, "time", lambda s=later_s, now=time.time: now() + s)
                        answer = await door.get(path, **{"If-None-Match": mark})
                    assert (answer.status, await answer.read()) == (304, b""), (path, later_s)


async def _read_shapes(house: Door) -> str:
    """The page of a party's data sets, once they have been read in the background."""
    while "reading …" in (text := await (await house.get("/data")).text()):
        await asyncio.sleep(0.01)
    return text


async def test_no_cell_of_a_table_is_on_any_page(tmp_path):
    async with town(tmp_path) as (cluster, doors):
        id_ = await _run(cluster)
        house = doors["telco"]
        await house.sign_in()
        text = await _read_shapes(house)
        assert "x2" in text
        assert ">60<" in text
        for path in ("/data", f"/jobs/{id_}", "/ledger", "/told"):
            text = await (await house.get(path)).text()
            for row in world.toy(columns=3).to_pylist()[:20]:
                assert not any(f"{value:.4f}"[:6] in text for k, value in row.items() if k != "id")


# As it listens


def trusting(cluster) -> ssl.SSLContext:
    """A client that trusts the cluster's CA, under whatever name."""
    context = ssl.create_default_context(cafile=str(cluster.parties["telco"].config.tls.ca))
    context.check_hostname = False
    return context


async def test_a_page_for_other_machines_is_served_by_tls_also_with_a_new_certificate(tmp_path):
    async with town(tmp_path) as (cluster, doors):
        node = doors["telco"].node
        port = _free_ports(1)[0]
        page = PAGE.model_copy(update={"listen": f"127.0.0.1:{port}", "allow_remote": True})
        config = node.config = node.config.model_copy(update={"page": page})
        address = token.page_address(config)
        assert address == f"https://127.0.0.1:{port}"
        async with party_companion(config)(node):
            for _ in range(2):
                seen = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
                assert seen == config.tls.cert.read_text()
                form, headers = {"token": token.read_token(config.store)}, {"Origin": address}
                how: dict[str, Any] = {"ssl": trusting(cluster), "allow_redirects": False}
                async with (
                    ClientSession(headers=headers) as session,
                    session.post(f"{address}/sign-in", data=form, **how) as answer,
                ):
                    said = answer.headers["Set-Cookie"]
                assert said.startswith("__Host-fedboost-party-telco=")
                assert "Secure" in said
                authority.rotate_certificates(
                    config.tls.ca.parent, ["telco"], Term(datetime.now(UTC))
                )
            async with ClientSession() as session:
                with pytest.raises(ClientError):
                    await session.get(address.replace("https", "http"))


async def test_a_daemon_whose_page_has_no_port_serves_on(tmp_path, caplog):
    async with town(tmp_path) as (cluster, doors):
        node = doors[COORDINATOR].node
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            page = PAGE.model_copy(update={"listen": f"127.0.0.1:{port}"})
            node.config = node.config.model_copy(update={"page": page})
            async with coordinator_companion(node.config)(node):
                await _run(cluster)
    assert "coordinator coordinator serves no page" in caplog.text
