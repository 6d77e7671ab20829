"""Polyhedra over clients keep what they met: no answer may depend on it, and programs must be saved
by it.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from problems import PLAIN, federation
from scipy.optimize import linprog

import bonafed as bf
from bonafed.engines.checkpoint import describe
from bonafed.rounds import encode
from bonafed.solution.plan import configure
from bonafed.solvers.sets import polyhedra
from bonafed.solvers.sets.polyhedra import KEPT

EXACT = {
    "presolve": False,
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
}


def of_normal_rows(rng, n):
    D = rng.standard_normal((int(rng.integers(1, n + 3)), n))
    return D, D @ rng.dirichlet(np.ones(n)) + rng.choice([0.0, 0.01, 0.3], len(D))


def of_groups(rng, n):
    """Caps of groups in eighths: most vertices meet more rows than they need."""
    D, c = np.eye(4)[rng.integers(0, 4, n)].T, np.maximum(np.round(rng.random(4) * 8), 2) / 8
    return np.vstack([D, rng.integers(-1, 2, n)]), np.append(c, 0.0 if rng.random() < 0.3 else 1.0)


def of_whole_numbers(rng, n):
    D = rng.integers(-1, 3, (int(rng.integers(1, n)), n)).astype(float)
    return D, D.mean(1) + rng.choice([0.0, 0.25, 10.0 ** rng.uniform(-9, -3)], len(D))


def of_caps(rng, n):
    return np.eye(n), np.full(n, float(rng.choice([1 / n, 1 / (n // 2), 0.9, 1.7 / n])))


MAKERS = (of_normal_rows, of_groups, of_whole_numbers, of_caps)


def set_of(rng):
    """A set, before and after it knows its clients, and how many they are."""
    while True:
        n = int(rng.integers(3, 25))
        D, c = MAKERS[rng.integers(len(MAKERS))](rng, n)
        try:
            return bf.Polyhedron(D, c), bf.Polyhedron(D, c).at(np.ones(n)), n
        except ValueError:  # empty: nothing to be asked
            continue


def losses_of(rng, n, count):
    """A walk of small steps, between equal losses and losses that are nearly equal."""
    at, out = rng.standard_normal(n), []
    for kind in rng.integers(5, size=count):
        at = at + 0.1 * rng.standard_normal(n)
        level = np.round(rng.standard_normal(n) * 2)
        out.append(
            (at, at, at, level, level + rng.standard_normal(n) * 10.0 ** rng.uniform(-13, -2))[kind]
        )
    return out


def answer(risk, z):
    worst = risk.worst(z)
    return (
        worst.weights.tobytes()
        + np.array([worst.value, worst.bound]).tobytes()
        + risk.project(z / 3).tobytes()
    )


def test_no_answer_depends_on_what_was_asked_before():
    rng = np.random.default_rng([1, 0])
    for _ in range(12):
        given, concrete, n = set_of(rng)
        losses = losses_of(rng, n, 14)
        forward = [answer(concrete, z) for z in losses]
        other = copy.deepcopy(concrete).at(np.ones(n))
        assert [answer(other, z) for z in losses[::-1]] == forward[::-1]
        order = rng.permutation(len(losses))
        # all was met by now
        assert [answer(concrete, losses[k]) for k in order] == [forward[k] for k in order]
        assert [answer(given, z) for z in losses] == forward  # keeps nothing


def test_kept_vertices_give_the_values_of_programs():
    rng = np.random.default_rng(5)
    for _ in range(20):
        _, concrete, n = set_of(rng)
        scale = np.abs(concrete.D).max(1)
        scale = np.where(scale > 0, scale, 1.0)
        for z in losses_of(rng, n, 8):
            worst, size = concrete.worst(z), np.abs(z).max()
            lp = linprog(
                -z,
                concrete.D / scale[:, None],
                concrete.c / scale,
                np.ones((1, n)),
                [1.0],
                options=EXACT,
            )
            assert_allclose([worst.value, worst.bound], -lp.fun, rtol=0, atol=2e-9 * size)
            assert 0 <= worst.bound - worst.value <= 3e-13 * size
            assert concrete.contains(worst.weights, 1e-12)
            assert worst.weights.min() >= 0


def counted(monkeypatch, module, name):
    calls, run = [], getattr(module, name)
    monkeypatch.setattr(module, name, lambda *args: calls.append(1) or run(*args))
    return calls


def slow_walk(rng, n, count, step=0.1):
    return list(
        np.cumsum(
            np.r_[rng.standard_normal((1, n)), step * rng.standard_normal((count - 1, n))], axis=0
        )
    )


@pytest.mark.parametrize("make", MAKERS)
def test_losses_that_change_slowly_need_few_programs(make, monkeypatch):
    rng, n = np.random.default_rng(7), 24
    concrete = bf.Polyhedron(*make(rng, n)).at(np.ones(n))
    programs = counted(monkeypatch, polyhedra, "_solve")
    conic = counted(monkeypatch, polyhedra, "_guess")
    met = {concrete.worst(z).weights.tobytes() for z in slow_walk(rng, n, 60)}
    assert len(met) >= 4
    assert len(programs) <= 12
    for z in slow_walk(rng, n, 60):
        concrete.project(z / 3)
    assert len(conic) <= 12
    assert 1 <= len(vars(concrete)["_kept"][2].vertices) <= KEPT


def test_several_maximisers_are_a_matter_of_programs(monkeypatch):
    rng, n = np.random.default_rng(8), 12
    D = rng.standard_normal((3, n))
    concrete = bf.Polyhedron(D, D.mean(1) + 0.1).at(np.ones(n))
    programs = counted(monkeypatch, polyhedra, "_solve")
    z = rng.standard_normal(n)
    concrete.worst(z)
    concrete.worst(z)
    assert len(programs) == 1
    y, level = rng.random(3), 2.0  # z on a face: D'y + level but for clients that never count
    for _ in range(3):
        concrete.worst(y @ D + level)
    assert len(programs) == 4


def test_what_was_met_is_no_part_of_the_set():
    rng = np.random.default_rng(9)
    given, concrete, n = bf.Polyhedron(*of_normal_rows(rng, 9)), None, 9
    concrete, fresh = given.at(np.ones(n)), given.at(np.ones(n))
    before = describe(concrete)
    for z in slow_walk(rng, n, 20):
        answer(concrete, z)
    assert describe(concrete) == before == describe(fresh)
    assert {field.name for field in dataclasses.fields(concrete)} == {"D", "c"}
    assert len(pickle.dumps(concrete)) == len(pickle.dumps(fresh))
    z = rng.standard_normal(n)
    for copied in (
        pickle.loads(pickle.dumps(concrete)),
        copy.copy(concrete),
        copy.deepcopy(concrete),
    ):
        assert set(vars(copied)) == {"D", "c"}
        assert answer(copied, z) == answer(concrete, z)
    wider = dataclasses.replace(concrete, c=concrete.c + 0.2)
    assert (
        answer(wider, z)
        == answer(bf.Polyhedron(concrete.D, concrete.c + 0.2), z)
        != answer(concrete, z)
    )
    with pytest.raises(ValueError, match="read-only"):
        concrete.c[0] = 0.0


@pytest.mark.parametrize("algorithm", [bf.AFL(tol=1e-9), bf.MultiplierMethod(), bf.DRFA()])
def test_a_run_that_is_killed_and_resumed_is_the_same(algorithm, tmp_path):
    clients, D = federation(4, n_clients=6), np.random.default_rng(12).standard_normal((3, 6))
    over = bf.Polyhedron(D, D.mean(1) + 0.1)
    problem = bf.Problem(bf.Logistic(), PLAIN, over_clients=over, regulariser=bf.L2(0.01))

    def ran(name, max_rounds, resume=False):
        concrete, data = problem.at(clients)  # a set that has met nothing
        ready = configure(algorithm, concrete, data, None, None, None, None)
        return bf.InProcess(checkpoint=tmp_path / name).run(
            ready, data, seed=3, max_rounds=max_rounds, resume=resume
        )

    whole = ran("whole", 30)
    assert whole.rounds > 8
    for stop in (3, 7):
        ran(f"{stop}", stop)
        resumed = ran(f"{stop}", 30, resume=True)
        assert resumed.rounds == whole.rounds
        assert encode(resumed.state) == encode(whole.state)


def digest(first):
    """Of the answers to the second half of a sequence, after as much of the first half as is asked
    for.
    """
    rng, hashed = np.random.default_rng(11), hashlib.sha256()
    for _ in range(6):
        _, concrete, n = set_of(rng)
        losses = losses_of(rng, n, 16)
        for z in losses[:8][:first]:
            concrete.worst(z)
            concrete.project(z / 3)
        for z in losses[8:]:
            hashed.update(answer(concrete, z))
    return hashed.hexdigest()


def test_a_new_process_answers_alike():
    here = digest(8)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_polyhedron_kept as t;"
        " print(t.digest(0), t.digest(3))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert told.stdout.split() == [here, here]
