"""The tables [privacy] and [evaluation]: what may stand beside them, what is declared, and what a
dry run says.
"""

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import small_run
from hypothesis import given, settings
from hypothesis import strategies as st

import bonafed as bf
from bonafed.config.config import ConfigError, parse_config, read_config
from bonafed.data.federation import apart
from bonafed.data.row_errors import RowError
from bonafed.data.schema import declared_schema
from bonafed.privacy.accounting import Release, gaussian_epsilon, noise_for
from bonafed.privacy.bounds import best_accuracy, information
from bonafed.privacy.budget import Budget, BudgetSpentError
from bonafed.runs.pipeline import dry_run
from bonafed.runs.privacy_plan import plan, with_public_numbers
from bonafed.runs.privacy_plan import words as said_before
from bonafed.runs.splits import prepare
from bonafed.starters.look import Asked
from bonafed.starters.starter import starter

TEXT = small_run.PRIVATE.replace("[report]\ncompare_with", "[report]\nhtml = false\ncompare_with")


def fault(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, where="a.toml").check()
    return str(caught.value)


# ------------------------------------------------------------------------------------- what is read


def test_a_private_model_may_live_in_a_ball_and_be_robust() -> None:
    ball = TEXT.replace("[problem]", '[problem]\nregulariser = "ball"\nradius = 2.0')
    config = parse_config(ball.replace("strength = 1e-2\n", ""))
    config.check()
    assert config.problem().regulariser == bf.Ball(2.0)
    assert "over models at most 2 long" in config.sentence()
    robust = parse_config(TEXT + '[robust]\nradius = 0.1\nnorm = "linf"\n')
    robust.check()
    assert robust.problem().over_samples == bf.WassersteinBall(0.1, norm="linf")


def test_a_file_is_the_problem_and_method_that_it_states() -> None:
    text = TEXT.replace(
        "[algorithm]",
        '[algorithm]\nname = "private_admm"\n'
        "options = { clip = 2.0, rho = { c1 = 1.0, period = 10 } }",
    )
    config = parse_config(text, folder=Path("/there"))
    asked = config.solve_arguments()
    assert config.problem().privacy == Budget(3.0, 1e-5, sizes={"East": 15, "North": 14})
    assert isinstance(asked["algorithm"], bf.PrivateADMM)
    assert (asked["algorithm"].clip, asked["algorithm"].noise, asked["max_rounds"]) == (
        2.0,
        "secure",
        8,
    )
    assert asked["algorithm"].rho(9) == pytest.approx(1.0)
    assert asked["algorithm"].rho(10) == pytest.approx(1.2)
    assert isinstance(config.problem().over_clients, bf.Mean)
    book = parse_config(
        TEXT.replace("[privacy]", '[privacy]\nbook = "spent.json"'), folder=Path("/there")
    )
    assert Path(book.problem().privacy.book) == Path("/there/spent.json")
    assert book.moved_to(Path("/there/runs")).privacy.book == "../spent.json"


def test_the_whole_file_is_read_back() -> None:
    text = TEXT.replace(
        "[privacy]",
        small_run.sweep("privacy.epsilon", 0.5, 1.0)
        + '[privacy]\nbook = "b.json"\nadjacency = "replace"',
    )
    config = parse_config(text)
    assert parse_config(config.text()) == config


def test_output_perturbation_and_a_rehearsal() -> None:
    text = TEXT.replace("[privacy]", "[privacy]\nrehearsal = true")
    text = text.replace("[algorithm]", '[algorithm]\nname = "output_perturbed_admm"')
    algorithm = parse_config(text).solve_arguments()["algorithm"]
    assert isinstance(algorithm, bf.OutputPerturbedADMM)
    assert algorithm.noise == "simulation"


