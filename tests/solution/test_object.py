"""A solution predicts, scores, draws itself, is saved and read, and describes itself in few lines,
for every kind of run.
"""

from __future__ import annotations

import gc
import inspect
import re
import struct
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics import r2_score
from toy import federation

import bonafed as bf
import examples
from bonafed.codec import encode
from bonafed.data.schema import Recipe
from bonafed.solution import tables
from bonafed.solution.plots import plotted
from bonafed.solution.solution import HISTORY, described, packed, unpacked

LINES, MOST = 7, 2000
EVIL = '<script>alert("x")</script>'
KINDS = {name: each for name, each in examples.ALGORITHMS.items() if each.stated is not None}
SLOW = (  # others of their kinds stay
    *("AsyncDRO, many classes", "proximal AL", "rank ADMM, two starts and their polish"),
    *("private ADMM", "output-perturbed ADMM"),
)


def rows(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(n) > 0.3, "ill", "well")
    return X, y, np.repeat([7, 3, 5], n // 3)


def hinge(**slots):
    return bf.Problem(
        bf.Hinge(),
        bf.Linear(fit_intercept=True),
        bf.WassersteinBall(0.05, 0.5),
        bf.LpBall(0.2),
        bf.L2(1e-2),
        **slots,
    )


@pytest.fixture(scope="module")
def solved():
    X, y, groups = rows()
    return bf.solve(hinge(), bf.Federation.from_arrays(X, y, groups))


def kind_of_run(name):
    """A short run of an example, and its federation."""
    example = KINDS[name]
    problem, algorithm = example.stated
    fed = federation((20, 35, 12, 28, 9), 4)
    fed = fed.pooled() if example.federation.n_clients == 1 else fed
    rounds = 3 if hasattr(algorithm, "max_rounds") and problem.privacy is None else None
    return bf.solve(problem, fed, algorithm=algorithm, max_rounds=rounds), fed


def bits(solution):
    """Everything that a file has to keep, to the bit."""
    part = solution.public()
    kept = [f.name for f in fields(part) if f.name != "state" and hasattr(part, f.name)]
    return encode(tuple(described(getattr(part, name)) for name in kept))


# ------------------------------------------------------------------------------- every kind of run


@pytest.mark.filterwarnings("ignore")  # runs of three rounds, noise for simulations
@pytest.mark.parametrize("name", [name for name in KINDS if name not in SLOW])
def test_every_kind_of_run_is_described_drawn_saved_and_read(name, tmp_path):
    solution, fed = kind_of_run(name)
    for text in (repr(solution), str(solution), solution._repr_html_()):
        assert len(text) <= MOST
    assert repr(solution).count("\n") < LINES
    assert len(repr(solution.problem)) <= MOST
    solution.save(tmp_path / "run")
    again = bf.load(tmp_path / "run")
    assert bits(again) == bits(solution)
    assert repr(again) == repr(solution)
    table = again.evaluate(fed)
    assert [row["client"] for row in table] == [*fed.clients, "all clients"]
    figure = "accuracy" if "accuracy" in table[-1] else "r2"
    assert table[-1][figure] == again.score(np.vstack(fed.X), np.concatenate(fed.y))
    assert not {id(x) for x in fed.X} & {id(x) for x in reached(solution)}


def reached(value):
    """All arrays that can be reached from a value."""
    seen, todo = {}, [value]
    while todo:
        here = todo.pop()
        if id(here) in seen or inspect.ismodule(here) or isinstance(here, type):
            continue
        seen[id(here)] = here
        if isinstance(here, np.ndarray):
            todo.append(here.base)
        elif not inspect.isroutine(here):
            todo += gc.get_referents(here)
    return [each for each in seen.values() if isinstance(each, np.ndarray)]


@pytest.mark.parametrize("kind", ["RISKS", "NONCONVEX_RISKS", "REGULARISERS", "PREDICTORS"])
def test_every_part_of_a_problem_is_read_as_it_was_written(kind):
    for part in getattr(examples, kind):
        if isinstance(part, bf.OwnSet):
            continue
        again = unpacked(packed(part))
        assert type(again) is type(part)
        assert encode((packed(again),)) == encode((packed(part),))


def test_every_constraint_is_read_as_it_was_written_or_is_code():
    code = set()
    for name, example in examples.CONSTRAINTS.items():
        tree = described(example.stated)
        if tree[0] == "absent":
            code.add(name)
        else:
            assert encode((packed(unpacked(tree)),)) == encode((tree,))
    assert code == {name for name in examples.CONSTRAINTS if "own function" in name}


# ------------------------------------------------------------------------------------ many of them


def test_a_thousand_clients_and_a_million_coefficients_take_few_lines():
    X = np.random.default_rng(0).standard_normal((2000, 3))
    names = [EVIL + "\x1b[31m" + "n" * 300, *range(999)]
    fed = bf.Federation.from_arrays(X, np.sign(X[:, 0]), [n for n in names for _ in (0, 1)])
    radius = bf.WassersteinBall(dict.fromkeys(fed.clients, 0.01))
    over = bf.LpBall(0.1, prior=np.full(1000, 1e-3))
    problem = bf.Problem(bf.Logistic(), over_samples=radius, over_clients=over)
    many = bf.solve(replace(problem, regulariser=bf.L2(0.1)), fed, max_rounds=1)
    model = bf.Problem(bf.Logistic(), bf.MLP((1000, 995)))
    few = fed.restrict([0, 1])
    large = bf.solve(model, few, algorithm=bf.FedAvg(1, step_size=0.1), max_rounds=1)
    assert len(large.w) > 1_000_000
    for thing in (many, large, many.problem, many.certificate, fed):
        assert len(repr(thing)) <= MOST
        assert len(thing._repr_html_()) <= 2 * MOST
        assert "\x1b" not in repr(thing) + thing._repr_html_()
        assert "<script" not in thing._repr_html_()
    assert "&lt;script&gt;" in fed._repr_html_()
    worst = [replace(many, clients=[{**many.clients[0], "weight": 1.0}]), many.evaluate(fed)]
    for thing in worst:
        assert "<script" not in thing._repr_html_()
        assert "&lt;script&gt;" in thing._repr_html_()
    assert len(repr(worst[1])) <= MOST


def test_the_lines_say_what_a_person_asks(solved):
    lines = repr(solved).splitlines()
    assert lines[0] == "Solution: optimal"
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        *("outcome", "problem", "value", "model", "clients")
    ]
    assert f"{solved.certificate.value:.6g}; no model is below" in lines[3]
    assert "4 coefficients; features x0, x1, x2; classes ill, well" in lines[4]
    worst = max(solved.clients, key=lambda row: row["weight"])
    assert f"3 with 120 rows; client {worst['client']} has the largest weight " in lines[5]


