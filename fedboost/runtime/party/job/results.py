"""Saves the results of stages at a party: a model, predictions, rows in common, a disclosure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from fedboost import flow, protocols
from fedboost.flow import Artefact
from fedboost.ground.settings import Settings
from fedboost.messages.job_pb2 import StatusReport
from fedboost.model import shards
from fedboost.runtime.party.job.table import JobTable
from fedboost.runtime.store.rows_in_common import description_of, with_rows
from fedboost.runtime.store.transcripts import END, Transcripts


def save_stage_result(
    table: JobTable, stage: str, left: Artefact, told: Sequence[StatusReport]
) -> None:
    """Save the result of a stage, and write its model or predictions to their place in the store.

    `told` are the reports of the party's steps. The stage is unfinished until this function
    returns.
    """
    signed, files, protocol = table.signed, table.files, protocols.load_protocol(stage)
    files.reopen_stage(stage)
    if left.disclosure is not None:
        _save_disclosure(table, protocol, left.disclosure)
    if protocol.leaves == "rows" and table.frame is not None:
        facts = description_of(stage, signed.party, signed.manifest.spec, table.frame)
        table.rows_in_common.save(signed.id, left, facts, told)
    if protocol.leaves == "model" and signed.role is not flow.AGGREGATOR:
        _write_model(table, protocol, left)
    is_last = stage == signed.protocol.name  # predictions of other stages become first margins
    if is_last and protocol.leaves == "predictions" and "prediction" in left.arrays:
        _write_predictions(table, left)
    files.finish(stage, left)


def _save_disclosure(table: JobTable, protocol: flow.Protocol[Settings], left: Artefact) -> None:
    kept, signed = left, table.signed
    # A later job must match the guest's labels with the same rows.
    if table.aligned_ids is not None and signed.role is flow.GUEST:
        kept = with_rows(kept, table.aligned_ids)
    table.disclosures.save(signed.id, kept, protocol.name, signed.table)


def _write_model(table: JobTable, protocol: flow.Protocol[Settings], left: Artefact) -> None:
    signed, files = table.signed, table.files
    data = signed.manifest.spec.data
    facts = {
        "protocol": protocol.name,
        "job": signed.id,
        "name": signed.manifest.spec.name,
        "party": signed.party,
        "role": str(signed.role),
        "guest": signed.table.guest,
        "hosts": list(signed.table.hosts),
        "id": data[signed.party].id,
        "ids": {party: selection.id for party, selection in data.items()},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    Transcripts(files.store.folder).add(signed.id, END, left.transcript)
    earlier = {} if signed.model is None else signed.used_model(files.store.models)
    rare = table.categories.rare(left.facts.get("categories", {}), earlier)
    shards.save_shard(files.model, Artefact({**facts, **left.facts, **rare}, left.arrays))


def _write_predictions(table: JobTable, left: Artefact) -> None:
    """Write the ids as the party's table has them, in its order, with their predictions."""
    from fedboost.data.predictions import predictions_tables, unknown_note
    from fedboost.data.table_files import write_tables

    files, rows = table.files, table.aligned_rows()
    assert table.id_cells is not None
    assert rows is not None
    made = predictions_tables(table.id_cells, rows, left.arrays["prediction"])
    shares = {} if table.unknown is None else table.unknown.shares
    write_tables(files.predictions, made, lambda: unknown_note(shares))