BROKEN = {  # what is changed -> (line, key, words)
    "constraint": (
        lambda t: t + '[[constraint]]\nkind = "sign"\nsigns = { age = 1 }',
        "constraint:",
        "change [[constraint]]",
    ),
    "label": (
        lambda t: t.replace("[problem]", '[problem]\nlabel = "no"'),
        "problem.label:",
        "change problem.label",
    ),
    "pooled": (
        lambda t: t.replace("[problem]", "[problem]\npooled = true"),
        "problem.pooled:",
        "set problem.pooled = false",
    ),
    "ball": (
        lambda t: t + "[robust]\nradius = 0.1\nlabel_cost = 1.0",
        "robust.radius:",
        "change robust.radius",
    ),
    "balls": (
        lambda t: t + "[robust]\nradius = { East = 0.1, North = 0.0 }\nlabel_cost = 1.0",
        "robust.radius:",
        "change robust.radius",
    ),
    "auto": (lambda t: t + '[robust]\nradius = "auto"', "robust.radius:", "give a number"),
    "rank": (
        lambda t: t + '[risk]\nname = "superquantile"\ntail = 0.1',
        "risk.name:",
        "so that one row has no bounded share",
    ),
    "mix": (lambda t: t + '[clients]\nrisk = "simplex"', "clients.risk:", "change clients.risk"),
    "method": (
        lambda t: t.replace("[algorithm]", '[algorithm]\nname = "bundle"'),
        "algorithm.name:",
        "adds no noise",
    ),
    "hinge": (
        lambda t: t.replace('"logistic"', '"hinge"'),
        "problem.loss:",
        "needs a smooth loss, got problem.loss = 'hinge'",
    ),
    "mcp": (
        lambda t: t.replace("strength", 'regulariser = "mcp"\nstrength'),
        "problem.regulariser:",
        "needs a convex regulariser",
    ),
    "scale": (
        lambda t: t.replace('scale = "none"\ntest', 'scale = "standard"\ntest').replace(
            COLUMNS, ""
        ),
        "data.scale:",
        "age = { min = 0, max = 100 }",
    ),
    "indicators": (
        lambda t: t.replace(COLUMNS, "").replace("test = 0.4", "test = 0.4\nindicators = true"),
        "data.indicators:",
        "[data.columns]",
    ),
    "categorical": (
        lambda t: t.replace(COLUMNS, "").replace("test = 0.4", 'test = 0.4\ncategorical = ["age"]'),
        "data.categorical:",
        "categories = ['a', 'b']",
    ),
    "classes": (
        lambda t: t.replace('classes = ["no", "yes"]', ""),
        "data.target:",
        "classes = ['no', 'yes']",
    ),
    "one class": (
        lambda t: t.replace('["no", "yes"]', '["no", "no"]'),
        "data.classes:",
        "the two classes",
    ),
    "server": (
        lambda t: t.replace("test = 0.4", "test = 0.4\nserver = 0.2"),
        "data.server:",
        "leave it out",
    ),
    "another sweep": (
        lambda t: t + small_run.sweep("robust.radius", 0.1),
        "sweep.parameter:",
        "set it to 'privacy.epsilon'",
    ),
    "sweep judged by training rows": (
        lambda t: t + small_run.sweep("privacy.epsilon", 0.1, test=0.3),
        "sweep.test:",
        "leave it out",
    ),
    "other models": (
        lambda t: t.replace('["erm"]', '["erm", "afl"]'),
        "report.compare_with:",
        "'erm' only",
    ),
    "epsilon": (
        lambda t: t.replace("epsilon = 3.0", "epsilon = 0.0"),
        "privacy.epsilon:",
        "must be > 0",
    ),
    "endless": (
        lambda t: t.replace("epsilon = 3.0", "epsilon = inf"),
        "privacy.epsilon:",
        "finite",
    ),
    "delta": (
        lambda t: t.replace("delta = 1e-5", "delta = 1.0"),
        "privacy.delta:",
        "must be in (0, 1)",
    ),
    "adjacency": (
        lambda t: t.replace("delta", 'adjacency = "swap"\ndelta'),
        "privacy.adjacency:",
        "'add-remove', 'replace'",
    ),
    "view": (
        lambda t: t.replace("delta", 'view = "all"\ndelta'),
        "privacy.view:",
        "'answers', 'sum'",
    ),
    "missing": (
        lambda t: t.replace("delta", "missing = -1\ndelta"),
        "privacy.missing:",
        "whole number >= 0",
    ),
    "sums": (
        lambda t: t.replace("delta", 'view = "sum"\ndelta') + 'name = "private_admm"\n',
        "algorithm:",
        "Take PrivateSGD()",
    ),
    "sizes": (lambda t: t.replace("East = 15", "East = 0"), "privacy.sizes:", "whole numbers >= 1"),
    "misspelt": (lambda t: t.replace("delta", "delte"), "privacy.delte:", "did you mean 'delta'"),
    "sweep": (
        lambda t: t + small_run.sweep("privacy.epsilon", 1.0, 3.0),
        "sweep.values:",
        "every run is charged",
    ),
    "sweep of nothing": (
        lambda t: t + small_run.sweep("privacy.epsilon", 0.0),
        "sweep.values:",
        "privacy.epsilon = 0.0",
    ),
    "seed": (
        lambda t: t + 'options = { noise = "simulation" }',
        "algorithm.options.noise:",
        "anybody could subtract",
    ),
    "exact": (
        lambda t: t + 'name = "private_admm"\noptions = { update = "exact" }',
        "algorithm.options.update:",
        "no bounded sensitivity",
    ),
    "laplace": (
        lambda t: t + 'options = { mechanism = "laplace" }',
        "algorithm.options.mechanism:",
        "l1 bound",
    ),
    "rho": (
        lambda t: t + 'name = "private_admm"\noptions = { rho = { c3 = 1.0 } }',
        "algorithm.options.rho:",
        "c1, c2",
    ),
    "bound": (
        lambda t: (
            t.replace('"logistic"', '"squared"').replace(
                "[algorithm]", '[algorithm]\nname = "private_admm"'
            )
            + "options = { bound = 1.0 }"
        ),
        "algorithm.options.bound:",
        "give clip",
    ),
    "partition": (
        lambda t: t.replace(SOURCE, 'name = "monks_1"\npartition = { by = "iid" }'),
        "data.partition:",
        "rehearsal",
    ),
}
SOURCE = 'path = "clinics.csv"\nclient = "clinic"\ntarget = "sick"\nclasses = ["no", "yes"]'
COLUMNS = "[data.columns]\nage = { min = -3, max = 4 }\ndose = { mean = 0.0, scale = 1.5 }\n"