# ------------------------------------------------------------------------------------- predictions


def test_rows_are_predicted_from_arrays_sparse_rows_and_tables_in_any_order(solved):
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    X, y, _ = rows()
    scores = X @ solved.w[:3] + solved.w[3]
    np.testing.assert_allclose(solved.decision_function(X), scores, rtol=1e-12)
    predicted = solved.predict(X)
    assert predicted.tolist() == np.where(scores > 0, "well", "ill").tolist()
    columns = {"other": y, **{f"x{j}": X[:, j] for j in (2, 0, 1)}}
    for table in (csr_array(X), X.tolist(), columns, pd.DataFrame(columns), pl.DataFrame(columns)):
        assert solved.predict(table).tolist() == predicted.tolist()
    chances = solved.predict_proba(X)
    assert chances.shape == (120, 2)
    np.testing.assert_allclose(chances.sum(1), 1)
    assert (np.diff(chances[np.argsort(scores), 1]) >= 0).all()
    assert solved.score(X, y) == (predicted == y).mean() == solved.score(columns, "other")


def test_a_table_becomes_features_by_the_schema_of_the_federation(tmp_path):
    pd = pytest.importorskip("pandas")
    X, y, groups = rows()
    frame = pd.DataFrame({"sex": np.where(X[:, 1] > 0, "f", "m"), "age": 50 + 10 * X[:, 0]})
    frame["age"] = frame["age"].where(X[:, 2] < 1.5)
    table = frame.assign(site=groups, state=y)
    fed = bf.Federation.from_frame(table, "site", "state", schema=Recipe())
    solution = bf.solve(hinge(), fed)
    by_client = [solution.predict(frame[["age", "sex"]][groups == name]) for name in fed.clients]
    again = [solution.inputs.labels(solution.decision_function(x)) for x in fed.X]
    assert [a.tolist() for a in by_client] == [a.tolist() for a in again]
    solution.save(tmp_path / "model")
    read = bf.load(tmp_path / "model")
    assert read.inputs == solution.inputs
    assert read.predict(frame).tolist() == solution.predict(frame).tolist()
    with pytest.raises(ValueError, match=r"'sex' holds what is none of its categories.*'x'"):
        solution.predict(frame.assign(sex="x"))
    assert len(solution.predict(frame.assign(sex="x"), unknown="ignore")) == 120


