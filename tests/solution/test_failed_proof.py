"""A proof that fails, of whatever cause, keeps the model, and the outcome says so."""

from pathlib import Path

import numpy as np
import pytest
import small_run

import bonafed as bf
from bonafed.certificates.certify import Weighing
from bonafed.certificates.duality import Certification
from bonafed.data import load
from bonafed.rounds import Stop
from bonafed.runs.verification import verify_run

PLAIN = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
LIMITED = bf.Problem(
    bf.Logistic(), regulariser=bf.L2(0.1), local_constraint=bf.NeymanPearson("malignant", 0.6)
)
ERRORS = [MemoryError("no room for 400 MB"), np.linalg.LinAlgError("singular"), OSError("gone")]


def fails(monkeypatch, error, proofs):
    """Raise an error in the first rounds of certificates, or in all of them."""
    left = [proofs]

    def planted(method):
        def raises(self, *arguments):
            left[0] -= 1
            if left[0] >= 0:
                raise error
            return method(self, *arguments)

        return raises

    monkeypatch.setattr(Weighing, "balance", planted(Weighing.balance))
    monkeypatch.setattr(Certification, "finish", planted(Certification.finish))


@pytest.mark.parametrize("problem", [PLAIN, LIMITED], ids=["plain", "constrained"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_the_model_is_kept_with_its_value_and_without_a_bound(
    monkeypatch, tmp_path, problem, error
):
    fed = load.hospitals()
    whole = bf.solve(problem, fed)
    fails(monkeypatch, error, 1)
    solution = bf.solve(problem, fed)
    assert np.array_equal(solution.w, whole.w)
    assert solution.outcome.stop is Stop.UNPROVEN
    assert f"The proof failed ({type(error).__name__}: {error})" in solution.outcome.text
    proof = solution.certificate
    assert (proof.bound, proof.gap, proof.relative_gap) == (None, None, None)
    assert proof.value == pytest.approx(whole.certificate.value, rel=1e-12)
    assert [row["met"] for row in solution.constraints] == [r["met"] for r in whole.constraints]
    assert not any("No lower bound" in note for note in solution.notes)
    solution.save(tmp_path / "model.bf")
    again = bf.load(tmp_path / "model.bf")
    assert np.array_equal(again.w, whole.w)
    assert again.outcome.text == solution.outcome.text
    assert bf.certify(problem, fed, again.w, whole.duals).bound == whole.certificate.bound


@pytest.mark.parametrize("problem", [PLAIN, LIMITED], ids=["plain", "constrained"])
def test_where_not_even_a_value_can_be_computed_the_model_is_kept(monkeypatch, tmp_path, problem):
    fed = load.hospitals()
    fails(monkeypatch, MemoryError(), 99)
    solution = bf.solve(problem, fed)
    assert solution.outcome.stop is Stop.UNPROVEN
    assert "MemoryError" in solution.outcome.text
    assert np.isnan(solution.certificate.value)
    assert "MemoryError" in str(solution)
    assert len(solution.predict(fed.X[0])) == len(fed.y[0])
    solution.save(tmp_path / "model.bf")
    assert np.array_equal(bf.load(tmp_path / "model.bf").w, solution.w)


@pytest.mark.parametrize("problem", [PLAIN, LIMITED], ids=["plain", "constrained"])
def test_ctrl_c_during_the_proof_interrupts_the_run_and_the_proof_can_be_resumed(
    monkeypatch, tmp_path, problem
):
    fed = load.hospitals()
    engine = bf.InProcess(checkpoint=tmp_path / "run.bft")
    with monkeypatch.context() as patch:
        fails(patch, KeyboardInterrupt(), 1)
        solution = bf.solve(problem, fed, engine=engine)
    assert solution.outcome.stop is Stop.INTERRUPTED
    assert "The proof failed (interrupted)" in solution.outcome.text
    resumed = bf.solve(problem, fed, engine=engine, resume=True)
    assert np.array_equal(resumed.w, solution.w)
    assert resumed.outcome.stop is Stop.OPTIMAL
    assert resumed.certificate.bound is not None


def test_a_run_whose_proof_finds_nothing_feasible_and_fails_is_not_infeasible(monkeypatch):
    costs = bf.LinearInequality(np.array([[1.0, 0, 0, 0, 0, 0], [-1.0, 0, 0, 0, 0, 0]]), [1.0, 1.0])
    X, y = np.random.default_rng(0).normal(size=(40, 5)), np.tile([-1.0, 1.0], 20)
    fed = bf.Federation.from_arrays(X, y, np.repeat(["a", "b"], 20))
    problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1), constraint=costs)
    assert bf.solve(problem, fed).outcome.stop is Stop.INFEASIBLE
    fails(monkeypatch, MemoryError(), 1)
    outcome = bf.solve(problem, fed).outcome
    assert outcome.stop is Stop.STALLED
    assert "The proof failed (MemoryError" in outcome.text


RUNS = {
    "plain": small_run.MIXED,
    "cut": small_run.CONFIG.replace("tol = 1e-6", "max_rounds = 3"),
    "constrained": small_run.KEPT,
    "path": small_run.CONFIG + small_run.sweep("robust.radius", 0.01, 0.1),
}


@pytest.mark.parametrize("kind", RUNS)
def test_the_folder_of_a_run_whose_proof_failed_verifies(monkeypatch, tmp_path: Path, kind):
    data = small_run.wards(small_run.table()) if kind == "constrained" else None
    with monkeypatch.context() as patch:
        fails(patch, OSError("a message of the machine"), 1)
        run = small_run.small_run(tmp_path, text=RUNS[kind], data=data)
    assert (kind == "path") or "The proof failed (OSError)" in run.result["outcome"]["text"]
    assert "a message" not in (run.path / "result.json").read_text("utf-8")
    assert [check for check in verify_run(run.path) if not check.ok and check.checkable] == []