@pytest.mark.parametrize("name", BROKEN)
def test_what_has_no_guarantee_is_refused_with_file_line_and_what_to_do(name: str) -> None:
    change, key, words = BROKEN[name]
    text = change(TEXT)
    said = fault(text)
    assert said.startswith("a.toml, line "), said
    assert f", {key} " in said, said
    assert words in said, said
    line = int(said.split("line ")[1].split(",")[0])
    path = key.rstrip(":").split(".")
    found = text.splitlines()[line - 1]  # of the key, or of the table round it
    assert found.startswith(
        (path[-1], f"[{path[0]}]", f"[[{path[0]}]]", f"[{'.'.join(path)}]", "options")
    ), said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[data]\nname = "hospitals"\n[algorithm]\nname = "private_admm"',
            "which [privacy] states by epsilon and delta, and there is none: add it",
        ),
        ('[data]\nname = "hospitals"\n[evaluation]\npublic = true', "there is no [privacy]"),
        ('[data]\nname = "hospitals"\n[data.columns]\na = {}', "set scale = 'none'"),
        ('[data]\nname = "hospitals"\nclasses = ["a", "b"]', "leave `classes` out"),
    ],
)
def test_keys_of_private_runs_belong_to_them(text: str, words: str) -> None:
    assert words in fault(text)


@pytest.mark.parametrize(
    "given",
    [
        "{ min = 1, max = 0 }",
        "{ min = 1 }",
        "{ mean = 1 }",
        "{ mean = 1, scale = 0 }",
        "{ categories = [] }",
        "3",
        "{ min = 0, max = inf }",
        "{ categories = [1] }",
        "{ min = 0, max = 1, mean = 0, scale = 1 }",
        "{ mode = 1 }",
        "{ min = 0, max = 1, missing = nan }",
        "{ indicator = 1 }",
    ],
)
def test_a_column_is_declared_in_one_way(given: str) -> None:
    said = fault(TEXT.replace("age = { min = -3, max = 4 }", f"age = {given}"))
    assert "data.columns" in said
    assert "column 'age' has" in said


# -------------------------------------------------------------------- declared features, rows apart


def test_declared_features_are_those_of_the_formula() -> None:
    how = {
        "a": {"min": -1.0, "max": 3.0},
        "b": {"mean": 2.0, "scale": 4.0, "indicator": True},
        "d": {"missing": 9.0},
    }
    schema = declared_schema(
        ["a", "b", "c", "d"], {**how, "c": {"categories": ["x", "y"]}}, "t", [0, 1]
    )
    table = {
        "a": np.array([-1.0, 3.0, math.nan]),
        "b": np.array([2.0, 6.0, math.nan]),
        "c": np.array(["y", "x", "y"], dtype=object),
        "d": np.array([5.0, math.nan, 7.0]),
    }
    expected = [[0, 0, 0, 0, 1, 5], [1, 1, 0, 1, 0, 9], [0.5, 0, 1, 0, 1, 7]]
    np.testing.assert_allclose(schema.transform(table), expected)
    assert schema.feature_names == ("a", "b", "b is missing", "c=x", "c=y", "d")