def test_three_classes_and_numbers_are_predicted_and_scored():
    X, _, groups = rows()
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    problem = bf.Problem(bf.Multinomial(), bf.Softmax(), regulariser=bf.L2(1e-2))
    several = bf.solve(problem, bf.Federation.from_arrays(X, y, groups))
    chances = several.predict_proba(X)
    assert chances.shape == (120, 3)
    assert several.predict(X).tolist() == np.array(["a", "b", "c"])[chances.argmax(1)].tolist()
    last = several.evaluate(bf.Federation.from_arrays(X, y, groups))[-1]
    assert last["accuracy"] == several.score(X, y)
    assert {"recall of a", "precision of c", "accuracy_low"} <= last.keys()
    target = X @ [1.0, 2.0, 3.0]
    real = bf.Federation.from_arrays(X, target, groups)
    numbers = bf.solve(bf.Problem(bf.Squared(), regulariser=bf.L2(0.1)), real)
    assert numbers.score(X, target) == pytest.approx(r2_score(target, numbers.predict(X)))
    assert numbers.evaluate(real)[-1]["r2"] == pytest.approx(numbers.score(X, target))
    with pytest.raises(TypeError, match=r"predict_proba is for classes.*use solution.predict"):
        numbers.predict_proba(X)
    assert len(repr(numbers)) <= MOST


def test_a_network_predicts_after_it_was_saved(tmp_path):
    X, y, groups = rows()
    problem = bf.Problem(bf.Logistic(), bf.MLP((4,)))
    solution = bf.solve(problem, bf.Federation.from_arrays(X, y, groups), max_rounds=3)
    solution.save(tmp_path / "mlp")
    again = bf.load(tmp_path / "mlp")
    assert again.decision_function(X).tolist() == solution.decision_function(X).tolist()


@pytest.mark.parametrize("model", [(bf.Logistic, bf.Linear), (bf.Multinomial, bf.Softmax)])
def test_the_positive_class_is_the_last_one(model):
    X, _, groups = rows()
    y = np.where(X[:, 0] > 0, "a", "b")
    fed = bf.Federation.from_arrays(X, y, groups, positive="a")
    problem = bf.Problem(model[0](), model[1](), regulariser=bf.L2(1e-3))
    solution = bf.solve(problem, fed)
    assert solution.inputs.classes == ("b", "a")
    assert solution.score(X, y) > 0.95
    assert ((solution.predict_proba(X)[:, 1] > 0.5) == (solution.predict(X) == "a")).all()
    assert solution.evaluate(fed)[-1]["positives"] == (y == "a").sum()


def alike(figures, expected):
    """Names and counts are equal; figures are up to the rounding of columns in another order."""
    for row, other in zip(figures, expected, strict=True):
        assert row.keys() == other.keys()
        for key, value in row.items():
            assert type(value) is type(other[key])
            if isinstance(value, float):
                assert value == pytest.approx(other[key], rel=1e-12, abs=0, nan_ok=True), key
            else:
                assert value == other[key], key


