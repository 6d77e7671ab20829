"""Experiments of the private ADMM: the published digits, totals, shapes, and what published
settings add up to.
"""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

from bonafed.codec import CodecError
from bonafed.data.federation import Federation
from bonafed.papers import dp_iadmm
from bonafed.papers.dp_iadmm import curves, published
from bonafed.statements import statement_bytes

REAL = pytest.mark.skipif(
    not os.environ.get("BONAFED_DATA"), reason="BONAFED_DATA names no data directory"
)


def split(seed: int = 0) -> curves.Split:
    """Generated images of 3 clients and 400 test rows of the same rule."""
    fed = curves.shaped(np.array([40, 60, 50, 400]), features=12, classes=3, seed=seed)
    own = Federation(fed.clients[:3], fed.X[:3], fed.y[:3], classes=fed.classes)
    return curves.Split(own, np.asarray(fed.X[3]), np.asarray(fed.y[3], np.intp))


# ---- data


def test_sizes_are_those_of_femnist() -> None:
    sizes = curves.ragged()
    clients, rows, mean, sd, most = curves.FEMNIST
    assert len(sizes) == clients
    assert sizes.sum() == rows
    assert sizes.max() == most
    assert sizes.min() >= 18
    assert abs(sizes.mean() - mean) < 1
    assert abs(sizes.std() / sd - 1) < 0.15


def test_error_is_the_share_of_wrong_rows() -> None:
    found = curves.Split(None, np.eye(3), np.array([0, 1, 2]))  # type: ignore[arg-type]
    assert found.error(np.eye(3).ravel()) == 0.0
    assert found.error(np.roll(np.eye(3), 1, axis=1).ravel()) == 1.0
    assert np.isclose(found.error(np.eye(3)[[0, 2, 1]].ravel()), 2 / 3)


# ---- curves


def test_a_noise_free_curve_by_hand() -> None:
    """ObjT without noise: z = w + (dual - g(z)) / rho, dual + rho (w - z), and w the mean of z -
    dual / rho.
    """
    found, rho, rounds = split(), 2.0, 5
    n, shape = found.fed.sizes.sum(), (12, 3)
    w, zs, duals = np.zeros(shape), [np.zeros(shape)] * 3, [np.zeros(shape)] * 3
    points = curves.noise_free(found, rounds).points
    for point in points:
        violation = 0.0
        for p, (X, y) in enumerate(zip(found.fed.X, found.fed.y, strict=True)):
            h = np.exp(X @ zs[p])
            g = X.T @ (h / h.sum(1, keepdims=True) - np.eye(3)[np.asarray(y, int)]) / n
            zs[p] = w + (duals[p] - g) / rho
            duals[p] = duals[p] + rho * (w - zs[p])
            violation += float(np.abs(w - zs[p]).sum()) / 3
        w = np.mean([z - dual / rho for z, dual in zip(zs, duals, strict=True)], axis=0)
        assert np.isclose(point.violation, violation, rtol=1e-9)
        assert point.error == found.error(w.ravel())
    assert [point.round for point in points] == list(range(1, rounds + 1))


def test_published_settings_carry_no_guarantee_and_totals_do() -> None:
    found = split()
    for name in curves.METHODS:
        (run,) = curves.published(found, name, 1.0, 3, [0])
        assert run.epsilon is None, name
        assert [point.round for point in run.points] == [1, 2, 3]
        assert all(point.noise > 0 for point in run.points)
        (quiet,) = curves.published(found, name, math.inf, 3)
        assert all(point.noise == 0 for point in quiet.points)
    (run,) = curves.total(found, 1.0, 3, [0])
    assert run.epsilon is not None
    assert 0.99 <= run.epsilon <= 1.0
    assert [point.round for point in run.points] == [3]


def test_radius_of_the_paper_is_never_left() -> None:
    """With radius 1/t^2 the copies cannot go further than the sum of all radii; without one noise
    carries them away.
    """
    found = split()
    free, held = (
        curves.published(found, name, 0.05, 30, [0])[0] for name in ("ObjT", "ObjT 1/t^2")
    )
    assert held.points[-1].violation < free.points[-1].violation


def test_bands_hold_their_means() -> None:
    found = split()
    runs = curves.published(found, "ObjP", 0.5, 4, range(4))
    for row, *points in zip(curves.bands(runs), *(run.points for run in runs), strict=True):
        assert row["error_20"] <= row["error_80"]
        assert min(p.error for p in points) <= row["error"] <= max(p.error for p in points)
        assert np.isclose(row["violation"], np.mean([p.violation for p in points]))
    # seeds differ
    assert (
        len({run.points[0].error for run in runs} | {run.points[-1].violation for run in runs}) > 1
    )


# ---- composition


def test_total_of_randomised_response_by_its_definition() -> None:
    """delta(total) of k answers of the worst pure mechanism, summed over its binomial distribution,
    is delta.
    """
    epsilon, rounds, delta = 0.1, 200, 1e-6
    (row,) = published.composition(((epsilon, rounds),), delta)
    p = 1 / (1 + math.exp(-epsilon))

    def failing(total: float) -> float:
        found = 0.0
        for k in range(rounds + 1):
            ways = math.lgamma(rounds + 1) - math.lgamma(k + 1) - math.lgamma(rounds - k + 1)
            log_share = ways + k * math.log(p) + (rounds - k) * math.log1p(-p)
            loss = (2 * k - rounds) * epsilon
            if loss > total:
                found += math.exp(log_share) * -math.expm1(total - loss)
        return found

    assert failing(row["total"]) <= delta
    assert failing(0.98 * row["total"]) > delta


def test_the_closed_form_bounds_the_total_and_the_sum_bounds_both() -> None:
    rows = published.composition(((0.01, 2000), (0.05, 100), (0.1, 500)))
    for row in rows:
        assert row["total"] <= row["closed_form"] * 1.001
        assert row["closed_form"] <= row["basic"]
        assert row["total"] <= row["renyi"] * 1.1


# ---- the data directory


@REAL
def test_digits_of_the_published_code() -> None:
    points = curves.noise_free(curves.mnist(single=False)).points
    for k, (accuracy, violation) in curves.DIGITS.items():
        assert round(1 - points[k - 2].error, 4) == accuracy
        assert abs(points[k - 1].violation / violation - 1) <= 1e-4


@pytest.mark.parametrize(
    "method",
    [
        dp_iadmm.obj_p(1.0, 5),
        dp_iadmm.obj_t(1.0, 5),
        dp_iadmm.out_p(1.0, 5, 100, 4),
        dp_iadmm.out_p_plus(1.0, 5, 100, 4),
    ],
    ids=["obj_p", "obj_t", "out_p", "out_p_plus"],
)
def test_no_method_without_a_guarantee_travels_to_a_site(method):
    with pytest.raises(CodecError, match="cannot be stated"):
        statement_bytes(method)