rows = st.lists(
    st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.booleans()), min_size=4, max_size=30
)


def federation(data: list[tuple[int, int, bool]]) -> bf.Federation:
    X = np.array([[a, b] for a, b, _ in data], dtype=float)
    return bf.Federation(
        ("one",), (X,), (np.array([int(y) for *_, y in data]),), classes=np.array([0, 1])
    )


def bag(fed: bf.Federation | None) -> list[tuple[float, ...]]:
    return (
        []
        if fed is None
        else sorted((*x, y) for x, y in zip(fed.X[0].tolist(), fed.y[0].tolist(), strict=True))
    )


@settings(max_examples=40, deadline=None)
@given(data=rows, place=st.integers(0, 3), seed=st.integers(0, 5))
def test_one_row_more_or_less_moves_no_other_row(
    data: list[tuple[int, int, bool]], place: int, seed: int
) -> None:
    try:
        train, held = apart(federation(data), 0.3, seed)
        less_train, less_held = apart(federation(data[:place] + data[place + 1 :]), 0.3, seed)
    except ValueError:
        return  # no row was left to train on
    gone = (float(data[place][0]), float(data[place][1]), int(data[place][2]))
    full, less = (bag(train), bag(held)), (bag(less_train), bag(less_held))
    assert sorted([*map(sorted, full)]) != sorted([*map(sorted, less)])
    assert full in ((sorted([*less[0], gone]), less[1]), (less[0], sorted([*less[1], gone])))


def test_about_the_stated_share_is_held_out() -> None:
    rng = np.random.default_rng(0)
    fed = bf.Federation(("one",), (rng.normal(size=(4000, 2)),), (rng.integers(2, size=4000),))
    for seed in range(3):
        train, held = apart(fed, 0.3, seed)
        assert held is not None
        assert len(train.y[0]) + len(held.y[0]) == 4000
        assert abs(len(held.y[0]) / 4000 - 0.3) < 4 * math.sqrt(0.3 * 0.7 / 4000)


def test_features_and_classes_do_not_follow_the_rows(tmp_path: Path) -> None:
    config = read_config(small_run.write_config(tmp_path, TEXT))
    one = prepare(config)
    lines = small_run.table().splitlines()
    other = [*lines[:5], "North,3.9,-9.9,no", *lines[6:]]
    two = prepare(read_config(small_run.write_config(tmp_path, TEXT, "\n".join(other) + "\n")))
    assert one.train.clients == two.train.clients == ("East", "North")  # the order of the sizes
    assert one.train.schema == two.train.schema
    first, second = ({*map(tuple, np.vstack(part.train.X).tolist())} for part in (one, two))
    assert len(first - second) <= 1
    assert len(second - first) <= 1


def test_a_column_that_is_not_declared_has_numbers_in_every_row(tmp_path: Path) -> None:
    named = 'scale = "none"\nfeatures = ["age", "dose"]'
    text, table = TEXT.replace(COLUMNS, "").replace('scale = "none"', named), small_run.table()
    assert prepare(
        read_config(small_run.write_config(tmp_path, text, table))
    ).train.feature_names == ("age", "dose")
    lines = table.splitlines()
    for cell, words in (
        ("", "no value in line 5 of .*clinics.csv"),
        ("old", "has text in line 5 of"),
    ):
        spoilt = [*lines[:4], "North," + cell + ",1.0,no", *lines[5:]]
        config = read_config(small_run.write_config(tmp_path, text, "\n".join(spoilt) + "\n"))
        with pytest.raises(RowError, match=words):
            prepare(config)


def test_clients_are_those_with_a_declared_size(tmp_path: Path) -> None:
    text = TEXT.replace("{ East = 15, North = 14 }", "{ East = 15 }")
    with pytest.raises(RowError, match="rows of a client that is not declared in lines "):
        prepare(read_config(small_run.write_config(tmp_path, text)))
    # West has no rows
    text = TEXT.replace("{ East = 15, North = 14 }", "{ West = 3, North = 14, East = 15 }")
    assert prepare(read_config(small_run.write_config(tmp_path, text))).train.clients == (
        "North",
        "East",
    )