def test_features_of_a_federation_are_taken_by_name(solved):
    X, y, groups = rows()
    fed = bf.Federation.from_arrays(X, y, groups)
    names = ["x2", "x0", "x1"]
    turned = bf.Federation.from_arrays(X[:, [2, 0, 1]], y, groups, feature_names=names)
    expected = solved.evaluate(fed)
    alike(solved.evaluate(turned), expected)
    with pytest.raises(AssertionError):  # figures of columns that nobody put in order are far off
        alike(solved.evaluate(bf.Federation.from_arrays(X[:, [2, 0, 1]], y, groups)), expected)
    other = bf.Federation.from_arrays(X, y, groups, feature_names=["x0", "x1", "age"])
    with pytest.raises(ValueError, match="other features than the model; not in both: age, x2"):
        solved.evaluate(other)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda s, X, y: s.predict(X[:, :2]), ValueError, r"X must have shape \(rows, 3\).*120, 2"),
        (lambda s, X, y: s.predict(X[0]), ValueError, r"For one row use X.reshape\(1, -1\)"),
        (lambda s, X, y: s.predict([["a", 1, 2]]), ValueError, "X must hold numbers only"),
        (lambda s, X, y: s.predict({"x0": [1.0]}), ValueError, "the table has no column 'x1'"),
        (lambda s, X, y: s.predict([[1, np.nan, 2]]), ValueError, "infinite one: row 0, 'x1'"),
        (lambda s, X, y: s.predict("rows.csv"), ValueError, "expected a pandas, polars"),
        (lambda s, X, y: s.score(X, y[:5]), ValueError, r"y must have shape \(120,\)"),
        (lambda s, X, y: s.score(X, y == "ill"), ValueError, "y holds .*, which is not a class"),
        (lambda s, X, y: s.evaluate(X), TypeError, r"fed must be .* Federation.from_arrays\("),
        (lambda s, X, y: s.module, TypeError, "no torch module: its parameters are solution.w"),
        (lambda s, X, y: s.plot("gap"), ValueError, "kind must be 'convergence', 'clients'"),
        (lambda s, X, y: s.clients_frame("dask"), ValueError, "backend must be one of pandas"),
    ],
)
def test_misuse_is_answered_in_one_line_that_helps(solved, call, error, text):
    with pytest.raises(error, match=text) as raised:
        call(solved, *rows()[:2])
    assert "\n" not in str(raised.value)


def test_a_federation_is_no_table_of_rows(solved):
    fed = bf.Federation.from_arrays(*rows())
    with pytest.raises(TypeError, match=r"use solution.evaluate\(federation\)"):
        solved.predict(fed)
    quadratic = bf.Federation.from_quadratics([np.eye(2)] * 2, [np.ones(2)] * 2)
    solution = bf.solve(bf.Problem(bf.Quadratic()), quadratic)
    assert len(repr(solution)) <= MOST
    with pytest.raises(TypeError, match=r"hold no rows.*the optimum is solution.w"):
        solution.predict(np.eye(2))


# ------------------------------------------------------------------------------------------ tables


@pytest.mark.parametrize("library", tables.LIBRARIES)
def test_tables_become_frames_that_keep_names_and_numbers(solved, library):
    pytest.importorskip(library)
    frame = solved.clients_frame(library)
    assert type(frame).__module__.split(".")[0] == library
    names = frame["client"].to_pylist() if library == "pyarrow" else frame["client"].to_list()
    assert names == [7, 3, 5]
    assert len(solved.history_frame(library)) == len(solved.history)
    figures = solved.evaluate(bf.Federation.from_arrays(*rows())).frame(library)
    assert len(figures) == 4
    if library == "pandas":
        assert figures["client"].to_list() == [7, 3, 5, "all clients"]


