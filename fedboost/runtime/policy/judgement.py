"""A party's decision to take part in a job: its caller, its members, and the owner's policy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedboost import flow, protocols
from fedboost.core.params import BoostingParams
from fedboost.data.frame import Frame
from fedboost.flow import GUEST, StageContext
from fedboost.ground.errors import ConfigError, PeerError, PolicyError
from fedboost.ground.settings import Settings, parse_settings
from fedboost.messages.party_pb2 import Signature
from fedboost.runtime.config.ask import Ask
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.jobs.manifest import Manifest, manifest_sha256, read_outline
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.jobs.submitted import check_age, check_replayable, submitter_of
from fedboost.runtime.jobs.wire_numbers import SpokenNumbers, highest_common_number
from fedboost.runtime.ledger.signed_heads import Check
from fedboost.runtime.policy import declared
from fedboost.runtime.policy.differences import Summed, count_alignment
from fedboost.runtime.policy.row_sets import ALL_ROWS, Atoms, RowSets
from fedboost.runtime.policy.same_tables import OwnTables
from fedboost.runtime.store.store import OPEN, Store, StoredJob, day_of
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.identity import Identity, Peer, check_signature
from fedboost.runtime.transport.roots import Roots, verify_signature
from fedboost.runtime.transport.tls import TlsFiles, load_identity

log = logging.getLogger(__name__)

SEPARATOR = b"\0"  # between a certificate, which is text, and the signature made with its key


@dataclass(frozen=True)
class Trust:
    """Our identity, and the authorities that we trust."""

    identity: Callable[[], Identity]
    authorities: Authorities

    @classmethod
    def of_files(cls, tls: TlsFiles, party: str) -> Trust:
        """Return the trust of a party's command, which reads its identity once.

        Raise ConfigError unless the certificate is that of `party`.
        """
        ours = load_identity(tls, role="party", name=party)
        return cls(lambda: ours, Authorities(tls))


class Signatures:
    """Signer for a party of a job, and checker of other signatures; see `flow.Signer`.

    A signature includes its certificate, so a certificate may be renewed while a job runs.
    """

    def __init__(self, trust: Trust, *, insecure: bool) -> None:
        """Use the keys of `trust`; `insecure` (loopback development) accepts every signature."""
        self._trust, self._insecure = trust, insecure

    def sign(self, text: bytes) -> bytes:
        """Sign a text, see `flow.Signer`."""
        identity = self._trust.identity()
        return identity.certificate_pem + SEPARATOR + identity.sign(text)

    def check(self, party: str, text: bytes, signature: bytes) -> None:
        """Check a signature, see `flow.Signer`."""
        if self._insecure:
            return
        certificate, _, raw = signature.partition(SEPARATOR)
        authorities = self._trust.authorities
        peer = verify_signature(certificate, authorities.roots(), ("party", party), text, raw)
        authorities.refuse_revoked(peer)


def signer_at(roots: Roots, party: str, text: bytes, signature: bytes, at: datetime) -> Peer:
    """Return the signer of a text; raise PeerError unless it is that party, with a certificate
    valid at that time.
    """
    certificate, _, raw = signature.partition(SEPARATOR)
    peer = roots.verify(certificate, at)
    if peer.owner != ("party", party):
        raise PeerError(f"expected a signature of party {party[:64]}, got {peer}'s")
    check_signature(certificate, peer, text, raw)
    return peer


def signature_checker(config: PartyConfig) -> Check:
    """Return a checker of signatures at their time; under insecure_loopback it accepts all."""
    if config.tls is None:
        return lambda *_: None
    return partial(signer_at, config.tls.read_all_roots())


class Judge:
    """A party's own decisions about jobs; every refusal names its reason."""

    def __init__(self, config: PartyConfig, trust: Trust, store: Store) -> None:
        self.config = config
        self.signatures_of_jobs = Signatures(trust, insecure=config.insecure_loopback)
        self.trust = trust
        self._store = store
        self._row_sets = RowSets(store)
        self._summed = Summed(store)
        self._leaders: dict[str, str] = {}  # by job, for jobs in the store
        self.tables = OwnTables(store.transaction, lambda: self.config.datasets)

    def judge_proposal(self, caller: Peer, terms: Manifest) -> None:
        """Refuse a job that its coordinator did not propose, or that has other members."""
        if caller.name != terms.coordinator:
            raise PolicyError(
                f"{caller} may not propose jobs of {terms.coordinator}",
                todo="propose it from its own coordinator",
            )
        number = terms.wire_version
        proposed = SpokenNumbers(terms.coordinator, terms.version, number, number)
        highest_common_number([proposed, SpokenNumbers.of_this_build(self.config.name)])
        table = terms.spec.parties.table()
        if {m.name for m in terms.members} != set(table.of(tuple(flow.Role))):
            raise PeerError("the manifest's members are not the job's parties")
        self._judge_scheme(terms)
        if self.config.insecure_loopback or self._is_known_proposal(terms):
            return
        for member in terms.members:
            peer = self.trust.authorities.verify(member.certificate.encode())
            if peer.owner != ("party", member.name):
                raise PeerError(f"the manifest shows a certificate of {peer} for {member.name}")
        self._judge_submission(terms)

    def _judge_scheme(self, terms: Manifest) -> None:
        """Refuse a scheme that does not follow from the job's settings and our policy."""
        from fedboost.encrypted.scheme import choice

        params = parse_settings(
            protocols.load_protocol(terms.spec.protocol).params, terms.spec.params
        )
        choice.check_choice(params, terms.scheme)
        for entry in () if terms.scheme is None else terms.scheme.passed:
            is_ours = entry.why == "policy" and self.config.name in entry.parties
            if is_ours and self.config.policy.allows_scheme(entry.scheme):
                raise PeerError(
                    f"the manifest says that our policy does not allow {entry.scheme}, and it does",
                    todo="submit the job anew",
                )

    def _judge_submission(self, terms: Manifest) -> None:
        """Refuse a job unless its named submitter signed exactly this submission recently."""
        submitter_of(terms, self.trust.authorities)
        if terms.submission is not None:
            check_age(terms.submission)

    def _is_known_proposal(self, terms: Manifest) -> bool:
        """Return whether we have looked at the same terms before; certificates may be new since."""
        known = self._store.find(terms.job)
        return known is not None and known.manifest_sha256 == manifest_sha256(terms.encode())

    def signatures(self, job: SignedJob, given: list[Signature]) -> None:
        """Refuse to begin unless every member has signed the manifest with a currently valid
        certificate, which need not be the one in the manifest.

        A later attempt at a job that continues without lost hosts may lack their signatures: all
        parties signed the same manifest before the first attempt.
        """
        if self.config.insecure_loopback:
            return
        by_party = {signature.party: signature.signature for signature in given}
        begun = self._store.job(job.id).attempt > 0
        lost = set(job.table.hosts) - set(by_party) if begun and job.goes_on else set()
        for member in job.manifest.members:
            if member.name in lost:
                continue
            signature = by_party.get(member.name, b"")
            if not signature:
                raise PeerError(f"the coordinator brought no signature of {member.name}")
            self.signatures_of_jobs.check(member.name, job.manifest_sha256, signature)

    def job(self, job: SignedJob) -> None:
        """Ask the owner's policy; a refusal names the party and the key."""
        name, policy = self.config.name, self.config.policy
        ask = self.ask_of_job(job)
        check_replayable(job.manifest.spec, job.params)  # now that its scheme is chosen
        with name_party_in_refusals(self.config.name):
            policy.judge(ask)
            use = self.use_of_table(job)
            if use is not None:
                declared.judge_use(self.config.datasets[use.name], use)
            if job.model is not None and job.role is not GUEST:
                policy.judge_prediction(job.table.guest, 0)
            policy.judge_held_share(job.scored_share, job.table.guest)
        for peer in ask.peers:
            if peer not in self.config.peers:
                raise ConfigError(
                    f"{name} has no address for {peer}", party=name, todo="add it to `peers`"
                )

    def room(self, job: SignedJob) -> None:
        """Refuse more jobs of a coordinator than its owner allows, at once and a day.

        This is called before a job is stored, and before an ended job begins again: only unfinished
        jobs have their tables in memory.
        """
        today, leader = self._store.today(), job.manifest.coordinator
        of_leader = [known for known in self._store.jobs() if self._coordinator_of(known) == leader]
        others = [known for known in of_leader if known.id != job.id]
        is_new = len(others) == len(of_leader)
        with name_party_in_refusals(self.config.name):
            self.config.policy.judge_jobs(
                1 + sum(job.state in OPEN for job in others),
                1 + sum(day_of(job.created) == today for job in others) if is_new else 0,
            )

    def use_of_table(self, job: SignedJob) -> declared.Use | None:
        """Return the job's request for our table; None if there is none."""
        selection = job.selection(self._store.models)
        if selection is None or selection.dataset is None:
            return None
        return declared.Use(selection.dataset, selection, job.role, job.peers)

    def ask_of_job(self, job: SignedJob) -> Ask:
        """Return the requests of a job to this party; a ConfigError if it names no data set."""
        asks = job.protocol.policy.asks(job.params)
        name = self.config.name
        selection = job.manifest.spec.data.get(name)
        dataset = None if selection is None else selection.dataset
        protocol = job.protocol.name
        if selection is not None and not dataset:
            raise ConfigError(
                "the job names no data set for this party",
                party=name,
                todo="add the party to `data` of the job",
            )
        if job.model is not None:
            protocol = job.used_model(self._store.models)["protocol"]
        return Ask(
            coordinator=job.manifest.coordinator,
            peers=job.peers,
            dataset=dataset,
            protocol=protocol,
            scheme=asks.scheme,
            key_bits=asks.key_bits,
            gradient_bits=asks.gradient_bits,
            insecure=asks.insecure,
            contributors=job.contributors,
            goes_on=dataset is not None and job.goes_on,
            host_noise=None if job.role is GUEST else asks.host_noise,
            gradient_check=None if job.role is GUEST else asks.gradient_check,
            key_trees=asks.key_trees if job.role is GUEST else None,
            quantile_tolerance=None if dataset is None else asks.quantile_tolerance,
            roles=tuple(str(role) for role in job.table.roles_of(name)),
            purpose=job.manifest.spec.purpose,
            guest_replayable=None if job.role is GUEST else job.manifest.spec.replayable,
        )

    def judge_row_counts(
        self, job: SignedJob, stage: str, frame: Frame | None, held: NDArray[np.bool_]
    ) -> None:
        """Refuse to train or measure on so few rows, of a class too, that metrics tell labels.

        `held` bool (n,), the rows of `frame` that are held out.
        """
        if frame is None or frame.label is None or protocols.load_protocol(stage).leaves != "model":
            return
        policy = self.config.policy
        for measured, what in ((held, "held-out rows"), (~held, "training rows")):
            labels = frame.label[measured]
            if not len(labels):
                continue
            with name_party_in_refusals(self.config.name):
                policy.judge_holdout(len(labels), what)
                if _has_classes(job):
                    counts = np.unique(labels, return_counts=True)[1]
                    policy.judge_holdout(int(counts.min()), f"{what} of each class")

    def judge_row_sets(
        self, job: SignedJob, stage: str, frame: Frame | None, held: NDArray[np.bool_]
    ) -> Callable[[], None]:
        """Refuse rows if sums and metrics of all jobs on the table together would reveal something
        about few rows, or about few rows of a class.

        Return a function that keeps the sets, to be called before any message is sent; it refuses
        them if another job's sets were kept in the meantime. Sets are the training rows and, if the
        party has labels, the held-out ones. A host without labels that releases no sums has none.
        """
        has_sets = (
            job.protocol.leaves == "model" and protocols.load_protocol(stage).leaves != "rows"
        )
        is_labelled = frame is not None and frame.label is not None
        if frame is None or not has_sets or not (is_labelled or job.protocol.policy.releases):
            return lambda: None
        table, policy, known = self.tables.owned(job.dataset), self.config.policy, self._row_sets
        least = policy.holdout_rows_min if is_labelled else policy.group_rows_min
        sets = self._sets_of(job, frame, held)

        def check_smallest_atom(smallest: int | None) -> None:
            if smallest is not None and smallest < least:
                log.warning("%s: an atom of its rows would have %d rows", job.id, smallest)
                raise policy.atom_refusal(least, labelled=is_labelled).at(party=self.config.name)

        check_smallest_atom(known.smallest_with(table, sets))
        return lambda: check_smallest_atom(known.add(table, sets, least))

    def _sets_of(self, job: SignedJob, frame: Frame, held: NDArray[np.bool_]) -> Atoms:
        """Return a job's sets of rows: in all, and by class."""
        hashes = self._row_sets.hashes(frame.ids)
        if frame.label is None:
            return Atoms.of(hashes, {ALL_ROWS: (~held).astype(np.uint32)})
        sets = 1 + held.astype(np.uint32)
        numbers = {ALL_ROWS: sets}
        selection = job.manifest.spec.data[job.party]
        if _has_classes(job) and selection.label is not None:
            classes = np.unique(frame.label, return_inverse=True)[1].astype(np.uint32)
            numbers[selection.label] = sets + 2 * classes
        return Atoms.of(hashes, numbers)

    def contributors(self, job: SignedJob, stage: str, context: StageContext[Settings]) -> None:
        """Refuse sums over nearly the same parties as earlier ones on the table; note others."""
        adds_up = flow.AGGREGATOR in protocols.load_protocol(stage).modules
        if context.frame is None or not adds_up:
            return
        policy, members = self.config.policy, context.table.of(flow.EVERYBODY)
        with name_party_in_refusals(self.config.name):
            isolated = self._summed.keep_unless_isolating(
                self.tables.owned(job.dataset), members, policy.apart_min
            )
            policy.judge_isolated(isolated)

    def alignment(self, job: SignedJob) -> None:
        """Count an attempt at an alignment; refuse more a day than the policy allows.

        Every attempt counts: a new one may compare another set.
        """
        if not job.dataset:
            return
        name, most = self.config.name, self.config.policy.alignments_per_day
        peers = [party for party in job.table.of(flow.EVERYBODY) if party != name]
        with name_party_in_refusals(name):
            count_alignment(self._store, peers, self.tables.owned(job.dataset), most)

    def judge_prediction(self, job: SignedJob, rows: int) -> None:
        """Refuse more rows than the policy allows a day; `Spending` counts rows when sent."""
        if job.role is GUEST:
            return
        with name_party_in_refusals(self.config.name):
            self.config.policy.judge_prediction(job.table.guest, rows)

    def held_out(self, job: SignedJob, held: NDArray[np.bool_]) -> None:
        """Refuse to score more held-out rows than any training may, like a prediction."""
        if not self.config.policy.holds_out_freely(job.scored_share):
            self.judge_prediction(job, int(np.count_nonzero(held)))

    def _coordinator_of(self, job: StoredJob) -> str:
        """Return a job's coordinator; read once, since a manifest never changes."""
        if job.id not in self._leaders:
            self._leaders[job.id] = read_outline(job.outline).coordinator
        return self._leaders[job.id]

    def owner(self, caller: Peer) -> None:
        """Refuse all callers except the approvers of the policy."""
        if caller.role != "user":
            raise PolicyError(
                f"{caller} is not an owner", todo="its settings file lists owners under `users`"
            )
        self.config.policy.judge_approver(caller.name)


def _has_classes(job: SignedJob) -> bool:
    return isinstance(job.params, BoostingParams) and job.params.record.classifies


@contextmanager
def name_party_in_refusals(party: str) -> Iterator[None]:
    """Add the party's name to its policy's refusals."""
    try:
        yield
    except PolicyError as error:
        raise error.at(party=party) from None