# ----------------------------------------------------------------------------- what a run will cost


def test_a_dry_run_reads_no_file_where_all_is_declared(tmp_path: Path) -> None:
    config = read_config(small_run.write_config(tmp_path, TEXT))
    (tmp_path / "clinics.csv").unlink()
    said = "\n".join(dry_run(config))
    multiplier = noise_for(Budget(3.0, 1e-5), 8)
    assert f"{multiplier:.4g} times the sensitivity" in said
    for n, name in ((15, "East"), (14, "North")):  # clip 2 / 3, each client half of the mean
        assert f"{name}: {n} rows, scale {multiplier * 2 / 3 * 0.5 / n:.4g}" in said
    assert f"closed form {gaussian_epsilon([Release('gaussian', multiplier, 8)], 1e-5):.4g}" in said
    assert "rounds: 8" in said
    assert "2 features" in said
    assert "stays with the owner: digests of the data" in said
    told = [information((15, 14), multiplier, 1.0, 8, k) for k in (1, 2)]
    best = [f"{100 * best_accuracy(told[k - 1], k):.3g} % in {k}" for k in (1, 2)]
    assert f"tells two classes apart without error: {', '.join(best)};" in said
    nu = multiplier * 2 / 3 * 0.5 * math.hypot(1 / 15, 1 / 14) / math.sqrt(8)
    assert f"noise of all rounds: {nu:.3g} in every entry" in said


def test_a_dry_run_says_how_far_descent_goes(tmp_path: Path) -> None:
    assert "[algorithm]" in TEXT
    text = TEXT.replace("[algorithm]", '[algorithm]\nname = "private_sgd"')
    said = "\n".join(dry_run(read_config(small_run.write_config(tmp_path, text))))
    found = re.search(r"steps: ([\d.e+]+) in all, so that noise by itself .* about ([\d.]+)", said)
    assert found is not None
    assert float(found[2]) == pytest.approx(0.9 / 2, rel=2e-3)  # rows count as 2 long
    assert float(found[1]) > 0


def test_a_dry_run_follows_from_public_numbers_alone(tmp_path: Path) -> None:
    text = TEXT.replace("sizes = { East = 15, North = 14 }", "")
    said = [
        dry_run(read_config(small_run.write_config(tmp_path, text, small_run.table(seed))))
        for seed in (0, 1)
    ]
    assert said[0] == said[1]
    assert any("East: 14 rows" in line for line in said[0])  # 60 % of 24
    assert any("counts for nothing while its place is known" in line for line in said[0])


def test_replacing_a_row_takes_twice_the_noise(tmp_path: Path) -> None:
    def scale(adjacency: str) -> np.ndarray:
        text = TEXT.replace("[privacy]", f'[privacy]\nadjacency = "{adjacency}"')
        return plan(*with_public_numbers(parse_config(text))).scale

    np.testing.assert_allclose(scale("replace"), 2 * scale("add-remove"), rtol=1e-12)


def test_the_plan_states_what_either_view_shows() -> None:
    def planned(view: str, missing: int) -> tuple[float, float, str]:
        text = TEXT.replace("[privacy]", f'[privacy]\nview = "{view}"\nmissing = {missing}')
        config = parse_config(text + 'name = "private_sgd"\n')
        found = plan(*with_public_numbers(config))
        assert found.accounts["pld"] is not None
        assert found.other is not None
        return found.accounts["pld"], found.other, "\n".join(said_before(config, found))

    for view, missing, more in (("answers", 0, False), ("sum", 0, True), ("sum", 1, True)):
        total, other, text = planned(view, missing)
        assert total == pytest.approx(3.0, rel=1e-3)
        assert (other > total) is more or (view, missing) == ("sum", 1)  # one client's noise alone
        assert f"epsilon = {other:.4g}" in text
        assert ("in the sum of all clients" in text) is ("single answers must be secret" in text)
    with pytest.raises(ValueError, match="missing=2 leaves no noise"):
        planned("sum", 2)


@pytest.mark.parametrize("text", [small_run.PRIVATE, small_run.PRIVATE_ADMM])
def test_bytes_are_those_of_a_run(text: str, tmp_path: Path) -> None:
    config = read_config(small_run.write_config(tmp_path, text))
    found = plan(*with_public_numbers(config))
    run = small_run.private_run(tmp_path, text=text)
    assert [(row["bytes_up"], row["bytes_down"]) for row in run.history] == [
        (2 * found.up, 2 * found.down)
    ] * 8


