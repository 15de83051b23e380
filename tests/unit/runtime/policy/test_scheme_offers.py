"""What parties say to a coordinator that asks for schemes, and what they make of its choice."""

import asyncio
import json

import pytest

from fedboost.data.row_count import row_count_bound
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import DataError, PeerError, PolicyError
from fedboost.ground.workers import Serial
from fedboost.job import ChosenScheme, PassedOver
from fedboost.messages.party_pb2 import Proposal, SchemesReply, SchemesRequest
from fedboost.pages import asking
from fedboost.runtime.cluster.local import COORDINATOR, open_cluster
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.manifest import JobMember, Manifest
from fedboost.runtime.jobs.submitted import sign_submission, submission_id
from fedboost.runtime.policy import reading
from fedboost.runtime.transport.identity import Peer
from tests.support import small_jobs
from tests.support.whole_jobs import written

GUEST, HOST, _ = small_jobs.PARTIES
LEADER = Peer("coordinator", COORDINATOR, fingerprint="", serial=0)
DENIED = PassedOver(scheme="lattice", why="policy", parties=(HOST,))


def open_job(**params):
    """A toy job that leaves its scheme open."""
    own = small_jobs.spec("secureboost", n_estimators=1, max_depth=1, **params)
    kept = {key: value for key, value in own.params.items() if key != "encryption"}
    return own.model_copy(update={"params": kept})


def in_cluster(folder, work, rows=300, **policies):
    """What `work` gives with a cluster; `policies` are keys of each party's policy."""

    async def run():
        sources = written(folder, small_jobs.tables("secureboost", rows))
        async with open_cluster(folder / "c", open_job(), sources, Serial()) as made:
            for party, keys in policies.items():
                node = made.parties[party]
                policy = node.config.policy.model_copy(update=keys)
                node.config = node.config.model_copy(update={"policy": policy})
            return await work(made)

    return asyncio.run(run())


def asked(folder, party, caller=LEADER, spec=None, **policies):
    async def work(made):
        text = (spec or open_job()).model_dump_json().encode()
        return await made.parties[party].offer_schemes(caller, SchemesRequest(spec=text))

    return in_cluster(folder, work, **policies)


def test_a_party_says_what_its_policy_names_and_denies(tmp_path):
    said = asked(tmp_path, HOST, **{HOST: {"schemes": ("paillier", "okamoto-uchiyama")}})
    assert list(said.named) == ["paillier", "okamoto-uchiyama"]
    assert list(said.denied) == ["lattice", "lattice-4096", "lattice-large"]
    assert not said.too_small


def test_the_guest_says_which_schemes_do_not_add_up_its_rows_and_a_host_says_nothing_of_its_own(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "fedboost.runtime.policy.scheme_offers.row_count_bound", lambda _: (1 << 21) + 1
    )
    assert list(asked(tmp_path / "1", GUEST).too_small) == ["lattice", "lattice-4096"]
    assert asked(tmp_path / "2", HOST) == SchemesReply()


def test_a_guest_whose_table_is_gone_has_nothing_against_any_scheme(tmp_path, monkeypatch):
    def gone(_):
        raise DataError("the table is not there", todo="put it back")

    monkeypatch.setattr("fedboost.runtime.policy.scheme_offers.row_count_bound", gone)
    assert asked(tmp_path, GUEST) == SchemesReply()


@pytest.mark.parametrize(
    "keys", [{"coordinators": ()}, {"peers": ()}, {"datasets": ()}, {"protocols": ()}], ids=str
)
def test_of_a_job_that_is_refused_anyway_nothing_is_said(tmp_path, keys):
    keys = {**keys, "schemes": ("paillier",)}
    assert asked(tmp_path, GUEST, **{GUEST: keys}) == SchemesReply()


def test_only_a_coordinator_may_ask(tmp_path):
    with pytest.raises(PolicyError):
        asked(tmp_path, GUEST, Peer("party", HOST, fingerprint="", serial=0))


def finished(journal):
    (last,) = [e for e in journal.events if e.WhichOneof("what") == "finished"]
    return json.loads(last.finished.result)


