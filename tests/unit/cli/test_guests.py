"""Jobs of several guests, one after the other: how they end, what is said, what is not begun."""

import asyncio
import json
from types import SimpleNamespace

import pytest
import yaml
from click.testing import CliRunner

from fedboost.cli import connect
from fedboost.cli import submit as job_commands
from fedboost.cli.groups import job_group
from fedboost.cli.outcome import Turns
from fedboost.ground.errors import ConfigError, FedboostError, PolicyError, UnreachableError
from fedboost.ground.settings import parse_settings
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import Event, Finished, JobJournal, JobStatus
from fedboost.runtime.client import client
from fedboost.runtime.transport import faults

GUESTS = ("bank", "fund", "mill")
NOBODY = FedboostError("nobody knows")


def spec_of(*guests):
    named = {"guests": list(guests)} if len(guests) > 1 else {"guest": guests[0]}
    data = {guest: {"dataset": "d", "label": "y"} for guest in guests}
    raw = {
        "name": "fraud",
        "protocol": "hybridtree",
        "parties": {**named, "hosts": ["telco"]},
        "data": {**data, "telco": {"dataset": "d"}},
    }
    return parse_settings(JobSpec, raw)


def result_for(name):
    return {
        "job": f"{name}-01",
        "name": name,
        "state": "finished",
        "model": f"{name}-01",
        "metrics": {"train": {"auc": 0.75}},
    }


def journal_of(name, state="finished", reason=NOBODY):
    status = JobStatus(id=f"{name}-01", name=name, protocol="hybridtree", state=state)
    if state == "finished":
        result = json.dumps(result_for(name)).encode()
        return JobJournal(status=status, events=[Event(finished=Finished(result=result))])
    status.reason.CopyFrom(faults.fault_of_error(reason))
    return JobJournal(status=status)


def turns(spec, ends, *, as_json=True):
    """Runs jobs that end as told, by guest; gives the exit code and whose jobs ran."""
    ran, made = [], Turns(spec, as_json)

    async def runs(one):
        guest = one.parties.guest
        ran.append(guest)
        end = ends.get(guest, "finished")
        if isinstance(end, FedboostError):
            raise end
        state, reason = end if isinstance(end, tuple) else (end, NOBODY)
        result = result_for(one.name) if state == "finished" else {}
        return journal_of(one.name, state, reason), result

    asyncio.run(made.run(runs))
    return made.print_all(), ran


def test_jobs_that_all_finish_are_one_object(capsys):
    code, ran = turns(spec_of(*GUESTS), {})
    assert (code, ran) == (0, list(GUESTS))
    said = capsys.readouterr()
    assert json.loads(said.out) == {
        "name": "fraud",
        "protocol": "hybridtree",
        "state": "finished",
        "guests": {guest: result_for(f"fraud-{guest}") for guest in GUESTS},
        "models": [f"fraud-{guest}-01" for guest in GUESTS],
    }
    assert said.out.count("\n") == 1
    assert all(f"fraud-{guest} finished" in said.err for guest in GUESTS)


def test_without_json_each_job_is_named_and_described(capsys):
    turns(spec_of(*GUESTS), {}, as_json=False)
    said = capsys.readouterr()
    assert all(f"fraud-{guest} finished" in said.out for guest in GUESTS)
    assert "{" not in said.out


@pytest.mark.parametrize(
    ("end", "state", "code"),
    [
        (("failed", ConfigError("no label")), "failed", 2),
        (("failed", PolicyError("not with us")), "failed", 4),
        (("cancelled", FedboostError("cancelled by ann")), "cancelled", 1),
        (("paused", FedboostError("telco is gone")), "paused", 3),
    ],
    ids=str,
)
def test_the_first_job_that_does_not_finish_ends_the_row(capsys, end, state, code):
    assert turns(spec_of(*GUESTS), {"fund": end}) == (code, ["bank", "fund"])
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert (found["state"], found["models"]) == (state, ["fraud-bank-01"])
    assert list(found["guests"]) == ["bank", "fund"]
    assert found["guests"]["bank"] == result_for("fraud-bank")
    left = found["guests"]["fund"]
    assert (left["job"], left["state"]) == ("fraud-fund-01", state)
    assert left["error"]["what"] == end[1].what
    assert f"Job fraud-fund-01 {state}" in said.err
    assert "not started: fraud-mill" in said.err