def test_a_sweep_leaves_the_model_less_and_fits_the_total() -> None:
    text = TEXT + small_run.sweep("privacy.epsilon", 1.0, 1.5)
    plain, curved = (plan(*with_public_numbers(parse_config(each))) for each in (TEXT, text))
    assert curved.algorithm.plan.multiplier > plain.algorithm.plan.multiplier
    assert curved.accounts["pld"] <= 3.0
    own = [Release("gaussian", noise_for(Budget(e, 1e-5), 8), 8) for e in (1.0, 1.5)]
    together = gaussian_epsilon(
        [*own, Release("gaussian", curved.algorithm.plan.multiplier, 8)], 1e-5
    )
    assert together == pytest.approx(3.0, rel=1e-2)
    assert [total for _, total in curved.sweep] == pytest.approx(
        [1.0, gaussian_epsilon(own, 1e-5)], rel=1e-2
    )
    rehearsed = plan(
        *with_public_numbers(parse_config(text.replace("[privacy]", "[privacy]\nrehearsal = true")))
    )
    assert rehearsed.algorithm.plan.multiplier == plain.algorithm.plan.multiplier


def test_a_sweep_that_takes_everything_is_refused_before_anything_is_read() -> None:
    text = TEXT + small_run.sweep("privacy.epsilon", 2.9, 2.8)
    with pytest.raises(BudgetSpentError, match=r"\[sweep\] takes 4\."):
        dry_run(parse_config(text))


def test_dry_runs_are_of_private_runs(
    bonafed: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    small_run.write_config(tmp_path, small_run.CONFIG)
    assert bonafed("run", "--dry-run", "clinics.toml") == 2
    assert "[privacy]" in capsys.readouterr().err
    small_run.write_config(tmp_path, TEXT)
    assert bonafed("run", "--dry-run", "clinics.toml") == 0
    assert capsys.readouterr().out.rstrip().endswith("nothing was run")
    assert not (tmp_path / "runs").exists()


# -------------------------------------------------------------------- a configuration to start from


def test_a_first_configuration_holds_no_value_of_the_rows(tmp_path: Path) -> None:
    table = small_run.wards(small_run.table())
    (tmp_path / "clinics.csv").write_text(table, "utf-8")
    own = {
        "path": str(tmp_path / "clinics.csv"),
        "asked": Asked("clinic", "sick"),
        "out": tmp_path / "a.toml",
    }
    text, _ = starter(**own, private=True)
    config = parse_config(text, folder=tmp_path)
    with pytest.raises(ConfigError, match=r"data.classes: .*'age', 'dose', 'ward' have '\?'"):
        config.check()
    assert config.data.classes == ["?", "?"]
    assert config.data.columns == {
        "age": {"min": "?", "max": "?"},
        "dose": {"min": "?", "max": "?"},
        "ward": {"categories": ["?"]},
    }
    (tmp_path / "clinics.csv").write_text(small_run.wards(small_run.table(5), 7), "utf-8")
    assert starter(**own, private=True)[0] == text
    named, _ = starter(dataset="hospitals", out=tmp_path / "b.toml", private=True)
    public = parse_config(named)
    assert public.privacy.rehearsal
    public.check()


def test_faults_of_numbers_are_said_in_one_line(
    bonafed: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = {
        "at most 1,000,000": ("max_rounds = 8", "max_rounds = 1000000000000"),
        "the model is not finite": (
            "[algorithm]",
            '[algorithm]\nname = "private_admm"\noptions = { rho = 1e-320 }',
        ),
    }
    for said, (old, new) in cases.items():
        small_run.write_config(tmp_path, TEXT.replace(old, new))
        assert bonafed("run", "clinics.toml", "--out", "runs") == 2, said
        told = capsys.readouterr().err
        assert said in told
        assert "Traceback" not in told
    laplace = '[algorithm]\nname = "private_admm"\noptions = { mechanism = "laplace", clip = 1.0 }'
    text = TEXT.replace("[algorithm]", laplace).replace(
        "max_rounds = 8", "max_rounds = 10000000000"
    )
    small_run.write_config(tmp_path, text)
    assert bonafed("run", "--dry-run", "clinics.toml") == 2
    assert "at most 1,000,000" in capsys.readouterr().err
