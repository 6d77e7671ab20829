"""Constraints in the master of Bundle: every convex pair is solved, proved and equal to CVXPY."""

from __future__ import annotations

from dataclasses import replace

import limit_programs as programs
import numpy as np
import pytest

import bonafed as bf
import examples
from bonafed.algorithms.requirements import Setting, constraints_of
from bonafed.certificates.duality import certify_run
from bonafed.names import NAMED, load
from bonafed.problem.constraints.constraint import Point
from bonafed.problem.lower_bounds import Duals, as_duals
from bonafed.problem.parts import WHOLE, Parts, least_rows, parted_cut, parted_limits, stored

LOSSES = [*(load("loss", name)() for name in NAMED["loss"]), bf.Quadratic()]
SETS = [
    bf.Mean(),
    bf.Sum(),
    bf.Simplex(),
    bf.LpBall(0.1),
    bf.LpBall(0.2, np.inf),
    bf.Superquantile(0.5),
    bf.KLBall(0.2),
    bf.ChiSquareBall(0.3),
    bf.TotalVariationBall(0.2),
    bf.CDNorm(1.5, np.full(3, 0.3)),
    bf.Box(np.full(3, 0.1), np.full(3, 0.6)),
    bf.Ellipsoid(np.full(3, 1.0), 0.05),
    bf.Polyhedron(np.array([[1.0, -1.0, 0.5]]), [0.3]),
    bf.WassersteinOverClients(0.2, "index"),
    bf.Extremile(2.0),
    bf.ExponentialSpectral(2.0),
    bf.Maximum(),
    bf.TopK(2),
    bf.Spectral([0.1, 0.3, 0.6]),
    bf.OwnSet(bf.Superquantile(0.6).weights),
]
BOX = bf.BoxSupport(-4.0, 4.0)
CORNER = bf.PolytopeSupport(
    np.vstack([np.eye(3), -np.eye(3), np.ones((1, 3))]), np.append(np.full(6, 4.0), 10.0)
)
SAMPLES = [
    bf.Mean(),
    bf.WassersteinBall(0.05),
    *(bf.WassersteinBall(0.05, 0.5, norm) for norm in ("l1", "l2", "linf")),
    *(bf.WassersteinBall(0.05, 1.0, norm, BOX) for norm in ("l1", "l2", "linf")),
    *(bf.WassersteinBall(0.05, 1.0, norm, CORNER) for norm in ("l1", "l2")),
    bf.Superquantile(0.4),
    bf.Extremile(2.0),
    bf.ExponentialSpectral(1.5),
    bf.Maximum(),
    bf.TopK(3),
]
METHOD = bf.Bundle(least_rows=4)
HINGE, LOGISTIC = bf.Hinge(), bf.Logistic()