def test_a_later_job_that_is_refused_does_not_hide_what_the_others_have(capsys):
    gone = UnreachableError("the coordinator is not there", todo="start it")
    assert turns(spec_of(*GUESTS), {"fund": gone}) == (3, ["bank", "fund"])
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert (found["state"], found["models"]) == ("failed", ["fraud-bank-01"])
    assert found["guests"]["fund"] == {
        "job": None,
        "name": "fraud-fund",
        "state": "failed",
        "error": gone.said(),
    }
    assert "the coordinator is not there\nto do: start it\nnot started: fraud-mill" in said.err


def test_a_first_job_that_is_refused_is_an_error_as_always(capsys):
    with pytest.raises(UnreachableError):
        turns(spec_of(*GUESTS), {"bank": UnreachableError("the coordinator is not there")})
    assert capsys.readouterr().out == ""


def test_the_job_of_one_guest_is_said_as_it_always_was(capsys):
    assert turns(spec_of("bank"), {}) == (0, ["bank"])
    assert json.loads(capsys.readouterr().out) == result_for("fraud")
    code, _ = turns(spec_of("bank"), {"bank": ("failed", ConfigError("no label"))})
    said = capsys.readouterr()
    assert code == 2
    assert list(json.loads(said.out)) == ["job", "name", "state", "error"]
    assert "not begun" not in said.err


# `fedboost job submit`


class Coordinator:
    """Takes in jobs that are done at once, until it has `most`."""

    def __init__(self, most):
        self.taken, self.most = {}, most

    def __call__(self, config):
        return self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        return None

    async def submit(self, text):
        spec = parse_settings(JobSpec, json.loads(text))
        if len(self.taken) == self.most:
            raise ConfigError("the coordinator has enough")
        self.taken[f"{spec.name}-01"] = spec
        return f"{spec.name}-01"

    async def status(self, job):
        return JobStatus(id=job, name=self.taken[job].name, state="waiting for approval")

    async def journal(self, job):
        return journal_of(self.taken[job].name)


@pytest.fixture
def submit(monkeypatch, tmp_path):
    """Runs `job submit` at a coordinator; gives what it printed, and the coordinator."""

    async def watched(client, job):
        return None

    monkeypatch.setattr(job_commands, "watch_job", watched)
    monkeypatch.setattr(connect, "client_settings", lambda *_: SimpleNamespace())

    def run(spec, *more, most=9):
        coordinator = Coordinator(most)
        monkeypatch.setattr(client, "CoordinatorClient", coordinator)
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(spec.model_dump(mode="json")))
        args = ["submit", str(tmp_path / "job.yaml"), *more]
        said = CliRunner().invoke(job_group, args, catch_exceptions=False, standalone_mode=False)
        return said, coordinator

    return run


def test_submit_hands_in_a_job_of_each_guest_and_prints_whose_id_is_which(submit):
    said, coordinator = submit(spec_of("bank", "fund"))
    assert said.stdout == "bank: fraud-bank-01\nfund: fraud-fund-01\n"
    assert [one.parties.guest for one in coordinator.taken.values()] == ["bank", "fund"]
    said, _ = submit(spec_of("bank", "fund"), "--json")
    found = json.loads(said.stdout)
    assert (found["name"], found["state"]) == ("fraud", "waiting for approval")
    assert [one["job"] for one in found["guests"].values()] == ["fraud-bank-01", "fraud-fund-01"]
    assert found["models"] == []


def test_submit_of_one_guest_prints_its_id(submit):
    assert submit(spec_of("bank"))[0].stdout == "fraud-01\n"
    assert submit(spec_of("bank"), "--json")[0].stdout == '{"job": "fraud-01"}\n'


def test_submit_and_watch_runs_the_jobs_in_turn(submit):
    said, coordinator = submit(spec_of("bank", "fund"), "--watch", "--json")
    assert said.return_value == 0
    assert json.loads(said.stdout)["models"] == ["fraud-bank-01", "fraud-fund-01"]
    assert list(coordinator.taken) == ["fraud-bank-01", "fraud-fund-01"]
    assert submit(spec_of("bank"), "--watch", "--json")[0].stdout.startswith('{"job": "fraud-01"')


def test_ids_of_jobs_that_were_handed_in_before_a_refusal_are_not_lost(submit):
    with pytest.raises(ConfigError) as error:
        submit(spec_of(*GUESTS), most=2)
    assert error.value.where == {"handed_in": "fraud-bank-01, fraud-fund-01"}
    with pytest.raises(ConfigError) as error:
        submit(spec_of("bank"), most=0)
    assert error.value.where == {}


def test_submit_refuses_guests_of_a_protocol_without_bags_before_it_asks_anybody(submit):
    spec = spec_of("bank", "fund").model_copy(update={"protocol": "secureboost"})
    with pytest.raises(ConfigError, match="trains with one guest"):
        submit(spec)
