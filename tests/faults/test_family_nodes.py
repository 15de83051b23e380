"""A party of a whole job lies: the job fails with a typed reason, and the next one on the same
nodes ends well. Certificates that do not fit an envelope's sender are refused all the same.
"""

from contextlib import closing

import pytest

from fedboost import protocols
from fedboost.ground.errors import PeerError
from fedboost.ground.settings import parse_settings
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.runtime.cluster import local
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.party.node.node import PartyNode
from fedboost.runtime.transport.identity import Peer
from tests.support import small_jobs
from tests.support.federated import now, resealed, run_jobs


def kinds(name):
    """The types of a toy job's messages, stage by stage."""
    protocol = protocols.load_protocol(small_jobs.TOYS[name].protocol)
    stages = protocol.stages(parse_settings(protocol.params, small_jobs.spec(name).params))
    steps = [
        (s.gives, stage) for stage in stages for s in protocols.load_protocol(stage).flow if s.gives
    ]
    return list(dict.fromkeys((stage, kind.DESCRIPTOR.full_name) for kind, stage in steps))


# Messages of a way that the toy job does not take: of a sum with a lost party, of the other split,
# of a scheme with public polynomials.
# Few ids are found on the curve: none of the oblivious function's messages.
OBLIVIOUS = (
    *("PairKey", "Greeting", "Start", "SampleCount", "Choice", "Part", "Tags", "Hint", "Named"),
)
ABSENT = {
    "secureboost": ("Nonce",),
    "federboost-horizontal": ("DealtShares", "Survivors", "RevealedShares"),
    "gbun": ("DealtShares", "Survivors", "RevealedShares"),
    "hybridtree": ("AnswerKey", "SharedRows", "LeafAnswers", "Nonce"),
    "hybridtree-unscored": ("CandidateSums", "ChosenSplits", "RowDivisions", "Nonce"),
}
CASES = [
    pytest.param(
        *(name, stage, kind),
        id=f"{name}-{kind}",
        marks=[] if place == len(kinds(name)) // 2 else [pytest.mark.long],
    )
    for name in small_jobs.TOYS
    for place, (stage, kind) in enumerate(kinds(name))
    if not kind.endswith(ABSENT.get(name, ())) and kind.split(".")[-1] not in OBLIVIOUS
]
DELIVER = local.LocalLinks.deliver


def strangers(envelope):
    """Callers who are not the envelope's sender, and what they say they are."""
    others = [party for party in small_jobs.PARTIES if party != envelope.sender]
    yield from (Peer("party", name, fingerprint="", serial=0) for name in others)
    yield Peer("user", envelope.sender, fingerprint="", serial=0)
    yield Peer("coordinator", envelope.sender, fingerprint="", serial=0)


@pytest.mark.parametrize(("name", "stage", "kind"), CASES)
def test_a_lie_fails_the_job_and_the_nodes_go_on(name, stage, kind, tmp_path, monkeypatch):
    told: list[Envelope] = []

    async def deliver(self, envelope, payload):
        if told or (envelope.stage, envelope.kind) != (stage, kind):
            return await DELIVER(self, envelope, payload)
        spoilt = resealed(envelope, payload + b"\xff")
        told.append(spoilt[0])
        node = self._nodes[envelope.receiver]
        for caller in strangers(envelope):
            with pytest.raises(PeerError, match="in the name of"):
                node.admit(caller, Envelope.FromString(envelope.SerializeToString()))
        return await DELIVER(self, *spoilt)

    monkeypatch.setattr(local.LocalLinks, "deliver", deliver)
    spec = small_jobs.spec(name)
    failed, finished = now(run_jobs(tmp_path, small_jobs.tables(name), [spec, spec]))
    (envelope,) = told
    assert failed.state == "failed"
    assert isinstance(failed.error, PeerError), failed.error.lines()
    assert envelope.sender in failed.error.what
    assert failed.shards == {}
    assert finished.state == "finished", finished.error.lines()
    for party in small_jobs.PARTIES:
        with closing(Ledger(tmp_path / "cluster" / "var" / party / "store.sqlite")) as ledger:
            assert ledger.verify().n > 0
    received = {row.sha256 for row in failed.ledgers[envelope.receiver] if row.direction == "in"}
    assert envelope.payload_sha256.hex() not in received


@pytest.mark.some(1)
@pytest.mark.parametrize("result", [b"{", b"[1]", b"[" * 100_000])
def test_a_result_that_is_none_fails_the_job_and_the_nodes_go_on(result, tmp_path, monkeypatch):
    told: list[bytes] = []
    finish = PartyNode.finish

    async def spoilt(self, caller, request):
        if request.result and not told:
            told.append(request.result)
            request.result = result
        return await finish(self, caller, request)

    monkeypatch.setattr(PartyNode, "finish", spoilt)
    spec = small_jobs.spec("secureboost")
    failed, finished = now(run_jobs(tmp_path, small_jobs.tables("secureboost"), [spec, spec]))
    assert told
    assert failed.state == "failed"
    assert isinstance(failed.error, PeerError), failed.error.lines()
    assert failed.error.what == "the job's result must be a JSON object"
    assert finished.state == "finished", finished.error.lines()
