"""A job's walk over parties that do whatever a test wants, without a network."""

from fedboost import flow, protocols
from fedboost.flow import EVERYBODY, GUEST, HOST, Step
from fedboost.ground.errors import UnreachableError
from fedboost.ground.settings import parse_settings
from fedboost.messages import job_pb2, party_pb2
from fedboost.messages.job_pb2 import Event, StatusReport, StepCost
from fedboost.messages.party_pb2 import StepReply, TurnReply
from fedboost.messages.protocol.echo_pb2 import Answer, Call
from fedboost.runtime.cluster import local
from fedboost.runtime.coordinator.stage import StageWalk
from fedboost.runtime.coordinator.walk import JobWalk
from fedboost.runtime.jobs.manifest import JobMember, Manifest
from fedboost.runtime.transport.addresses import Timers
from tests.support.federated import job_spec

BANK, HOSTS, ADDER = "bank", ("telco", "shop", "mill"), "sum"
PARTIES = (BANK, *HOSTS)
STAGE = "federboost-horizontal"

SPEAK = Step("speak", GUEST, gives=Call)
ANSWER = Step("answer", HOST, takes=Call, gives=Answer)
COUNT = Step("count", EVERYBODY)
LISTEN = Step("listen", EVERYBODY, hears=EVERYBODY)


class FakeControl:
    """A party that does whatever it is asked for, and remembers it; `fails` is raised instead."""

    def __init__(self, party):
        self.party = party
        self.calls = []
        self.commits = []
        self.ended = []  # up to which steps nothing more came
        self.rounds = None  # of a loop that it does before it ends it
        self.fails = None
        self.ends = ""
        self.deaf = False  # gone before it hears how the job ended
        self.heard = b""
        self.kept: tuple[flow.Place | int, ...] = ()  # its checkpoints; one number is a round
        self.opened: flow.Place | int = -1  # where the stage was opened

    async def run_step(self, call, hear=None):
        """Every step costs a second of work and sends ten bytes to the bank."""
        self.calls.append(call)
        if self.fails is not None:
            raise self.fails
        turns = []
        for _ in call.turns[: self.rounds if call.loop else None]:
            cost = StepCost(party=self.party, seconds=1.0, cpu_seconds=1.0)
            cost.sent.add(peer=BANK, bytes=10, messages=1)
            turns.append(TurnReply(told=StatusReport(ends=self.ends), cost=cost))
        return StepReply(turns=turns)

    async def end_loop(self, request):
        """Hears that a loop has ended."""
        self.ended.append(request.number)
        return party_pb2.EndLoopReply()

    async def commit(self, request):
        """Keeps a round."""
        if self.fails is not None:
            raise self.fails
        self.commits.append(place_of(request))
        return party_pb2.CommitReply()

    async def offer_schemes(self, _):
        """Has nothing against any."""
        return party_pb2.SchemesReply()

    async def make_room(self, _):
        """Has memory."""
        return party_pb2.Room(held=True)

    async def propose(self, _):
        """Agrees."""
        return party_pb2.Agreement(signature=self.party.encode())

    async def begin(self, _):
        """Says which rounds it has kept."""
        indices = [(one,) if isinstance(one, int) else one for one in self.kept]
        kept = [party_pb2.Kept(stage=STAGE, round=own[0], within=own[1:]) for own in indices]
        return party_pb2.BeginReply(kept=kept)

    async def open_stage(self, request):
        """Opens at a round."""
        self.opened = place_of(request)
        return party_pb2.StageReply()

    async def close_stage(self, _):
        """Closes."""
        return party_pb2.StageReply()

    async def finish(self, request):
        """Says that nothing is left, or hears the end."""
        if self.deaf and request.result:
            raise UnreachableError(f"{self.party} is not there", party=self.party)
        self.heard = request.result
        return party_pb2.FinishReply()

    async def stop(self, _):
        """Hears of the end."""
        return party_pb2.StopReply()


class FakeStates:
    """Remembers who was asked to approve and who has agreed."""

    def __init__(self):
        self.noted = []

    def asked(self, _, parties):
        """Somebody has to look first."""
        self.noted.append(("asked", tuple(parties)))

    def note_agreed(self, _, parties):
        """All of them have signed."""
        self.noted.append(("agreed", tuple(parties)))


def walk_of(aggregator=ADDER, events=(), walk=None):
    """A job at its first attempt; `walk` stands for the protocol's own."""
    spec = job_spec(STAGE, PARTIES, data={p: {"label": "y"} for p in PARTIES},
                    params={"n_estimators": 3})  # fmt: skip
    parties = spec.parties.model_copy(update={"aggregator": aggregator})
    spec = spec.model_copy(update={"parties": parties})
    protocol = protocols.load_protocol(STAGE)
    if walk is not None:
        protocol = flow.Protocol(**{**vars_of(protocol), "walk": walk})
    table = parties.table()
    terms = Manifest(
        job="job-1",
        coordinator=local.COORDINATOR,
        submitter="ann",
        spec=spec,
        members=[JobMember(name=p, certificate="none") for p in table.of(tuple(flow.Role))],
    )

    async def at_once(_: JobWalk) -> None:
        pass

    async def journal() -> job_pb2.JobJournal:
        return job_pb2.JobJournal(events=events)

    emitted: list[Event] = []
    job = JobWalk(
        terms=terms,
        attempt=1,
        params=parse_settings(protocol.params, spec.params, section="params"),
        protocol=protocol,
        protocols={STAGE: protocol},
        controls={p: FakeControl(p) for p in table.of(tuple(flow.Role))},
        states=FakeStates(),
        emit=lambda *events: emitted.extend(events),
        journal=journal,
        enter=at_once,
        timers=Timers(),
    )
    return job, StageWalk(job, protocol, flow.START), emitted


def place_of(request):
    """Where a request stands; one number between rounds."""
    return (request.round, *request.within) if request.within else request.round


def vars_of(protocol):
    """The fields of a protocol."""
    return {name: getattr(protocol, name) for name in flow.Protocol.__dataclass_fields__}


def gone(party):
    return UnreachableError(f"{party} is not there", party=party)


def calls_of(job, party):
    return job.controls[party].calls
