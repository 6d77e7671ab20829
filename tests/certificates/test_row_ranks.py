"""The certificate of ranks over all rows: exact values, and bounds that nothing falsifies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from toy import federation

import bonafed as bf
from bonafed.certificates import row_ranks
from bonafed.engines.inprocess import InProcess

FED = federation((20, 35, 12, 28, 9), 4)
PROBLEM = bf.Problem(bf.Logistic(), over_rows=bf.Superquantile(0.17), regulariser=bf.L2(1e-2))
BEST = bf.solve(PROBLEM, FED)


@pytest.mark.parametrize("risk", [bf.Superquantile(0.17), bf.TopK(3), bf.Maximum()], ids=str)
@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 30.0])
def test_the_value_is_exact_and_the_bound_below_every_model(risk, scale):
    problem = replace(PROBLEM, over_rows=risk)
    rng = np.random.default_rng(4)
    w = scale * rng.standard_normal(5)
    proof = bf.certify(problem, FED, w)
    assert proof.value == pytest.approx(problem.objective(w, FED), rel=1e-12)
    for v in (*rng.standard_normal((20, 5)), BEST.w, w):
        assert proof.bound <= problem.objective(v, FED) * (1 + 1e-12)
    assert proof.weights.sum() == pytest.approx(1.0, rel=1e-9)
    assert (proof.weights >= 0).all()


def test_it_is_tight_at_the_optimum_and_grows_with_the_distance():
    gaps = [bf.certify(PROBLEM, FED, BEST.w + far).gap for far in (0.0, 1e-4, 1e-2, 1.0)]
    assert gaps[0] < 1e-9
    assert gaps == sorted(gaps)


@pytest.mark.parametrize("wrong", [0.0, -1.0, 1e3, np.nan])
def test_a_wrong_step_weakens_the_bound(monkeypatch, wrong):
    """Whoever computes steps wrongly proves less, never more."""
    honest = row_ranks.RankCertification.shift

    def shift(self, state, ids, up):
        state, ask = honest(self, state, ids, up)
        step = wrong * np.ones_like(state.step) + 0.3 * state.step
        return replace(state, step=step), type(ask)(replace(ask.message, step=step))

    monkeypatch.setattr(row_ranks.RankCertification, "shift", shift)
    proof = bf.certify(PROBLEM, FED, BEST.w)
    assert proof.bound is None or proof.bound <= BEST.certificate.value
    assert proof.value == pytest.approx(BEST.certificate.value, rel=1e-12)


def test_it_is_the_same_through_bytes_and_for_pooled_rows():
    here = bf.certify(PROBLEM, FED, BEST.w)
    there = bf.certify(PROBLEM, FED, BEST.w, engine=InProcess("bytes"))
    alone = bf.certify(PROBLEM, FED.pooled(), BEST.w)
    for other in (there, alone):
        assert other.value == pytest.approx(here.value, rel=1e-13)
        assert other.bound == pytest.approx(here.bound, rel=1e-9)
