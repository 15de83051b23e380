"""`fedboost doctor` names the link that fails, and which way."""

import json
import os
import shutil
import subprocess
import sys

import grpc
import pytest

from fedboost.runtime.cluster.local import COORDINATOR, USER, tls_of
from tests.e2e import world
from tests.e2e.conftest import ABSENT

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("town")]


def doctor(config):
    said = world.fedboost("doctor", "--config", config, "--json")
    assert "Traceback" not in said.err
    return said.code, {finding["what"]: finding for finding in said.last["findings"]}


def failed(findings):
    return {what for what, finding in findings.items() if not finding["ok"]}


def test_a_whole_town_passes_both_ways(town):
    code, findings = doctor(town.config("telco"))
    assert (code, failed(findings)) == (0, set())
    for other in ("bank", "shop", COORDINATOR):
        assert f"{other} -> here" in findings
        assert any(what.startswith(f"here -> {other} (") for what in findings)
    assert f"our own daemon on {town.addresses['telco']}" in findings
    assert "valid until" in findings["certificate of party telco"]["note"]
    said = world.fedboost("doctor", "--config", town.config("telco"))
    assert said.code == 0
    assert "failed" not in said.out


def test_the_usual_health_service_says_that_daemons_serve(town):
    """Asked as common tools ask: one text field there, one number back."""
    files = tls_of(town.folder / "certs", USER)
    credentials = grpc.ssl_channel_credentials(
        *(path.read_bytes() for path in (files.ca, files.key, files.cert))
    )
    for name, service in (("telco", "fedboost.Party"), (COORDINATOR, "fedboost.Coordinator")):
        wanted = [("grpc.ssl_target_name_override", name)]
        with grpc.secure_channel(town.addresses[name], credentials, wanted) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            for asked in ("", service):
                request = b"\x0a" + bytes([len(asked)]) + asked.encode()
                assert check(request, timeout=5.0) == b"\x08\x01"


def test_a_daemon_that_is_down_is_named(town):
    code, findings = doctor(town.config(COORDINATOR))
    assert code == 3
    assert failed(findings) == {f"here -> {ABSENT} (127.0.0.1:9)", f"{ABSENT} -> here"}
    error = "\n".join(findings[f"here -> {ABSENT} (127.0.0.1:9)"]["error"])
    assert f"{ABSENT} is not there" in error
    assert "address 127.0.0.1:9" in error
    said = world.fedboost("doctor", "--config", town.config(COORDINATOR))
    assert said.code == 3
    assert f"here -> {ABSENT}" in said.out


def test_a_wrong_address_for_us_at_the_other_side_is_found(town, tmp_path):
    """bank lists shop's address under telco's name: the handshake tells them apart."""
    config = tmp_path / "bank.yaml"
    text = town.config("bank").read_text()
    config.write_text(text.replace(town.addresses["telco"], town.addresses["shop"]))
    code, findings = doctor(config)
    wrong = f"here -> telco ({town.addresses['shop']})"
    assert code == 3
    assert wrong in failed(findings)
    assert findings[wrong]["error"][0] == (
        f"the certificate of {town.addresses['shop']} is not telco's"
    )


def test_a_certificate_of_another_ca_fails_every_link_of_ours_and_only_those(town, tmp_path):
    certs = tmp_path / "certs"
    world.issue(certs, [("party", "telco")])
    config = tmp_path / "telco.yaml"
    config.write_text(
        town.config("telco").read_text().replace(str(town.folder / "certs"), str(certs))
    )
    code, findings = doctor(config)
    assert code == 3
    assert "certificate of party telco" not in failed(findings)
    assert len(failed(findings)) == len(findings) - 3  # that, store and table are in order
    assert all("is not one of our CA's" in f["error"][0] for f in findings.values() if not f["ok"])


def test_a_key_that_every_user_may_read_is_named(town, tmp_path):
    certs = tmp_path / "certs"
    shutil.copytree(town.folder / "certs", certs)
    (certs / "telco.key").chmod(0o644)
    config = tmp_path / "telco.yaml"
    config.write_text(
        town.config("telco").read_text().replace(str(town.folder / "certs"), str(certs))
    )
    code, findings = doctor(config)
    assert (code, failed(findings)) == (2, {"certificate of party telco"})
    error = "\n".join(findings["certificate of party telco"]["error"])
    assert "every user of this machine may read the private key (mode 644)" in error
    assert f"to do: chmod 600 {certs / 'telco.key'}" in error


def test_an_expired_certificate_is_named_with_its_file(town, tmp_path):
    certs = tmp_path / "certs"
    certs.mkdir()
    for name in ("ca.pem", "ca.key"):
        shutil.copy(town.folder / "certs" / name, certs / name)
    world.issue(certs, [("party", "telco")], days_ago=30, days=7)
    config = tmp_path / "telco.yaml"
    config.write_text(
        town.config("telco").read_text().replace(str(town.folder / "certs"), str(certs))
    )
    code, findings = doctor(config)
    assert code == 2
    error = "\n".join(findings["certificate of party telco"]["error"])
    assert "expired" in error
    assert f"file {certs / 'telco.pem'}" in error


def test_the_way_back_is_tried_by_the_other_side(town, tmp_path):
    """A peer that does not know us is reached, and cannot reach us: only that way fails."""
    config = tmp_path / "stranger.yaml"
    text = town.config("shop").read_text()
    text = text.replace("name: shop", "name: stranger").replace("/shop.pem", "/stranger.pem")
    text = text.replace("/shop.key", "/stranger.key")
    config.write_text(text)
    code, findings = doctor(config)
    assert code == 4
    assert {"here -> bank (" + town.addresses["bank"] + ")", "bank -> here"} <= failed(findings)
    assert (
        "party stranger is not known here"
        in findings[f"here -> bank ({town.addresses['bank']})"]["error"][0]
    )


def test_a_disk_without_room_for_a_job_is_named(town):
    """A small disk over the store, which only this command sees."""
    store = town.store("telco")
    command = [sys.executable, "-m", "fedboost", "doctor", "--json", "--config"]
    inside = "mount -t tmpfs -o size=1m none $0 || exit 99; exec $@"
    words = ["unshare", "-Urm", "sh", "-c", inside, str(store), *command, town.config("telco")]
    env = {**os.environ, "PYTHONPATH": str(world.ROOT)}
    said = subprocess.run(words, capture_output=True, text=True, env=env, check=False, timeout=60)
    if not said.stdout:
        pytest.skip(f"no file system of our own here: {said.stderr[:100]}")
    findings = {one["what"]: one for one in json.loads(said.stdout)["findings"]}
    assert "free some space" in "\n".join(findings[f"store {store}"]["error"])
    assert failed(findings) == {f"store {store}", *absent(findings)}


def absent(findings):
    return {what for what in findings if ABSENT in what}
