"""Secure sums over sites: the model of one place, and a server that reads sums alone."""

import numpy as np
from sites.helpers import agreed
from toy import federation

import quorate as qr
from quorate.engines.network import Network

ROWS = federation((20, 35, 12, 28, 9), 4)
PROBLEM = qr.Problem(qr.Logistic(), over_clients=qr.Mean("size"), regulariser=qr.L2(1e-2))


def test_a_solution_across_sites_is_that_of_one_place(tmp_path):
    here = qr.solve(PROBLEM, ROWS, algorithm=qr.ProximalAL(), engine=qr.InProcess("each"))
    agreement = agreed(PROBLEM, ROWS, tmp_path)
    there = qr.solve(
        agreement.problem,
        agreement.metadata,
        algorithm=qr.ProximalAL(),
        engine=Network(agreement.session, secure_sum=True),
    )
    assert here.outcome.stop is there.outcome.stop
    np.testing.assert_allclose(there.w, here.w, atol=1e-4)  # both within tol of the optimum
    assert {"Work", "Open", "Sealed"} <= {row["message"] for row in there.messages}
