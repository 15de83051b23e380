"""Whose secret it is that several trees share, and who has a say in it."""

import pytest

from tests.support import small_jobs
from tests.unit.runtime.policy.test_scheme_offers import GUEST, HOST, in_cluster

SHARED = {"scheme": "lattice", "key_trees": 2}


@pytest.mark.parametrize(("party", "refuses"), [(GUEST, True), (HOST, False)])
def test_the_guests_policy_alone_bounds_the_trees_of_one_secret(tmp_path, party, refuses):
    job = small_jobs.spec("secureboost", n_estimators=2, max_depth=1, encryption=SHARED)

    async def work(made):
        return (await made.run(job)).status

    status = in_cluster(tmp_path, work, **{party: {"lattice_key_trees_max": 1}})
    if refuses:
        assert "at most 1 trees share a lattice secret, the job has 2" in status.reason.what
        assert ("party", GUEST) in {(place.key, place.value) for place in status.reason.where}
    else:
        assert status.state == "finished"
