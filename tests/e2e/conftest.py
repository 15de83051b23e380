"""One town of daemons for the tests that disturb nobody."""

import pyarrow as pa
import pytest

from fedboost.runtime.cluster.local import COORDINATOR, USER
from fedboost.runtime.transport import authority
from tests.e2e import world

PARTIES = ["bank", "telco", "shop", "strict", "manual"]
ABSENT = "ghost"  # a party that everybody knows and that never runs
OWNER, MALLORY = "olga", "mallory"  # who may approve at `manual`; who may do nothing anywhere


def bad_tables():
    """Tables of the guest that no job can use, by what is wrong with them."""
    good = world.toy(label=True)

    def labelled(values):
        return good.set_column(1, "y", pa.array(values))

    half = len(good) // 2
    return {
        "twice": pa.concat_tables([good, good.slice(0, 3)]),
        "unlabelled": good.drop_columns(["y"]),
        "gaps": labelled([None, None, *good["y"].to_pylist()[2:]]),
        "oneclass": labelled([1] * len(good)),
        "nan": labelled([float("nan"), *map(float, good["y"].to_pylist()[1:])]),
        "infinite": labelled([float("inf"), *map(float, good["y"].to_pylist()[1:])]),
        "text": good.set_column(2, "x0", pa.array(["1.5", "many"] * half)),
        "elsewhere": world.toy(label=True, first=1000),
    }


@pytest.fixture(scope="session")
def town(tmp_path_factory):
    """bank, telco and shop agree to everything; strict and manual are what they are called."""
    folder = tmp_path_factory.mktemp("town")
    tables = {"bank": world.toy(label=True)}
    tables |= {name: world.toy(columns=3 + n) for n, name in enumerate(PARTIES[1:])}
    sources = {name: world.write(folder / f"{name}.parquet", t) for name, t in tables.items()}
    spec = world.spec(world.job(hosts=tuple(PARTIES[1:])))
    town = world.WarmCluster(folder / "c", spec, sources, timers=world.TIMERS, workers=1)
    bad = {name: world.write(folder / f"{name}.parquet", t) for name, t in bad_tables().items()}

    def bank(raw):
        raw["datasets"] |= {n: {"path": one.path, "labels": ["y"]} for n, one in bad.items()}
        raw["policy"]["datasets"] = list(raw["datasets"])
        raw["peers"][ABSENT] = "127.0.0.1:9"
        raw["policy"]["peers"].append(ABSENT)

    def strict(raw):
        raw["datasets"]["secret"] = raw["datasets"]["data"]
        policy = raw["policy"]
        policy |= {"allow_insecure": False, "key_bits_min": 3072, "protocols": ["secureboost"]}
        policy["peers"] = ["bank", "telco"]

    def manual(raw):
        raw["policy"] |= {"approve": "always", "approvers": [OWNER]}
        raw["policy"]["schemes"] = ["plain", "paillier"]

    world.edit(town, "bank", bank)
    world.edit(town, "strict", strict)
    world.edit(town, "manual", manual)
    world.edit(town, COORDINATOR, lambda raw: raw["parties"].update({ABSENT: "127.0.0.1:9"}))
    world.edit(town, COORDINATOR, lambda raw: raw["users"]["read"].append(OWNER))
    certs = folder / "c" / "certs"
    world.issue(certs, [("user", OWNER), ("user", MALLORY), ("party", "stranger")])
    world.issue(certs, [("coordinator", "rival")])
    assert {i.name for i in authority.issued_certificates(certs)} >= {USER, OWNER, MALLORY, "rival"}
    with town:
        yield town
        assert world.tracebacks(town) == []
        assert all(p.poll() is None for p in town.processes.values())
