"""People sign in by a provider: real tokens let those in who have a role, and nobody else."""

import asyncio
import logging
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestClient, TestServer

from fedboost.ground.errors import ConfigError, UnreachableError
from fedboost.ground.settings import parse_settings
from fedboost.pages import oidc
from fedboost.pages.coordinator import coordinator_site
from fedboost.pages.oidc import OidcProvider
from fedboost.pages.sessions import SignInRefusedError
from fedboost.runtime.cluster.local import USER
from fedboost.runtime.config.daemons import CoordinatorConfig, Users
from fedboost.runtime.config.page import Oidc, Page
from fedboost.runtime.coordinator.node import CoordinatorNode
from fedboost.runtime.store.store import Store
from fedboost.runtime.transport.addresses import PinnedAddress
from tests.attacks.test_border_approval import JOB

mock: Any = pytest.importorskip("oidc_provider_mock", reason="pip install oidc-provider-mock")
pytestmark = pytest.mark.filterwarnings("ignore")
BACK = "http://127.0.0.1/sign-in/oidc/back"
SECRET = "a secret of the client"


@pytest.fixture(scope="module")
def issuer():
    users = [
        mock.User(sub="ana", claims={"groups": ["trainers", "others"]}),
        mock.User(sub="rea", claims={"groups": ["readers"]}),
        mock.User(sub="eve", claims={"groups": ["others"]}),
    ]
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with mock.run_server_in_thread(user_claims=users, require_nonce=True) as server:
        yield f"http://localhost:{server.server_port}"


def settings(issuer, **changes):
    said = {
        "issuer": issuer,
        "client_id": "fedboost",
        "client_secret": SECRET,
        "roles": {USER: ["trainers"], "reader": ["readers", "auditors"]},
    }
    return parse_settings(Oidc, {**said, **changes})


async def allowed(address, sub):
    """Whoever signs in at the provider; what it has the browser bring back."""
    async with (
        ClientSession() as browser,
        browser.post(address, data={"sub": sub}, allow_redirects=False) as reply,
    ):
        assert reply.status == 302, await reply.text()
        query = parse_qs(urlsplit(reply.headers["Location"]).query)
    return {name: values[0] for name, values in query.items()}


async def test_a_claim_becomes_a_role_and_other_people_stay_outside(issuer):
    provider = OidcProvider(settings(issuer))
    for sub, role in (("ana", USER), ("rea", "reader")):
        address, binding = await provider.begin(BACK, "/runs")
        query = await allowed(address, sub)
        assert await provider.end(query, binding) == (role, "/runs")
        with pytest.raises(SignInRefusedError, match="not started this sign-in"):
            await provider.end(query, binding)  # a code is good once
    for sub in ("eve", "somebody"):
        address, binding = await provider.begin(BACK, "/")
        with pytest.raises(SignInRefusedError, match="no role here"):
            await provider.end(await allowed(address, sub), binding)


async def test_the_question_holds_a_challenge_a_state_and_a_nonce_and_no_secret(issuer):
    provider = OidcProvider(settings(issuer, scopes=["groups"]))
    address, binding = await provider.begin(BACK, "/")
    asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    flow = provider._flows[asked["state"]]
    assert asked["code_challenge_method"] == "S256"
    assert (asked["scope"], asked["redirect_uri"]) == ("openid groups", BACK)
    assert asked["nonce"] == flow.nonce != flow.verifier
    for secret in (SECRET, binding, flow.verifier):
        assert secret not in address
    assert SECRET not in repr(provider._settings)


async def test_an_answer_counts_for_the_browser_that_asked_in_time_and_for_no_other(issuer):
    provider = OidcProvider(settings(issuer))
    address, _ = await provider.begin(BACK, "/")
    query = await allowed(address, "ana")
    with pytest.raises(SignInRefusedError, match="not started this sign-in"):
        await provider.end(query, "another browser's")
    address, binding = await provider.begin(BACK, "/")
    state = parse_qs(urlsplit(address).query)["state"][0]
    with pytest.raises(SignInRefusedError, match="did not let you in"):
        await provider.end({"state": state, "error": "access_denied"}, binding)
    address, binding = await provider.begin(BACK, "/")
    query = await allowed(address, "ana") | {"iss": "https://evil.example"}
    with pytest.raises(SignInRefusedError, match="another provider"):
        await provider.end(query, binding)
    address, binding = await provider.begin(BACK, "/")
    query = await allowed(address, "ana")
    provider._clock = lambda: 1e12
    with pytest.raises(SignInRefusedError, match="has expired"):
        await provider.end(query, binding)
    provider._clock = lambda: 0.0
    for _ in range(oidc.FLOWS_MAX + 2):
        await provider.begin(BACK, "/")
    assert len(provider._flows) == oidc.FLOWS_MAX


async def test_a_token_of_another_sign_in_client_issuer_or_time_is_refused(issuer):
    async def ended(provider, change):
        address, binding = await provider.begin(BACK, "/")
        query = await allowed(address, "ana")
        state = query["state"]
        provider._flows[state] = change(provider._flows[state])
        return await provider.end(query, binding)

    provider = OidcProvider(settings(issuer))
    with pytest.raises(SignInRefusedError, match="another sign-in"):
        await ended(provider, lambda flow: replace(flow, nonce="another"))
    for key, value in (("client_id", "another"), ("issuer", "http://localhost:1")):
        own = provider._settings
        changed = own.model_copy(update={key: value})

        def switched(flow, changed=changed):
            provider._settings = changed
            return flow

        with pytest.raises(SignInRefusedError) as refused:
            await ended(provider, switched)
        assert "token" in refused.value.what
        provider._settings = own


