"""``solve`` over sites: the model, certificate and tables of rows in one place."""

import numpy as np
import pytest
from sites.helpers import agreed
from toy import federation

import bonafed as bf
from bonafed.algorithms.federated.bundle.bundle import over_sites
from bonafed.engines.network import Network
from bonafed.solution.plan import default_algorithm

ROWS = federation((20, 35, 12, 28, 9), 4)
PROBLEMS = {
    "ball and lp-ball": bf.Problem(
        bf.Hinge(),
        over_samples=bf.WassersteinBall(0.05, 0.5, "l2"),
        over_clients=bf.LpBall(0.2, 2),
        regulariser=bf.L2(1e-2),
    ),
    "constraint": bf.Problem(
        bf.Logistic(),
        over_samples=bf.Mean(label=-1.0),
        local_constraint=bf.NeymanPearson(1.0, 0.6),
        regulariser=bf.L2(1e-2),
    ),
    "constraint over all": bf.Problem(
        bf.Logistic(), constraint=bf.Coupled(bf.NeymanPearson(1.0, 0.6)), regulariser=bf.L2(1e-2)
    ),
    "class weights": bf.Problem(
        bf.Logistic(),
        over_clients=bf.Superquantile(0.4),
        regulariser=bf.L2(1e-2),
        class_weight="balanced",
    ),
    "several classes": bf.Problem(bf.Multinomial(), regulariser=bf.L2(1e-1)),
    "quantile": bf.Problem(bf.Quantile(0.3), regulariser=bf.L2(1e-2)),
}


def numbered(row):
    """A row of a table to nine digits, without what passed between server and client."""
    kept = {name: value for name, value in row.items() if not name.startswith("bytes")}
    return {k: round(v, 9) if isinstance(v, float) else v for k, v in kept.items()}


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS.keys())
def test_a_solution_across_sites_is_that_of_one_place(problem, tmp_path):
    agreement = agreed(problem, ROWS, tmp_path)
    engine = Network(agreement.session)
    method = over_sites(default_algorithm(problem.at(ROWS)[0], ROWS, engine))
    here = bf.solve(problem, ROWS, algorithm=method, engine=bf.InProcess("each"))
    there = bf.solve(agreement.problem, agreement.metadata, engine=engine)
    np.testing.assert_allclose(there.w, here.w, rtol=1e-12, atol=1e-14)
    assert (there.outcome.stop, there.outcome.text) == (here.outcome.stop, here.outcome.text)
    numbers = there.certificate.numbers()
    for name, value in here.certificate.numbers().items():
        if value is None or name == "relative_gap":
            assert (numbers[name] is None) == (value is None)
        else:
            np.testing.assert_allclose(numbers[name], value, rtol=1e-9, atol=1e-12)
    assert [*map(numbered, there.constraints)] == [*map(numbered, here.constraints)]
    assert [*map(numbered, there.clients)] == [*map(numbered, here.clients)]
    assert there.inputs.classes == here.inputs.classes