def test_without_a_library_of_frames_the_error_names_the_extra(solved, monkeypatch):
    monkeypatch.setattr(tables, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install '\.\[frames\]'.*solution.clients"):
        solved.clients_frame()


def test_lists_of_dictionaries_stay(solved):
    assert [row["client"] for row in solved.clients] == [7, 3, 5]
    assert isinstance(solved.history, list)
    assert isinstance(solved.evaluate(bf.Federation.from_arrays(*rows())), list)


# ---------------------------------------------------------------------------------------- pictures


def test_pictures_show_the_history_and_the_clients(solved, tmp_path):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    convergence, clients, weights = solved.plot()
    gap = convergence.lines[0].get_ydata()
    known = [row["gap"] for row in solved.history]
    np.testing.assert_array_equal(gap[np.isfinite(gap)], [g for g in known if np.isfinite(g)])
    assert convergence.lines[1].get_ydata()[0] == solved.certificate.gap
    assert convergence.get_yscale() == "log"
    losses = [bar.get_width() for bar in clients.patches]
    assert losses == [row[key] for key in ("loss", "worst_loss") for row in solved.clients]
    shares = [bar.get_width() for bar in weights.patches]
    assert shares == [100 * row["weight"] for row in solved.clients]
    assert [tick.get_text() for tick in weights.get_yticklabels()] == ["7", "3", "5"]
    words = [(a.get_title(loc="left"), a.get_xlabel()) for a in (convergence, clients, weights)]
    assert words == [
        ("Convergence", "round"),
        ("Clients", "loss"),
        ("Client weights", "weight in %"),
    ]
    convergence.figure.savefig(tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 10_000
    figure, mine = plt.subplots()
    assert solved.plot("clients", axes=mine) is mine
    assert plt.gcf() is figure
    with pytest.raises(ValueError, match="axes must be 3 for convergence, clients, weights, got 1"):
        solved.plot(axes=mine)
    plt.close("all")


@pytest.mark.parametrize(("name", "lines"), [("A", 1), ("Hospital of Old Mill", 2)])
def test_a_title_stands_above_the_legend(solved, name, lines):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    rows = [row | {"client": name} for row in solved.clients]
    axes = plotted("clients", None, solved.history, rows, None, "risk in the problem")
    axes.figure.canvas.draw()
    legend = axes.get_legend()
    heights = {text.get_window_extent().y0 for text in legend.get_texts()}
    assert len(heights) == lines
    assert axes._left_title.get_window_extent().y0 >= legend.get_window_extent().y1
    plt.close("all")


def test_the_picture_of_a_run_that_nobody_judged_says_so(solved):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    unjudged = [{"round": k, "objective": None, "gap": None} for k in (1, 2)]
    axes = plotted("convergence", None, unjudged, solved.clients, None, "risk")
    assert [text.get_text() for text in axes.texts] == ["no round of this run was judged"]
    assert not axes.lines
    plt.close("all")


# ------------------------------------------------------------------------------------------- files


def test_a_file_that_was_changed_cut_or_written_by_others_is_refused(solved, tmp_path):
    path = tmp_path / "solution"
    solved.save(path)
    whole = path.read_bytes()
    for k in (5, 40, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:k] + bytes([whole[k] ^ 1]) + whole[k + 1 :])
        with pytest.raises(ValueError, match=r"is not a solution that solution.save\(path\) wrote"):
            bf.load(path)
    others = {
        "cut": whole[:-20],
        "empty": b"",
        "text": b"w,1\n",
        "pickle": b"\x80\x04K\x01.",
        "record": encode(solved.outcome),
        "table": encode({"what": "model"}),
    }
    for data in others.values():
        path.write_bytes(data)
        with pytest.raises(ValueError, match=str(path)) as raised:
            bf.load(path)
        assert "\n" not in str(raised.value)
    with pytest.raises(ValueError, match="is a folder: a solution is a file"):
        bf.load(tmp_path)
    with pytest.raises(OSError, match="none"):
        bf.load(tmp_path / "none")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("w", np.ones(3)),
        ("w", np.array([1.0, 2.0, 3.0, np.nan])),
        ("w", "w"),
        ("rounds", "many"),
        ("certificate", None),
        ("clients", ("list", 3)),
        ("clients", ("list", ("map", ("client", "a")))),
        ("outcome", ("object", "os:system", {"command": "true"})),
        ("outcome", ("object", "bonafed.rounds:Stop", {})),
        ("notes", ("shell", "true")),
        ("inputs", ("object", "bonafed.solution.predictions:Inputs", {})),
        ("more", 1),
    ],
)
def test_a_forged_file_with_a_right_digest_is_refused_in_words(solved, tmp_path, field, value):
    from bonafed.codec import decode

    path = tmp_path / "solution"
    solved.save(path)
    values = decode(path.read_bytes())
    values["solution"][field] = value
    path.write_bytes(encode(values))
    with pytest.raises(ValueError, match="holds what no solution of this bonafed has"):
        bf.load(path)


