"""Constraints as a person reads them: rows against the raw data, and prices against problems solved
again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from constrained_programs import clients, rows_of, stated
from problems import PLAIN

import bonafed as bf
from bonafed.problem.lower_bounds import Multipliers, owners
from bonafed.solution.tables import (
    broken,
    constraint_rows,
    constraint_table,
    gains,
    in_conflict,
    limits_of,
    tightest,
)

LEVELS = np.array([0.5, 0.45, 0.6])


def solve(problem, fed):
    """To more digits than the differences of prices need."""
    return bf.solve(problem, fed, algorithm=bf.InteriorPoint(), tol=1e-11)


@pytest.mark.parametrize("h", [bf.Zero(), bf.L1(0.01), bf.L2(0.02), bf.Bounds(-2.0, 2.0)])
def test_relaxing_a_limit_lowers_the_objective_by_its_price(h):
    """By at most price * 0.01 (convex), and by that to first order."""
    fed = clients(weights=True)
    before = solve(stated(fed, level=LEVELS, h=h), fed)
    assert before.outcome.stop is bf.Stop.OPTIMAL
    rows = {row["owner"]: row for row in before.constraints}
    assert max(row["price"] for row in rows.values()) > 1e-2
    for i, name in enumerate(fed.clients):
        price, gains = rows[name]["price"], {}
        for change in (0.01, 1e-4, -1e-4):
            level = LEVELS + change * (np.arange(3) == i)
            again = solve(stated(fed, level=level, h=h), fed)
            assert again.outcome.stop is bf.Stop.OPTIMAL
            gains[change] = before.certificate.value - again.certificate.value
            assert gains[change] <= price * change + 1e-9
        assert (gains[1e-4] - gains[-1e-4]) / 2e-4 == pytest.approx(price, abs=1e-3 * (1 + price))
        assert gains[0.01] >= -1e-9


def test_prices_are_in_the_scale_of_the_objective():
    """A sum over clients instead of their mean triples objective and prices; units of a constraint
    divide its price.
    """
    fed = clients()
    mean = solve(stated(fed), fed)
    total = solve(stated(fed, over_clients=bf.Sum()), fed)
    assert total.duals.local == pytest.approx(3 * mean.duals.local, rel=1e-6, abs=1e-9)
    C = np.array([[1.0, 1.0, 0.0, 0.0]])
    one, other = (
        solve(
            bf.Problem(bf.Logistic(), PLAIN, constraint=bf.LinearInequality(size * C, size * 0.2)),
            fed,
        )
        for size in (1.0, 1e4)
    )
    assert one.duals.server[0] > 1e-3
    assert other.duals.server[0] * 1e4 == pytest.approx(one.duals.server[0], rel=1e-6)


def test_prices_of_equalities_have_a_sign():
    fed = clients()
    C = np.array([[1.0, -1.0, 0.0, 0.0]])

    def at(d):
        return solve(bf.Problem(bf.Logistic(), PLAIN, constraint=bf.LinearEquality(C, [d])), fed)

    for d in (-1.5, 1.5):
        here, h = at(d), 1e-4
        assert here.constraints[0]["limit"] == -d
        # of a larger limit -d
        gradient = (at(d - h).certificate.value - at(d + h).certificate.value) / (2 * h)
        assert gradient == pytest.approx(-here.constraints[0]["price"], rel=1e-4)


def test_the_price_of_a_limit_for_all_clients_together():
    fed = clients()

    def at(level):
        held = bf.Coupled(bf.NeymanPearson(1, level))
        return solve(replace(stated(fed), local_constraint=None, constraint=held), fed)

    price = at(0.4).constraints[0]["price"]
    low, high = (at(0.4 + change).certificate.value for change in (-1e-4, 1e-4))
    assert (low - high) / 2e-4 == pytest.approx(price, rel=1e-4)
    assert price > 0.01


def test_a_proof_of_infeasibility_is_no_price():
    fed = clients()
    solution = solve(stated(fed, level=0.1), fed)
    assert solution.outcome.stop is bf.Stop.INFEASIBLE
    assert solution.duals.local.max() > 0
    assert {row["price"] for row in solution.constraints} == {0.0}
    assert gains(solution.constraints) == []


def test_the_table_is_the_raw_rows():
    fed = clients(weights=True)
    C, d = np.array([[1.0, 0.0, 0.0, 2.0], [0.0, 1.0, 0.0, 0.0]]), np.array([-2.0, -0.9])
    held = bf.LinearInequality(C, d), bf.Coupled(bf.NeymanPearson(0, 0.9))
    problem = stated(fed, level=LEVELS + 0.1, h=bf.L2(0.05), constraint=held)
    solution = solve(problem, fed)
    w, table = solution.w, solution.constraints
    assert [row["owner"] for row in table] == ["server", "server", "all clients", *fed.clients]
    measured, limits = [], []
    for X, y, share in rows_of(fed):
        loss = np.log1p(np.exp(-y * (X @ w)))
        measured.append(share[y > 0] @ loss[y > 0] / share[y > 0].sum())
    weight = np.concatenate(fed.sample_weight)
    X, y = np.vstack([r[0] for r in rows_of(fed)]), np.concatenate([r[1] for r in rows_of(fed)])
    loss = np.log1p(np.exp(-y * (X @ w)))
    together = weight[y < 0] @ loss[y < 0] / weight[y < 0].sum()
    measured, limits = [*(C @ w), together, *measured], [*(-d), 0.9, *LEVELS + 0.1]
    for row, value, limit in zip(table, measured, limits, strict=True):
        assert row["measured"] == pytest.approx(value, rel=1e-10, abs=1e-12)
        assert row["limit"] == pytest.approx(limit, rel=1e-12)
        assert row["slack"] == pytest.approx(limit - value, abs=1e-10)
        assert row["met"]
        assert value <= limit + 1e-6
        assert row["price"] >= 0
        assert row["price"] * row["slack"] <= 1e-8
    for client, row in zip(solution.clients, table[3:], strict=True):
        assert {key: client[key] for key in ("limit", "measured", "slack", "price")} == {
            key: row[key] for key in ("limit", "measured", "slack", "price")
        }


def test_words():
    fed = clients()
    both = bf.NeymanPearson(1, 0.3), bf.LinearEquality(np.eye(4)[:1], [-0.5])
    concrete, data = replace(stated(fed), local_constraint=both).at(fed)
    from bonafed.certificates.certify import certify_constrained

    mu = Multipliers(np.zeros(0), np.zeros(0), np.array([[0.2, 0.0], [0.0, -3.0], [1e-12, 0.0]]))
    proof = certify_constrained(concrete, data, np.zeros(4), mu)[0]
    table = constraint_table(concrete, data.clients, limits_of(concrete, data), proof, mu)
    assert len(table) == 6
    assert not any(row["met"] for row in table)
    assert table[1]["slack"] == -0.5  # of an equality never positive
    assert tightest(table)["clinic 0"] == {
        "limit": 0.5,
        "measured": 0.0,
        "slack": -0.5,
        "price": 0.0,
    }
    assert "nobody" not in tightest(table)
    told = broken(table, most=2)
    assert told.startswith("clinic 0 (own row 1") or told.startswith("clinic 0 (row 1")
    assert told.endswith("and 4 more")
    said = gains(table)
    assert len(said) == 2  # 1e-12 buys nothing
    assert "clinic 1" in said[0]
    assert said[0].endswith("by at most 0.03.")
    assert said[1].endswith("by at most 0.002.")
    assert gains(table, change=0.1)[0].endswith("by at most 0.3.")
    assert gains(table, convex=False)[0].endswith("by about 0.03.")
    assert owners(concrete, mu, fed.clients) == ["clinic 1", "clinic 0"]
    assert in_conflict(concrete, mu, fed.clients, most=1) == "clinic 1 and 1 more"
    loose = constraint_table(concrete, data.clients, limits_of(concrete, data), proof, mu, tol=1.0)
    assert all(row["met"] for row in loose)
    assert broken(loose) == ""


def test_a_limit_is_met_to_its_last_digits():
    """Up to 1e-6, and to 1e-6 of limits above 1."""
    fed = clients()
    C = np.vstack([np.eye(4)[0]] * 6)
    limits = np.array([0.1, 0.1, 2e9, 2e9, -2e9, 0.0])
    excess = np.array([0.9e-6, 1.1e-6, 1.9e3, 2.1e3, 2.1e3, 1.1e-6])
    constraint = bf.LinearInequality(C, -limits)
    concrete, _ = replace(stated(fed), local_constraint=None, constraint=constraint).at(fed)
    held = concrete.constraint.held
    rows = constraint_rows("server", held, limits, excess, np.zeros(6))
    assert [row["met"] for row in rows] == [True, False, True, False, False, False]


def test_owners_of_nothing():
    concrete, _ = stated(clients()).at(clients())
    none = Multipliers(np.zeros(0), np.zeros(0), np.zeros((3, 1)))
    assert owners(concrete, none, ("a", "b", "c")) == []