@pytest.mark.parametrize(
    ("allowed", "scheme", "because"),
    [
        (None, "lattice", "every party's policy allows it"),
        (("paillier",), "paillier", f"{HOST}'s policy does not allow lattice"),
        (("okamoto-uchiyama",), "okamoto-uchiyama", f"{HOST}'s policy does not allow lattice"),
    ],
    ids=["lattice", "paillier", "named"],
)
def test_a_job_runs_under_the_scheme_that_all_have_signed(tmp_path, allowed, scheme, because):
    async def work(made):
        journal = await made.run(open_job())
        (job,) = made.parties[HOST].store.jobs()
        node = made.parties[HOST]
        (rule,) = [r for r in asking.read_request(node, job).rules if r.key == "policy.schemes"]
        uses = {use.about: use.says for use in reading.owned_job(node.config, job).uses}
        return journal, manifest.decode_manifest(job.manifest), (rule.asked, uses["encryption"])

    journal, signed, shown = in_cluster(tmp_path, work, rows=60, **{HOST: {"schemes": allowed}})
    assert finished(journal)["encryption"] == {"scheme": scheme, "because": because}
    said = f"{scheme}: {because}"
    assert (journal.status.encryption, *shown) == (said, said, said)
    assert signed.params["encryption"] == {"scheme": scheme}
    assert signed.spec == open_job()  # as its submitter has signed it
    assert json.loads(journal.spec)["params"] == signed.spec.params


def proposed(folder, scheme, party=HOST, spec=None, **policies):
    """What a party answers to terms with this choice."""

    async def work(made):
        job, user = spec or open_job(), made.user.name
        members = [
            JobMember(name=name, certificate=node._identity().certificate_pem.decode())
            for name, node in made.parties.items()
        ]
        terms = Manifest(
            job=submission_id(job, user, "k"),
            coordinator=COORDINATOR,
            submitter=user,
            spec=job,
            members=members,
            submission=sign_submission(job, "k", COORDINATOR, made.identity),
            scheme=scheme,
        )
        return await made.parties[party].propose(LEADER, Proposal(manifest=terms.encode()))

    return in_cluster(folder, work, **policies)


def test_a_party_signs_no_job_whose_scheme_is_still_open(tmp_path):
    with pytest.raises(PeerError, match="names no encryption scheme"):
        proposed(tmp_path, None)


def test_a_party_trusts_its_own_policy_whatever_the_coordinator_has_chosen(tmp_path):
    with pytest.raises(PolicyError, match="does not allow the scheme lattice") as refused:
        proposed(tmp_path, ChosenScheme(scheme="lattice"), **{HOST: {"schemes": ("paillier",)}})
    assert refused.value.where["key"] == "policy.schemes"


def test_a_coordinator_that_misquotes_our_policy_is_refused(tmp_path):
    said = ChosenScheme(scheme="paillier", passed=(DENIED,))
    with pytest.raises(PeerError, match="says that our policy does not allow lattice, and it does"):
        proposed(tmp_path / "1", said)
    signed = proposed(tmp_path / "2", said, GUEST)  # of another one's a party cannot know
    assert signed.signature


def test_rows_are_counted_without_reading_cells(tmp_path):
    sources = written(tmp_path, small_jobs.tables("secureboost", 120))
    assert row_count_bound(sources[GUEST]) == 120
    texts = {"lf.csv": "id,y\n1,2\n3,4\n", "cr.csv": "id,y\r1,2\r3,4", "x.svm": "1 1:2"}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text.encode())
    assert row_count_bound(SourceSpec(path=str(tmp_path / "lf.csv"))) == 4
    assert row_count_bound(SourceSpec(path=str(tmp_path / "cr.csv"))) == 3
    assert row_count_bound(SourceSpec(path=str(tmp_path / "x.svm"), format="svmlight")) == 1
    with pytest.raises(DataError, match="cannot read the file: No such file"):
        row_count_bound(SourceSpec(path=str(tmp_path / "absent.csv")))
