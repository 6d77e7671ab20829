"""Configurations of constraints: what valid ones build, what invalid ones say, whose rows they are
asked of.
"""

from pathlib import Path

import numpy as np
import pytest
import small_run

import bonafed as bf
from bonafed.config.config import ConfigError, parse_config, read_config
from bonafed.names import NAMED
from bonafed.runs.baselines import BASELINES, label
from bonafed.runs.splits import prepare
from bonafed.starters.starter import starter

HEAD = '[data]\nname = "hospitals"\n[problem]\nloss = "logistic"\n'  # four lines
NP = '[[constraint]]\nkind = "neyman_pearson"\nlabel = "malignant"\nlevel = 0.2\n'  # lines 5 to 8

WRONG = {
    "kind": (
        HEAD + '[[constraint]]\nkind = "neyman_person"\n',
        ["line 6, constraint.kind", "mean 'neyman_pearson'"],
    ),
    "the second of two": (
        HEAD + NP + NP.replace("0.2", "-1"),
        ["line 12, constraint.level", "-1", "finite and >= 0"],
    ),
    "an unknown key of the second": (
        HEAD + NP + NP.replace("level", "lvel"),
        ["line 12, constraint.lvel", "'level'"],
    ),
    "level of a client": (
        HEAD + NP.replace("0.2", "{ A = nan }"),
        ["line 8, constraint.level", "'A'", "nan"],
    ),
    "no level": (
        HEAD + NP.replace("level = 0.2", ""),
        ["line 5, constraint", "needs `level`", "'neyman_pearson'"],
    ),
    "another kind's key": (
        HEAD + NP + 'column = "x"\n',
        ["line 5", "`column`", "'loss_gap' or 'bounded_group_loss'"],
    ),
    "rows of coefficients": (
        HEAD + '[[constraint]]\nkind = "sign"\nsigns = { a = 1 }\non = "server"\n',
        ["line 5, constraint", "`on`", "leave it out"],
    ),
    "signs": (
        HEAD + '[[constraint]]\nkind = "sign"\nsigns = { a = 2 }\n',
        ["line 7, constraint.signs", "1", "-1"],
    ),
    "features": (
        HEAD + '[[constraint]]\nkind = "monotone"\nfeatures = ["a"]\n',
        ["line 7, constraint.features", "two or more"],
    ),
    "costs": (
        HEAD + '[[constraint]]\nkind = "cost_limit"\ncosts = {}\nlimit = 1.0\n',
        ["line 7, constraint.costs", "{}", "more entries"],
    ),
    "matrix": (
        HEAD + '[[constraint]]\nkind = "linear_equality"\nC = [[1.0], [1.0, 2.0]]\n',
        ["line 7, constraint.C", "a list of rows"],
    ),
    "prior of nobody": (HEAD + NP + 'prior = "size"\n', ["`prior`", "on = 'together'"]),
    "level by client, together": (
        HEAD + NP.replace("0.2", "{ A = 0.2 }") + 'on = "together"\n',
        ["level for each client", "'together'", "give one number"],
    ),
    "no rows of the server": (HEAD + NP + 'on = "server"\n', ["'server'", "data.server"]),
    "rows for nothing": (
        HEAD.replace('"hospitals"', '"hospitals"\nserver = 0.2') + NP,
        ["data.server", "leave it out"],
    ),
    "share of the server": (
        '[data]\nname = "hospitals"\nserver = 1.5\n',
        ["line 3, data.server", "1.5", "less than 1"],
    ),
    "label of numbers": (
        '[data]\nname = "x"\n[problem]\nloss = "huber"\nlabel = 1\n',
        ["`label`", "'huber'", "logistic"],
    ),
    "ranks, too": (
        HEAD + 'label = "benign"\n[risk]\nname = "maximum"\n',
        ["problem.label", "'maximum'", "keep one of them"],
    ),
    "levels of pooled rows": (
        HEAD + "pooled = true\n" + NP.replace("0.2", "{ A = 0.2 }"),
        ["constraint.level", "problem.pooled", "give a number"],
    ),
    "another method": (
        HEAD + NP + '[algorithm]\nname = "ad_lpmm"\n',
        ["'ad_lpmm'", "'interior_point' or 'proximal_al'"],
    ),
    "levels of nothing": (
        HEAD + small_run.sweep("constraint.1.level", 0.1),
        ["sweep.values", "no such table as 'constraint.1'"],
    ),
    "levels of the third": (
        HEAD + NP + small_run.sweep("constraint.3.level", 0.1),
        ["sweep.values", "no such table as 'constraint.3'"],
    ),
    "nothing to leave out": (
        HEAD + '[report]\ncompare_with = ["unconstrained"]\n',
        ["'unconstrained'", "use 'erm'"],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_error_names_line_key_value_and_what_to_do(case: str) -> None:
    text, needed = WRONG[case]
    with pytest.raises(ConfigError) as error:
        parse_config(text)
    said = str(error.value)
    assert all(part in said for part in needed), said
    assert len(said.splitlines()) == 1


STATED = {
    "neyman_pearson": ('label = "malignant"\nlevel = 0.2', bf.NeymanPearson("malignant", 0.2)),
    "loss_gap": ('column = "c"\nlevel = 0', bf.LossGap("c", 0.0)),
    "bounded_group_loss": (
        'column = "c"\nlevel = { A = 1, B = 2 }',
        bf.BoundedGroupLoss("c", {"A": 1.0, "B": 2.0}),
    ),
    "demographic_parity": ('column = "c"\nlevel = 0.2', bf.DemographicParity("c", 0.2)),
    "equalised_odds": (
        'column = "c"\nlevel = 0.2\nmeasure = "probability"',
        bf.EqualisedOdds("c", 0.2, bf.Probability()),
    ),
    "sign": ("signs = { a = 1, b = -1 }", bf.Sign({"a": 1, "b": -1})),
    "monotone": ('features = ["a", "b"]', bf.Monotone(["a", "b"])),
    "cost_limit": (
        "costs = { a = 1, b = 2.5 }\nlimit = -3",
        bf.CostLimit({"a": 1.0, "b": 2.5}, -3.0),
    ),
    "linear_inequality": ("C = [1, 2.0]\nd = 1", bf.LinearInequality([1, 2.0], 1)),
    "linear_equality": ("C = [[1, 2.0], [0, 1]]", bf.LinearEquality([[1.0, 2.0], [0.0, 1.0]])),
}


@pytest.mark.parametrize(
    "text",
    [
        HEAD.replace("logistic", "hinge") + NP,
        HEAD + NP + "[robust]\nradius = 0.1\n",
        HEAD + NP + '[algorithm]\nname = "bundle"\n',
    ],
    ids=["kinks", "a worst case, too", "by cuts"],
)
def test_constraints_go_with_every_convex_objective(text: str) -> None:
    config = parse_config(text)
    assert config.constrained
    assert config.problem().constrained


@pytest.mark.parametrize("kind", NAMED["constraint"])
def test_every_kind_is_built_said_and_written(kind: str) -> None:
    keys, expected = STATED[kind]
    config = parse_config(HEAD + f'[[constraint]]\nkind = "{kind}"\n{keys}\n')
    problem = config.problem()
    slot = problem.constraint if config.constraint[0].place == "model" else problem.local_constraint
    (found,) = slot  # type: ignore[misc]
    assert type(found) is type(expected)
    assert vars(found) == vars(expected)
    assert problem.over_clients == bf.Mean()
    assert config.constraint[0].words() in config.sentence()
    assert parse_config(config.text()).model_dump() == config.model_dump()
    assert label(problem) == "constrained"


def test_rows_of_all_clients_and_one_class_in_the_objective() -> None:
    text = (
        HEAD
        + 'label = "benign"\n[clients]\nprior = "size"\n'
        + NP
        + 'on = "together"\nprior = "uniform"\n'
    )
    problem = parse_config(text).problem()
    assert problem.over_samples == bf.Mean(label="benign")
    assert problem.over_clients == bf.Mean("size")
    assert problem.constraint == (bf.Coupled(bf.NeymanPearson("malignant", 0.2), "uniform"),)
    assert problem.local_constraint is None
    free, _ = BASELINES["unconstrained"](problem, None)  # type: ignore[arg-type]
    assert (free.constraint, free.over_samples, free.over_clients) == (
        None,
        bf.Mean(),
        bf.Mean("size"),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small_run.write_config(tmp_path, small_run.KEPT, small_run.wards(small_run.table()))
    return tmp_path


def test_groups_are_read_and_are_no_features(folder: Path) -> None:
    parts = prepare(read_config(folder / "clinics.toml"))
    assert parts.train.feature_names == ("age", "dose")
    assert {*np.concatenate(parts.train.columns["ward"])} == {"a", "b"}  # type: ignore[index]
    assert all("ward" in (fed.columns or {}) for fed in parts.tests.values())
    used = small_run.KEPT.replace('groups = ["ward"]\n', "")
    parts = prepare(parse_config(used, folder=folder))
    assert parts.train.feature_names == ("age", "dose", "ward=a", "ward=b")
    assert "ward" in (parts.train.columns or {})


def test_the_digest_of_a_client_is_also_of_its_groups(folder: Path) -> None:
    whole = small_run.KEPT.replace("test = 0.4", "test = 0.0")
    north, east = prepare(parse_config(whole, folder=folder)).train.digests()
    file = folder / "clinics.csv"
    lines = file.read_text("utf-8").splitlines()
    k = next(
        i for i, line in enumerate(lines) if line.startswith('"North"') and line.endswith(",a")
    )
    file.write_text("\n".join([*lines[:k], lines[k][:-1] + "b", *lines[k + 1 :]]) + "\n", "utf-8")
    changed, same = prepare(parse_config(whole, folder=folder)).train.digests()
    assert changed != north
    assert same == east


def test_missing_groups_and_columns_are_said(folder: Path) -> None:
    file = folder / "clinics.csv"
    text = file.read_text("utf-8")
    file.write_text(text.replace(",a\n", ",\n", 1), "utf-8")
    with pytest.raises(
        ValueError,
        match=r"column 'ward' is missing in line \d+ of .*clinics.csv.*such as 'unknown'",
    ):
        prepare(read_config(folder / "clinics.toml"))
    file.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=r"no column 'wards' \(data.groups\).*'ward'"):
        prepare(parse_config(small_run.KEPT.replace('["ward"]', '["wards"]'), folder=folder))
    with pytest.raises(ConfigError, match=r"data\.groups: 'sick'"):
        prepare(parse_config(small_run.KEPT.replace('["ward"]', '["sick"]'), folder=folder))


SERVER = small_run.KEPT.replace("test = 0.4", "test = 0.4\nserver = 0.25").replace(
    'on = "together"', 'on = "server"'
)


def test_the_server_has_a_share_of_the_rows_or_a_table_of_its_own(folder: Path) -> None:
    whole = prepare(read_config(folder / "clinics.toml")).train
    parts = prepare(parse_config(SERVER, folder=folder))
    held = parts.train.server
    assert held is not None
    assert held.sizes[0] + parts.train.sizes.sum() == whole.sizes.sum()
    assert held.clients == ("server",)
    lines = (folder / "clinics.csv").read_text("utf-8").splitlines()
    (folder / "own.csv").write_text("\n".join([lines[0], *lines[-9:]]) + "\n", "utf-8")
    config = parse_config(SERVER.replace("0.25", '"own.csv"'), folder=folder)
    parts = prepare(config)
    assert parts.train.server is not None
    assert parts.train.server.sizes[0] == 9
    assert parts.train.sizes.sum() == whole.sizes.sum()
    (folder / "runs" / "one").mkdir(parents=True)
    moved = config.moved_to(folder / "runs" / "one")
    assert moved.data.server == "../../own.csv"
    assert prepare(moved).train.digests() == parts.train.digests()
    (folder / "own.csv").write_text("\n".join([lines[0], *lines[-8:]]) + "\n", "utf-8")
    assert prepare(config).train.digests() != parts.train.digests()
    (folder / "own.csv").write_text("age,sick\n1,yes\n", "utf-8")
    with pytest.raises(ValueError, match=r"data.server: .* it lacks columns 'dose', 'ward'"):
        prepare(config)


def test_the_section_that_init_offers_is_valid_where_it_is_used(tmp_path: Path) -> None:
    text, _ = starter(out=tmp_path / "q.toml", dataset="hospitals")
    at = text.index("# [[constraint]]")
    section = text[at : text.index("\n\n", at)].replace("# ", "", 1).replace("\n# ", "\n")
    config = parse_config(HEAD + section)
    assert config.problem().local_constraint == (bf.NeymanPearson("malignant", 0.3),)


@pytest.mark.parametrize("name", ["neyman_pearson", "fairness"])
def test_the_examples_are_valid(name: str) -> None:
    config = read_config(Path(__file__).parents[1] / "examples" / f"{name}.toml")
    config.check()
    assert config.problem().constrained
    assert config.sweep is not None
    assert config.sweep.values[2] == config.constraint[0].level
