"""What doubles give away about one record finds nothing in the answers of private clients."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import attacks
import numpy as np
import pytest
from attacks import BUDGET, CLIP, METHODS, SIZE, Attack, Clients
from problems import PLAIN, SOFTMAX
from scipy import sparse, stats

from bonafed.data.federation import Federation
from bonafed.privacy.accounting import noise_for
from bonafed.problem.problem import Problem

RUNS = 200  # show an epsilon of up to 3.7


@pytest.mark.parametrize("name", attacks.ATTACKS)
def test_no_attack_shows_more_than_the_stated_epsilon(name):
    assert attacks.carried_out(attacks.ATTACKS[name](), RUNS).epsilon <= BUDGET.epsilon


# ---- the same attacks on the arithmetic of doubles and singles, written out here


def noised(gradient: np.ndarray, kind: str = "gaussian") -> attacks.Answers:
    """Gradient plus noise in double precision, as most libraries compute it."""
    scale = noise_for(BUDGET, 1, kind) * CLIP / SIZE

    def answer(run: int) -> np.ndarray:
        rng = np.random.default_rng(run)
        draw = rng.normal if kind == "gaussian" else rng.laplace
        return gradient + scale * draw(size=gradient.shape)

    return answer


@pytest.mark.parametrize(
    ("loss", "columns", "kind"),
    [("logistic", 784, "gaussian"), ("multinomial", 80, "gaussian"), ("multinomial", 8, "laplace")],
)
def test_low_bits_of_doubles_give_a_record_away(loss, columns, kind):
    it = attacks.lone(loss, columns, kind)
    one, other = (noised(gradient, kind) for gradient in (0 * it.gradient, it.gradient))
    attack = Attack(one, other, attacks.fine_digits(it.gradient), cut=0.5)
    found = attacks.carried_out(attack, 2 * RUNS)
    assert found.with_ == 0
    assert found.epsilon > 2 * BUDGET.epsilon


@pytest.mark.parametrize("classes", [2, 16])
@pytest.mark.parametrize("one", ["without", "turned"])
def test_sums_in_single_precision_give_a_record_or_their_order_away(classes, one):
    it = attacks.sums(classes)

    def answers(fed: Federation) -> attacks.Answers:
        terms = fed.X[0][:, :1] * it.residual.astype(np.float32)
        total = np.cumsum(terms, axis=0, dtype=np.float32)[-1]
        return noised(total.astype(float) / SIZE)

    worlds = answers(getattr(it, one)), answers(it.with_)
    attack = Attack(*worlds, lambda answer: float(answer @ it.residual))
    assert attacks.carried_out(attack, RUNS).epsilon > BUDGET.epsilon


def test_noise_on_a_coarser_grid_gives_a_record_away():
    it = attacks.lone("logistic", 40)
    step = CLIP / SIZE / 2**17
    move = np.trunc(it.gradient / step).astype(np.int64)

    def answers(move: np.ndarray) -> attacks.Answers:
        draw = noised(0 * it.gradient)
        return lambda run: step * (move + 4 * np.rint(draw(run) / (4 * step)))

    attack = Attack(answers(0 * move), answers(move), attacks.last_bit(step, move))
    assert attacks.carried_out(attack, RUNS).epsilon > 2 * BUDGET.epsilon


def test_more_missing_clients_than_the_budget_has_give_a_record_away():
    """So that the same attacks on as many as it has are no idle ones."""
    attack = attacks.several_sums(told=0, gone=39, clients=40, missing=0)
    assert attacks.carried_out(attack, 8 * RUNS).epsilon > BUDGET.epsilon


@pytest.mark.parametrize(("one", "other"), [(0.5, 0.5), (0.6, 0.2), (0.9, 0.97), (0.02, 0.01)])
def test_the_bound_exceeds_the_truth_as_seldom_as_it_says(one, other):
    """Exactly, over all counts that 30 runs of either kind can give."""
    n, counts = 30, np.arange(31)
    rates = [(one, other), (other, one), (1 - one, 1 - other), (1 - other, 1 - one)]
    truth = max(0.0, *(math.log((likely - BUDGET.delta) / rare) for likely, rare in rates))
    chances = np.outer(stats.binom.pmf(counts, n, one), stats.binom.pmf(counts, n, other))
    above = [
        [attacks.least_epsilon(int(a), int(b), n) > truth + 1e-12 for b in counts] for a in counts
    ]
    assert chances[np.array(above)].sum() <= 1 - attacks.CONFIDENCE


def test_a_vector_without_masks_gives_a_record_away():
    it = attacks.secure_sum(masked=True)
    bare = [
        lambda run, own=own: np.stack([0 * own.answers(run), own.answers(run)])
        for own in (it.without, it.with_)
    ]
    attack = replace(it, without=bare[0], with_=bare[1])
    assert attacks.carried_out(attack, RUNS).epsilon > 2 * BUDGET.epsilon


# ---- what holds of every single answer


def table(loss: str, m: int = 500) -> tuple[np.ndarray, np.ndarray]:
    rng, d = np.random.default_rng(1), 6
    X = rng.standard_normal((m, d)) * rng.choice([0.1, 1.0, 30.0], (m, 1))
    y = rng.integers(0, 3 if loss == "multinomial" else 2, m)
    return X, y + X[:, 0] if attacks.LOSSES[loss].targets == "real" else y


def federation(loss: str, rows: str, X: np.ndarray, y: np.ndarray) -> Federation:
    real = attacks.LOSSES[loss].targets == "real"
    classes = None if real else np.arange(3 if loss == "multinomial" else 2)
    own: Any = sparse.csr_array(X) if rows == "sparse" else X
    fed = Federation(("a",), (own,), (y,), classes=classes)
    return fed.single() if rows == "single" else fed


def clients(loss: str, fed: Federation, method: str = "ObjT", **settings: Any) -> Clients:
    """The client, which is asked about a model that is not 0."""
    problem = Problem(
        attacks.LOSSES[loss], SOFTMAX if loss == "multinomial" else PLAIN, privacy=BUDGET
    )
    size = problem.at(fed)[0].predictor.dimension(fed.n_features)
    start = np.random.default_rng(2).standard_normal(size)
    return Clients.of(problem, fed, METHODS[method](start=start, **settings))


EACH = pytest.mark.parametrize("loss", attacks.LOSSES)
ROWS = pytest.mark.parametrize("rows", ["double", "single", "sparse"])


@EACH
@ROWS
def test_the_order_of_the_rows_changes_no_bit_of_an_answer(loss, rows):
    X, y = table(loss)
    answer = clients(loss, federation(loss, rows, X, y))(0)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(y))
        turned = federation(loss, rows, X[order], y[order])
        np.testing.assert_array_equal(clients(loss, turned)(0), answer)


@EACH
@ROWS
@pytest.mark.parametrize("place", [0, 17, 499])
def test_a_row_changes_no_bit_of_the_columns_where_it_has_zeros(loss, rows, place):
    X, y = table(loss)
    X[place, 2:] = 0
    others = np.arange(len(y)) != place
    one, other = (
        clients(loss, federation(loss, rows, *each))(0).reshape(6, -1)
        for each in ((X, y), (X[others], y[others]))
    )
    np.testing.assert_array_equal(one[2:], other[2:])
    assert (one[:2] != other[:2]).any()


@EACH
@pytest.mark.parametrize("rows", ["double", "sparse"])  # singles round what is below 2^-24
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_every_answer_is_a_whole_number_of_public_units(loss, rows, kind):
    """Whatever the data are: also the last digits that a double has tell nothing else."""
    fed = federation(loss, rows, *table(loss))
    for method in METHODS:
        asked = clients(loss, fed, method, mechanism=kind)
        asked = replace(asked, run=replace(asked.run, start=None))  # at 0 nothing is rounded
        step = attacks.unit(asked.run.plan)[0]
        answer = asked(0) / step
        rounding = 4 * np.finfo(float).eps * np.abs(answer)
        assert rounding.max() < 0.01
        assert (np.abs(answer - np.rint(answer)) <= rounding).all()


@pytest.mark.parametrize("classes", [2, 16])
def test_crafted_rows_move_a_sum_by_no_more_than_the_clip(classes):
    it = attacks.sums(classes)
    run = METHODS["ObjT"]()
    one, other, turned = (
        Clients.of(it.problem, fed, run)(0) for fed in (it.without, it.with_, it.turned)
    )
    np.testing.assert_array_equal(other, turned)
    rounding = 4 * np.finfo(np.float32).eps * np.abs(one).max()  # of answers in single precision
    assert np.linalg.norm(other - one) <= CLIP / SIZE + rounding
