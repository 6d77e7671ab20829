"""Runs of risks by rank: held-out risks by definition, intervals by repetition, fairness by
counting.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import small_run
from problems import PLAIN

import bonafed as bf
from bonafed.config.config import read_config
from bonafed.runs.comparison import evaluate
from bonafed.runs.evaluation import curve, fairness, losses_of, risk_of, risk_saved
from bonafed.runs.files import digest, save_arrays, seal
from bonafed.runs.folder import read_run
from bonafed.runs.sections.constraints import curves, heaviest, owners
from bonafed.runs.sections.section import Run
from bonafed.runs.splits import prepare
from bonafed.runs.verification import passed, verify_run

EXAMPLE = Path(__file__).parents[1] / "examples" / "tail.toml"


# --------------------------------------------------------------------------- the risk of any losses


@pytest.mark.parametrize(
    "risk",
    [
        bf.Superquantile(0.23),
        bf.Extremile(2.5),
        bf.ExponentialSpectral(1.0),
        bf.Maximum(),
        bf.Median(),
        bf.ValueAtRisk(0.9),
        bf.HumanAligned(0.4, 0.3),
        bf.ProspectTheory(reference=0.5),
    ],
    ids=lambda risk: type(risk).__name__,
)
def test_the_risk_of_any_number_of_losses_is_the_risks_own(risk: object) -> None:
    rng = np.random.default_rng(1)
    for n in (1, 2, 7, 40):
        z = rng.exponential(size=n).round(1)  # with ties
        assert risk_of(risk, z, rows=13) == pytest.approx(risk.value(z), rel=1e-12)  # type: ignore[attr-defined]


def test_counted_ranks_become_shares_of_other_rows() -> None:
    z = np.arange(1.0, 11.0)
    # the largest fifth of ten: 9 and 10
    assert risk_of(bf.TopK(40), z, rows=200) == pytest.approx(9.5)
    # 15 %: one row and a half
    assert risk_of(bf.TopK(3), z, rows=20) == pytest.approx((0.5 * 9 + 10) / 1.5)
    assert risk_of(bf.RankedRange(70, 20), z, rows=100) == pytest.approx(np.mean([3, 4, 5, 6, 7]))
    assert risk_of(bf.TopK(2), z) == pytest.approx(9.5)
    with pytest.raises(ValueError, match="needs 40 losses"):
        risk_of(bf.TopK(40), z)


def test_the_interval_is_that_of_rows_drawn_again() -> None:
    """Against drawing rows and computing the risk afresh, by itself, ties and a reference
    included.
    """
    rng = np.random.default_rng(2)
    ours, theirs = rng.exponential(size=60).round(1), rng.exponential(size=60)
    for risk in (bf.Superquantile(0.3), bf.Median(), bf.ProspectTheory(reference=0.55)):
        saved, margin = risk_saved(risk, ours, theirs)
        assert saved == pytest.approx(risk.value(theirs) - risk.value(ours), rel=1e-12)
        drawn = []
        for _ in range(2000):
            rows = rng.integers(60, size=60)
            drawn.append(risk.value(theirs[rows]) - risk.value(ours[rows]))
        # 400 draws: 4 % standard error
        assert margin == pytest.approx(1.96 * np.std(drawn), rel=0.15)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """The mean of the worst fifth of exponential losses of mean c is c (1 - log 0.2); 150 rows,
    correlated models.
    """
    rng, risk = np.random.default_rng(3), bf.Superquantile(0.2)
    truth, hits = 0.5 * (1 - np.log(0.2)), 0
    for _ in range(40):
        x, y = rng.normal(size=(2, 150))
        ours, theirs = (-np.log(_upper_tail(z)) for z in (x, 0.8 * x + 0.6 * y))
        saved, margin = risk_saved(risk, ours, 1.5 * theirs)
        assert margin is not None
        hits += abs(saved - truth) <= margin
    assert 33 <= hits <= 40


def _upper_tail(z: np.ndarray) -> np.ndarray:
    from scipy.stats import norm

    return norm.sf(z)


@pytest.mark.parametrize(
    "risk", [bf.Maximum(), bf.Superquantile(0.05), bf.TopK(5), bf.ValueAtRisk(0.98)]
)
def test_too_few_rows_have_no_interval(risk: object) -> None:
    z = np.random.default_rng(0).exponential(size=100)
    assert risk_saved(risk, z, 2 * z) == (pytest.approx(risk_of(risk, z)), None)


# -------------------------------------------------------------------------------- owners and curves


def test_owners_share_the_weight_by_their_rows_in_the_tail() -> None:
    problem = bf.Problem(bf.Hinge(), over_samples=bf.Superquantile(0.4))
    losses = {"a": np.array([1.0, 5.0, 2.0]), "b": np.array([9.0, 0.0])}
    a, b = owners(problem, losses)
    # 5 and 9 are the tail
    assert (a["weight"], b["weight"]) == (pytest.approx(0.5), pytest.approx(0.5))
    assert (a["share"], b["share"], a["n"], b["n"]) == (0.6, 0.4, 3, 2)
    assert (a["loss"], b["loss"]) == (pytest.approx(8 / 3), 4.5)
    assert a["worst_loss"] == pytest.approx((5 + 0.2 * 2) / 1.2)
    first, second = heaviest(problem.over_samples, losses, "a", together=True, top=2)
    assert (first["row"], first["weight"], second["row"], second["weight"]) == (
        1,
        pytest.approx(2.5),
        2,
        0.0,
    )
    assert heaviest(problem.over_samples, losses, "b", together=False, top=1)[0][
        "weight"
    ] == pytest.approx(2.0)


def test_a_curve_keeps_total_loss_and_weight_and_no_single_row() -> None:
    losses = np.random.default_rng(0).exponential(size=983)
    weights = bf.Superquantile(0.2).weights(losses)
    found = curve(losses, weights)
    size = np.diff([0.0, *found["share"]])
    assert size @ found["loss"] == pytest.approx(losses.mean())
    assert size @ found["weight"] == pytest.approx(1.0)
    assert (np.round(size * 983) >= 5).all()
    assert (np.diff(found["loss"]) > 0).all()
    assert len(curve(losses[:12], weights[:12])["loss"]) == 2
    assert len(curve(losses[:3], weights[:3])["loss"]) == 1


def test_curves_of_several_clients_weigh_rows_as_the_objective_does() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    fed = bf.Federation.from_arrays(X, np.where(X[:, 0] > 0, 1, -1), ["a"] * 25 + ["b"] * 15)
    problem = bf.Problem(
        bf.Hinge(), PLAIN, over_samples=bf.Superquantile(0.4), over_clients=bf.LpBall(0.3)
    )
    w = np.array([0.3, 0.8])
    found = curves(problem, {"M": w}, fed)["M"]
    size = np.diff([0.0, *found["share"]])
    concrete, data = problem.at(fed)
    losses = [np.maximum(0, 1 - y * (X @ w)) for X, y in zip(data.X, data.y, strict=True)]
    rows = [bf.Superquantile(0.4).weights(z) for z in losses]
    mix = concrete.over_clients.weights(
        np.array([q @ z for q, z in zip(rows, losses, strict=True)])
    )
    assert size @ found["weight"] == pytest.approx(1.0)
    every, all_losses = (
        np.concatenate([m * q for m, q in zip(mix, rows, strict=True)]),
        np.concatenate(losses),
    )
    top = np.argsort(all_losses, kind="stable")[-5:]
    assert found["weight"][-1] == pytest.approx(every[top].mean() * 40)


def test_fairness_is_that_of_the_largest_client_against_all_others() -> None:
    truth = [np.array([1.0, 1.0, -1.0, -1.0]), np.array([1.0, -1.0]), np.array([1.0])]
    chosen = [np.array([1.0, 1.0, 1.0, -1.0]), np.array([-1.0, -1.0]), np.array([1.0])]
    found = fairness(truth, chosen, ("big", "small", "one"))
    assert found["privileged"] == "big"
    assert found["SPD"] == pytest.approx(1 / 3 - 3 / 4)
    assert found["EOD"] == pytest.approx(1 / 2 - 1)
    assert found["AOD"] == pytest.approx((0 - 1 / 2 + 1 / 2 - 1) / 2)
    assert found["rates"]["small"] == {"selected": 0.0, "tpr": 0.0, "fpr": 0.0}
    assert found["rates"]["big"] == {"selected": 0.75, "tpr": 1.0, "fpr": 0.5}
    assert fairness(truth[:1], chosen[:1], ("big",)) == {}


# --------------------------------------------------------------------------------------- whole runs


TEXTS = {
    "pooled": small_run.TAIL,
    "by client": small_run.RANKS,
    "together": small_run.TOGETHER.replace("logistic", "hinge"),  # proved by cuts
}


@pytest.fixture(scope="module", params=TEXTS)
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    return small_run.small_run(folder, text=TEXTS[request.param], draw=True).path


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished.parent.parent, tmp_path / "all")
    return tmp_path / "all" / "runs" / finished.name


def reseal(path: Path, change: Callable[[dict], object] = lambda result: None) -> list[str]:
    """Change the result, make all digests right again, and return the checks that fail."""
    result = json.loads((path / "result.json").read_text("utf-8"))
    change(result)
    result["files"] = {name: digest((path / name).read_bytes()) for name in result["files"]}
    (path / "result.json").write_text(json.dumps({**result, "seal": seal(result)}), "utf-8")
    return [check.name for check in verify_run(path) if check.ok is False]


def test_a_run_verifies_and_says_what_was_weighed(finished: Path) -> None:
    run = read_run(finished)
    assert passed(verify_run(finished))
    assert run.result["model"] == "superquantile"
    assert run.result["certificate"]["relative_gap"] <= 1e-6
    assert run.result["risk"]["words"] == "superquantile (mean of the largest 60 %)"
    assert (
        list(run.result["losses"]) == ["superquantile", "ERM"] if "owners" in run.result else True
    )
    pooled, together = run.config.problem_.pooled, run.config.risk.together
    assert ("owners" in run.result) == (pooled or together)
    assert len(run.result["clients"]) == (1 if pooled else 2)
    if pooled or together:
        assert [row["client"] for row in run.result["owners"]] == ["North", "East"]
        assert sum(row["weight"] for row in run.result["owners"]) == pytest.approx(1.0)
    if pooled:
        assert run.duals["rows"].shape == (sum(row["n"] for row in run.result["owners"]),)
    if together:
        check_ranks_of_all_rows(run)


def check_ranks_of_all_rows(run: Run) -> None:
    """The model is that of Python bit for bit, its proof has a threshold more than the model, and
    the risk is that of all losses.
    """
    problem = bf.Problem(
        bf.Hinge(), over_rows=bf.Superquantile(0.6), regulariser=bf.L2(strength=1e-2)
    )
    train = prepare(run.config).train
    assert run.config.problem() == problem
    assert (run.w == bf.solve(problem, train, tol=1e-6).w).all()
    assert run.duals["points"].shape[1] == len(run.w) + 1
    every = np.concatenate(losses_of(problem, run.w, train))
    risk = bf.Superquantile(0.6).value(every)
    assert run.result["risk"]["together"] == pytest.approx(risk, rel=1e-12)
    assert run.result["certificate"]["value"] == pytest.approx(problem.objective(run.w, train))
    (mean,) = run.baselines.values()
    plain = bf.Problem(bf.Hinge(), over_clients=bf.Mean("size"), regulariser=bf.L2(1e-2))
    assert run.result["baselines"]["erm"]["value"] == pytest.approx(plain.objective(mean, train))


def test_held_out_risks_are_those_of_the_held_out_losses(finished: Path) -> None:
    run = read_run(finished)
    problem, parts = run.config.problem(), prepare(run.config)
    for row in run.result["evaluation"]["measures"]:
        w = run.w if row["model"] == "superquantile" else run.baselines[row["model"].lower()]
        losses = losses_of(problem, w, parts.tests[row["set"]])
        assert row["risk"] == pytest.approx(
            bf.Superquantile(0.6).value(np.concatenate(losses)), rel=1e-12
        )
        own = [client["risk"] for client in row["clients"]]
        assert own == pytest.approx([bf.Superquantile(0.6).value(z) for z in losses], rel=1e-12)
        # one shifted client alone has no other
        assert bool(row["fairness"]) == (row["set"] == "held-out rows")
    pair, *_ = run.result["evaluation"]["pairs"]
    here = {
        row["model"]: row["risk"]
        for row in run.result["evaluation"]["measures"]
        if row["set"] == pair["set"]
    }
    assert pair["risk_less"] == pytest.approx(here[pair["other"]] - here["superquantile"])


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r["evaluation"]["measures"][0].update(
            risk=r["evaluation"]["measures"][0]["risk"] * (1 - 1e-6)
        ),
        lambda r: r["evaluation"]["pairs"][0].update(risk_margin=1e-3),
        lambda r: r["risk"].update(pooled=not r["risk"]["pooled"]),
        lambda r: r["losses"]["superquantile"]["weight"].__setitem__(0, 0.5),
        lambda r: r.pop("losses"),
        lambda r: r.pop("risk"),
        lambda r: (r.get("owners") or r["clients"])[0].update(weight=0.4),
        lambda r: r["evaluation"]["measures"][0]["fairness"].update(SPD=0.0),
        lambda r: r["certificate"].update(
            bound=r["certificate"]["value"], gap=0.0, relative_gap=0.0
        ),
    ],
)
def test_a_changed_number_is_found(copied: Path, change: Callable[[dict], object]) -> None:
    assert reseal(copied) == []
    assert reseal(copied, change)


def test_changed_multipliers_and_risks_are_found(copied: Path) -> None:
    run = read_run(copied)
    name = "rows" if "rows" in run.duals else "multipliers"
    other = np.flip(run.duals[name], 0).copy()  # as large, so that no scaling is undone
    save_arrays(copied / "duals.safetensors", {**run.duals, name: other})
    assert {"certificate", "guarantee"} & set(reseal(copied))
    save_arrays(copied / "duals.safetensors", run.duals)
    config = copied / "config.toml"
    config.write_text(config.read_text("utf-8").replace("tail = 0.6", "tail = 0.3"), "utf-8")
    assert {"certificate", "problem", "evaluation"} <= set(reseal(copied))


def test_verdicts_are_about_the_risk_and_its_price(finished: Path) -> None:
    run = read_run(finished)
    problem, tests = run.config.problem(), prepare(run.config).tests

    def headline(a: np.ndarray, b: np.ndarray) -> str:
        return evaluate(problem, {"superquantile": a, "ERM": b}, tests)["verdict"][0]

    assert headline(run.w, run.w).startswith("No difference that these data could show. ")
    assert headline(run.w, -3 * run.w).startswith(
        "Yes. Superquantile was compared with ERM on rows"
    )
    assert headline(-3 * run.w, run.w).startswith("No, it rose")
    lower = "The superquantile of its losses is lower in 3 of 3 comparisons; its mean loss is lower"
    assert lower in headline(run.w, -3 * run.w)
    sentence = evaluate(problem, {"superquantile": -3 * run.w, "ERM": run.w}, tests)["verdict"][1]
    assert "What it costs: mean loss" in sentence
    assert "rows drawn again" in sentence


def test_counted_and_largest_losses_are_judged_too(tmp_path: Path) -> None:
    text = small_run.TAIL.replace('name = "superquantile"\ntail = 0.6', 'name = "top_k"\nk = 6')
    run = small_run.small_run(tmp_path, text=text)
    assert passed(verify_run(run.path))
    fed = prepare(run.config).tests["held-out rows"]
    z = np.concatenate(losses_of(run.config.problem(), run.w, fed))
    trained = sum(row["n"] for row in run.result["owners"])
    assert run.result["evaluation"]["measures"][0]["risk"] == pytest.approx(
        bf.Superquantile(6 / trained).value(z)
    )
    text = small_run.TAIL.replace('name = "superquantile"\ntail = 0.6', 'name = "maximum"')
    run = small_run.small_run(tmp_path, text=text)
    assert run.result["evaluation"]["verdict"][0].startswith("It cannot be tested")
    assert "too few rows carry it" in run.result["evaluation"]["verdict"][1]


def test_a_risk_that_is_not_convex_states_residuals_and_verifies(tmp_path: Path) -> None:
    text = small_run.TAIL.replace(
        'name = "superquantile"\ntail = 0.6', 'name = "ranked_range"\nk = 24\nm = 2'
    )
    run = small_run.small_run(
        tmp_path,
        text=text.replace("tol = 1e-6", "options = { max_iterations = 200 }\nname = 'rank_admm'"),
    )
    certificate = run.result["certificate"]
    assert certificate["bound"] is certificate["gap"] is None
    assert len(certificate["residuals"]) == 3
    assert passed(verify_run(run.path))
    assert reseal(run.path, lambda r: r["certificate"]["residuals"].__setitem__(0, 0.0))


def test_the_example_proves_its_optimum(tmp_path: Path) -> None:
    config = read_config(EXAMPLE)
    config.check()
    run = small_run.finish(config, tmp_path)
    assert run.result["certificate"]["relative_gap"] <= 1e-9
    assert run.result["evaluation"]["measures"][0]["fairness"]["privileged"] == "Northgate"
    assert passed(verify_run(run.path))