def test_no_module_is_imported_and_no_code_is_run_by_a_file(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("bonafed.names.import_module", asked.append)
    for place in ("os:system", "antigravity:x", "bonafed.cli:main", "bonafed.names:load"):
        with pytest.raises(ValueError, match="not a public name of bonafed"):
            unpacked(("object", place, {}))
    assert not asked


def test_code_of_the_user_is_given_again(tmp_path):
    X, y, groups = rows()
    fed = bf.Federation.from_arrays(X, y, groups)

    def worst(losses):
        return np.eye(len(losses))[losses.argmax()]

    problem = bf.Problem(bf.Logistic(), over_clients=bf.OwnSet(worst), regulariser=bf.L2(0.1))
    solution = bf.solve(problem, fed, max_rounds=3)
    path = tmp_path / "own"
    solution.save(path)
    with pytest.raises(ValueError, match=r"over_clients of the problem is .* Python code.*load\("):
        bf.load(path)
    again = bf.load(path, problem=problem)
    assert again.problem is problem
    assert bits(again) == bits(solution)
    with pytest.raises(ValueError, match=r"another regulariser than .* L2\(strength=0.1\)"):
        bf.load(path, problem=replace(problem, regulariser=bf.L2(0.2)))


def test_a_file_is_whole_or_not_there(solved, tmp_path, monkeypatch):
    path = tmp_path / "solution"
    solved.save(path)
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda file: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="the disk is full: free some space"):
        solved.save(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["solution"]


# ----------------------------------------------------------------------------------------- privacy


def test_of_a_private_solution_only_the_public_part_is_shown_and_saved(tmp_path):
    X, y, groups = rows()
    budget = bf.Budget(3.0, 1e-3, sizes={7: 41, 3: 42, 5: 43}, book=tmp_path / "secret-place")
    problem = bf.Problem(bf.Logistic(), bf.Linear(True), privacy=budget)
    fed = bf.Federation.from_arrays(X, y, groups)
    solution = bf.solve(problem, fed, algorithm=bf.PrivateADMM(max_rounds=3))
    solution.save(tmp_path / "private")
    again = bf.load(tmp_path / "private")
    assert again.w.tolist() == solution.w.tolist()
    assert again.predict(X).tolist() == solution.predict(X).tolist()
    assert not hasattr(again, "certificate")
    assert [(row["client"], row["n"]) for row in again.clients] == [(3, 42), (5, 43), (7, 41)]
    assert {key for row in again.history for key in row} <= {*HISTORY}
    assert "3-differentially private" in repr(again).replace("(3, 0.001)", "3")
    data, texts = (tmp_path / "private").read_bytes(), repr(solution) + solution._repr_html_()
    proof = solution.certificate
    for number in (proof.value, *proof.client_losses, *proof.client_risks, solution.seconds):
        assert struct.pack("<d", number) not in data
        assert repr(float(number)).encode() not in data
        assert f"{number:.4g}" not in texts
    assert b"secret-place" not in data
    assert "secret-place" not in texts
    assert len(texts) <= 2 * MOST
    pytest.importorskip("matplotlib")
    assert again.plot("clients").get_xlabel() == "rows as declared"


def test_a_solution_reads_and_writes_paths_as_texts(solved, tmp_path):
    solved.save(str(tmp_path / "a"))
    assert bf.load(str(tmp_path / "a")).rounds == bf.load(Path(tmp_path / "a")).rounds


def test_the_page_of_the_docs_shows_what_is_printed(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "solution.md").read_text(encoding="utf-8")
    exec(page.split("```python\n")[1].split("```")[0], {})
    shown = page.split("```text\n")[1].split("```")[0].splitlines()
    printed = capsys.readouterr().out.splitlines()
    assert len(shown) == len(printed)
    for line, told in zip(printed, shown, strict=True):  # numbers may differ by rounding
        words = [re.sub(r"[\d.e+-]+", "#", text) for text in (line, told.rstrip("…"))]
        assert words[0].startswith(words[1])