def pairs() -> list[tuple]:
    """Every constraint with every loss, every risk over clients and every risk over samples, where
    the problem can be stated; the reasons for others are in docs/combinations.md.
    """
    names = dict.fromkeys(name for loss in LOSSES for name in programs.limits(loss))
    cases = []
    for k, name in enumerate(names):
        losses = [loss for loss in LOSSES if name in programs.limits(loss)]
        both = [(loss, risk) for loss in losses for risk in SAMPLES if stated(loss, risk)]
        left = {str(one) for pair in both for one in pair}
        for j in range(len(SETS)):  # that pair of a loss and a risk of which the most is new
            turn = both[len(both) * j // len(SETS) :] + both[: len(both) * j // len(SETS)]
            loss, risk = max(turn, key=lambda pair, left=left: len(left & {*map(str, pair)}))
            left -= {str(loss), str(risk)}
            cases.append((name, loss, SETS[(j + 7 * k) % len(SETS)], risk))
        assert not left
    return cases


def stated(loss, samples, **slots) -> bool:
    """Whether a problem can be stated."""
    try:
        bf.Problem(loss, over_samples=samples, **slots)
    except ValueError:
        return False
    return True


def solved(name: str, loss, risk, samples, strength: float = 0.05, method=METHOD, over_rows=None):
    """The problem, its data, the solution, and the program of the same with its limits."""
    rows, slots = programs.clients(loss), {"over_samples": samples, "over_clients": risk}
    problem = bf.Problem(loss, **slots, regulariser=bf.L2(strength), over_rows=over_rows)
    problem, expressions = programs.with_limit(problem, name)
    fed = programs.federation(rows)
    solution = bf.solve(problem, fed, algorithm=method)
    program = programs.Program(problem.at(fed)[0], rows)
    return problem, fed, solution, (program, expressions(program))


def multipliers_of(solution) -> np.ndarray:
    """In the order of the limits of a program."""
    duals = solution.duals
    return np.concatenate([duals.local.ravel(), duals.shared, duals.server])


@pytest.mark.parametrize(("name", "loss", "risk", "samples"), pairs(), ids=str)
def test_pairs_are_proved_and_equal_a_central_solution(name, loss, risk, samples):
    """The least Lagrangian of CVXPY with the multipliers and client weights of the run is no higher
    than the optimum, and the model of the run no better: so both are the optimal ones.
    """
    problem, fed, solution, (program, limits) = solved(name, loss, risk, samples, method=None)
    proof = solution.certificate
    assert solution.outcome.stop is bf.Stop.OPTIMAL, solution.outcome.text
    assert solution.rounds <= 80
    assert proof.relative_gap <= 1e-6
    value, _ = program.least(proof.weights, limits, multipliers_of(solution))
    assert proof.value == pytest.approx(value, rel=2e-6)
    assert proof.bound <= value + 1e-8 * abs(value)
    assert proof.feasibility < 1e-6
    assert problem.violation(solution.w, fed) == pytest.approx(proof.feasibility, abs=1e-12)
    again = bf.certify(problem, fed, solution.w, solution.duals)
    assert again.bound == pytest.approx(proof.bound, rel=1e-12)


OVER_ROWS = [
    bf.Superquantile(0.3),
    bf.TopK(5),
    bf.Maximum(),
    bf.Spectral(np.repeat([1, 2, 6], 14) / 126),
]


def of_ranked_rows() -> list[tuple]:
    """Every constraint with every risk over the rows of all clients, beside a kinked and beside a
    smooth loss, and every loss in turn.
    """
    losses = [loss for loss in LOSSES if not isinstance(loss, bf.Quadratic)]
    names = dict.fromkeys(name for loss in losses for name in programs.limits(loss))
    cases = []
    for smooth in (False, True):
        turn = [loss for loss in losses if loss.smooth is smooth]
        for name in names:
            for risk in OVER_ROWS:
                loss = next(loss for loss in turn if name in programs.limits(loss))
                turn = [*(other for other in turn if other is not loss), loss]
                cases.append((name, loss, risk))
    assert {str(loss) for _, loss, _ in cases} == {*map(str, losses)}
    return cases


@pytest.mark.parametrize(("name", "loss", "risk"), of_ranked_rows(), ids=lambda v: str(v)[:30])
def test_constraints_where_all_rows_are_ranked(name, loss, risk):
    """As the pairs above; no better threshold makes less of the value."""
    problem, fed, solution, (program, limits) = solved(
        name, loss, bf.Mean(), bf.Mean(), method=None, over_rows=risk
    )
    proof = solution.certificate
    assert solution.outcome.stop is bf.Stop.OPTIMAL, solution.outcome.text
    assert solution.rounds <= 80
    assert proof.relative_gap <= 1e-6
    value, _ = program.least(None, limits, multipliers_of(solution))
    assert proof.value == pytest.approx(value, rel=2e-6)
    assert proof.value == pytest.approx(problem.objective(solution.w, fed), rel=1e-12)
    assert proof.bound <= value + 1e-8 * abs(value)
    assert proof.feasibility < 1e-6
    assert problem.violation(solution.w, fed) == pytest.approx(proof.feasibility, abs=1e-12)
    again = bf.certify(problem, fed, solution.w, solution.duals)
    assert again.bound == pytest.approx(proof.bound, rel=1e-12)


def test_all_parts_of_the_examples_are_in_pairs():
    """So are new ones: a loss in ``bonafed.names``, a risk or a constraint in tests/examples.py."""
    cases = pairs()
    assert {loss for _, loss, _, _ in cases} == {*LOSSES}
    assert {type(r) for r in examples.RISKS} <= {type(risk) for _, _, risk, _ in cases}
    over_samples = {load("risk over samples", name) for name in NAMED["risk over samples"]}
    over_samples -= {type(risk) for risk in examples.NONCONVEX_RISKS}
    assert over_samples <= {type(risk) for risk in SAMPLES}
    assert {str(risk) for *_, risk in cases} == {str(risk) for risk in SAMPLES}
    limited = {
        type(part.constraint if isinstance(part, bf.Coupled) else part)
        for loss in LOSSES
        for limit in programs.limits(loss).values()
        for part in limit.slots(0.5).values()
    }
    for one in examples.CONSTRAINTS.values():
        part = one.stated.constraint if isinstance(one.stated, bf.Coupled) else one.stated
        assert type(part) in limited or not getattr(part, "convex", True)


# of a smaller tail the model is 0 under some limits, where all rows tie and multipliers are not
# unique
@pytest.mark.parametrize("over_rows", [None, bf.Superquantile(0.9)], ids=["mean", "ranks"])
@pytest.mark.parametrize("name", programs.limits(LOGISTIC))
def test_multipliers_are_those_of_a_central_solution(name, over_rows):
    _, _, solution, (program, limits) = solved(
        name, LOGISTIC, bf.Mean(), bf.Mean(), over_rows=over_rows
    )
    _, multipliers = program.least(np.full(3, 1 / 3), limits)
    ours, multipliers = multipliers_of(solution), np.ravel(multipliers)
    if name == "norm":  # every client has it: their multipliers add up
        ours, multipliers = ours.sum(keepdims=True), multipliers.sum(keepdims=True)
    assert np.abs(multipliers).max() > 1e-3
    assert ours == pytest.approx(multipliers, abs=2e-3 * max(1.0, np.abs(multipliers).max()))


@pytest.mark.parametrize("curved", [False, True])
def test_units_of_a_limit_change_nothing(curved):
    """Also where its gradient is zero at the start."""
    row, fed = np.array([1.0, 1.0, 1.0, 0.0]), programs.federation(programs.clients(HINGE))
    seen = []
    for size in (1.0, 1e-5, 1e6):

        def limit(w, X, y, size=size):
            value, slope = programs._ball(w, X, y)
            return size * value, size * slope

        held = bf.Constraint(limit, convex=True)
        linear = bf.LinearInequality(size * row, -0.2 * size)
        slots = {"local_constraint": held} if curved else {"constraint": linear}
        problem = bf.Problem(bf.Hinge(), regulariser=bf.L2(0.05), **slots)
        solution = bf.solve(problem, fed, algorithm=METHOD)
        assert solution.outcome.stop is bf.Stop.OPTIMAL, solution.outcome.text
        assert solution.rounds <= 45
        duals = solution.duals.local if curved else solution.duals.server
        seen.append((solution.certificate.value, duals.sum() * size))
    for other in seen[1:]:
        assert other == pytest.approx(seen[0], rel=1e-6)


RISKS_OF_ROWS = {
    "mean": {},
    "worst case": {"over_samples": bf.WassersteinBall(0.05)},
    "ranks at clients": {"over_samples": bf.Superquantile(0.4)},
    "ranks of all rows": {"over_rows": bf.Superquantile(0.4)},
}


@pytest.mark.parametrize("risk", RISKS_OF_ROWS)
@pytest.mark.parametrize("loss", [bf.Hinge(), bf.Logistic()], ids=str)
@pytest.mark.parametrize("kind", ["groups", "linear", "classes"])
def test_that_nothing_is_feasible_is_proved(kind, loss, risk):
    fed = programs.federation(programs.clients(HINGE))
    row = np.array([1.0, 1.0, 1.0, 0.0])
    slots = {
        "groups": {"local_constraint": bf.BoundedGroupLoss("sex", 0.2)},
        "linear": {"constraint": bf.LinearInequality(np.array([row, -row]), [-0.2, 0.3])},
        "classes": {
            "local_constraint": bf.NeymanPearson(1.0, 0.1),
            "constraint": bf.Coupled(bf.NeymanPearson(-1.0, 0.1)),
        },
    }[kind]
    problem = bf.Problem(loss, regulariser=bf.L2(0.05), **RISKS_OF_ROWS[risk], **slots)
    solution = bf.solve(problem, fed, algorithm=METHOD)
    assert solution.outcome.stop is bf.Stop.INFEASIBLE, solution.outcome.text
    least = solution.certificate.infeasible
    assert 0 < least <= problem.violation(solution.w, fed) * (1 + 1e-9)
    for w in np.random.default_rng(0).standard_normal((20, 4)):
        assert least <= problem.violation(w, fed) * (1 + 1e-9)


@pytest.mark.parametrize("risk", RISKS_OF_ROWS)
@pytest.mark.parametrize("loss", [bf.Hinge(), bf.Multinomial()], ids=str)
def test_a_run_with_limits_goes_on_from_its_checkpoint(loss, risk, tmp_path):
    """Whichever round was its last: with and without cuts that prove a bound."""
    fed = programs.federation(programs.clients(loss))
    problem = bf.Problem(
        loss,
        regulariser=bf.L2(0.05),
        local_constraint=bf.BoundedGroupLoss("sex", 1.2),
        **RISKS_OF_ROWS[risk],
    )
    whole = bf.solve(problem, fed, algorithm=METHOD)
    assert whole.outcome.stop is bf.Stop.OPTIMAL, whole.outcome.text
    for last in range(2, whole.rounds, 1 + whole.rounds // 8):
        engine = bf.InProcess(checkpoint=tmp_path / f"{last}.bft")

        def stop(row, state, last=last):
            if row["round"] == last:
                raise KeyboardInterrupt

        part = bf.solve(problem, fed, algorithm=METHOD, engine=engine, watch=[stop])
        assert part.outcome.stop is bf.Stop.INTERRUPTED
        again = bf.solve(problem, fed, algorithm=METHOD, engine=engine, resume=True)
        assert again.w.tolist() == whole.w.tolist()
        assert again.certificate.bound == whole.certificate.bound


@pytest.mark.parametrize("loss", [bf.Hinge(), bf.Logistic()], ids=str)
def test_at_the_model_zero_a_broken_limit_that_others_meet_proves_nothing(loss):
    """A million times as large as zero is zero: a limit's own size bounds what is proved."""
    fed = programs.federation(programs.clients(loss))
    row = np.array([[-1.0, 0.0, 0.0, 0.0]])
    problem = bf.Problem(loss, constraint=bf.LinearInequality(row, 1.0), regulariser=bf.L2(0.05))
    cuts = {"multipliers": np.zeros((1, 3, 1)), "limits": np.ones((1, 1, 1))}
    duals = Duals(np.full(3, 1 / 3), np.zeros((1, 4)), parts=stored(WHOLE), **cuts)
    proof = certify_run(problem, fed, np.zeros(4), duals, infeasible=True)[0]
    assert problem.violation(np.zeros(4), fed) == 1.0
    assert problem.violation(np.array([1.0, 0, 0, 0]), fed) == 0.0
    assert proof.infeasible is None


@pytest.mark.parametrize("sizes", [(1.0, 1.0), (1e-6, 1e-6), (1e-3, 1e3)], ids=str)
@pytest.mark.parametrize("loss", [bf.Hinge(), bf.Logistic()], ids=str)
@pytest.mark.parametrize("h", [bf.L2(0.01), bf.L1(0.01), bf.Ball(2.0)], ids=str)
def test_a_limit_may_need_the_coefficient_of_a_column_of_zeros(loss, h, sizes):
    """Such a column has no size, and its coefficient counts as others do."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((90, 3)) * [*sizes, 0.0]
    y = np.where(X @ [1 / sizes[0], -1 / sizes[1], 0] + rng.standard_normal(90) > 0, 1.0, -1.0)
    fed = bf.Federation.from_arrays(X, y, np.repeat(["a", "b", "c"], 30))
    limit = bf.LinearInequality(np.array([[0.0, 0.0, -1.0, 0.0]]), 1.0)  # at least one
    problem = bf.Problem(loss, over_clients=bf.Simplex(), constraint=limit, regulariser=h)
    solution = bf.solve(problem, fed, algorithm=bf.Bundle())
    assert solution.outcome.stop is bf.Stop.OPTIMAL, solution.outcome.text
    assert solution.w[2] >= 1 - 1e-6


def test_a_value_of_zero_is_the_least_and_is_said_in_words():
    """No loss is negative, whether or not constraints stand beside it."""
    X, y = np.zeros((20, 2)), np.zeros(20)
    fed = bf.Federation.from_arrays(X, y, np.repeat(["a", "b"], 10))
    for h in (bf.L2(0.01), bf.Bounds(-1.0, 1.0)):
        for risk in (bf.Mean(), bf.WassersteinBall(0.1)):
            limit = bf.LinearInequality(np.array([[1.0, 0.0, 0.0]]), -1.0)
            problem = bf.Problem(bf.Absolute(), None, risk, regulariser=h, constraint=limit)
            solution = bf.solve(problem, fed, algorithm=METHOD)
            assert solution.outcome.stop is bf.Stop.OPTIMAL, solution.outcome.text
            assert solution.certificate.bound == 0.0
            assert "nan" not in solution.outcome.text
            assert "inf" not in solution.outcome.text


def test_an_equality_is_two_cuts_whatever_the_rounds():
    """Else the multipliers of equal cuts add up to their penalty, and that grows without need."""
    _, _, solution, _ = solved(
        "equality", bf.Multinomial(), bf.Mean(), bf.Mean(), over_rows=bf.Maximum()
    )
    assert solution.outcome.stop is bf.Stop.OPTIMAL, solution.outcome.text
    assert solution.rounds > 12
    cuts, n = solution.state.cuts, 3
    assert np.bincount(cuts.owner)[n:].tolist() == [1, 1]
    assert solution.state.penalties.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("loss", [bf.Hinge(), bf.Logistic(), bf.Multinomial()], ids=str)
def test_the_objective_of_one_class_is_bounded_by_the_limit_of_the_other(loss):
    samples = bf.Mean(label=0 if loss.targets == "class" else -1.0)
    _, _, solution, (program, limits) = solved("Neyman-Pearson", loss, bf.Mean(), samples)
    assert solution.outcome.stop is bf.Stop.OPTIMAL, solution.outcome.text
    value, _ = program.least(np.full(3, 1 / 3), limits)
    assert solution.certificate.value == pytest.approx(value, rel=2e-6)


def test_forged_multipliers_prove_nothing_above_the_optimum():
    problem, fed, solution, (program, limits) = solved(
        "Neyman-Pearson", HINGE, bf.Simplex(), bf.WassersteinBall(0.05)
    )
    value, _ = program.least(solution.certificate.weights, limits)
    rng, honest = np.random.default_rng(1), solution.duals
    for turn in range(60):
        forged = {
            name: getattr(honest, name) * rng.uniform(0, 3, getattr(honest, name).shape)
            + (turn % 3) * 0.1 * rng.standard_normal(getattr(honest, name).shape)
            for name in ("points", "risk_cuts", "limit_cuts", "weights", "local")
            if rng.uniform() < 0.5
        }
        proof = bf.certify(problem, fed, solution.w, replace(honest, **forged))
        assert proof.bound is None or proof.bound <= value * (1 + 1e-9)
        assert proof.value == solution.certificate.value


@pytest.mark.parametrize("loss", [bf.Hinge(), bf.Logistic()], ids=str)
def test_no_group_has_fewer_rows_of_a_class_than_asked(loss):
    """A cut of a group is a sum over the rows that count in it, for a constraint and for a risk of
    one class.
    """
    X = np.random.default_rng(0).standard_normal((90, 2))
    y = np.where(np.arange(90) % 9 < 2, 1.0, -1.0)  # 20 of a class
    fed = bf.Federation.from_arrays(X, y, np.zeros(90, int))
    problem = bf.Problem(
        loss,
        over_samples=bf.Mean(label=1.0),
        local_constraint=bf.NeymanPearson(1.0, 0.9),
        constraint=bf.Coupled(bf.NeymanPearson(-1.0, 0.9)),
    )
    concrete, data = problem.at(fed)
    block, parts = data.block(0), Parts(9, 8, 0)
    point = Point(concrete, np.zeros(3), block)
    of_class = parted_limits(concrete.local_constraint, point, parts)[1][0, 0, :, -1]
    of_other = parted_limits(concrete.constraint.coupled, point, parts)[1][0, 0, :, -1]
    of_risk = parted_cut(concrete, np.zeros(3), block, parts).gradient[0, :, -1]
    slope = float(loss.gradient(np.zeros(1), np.ones(1))[0])
    for sums, rows in ((of_class, 20), (of_other, 70), (of_risk, 20)):
        counts = np.abs(sums) * rows / abs(slope)
        assert counts.sum() == pytest.approx(rows)
        assert counts[counts > 0].min() >= 8 - 1e-9
    assert least_rows(concrete, block, parts) == 8
    assert least_rows(concrete, block, Parts(9, 2, 0)) == 2


def test_known_cuts_are_of_the_clients_risks_whatever_their_radius():
    fed = programs.federation(programs.clients(HINGE))
    limited = bf.Problem(
        bf.Hinge(),
        over_samples=bf.WassersteinBall(0.05),
        local_constraint=bf.NeymanPearson(1.0, 0.5),
        regulariser=bf.L2(0.05),
    )
    first = bf.solve(limited, fed, algorithm=METHOD)
    wider = replace(limited, over_samples=bf.WassersteinBall(0.1))
    known = replace(METHOD, known=first.state.cuts)
    again = bf.solve(wider, fed, algorithm=known)
    assert again.outcome.stop is bf.Stop.OPTIMAL, again.outcome.text
    alone = bf.solve(replace(wider, local_constraint=None), fed, algorithm=known)
    assert alone.outcome.stop is bf.Stop.OPTIMAL, alone.outcome.text
    smooth = replace(limited, loss=bf.Logistic())
    newton = bf.solve(replace(smooth, local_constraint=None), fed).state.cuts
    with pytest.raises(ValueError, match="known holds cuts of a run by second derivatives"):
        bf.solve(smooth, fed, algorithm=bf.Bundle(known=newton))
    with pytest.raises(ValueError, match="metric='hessian' takes no constraints"):
        bf.solve(smooth, fed, algorithm=bf.Bundle(metric="hessian"))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("limit", [None, bf.NeymanPearson(1.0, 0.7)], ids=["free", "limited"])
def test_known_cuts_of_flips_prove_a_bound_at_radius_zero(limit, seed):
    """There a transport multiplier costs nothing, and a rounding error of a cut that spends on it
    would leave no bound.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((120, 3))
    y = np.where(X[:, 0] + rng.standard_normal(120) > 0, 1.0, -1.0)
    fed = bf.Federation.from_arrays(X, y, np.repeat(["a", "b", "c"], 40))
    slots = {"over_clients": bf.Simplex(), "regulariser": bf.L2(0.01)}
    wide = bf.Problem(bf.Hinge(), None, bf.WassersteinBall(0.05, 1.0), **slots)
    cuts = bf.solve(wide, fed, algorithm=bf.Bundle()).state.cuts
    assert (cuts.gradient_level < 0).any()
    for samples in (bf.Mean(), bf.WassersteinBall(0.0, 1.0)):
        sharp = replace(wide, over_samples=samples, local_constraint=limit)
        solution = bf.solve(sharp, fed, algorithm=bf.Bundle(known=cuts))
        assert solution.outcome.stop is bf.Stop.OPTIMAL, solution.outcome.text


def test_what_is_not_convex_is_refused_and_what_is_convex_is_taken():
    setting = Setting(3)
    for limit, taken in (
        (bf.LossGap("sex", 0.1), False),
        (bf.DemographicParity("sex", 0.1, bf.Probability()), False),
        (bf.DemographicParity("sex", 0.1), True),
        (bf.NeymanPearson(1.0, 0.5), True),
        (bf.Constraint(programs._ball), False),
    ):
        problem = bf.Problem(bf.Hinge(), over_samples=bf.Superquantile(0.3), local_constraint=limit)
        assert len(constraints_of(problem)) == 1
        assert (METHOD.requirements.refusal("Bundle", problem, setting) is None) is taken


def test_cuts_of_a_solution_are_kept_with_its_multipliers():
    _, _, solution, _ = solved("groups", bf.Hinge(), bf.Mean(), bf.Mean())
    duals = as_duals(solution.duals)
    assert duals is not None
    assert duals.limits.shape[1] == 6  # two groups of three clients
    assert solution.duals.local.ravel() == pytest.approx(duals.limits.sum(0).mean(1), abs=1e-12)


@pytest.mark.parametrize("h", [bf.L2(0.05), bf.Ball(1.0)], ids=str)
def test_the_objective_of_one_class_is_proved_without_a_limit(h):
    """Its multipliers are of cuts: they have no minorants of mean losses."""
    problem = bf.Problem(LOGISTIC, over_samples=bf.Mean(label=-1.0), regulariser=h)
    fed = programs.federation(programs.clients(LOGISTIC))
    proof = bf.solve(problem, fed, algorithm=METHOD, max_rounds=40).certificate
    assert not proof.failed
    assert proof.bound <= proof.value


@pytest.mark.parametrize(
    "h", [bf.Ball(9.0), bf.Ball(0.1), bf.GroupL2(0.02, (0, 0, 1, 1)), bf.L1(0.02)], ids=str
)
@pytest.mark.parametrize("risk", [bf.KLBall(0.2), bf.Extremile(2.0)], ids=str)
def test_quadratic_clients_are_proved_by_their_curvatures(h, risk):
    """Also where h has none: in the inside of a ball, and on groups that are not zero."""
    loss = bf.Quadratic()
    problem, _ = programs.with_limit(bf.Problem(loss, over_clients=risk, regulariser=h), "linear")
    solution = bf.solve(problem, programs.federation(programs.clients(loss)))
    assert solution.outcome.stop is bf.Stop.OPTIMAL, solution.outcome.text
    assert solution.certificate.relative_gap <= 1e-6