async def test_an_expired_token_and_one_signed_by_another_key_are_refused(issuer):
    provider = OidcProvider(settings(issuer))
    own = provider._jwt
    forged = own.encode({"iss": issuer, "aud": "fedboost"}, "x" * 64, algorithm="HS256")
    with pytest.raises(SignInRefusedError, match="not good"):
        await provider._verified_claims(forged)  # signed with a secret that others may know
    with pytest.raises(SignInRefusedError, match="no key"):
        await provider._key("another")
    looked = provider._looked
    with pytest.raises(SignInRefusedError, match="no key"):
        await provider._key("another")  # so soon, the provider is not asked again
    assert provider._looked == looked
    with mock.run_server_in_thread(access_token_max_age=timedelta(seconds=-3600)) as server:
        late = OidcProvider(settings(f"http://localhost:{server.server_port}"))
        address, binding = await late.begin(BACK, "/")
        with pytest.raises(SignInRefusedError, match="not good"):
            await late.end(await allowed(address, "ana"), binding)


async def test_a_provider_that_is_gone_or_calls_itself_otherwise_is_said_to_be(issuer):
    with pytest.raises(UnreachableError, match="does not answer"):
        await OidcProvider(settings("http://localhost:1")).begin(BACK, "/")
    with pytest.raises(ConfigError, match="another issuer in its metadata"):
        await OidcProvider(settings(f"{issuer}/")).begin(BACK, "/")


@pytest.mark.parametrize("address", ["http://idp.example", "ftp://x", "https://x?y", "x", "https://[",
                                     "https://"])  # fmt: skip
def test_an_issuer_is_an_https_address(address):
    with pytest.raises(ConfigError, match="no issuer"):
        settings(address)


def test_without_its_package_the_page_says_what_to_install(issuer, monkeypatch):
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(ConfigError, match="not installed"):
        OidcProvider(settings(issuer))


# The whole way


@asynccontextmanager
async def door(folder, issuer):
    """A coordinator's page whose users sign in by the provider."""
    page = Page(listen="127.0.0.1:7180", user=USER, oidc=settings(issuer))
    config = CoordinatorConfig(
        name="coord", listen="127.0.0.1:9", insecure_loopback=True, store=folder / "store",
        parties={"bank": PinnedAddress(address="127.0.0.1:9")}, page=page,
        users=Users(read=(USER, "reader"), submit=(USER,)),
    )  # fmt: skip
    with Store(config.store, "coordinator coord") as store:
        node = CoordinatorNode(config, lambda: None, store, lambda _: None)  # type: ignore[arg-type, return-value]
        client = TestClient(TestServer(coordinator_site(node)))
        await client.start_server()
        try:
            yield client
        finally:
            await client.close()
            await node.close()


async def signed_in(client, sub):
    sign_in = await client.get("/sign-in?next=/submit")
    assert "/sign-in/oidc?next=" in await sign_in.text()
    sent = await client.get("/sign-in/oidc?next=/submit", allow_redirects=False)
    assert sent.status == 303
    query = await allowed(sent.headers["Location"], sub)
    return await client.get("/sign-in/oidc/back", params=query)


@pytest.mark.parametrize("sub", ["ana", "rea", "eve"])
def test_a_page_acts_in_the_name_of_each_session_s_role(tmp_path, issuer, sub):
    async def test():
        async with door(tmp_path, issuer) as client:
            back = await signed_in(client, sub)
            if sub == "eve":
                assert back.status == 403
                assert (await client.get("/", allow_redirects=False)).status == 303
                return
            assert back.headers["Refresh"] == "0; url=/submit"
            jobs = await client.get("/", allow_redirects=False)
            assert jobs.status == 200
            assert (USER if sub == "ana" else "reader") in await jobs.text()
            form = await (await client.get("/submit")).text()
            hidden = {
                name: form.split(f'name="{name}" value="')[1].partition('"')[0]
                for name in ("csrf", "key")
            }
            said = {**hidden, "text": JOB.model_dump_json(exclude_none=True), "act": "check"}
            origin = str(client.make_url("")).rstrip("/")
            submitted = await client.post("/submit", data=said, headers={"Origin": origin})
            may_not = "reader may not submit jobs here" in await submitted.text()
            assert may_not == (sub == "rea")

    asyncio.run(test())


def test_roles_are_names_that_may_read(issuer):
    said = {
        "name": "coord", "listen": "127.0.0.1:9", "insecure_loopback": True, "store": "x",
        "parties": {"bank": PinnedAddress(address="127.0.0.1:9")}, "users": {"read": [USER]},
        "page": {"listen": "127.0.0.1:7180", "user": USER,
                 "oidc": settings(issuer).model_dump()},
    }  # fmt: skip
    with pytest.raises(ConfigError, match="page names 'reader'"):
        parse_settings(CoordinatorConfig, said)
