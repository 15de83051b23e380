"""The walk of a job: agreement, stages one after another, the end at every party."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fedboost import flow, protocols
from fedboost.flow import START, Place
from fedboost.ground import wire
from fedboost.ground.errors import JobError
from fedboost.ground.settings import Settings
from fedboost.messages import job_pb2, party_pb2
from fedboost.messages.job_pb2 import Event, StatusReport
from fedboost.runtime.coordinator.reports import add_report
from fedboost.runtime.coordinator.result import replace_by_counted, result_of
from fedboost.runtime.coordinator.stage import StageWalk
from fedboost.runtime.coordinator.walk import JobWalk
from fedboost.runtime.jobs import manifest
from fedboost.runtime.process.clock import monotonic_s

NO_VERDICT = "no verdict of default policies: it failed, and the party's log says why"


async def walk_job(walk: JobWalk) -> dict[str, Any]:
    """Walk the whole job and return its result; raise the error that ended it."""
    started = monotonic_s()
    signatures = await walk.collect_signatures()
    await walk.enter(walk)
    walk.states.note_agreed(walk.id, walk.everybody)
    walk.has_begun = True
    request = party_pb2.BeginRequest(
        job=walk.id,
        manifest_sha256=manifest.manifest_sha256(walk.terms.encode()),
        attempt=walk.attempt,
        signatures=signatures,
    )
    begun = await walk.ask_parties(
        walk.everybody, "begin", lambda party: walk.controls[party].begin(request)
    )
    for name in protocols.stages_of_job(walk.terms.spec, walk.params):
        if not all(name in reply.stages_done for reply in begun.values()):
            await _walk_stage(walk, walk.protocols[name], _joint_place(walk, name, begun))
    return await _finish_job(walk, monotonic_s() - started - walk.waited)


def _joint_place(walk: JobWalk, stage: str, begun: Mapping[str, party_pb2.BeginReply]) -> Place:
    """Return the last place of a stage that all parties with data have saved, or its start."""
    kept = [
        {(place.round, *place.within) for place in reply.kept if place.stage == stage}
        for party, reply in begun.items()
        if walk.table.role_of(party) is not flow.AGGREGATOR
    ]
    return max(set.intersection(*kept), default=START)


async def _walk_stage(walk: JobWalk, protocol: flow.Protocol[Settings], place: Place) -> None:
    if walk.lost and place == START:
        raise JobError(
            f"{walk.lost[0]} was lost before the other parties had saved anything",
            party=walk.lost[0],
            todo="there is no saved round to go on from: submit the job again",
        )
    started = monotonic_s()
    stage = StageWalk(walk, protocol, place)
    round_, *within = place
    request = party_pb2.StageRequest(
        job=walk.id, attempt=walk.attempt, stage=protocol.name, round=round_, within=within
    )
    opened = await walk.ask_parties(
        walk.everybody, "open", lambda party: walk.controls[party].open_stage(request)
    )
    for reply in opened.values():
        stage.ended = reply.told.ends or stage.ended
        add_report(stage.told, reply.told)
        walk.note_warnings(reply.told)
    await protocol.walk(stage)
    await stage.commit()
    # Noted before any party closes: a party that has closed the stage will not walk it again.
    seconds = monotonic_s() - started + walk.earlier.stages[protocol.name]
    walk.stage_seconds[protocol.name], walk.told_of[protocol.name] = seconds, stage.told
    done = job_pb2.StageDone(stage=protocol.name, seconds=seconds, told=stage.told)
    walk.emit(Event(stage=done))
    await walk.ask_parties(
        walk.everybody, "close", lambda party: walk.controls[party].close_stage(request)
    )
    walk.lose_for_good(walk.gone, protocol.name)
    walk.gained = True


async def _finish_job(walk: JobWalk, seconds: float) -> dict[str, Any]:
    """End the job at all parties, at the guest last: its result lists the lost hosts."""
    shares = await _conclude(walk, walk.everybody)
    walk.heads = [share.head for share in shares.values() if share.HasField("head")]
    rehearsal = await _rehearsal(walk, shares)
    refused = bool(rehearsal) and not rehearsal["accepted"]
    others = [party for party in walk.everybody if party != walk.table.guest]
    await _conclude(walk, others, result=b"{}", refused=refused)
    walk.lose_for_good(walk.gone, walk.protocol.name)
    report = walk.told_of.setdefault(walk.protocol.name, StatusReport())
    replace_by_counted(
        report, [released for reply in shares.values() for released in reply.released]
    )
    result = result_of(walk, seconds, shares)
    if rehearsal:
        result["rehearsal"] = rehearsal
    told, guest = json.dumps(result).encode(), walk.table.guest
    walk.emit(Event(finished=job_pb2.Finished(result=told, told=walk.told)))
    journal = await walk.journal()
    await _conclude(walk, [guest], result=told, journal=journal, refused=refused)
    return result


async def _rehearsal(walk: JobWalk, shares: Mapping[str, party_pb2.FinishReply]) -> dict[str, Any]:
    """Return the verdict of default policies on a trial; empty if the parties are real."""
    guest = walk.table.guest
    if not shares[guest].forecast or walk.protocol.leaves != "model":
        return {}
    told = [share.forecast for share in shares.values() if share.forecast]
    replies = await _conclude(walk, [guest], forecasts=told, journal=await walk.journal())
    rehearsal = wire.json_object(replies[guest].forecast, "the rehearsal")
    if not rehearsal:
        warning = job_pb2.Warned(party=guest, warning=NO_VERDICT)
        walk.note_warnings(StatusReport(warnings=[warning]))
    return rehearsal


async def _conclude(
    walk: JobWalk, parties: tuple[str, ...] | list[str], **told: Any
) -> dict[str, party_pb2.FinishReply]:
    """Ask parties for their shares of the result; with a result, end the job at these parties."""
    request = party_pb2.FinishRequest(job=walk.id, attempt=walk.attempt, heads=walk.heads, **told)
    return await walk.ask_parties(
        parties, "finish", lambda party: walk.controls[party].finish(request)
    )
