"""Configurations of risks by rank and of pooled rows: what valid ones build, what invalid ones
say.
"""

import pytest

import bonafed as bf
from bonafed.config.config import ConfigError, parse_config
from bonafed.names import NAMED
from bonafed.runs.baselines import label
from bonafed.runs.splits import prepare

DATA = '[data]\nname = "hospitals"\n'
TOGETHER = '[risk]\nname = "superquantile"\ntail = 0.2\non = "together"\n'

WRONG = {
    "risk's name": (
        DATA + '[risk]\nname = "superquantil"\n',
        ["line 4", "risk.name", "did you mean 'superquantile'"],
    ),
    "risk's key": (
        DATA + '[risk]\nname = "superquantile"\ntial = 0.2\n',
        ["line 5", "risk.tial", "mean 'tail'"],
    ),
    "another risk's key": (
        DATA + '[risk]\nname = "superquantile"\ntail = 0.2\nk = 3\n',
        ["line 3, risk", "`k`", "'superquantile'", "'top_k' or 'ranked_range'"],
    ),
    "risk without its key": (
        DATA + '[risk]\nname = "ranked_range"\nk = 3\n',
        ["risk", "needs `m`"],
    ),
    "a key of no risk": (DATA + "[risk]\ntail = 0.2\n", ["`tail`", "'mean'", "'superquantile'"]),
    "tail": (
        DATA + '[risk]\nname = "superquantile"\ntail = 0.0\n',
        ["line 5, risk.tail", "must be in (0, 1], got 0.0"],
    ),
    "power": (
        DATA + '[risk]\nname = "extremile"\nr = 0.5\n',
        ["line 5, risk.r", "must be a number >= 1, got 0.5"],
    ),
    "ranks": (DATA + '[risk]\nname = "ranked_range"\nk = 3\nm = 3\n', ["risk", "m < k"]),
    "whole ranks": (DATA + '[risk]\nname = "top_k"\nk = 2.5\n', ["risk.k", "2.5", "integer"]),
    "order": (
        DATA + '[risk]\nname = "ranked_range"\nk = 3\nm = 1\norder = "up"\n',
        ["line 7, risk.order", "'up'", "'ascending', 'descending'"],
    ),
    "ranks in a ball": (
        DATA + '[risk]\nname = "maximum"\n[robust]\nradius = 0.1\n',
        ["risk.name = 'maximum'", "robust.radius > 0", "keep one of them"],
    ),
    "ranks in a ball read off": (
        DATA + '[risk]\nname = "maximum"\n[robust]\nradius = "auto"\n',
        ["robust.radius"],
    ),
    "radii of ranks": (
        DATA + '[risk]\nname = "maximum"\n[sweep]\nparameter = "robust.radius"\nvalues = [0.1]\n',
        ["sweep.values", "robust.radius = 0.1", "keep one of them"],
    ),
    "bundle, not convex": (
        DATA + '[problem]\npooled = true\nregulariser = "scad"\n[algorithm]\nname = "bundle"\n',
        ["'scad'", "'bundle'", "'rank_admm'"],
    ),
    "shape": (DATA + "[problem]\nshape = 3.0\n", ["`shape`", "'l2'", "'mcp' or 'scad'"]),
    "shape of scad": (
        DATA + '[problem]\nregulariser = "scad"\nshape = 2.0\n',
        ["line 5, problem.shape", "> 2, got 2"],
    ),
    "clients of pooled rows": (
        DATA + '[problem]\npooled = true\n[clients]\nprior = "size"\n',
        ["[clients]", "leave out [clients], or set problem.pooled = false"],
    ),
    "radii of pooled rows": (
        DATA + "[problem]\npooled = true\n[robust]\nradius = { A = 0.1 }\n",
        ["robust.radius", "give a number"],
    ),
    "baseline of pooled rows": (
        DATA + '[problem]\npooled = true\n[report]\ncompare_with = ["erm", "afl"]\n',
        ["'afl'", "'erm' only"],
    ),
    "one place": (
        DATA + '[algorithm]\nname = "rank_admm"\n',
        ["'rank_admm'", "got problem.pooled = false", "use 'bundle'"],
    ),
    "one place, ball": (
        DATA + '[problem]\npooled = true\n[robust]\nradius = 0.1\n[algorithm]\nname = "sgd"\n',
        ["'sgd'", "robust.radius > 0", "'bundle'"],
    ),
    "no ranks": (
        DATA + '[risk]\nname = "maximum"\n[algorithm]\nname = "double_loop"\n',
        ["'double_loop'", "'maximum'", "use 'bundle'"],
    ),
    "whose ranks": (
        DATA + TOGETHER.replace("together", "all"),
        ["line 6, risk.on", "'all'", "'clients', 'together'"],
    ),
    "all rows, weighed clients": (
        DATA + TOGETHER + '[clients]\nrisk = "simplex"\n',
        ["line 7, clients", "one ranking", "leave out risk.on, or leave out [clients]"],
    ),
    "all rows, pooled": (
        DATA + "[problem]\npooled = true\n" + TOGETHER,
        ["line 8, risk.on", "problem.pooled = true has them in one place: leave out risk.on"],
    ),
    "all rows, no ranks": (
        DATA + '[risk]\non = "together"\n',
        ["line 4, risk.on", "ranks none", "set risk.name to another risk"],
    ),
    "all rows, not convex": (
        DATA + '[risk]\nname = "median"\non = "together"\n',
        ["line 4, risk.name", "'median'", "'median' with risk.on = 'together'"],
    ),
    "all rows, one class": (
        DATA + '[problem]\nlabel = "benign"\n' + TOGETHER,
        ["'superquantile' and problem.label exclude", "keep one of them"],
    ),
    "all rows, ball": (
        DATA + TOGETHER + '[robust]\nradius = "auto"\n',
        ["'superquantile' and robust.radius > 0", "keep one of them"],
    ),
    "all rows, weights of classes": (
        DATA + '[problem]\nclass_weight = "balanced"\n' + TOGETHER,
        ["class_weight", "a risk by rank counts rows of one weight only"],
    ),
    "all rows, the same pooled": (
        DATA + TOGETHER + '[report]\ncompare_with = ["erm", "wafl"]\n',
        ["line 8, report.compare_with", "'wafl'", "both are one model: leave it out"],
    ),
    "all rows, one place": (
        DATA + TOGETHER + '[algorithm]\nname = "rank_admm"\n',
        ["'rank_admm'", "got problem.pooled = false", "use 'bundle'"],
    ),
    "all rows, another method": (
        DATA + TOGETHER + '[algorithm]\nname = "interior_point"\n',
        ["takes no risk over the rows of all", "with risk.on = 'together': use "],
    ),
    "a method for all rows": (
        DATA + TOGETHER.replace("together", "clients") + '[algorithm]\nname = "rank_bundle"\n',
        ["needs over_rows = ", "'superquantile' without risk.on", "use 'bundle'"],
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


RISKS_STATED = {
    "mean": ("", bf.Mean()),
    "superquantile": ("tail = 0.2", bf.Superquantile(0.2)),
    "extremile": ("r = 2", bf.Extremile(2.0)),
    "exponential_spectral": ("rho = 1.5", bf.ExponentialSpectral(1.5)),
    "maximum": ("", bf.Maximum()),
    "top_k": ("k = 3", bf.TopK(3)),
    "ranked_range": ('k = 70\nm = 20\norder = "descending"', bf.RankedRange(70, 20, "descending")),
    "median": ("", bf.Median()),
    "value_at_risk": ("level = 0.9", bf.ValueAtRisk(0.9)),
    "human_aligned": ("a = 0.4\nb = 0.3", bf.HumanAligned(0.4, 0.3)),
    "prospect_theory": ("gamma = 0.7\nreference = 0.1", bf.ProspectTheory(0.7, reference=0.1)),
}


@pytest.mark.parametrize("name", NAMED["risk over samples"])
def test_every_risk_over_rows_is_built_said_and_written(name: str) -> None:
    keys, expected = RISKS_STATED[name]
    config = parse_config(DATA + f'[problem]\npooled = true\n[risk]\nname = "{name}"\n{keys}\n')
    config.check()
    assert config.problem().over_samples == expected
    assert config.problem().over_clients == bf.Mean()
    assert type(expected) is config.risk.named_class("name")
    assert name.replace("_", " ") in config.sentence()
    assert "all rows, pooled" in config.sentence()
    assert parse_config(config.text()).model_dump() == config.model_dump()
    assert label(config.problem()) == (name if name != "mean" else "model")


def test_a_risk_inside_every_client_keeps_the_mix_of_clients() -> None:
    config = parse_config(
        DATA + '[risk]\nname = "superquantile"\ntail = 0.25\n[clients]\nradius = 0.3\n'
    )
    problem = config.problem()
    assert (problem.over_samples, problem.over_clients) == (bf.Superquantile(0.25), bf.LpBall(0.3))
    assert (
        "(weights within 0.3 of the uniform prior, l2 norm) of each client's superquantile"
        in config.sentence()
    )
    assert "superquantile (mean of the largest 25 %) of its hinge losses" in config.sentence()
    assert config.quick().problem() == problem


CONVEX = ("superquantile", "extremile", "exponential_spectral", "maximum", "top_k")


@pytest.mark.parametrize("name", CONVEX)
def test_every_convex_risk_ranks_the_rows_of_all_clients(name: str) -> None:
    keys, expected = RISKS_STATED[name]
    text = f'[risk]\nname = "{name}"\non = "together"\n{keys}\n[problem]\nloss = "logistic"\n'
    config = parse_config(DATA + text)
    config.check()
    problem = bf.Problem(bf.Logistic(), over_rows=expected, regulariser=bf.L2(1e-3))
    assert config.problem() == problem
    assert config.sentence().endswith(
        "of the logistic losses of all clients' rows, ranked together, plus l2 regularisation of"
        " strength 0.001."
    )
    assert parse_config(config.text()).model_dump() == config.model_dump()
    assert config.quick().problem() == problem
    assert label(problem) == name
    alone = parse_config(DATA + text.replace("together", "clients"))
    assert alone.problem().over_samples == expected


def test_no_rows_are_ranked_together_within_a_budget_or_at_sites() -> None:
    declared = 'target = "y"\nscale = "none"\nclasses = ["n", "p"]\n'
    declared += "[data.columns]\nage = { min = 0, max = 100 }\n" + TOGETHER
    with pytest.raises(ConfigError, match=r"risk.on: .*data.sites keep theirs: leave \[risk\] out"):
        parse_config('[data]\nsites = ["a", "b"]\n' + declared)
    budget = "[privacy]\nepsilon = 1.0\ndelta = 1e-6\nsizes = 60\n"
    with pytest.raises(ConfigError, match=r"line 12, risk.on: .*: leave out risk.on"):
        parse_config('[data]\npath = "x.csv"\nclient = "c"\n' + declared + budget)


@pytest.mark.parametrize(
    ("keys", "expected"), [("", bf.MCP(0.1)), ("shape = 5.0", bf.MCP(0.1, 5.0))]
)
def test_regularisers_that_are_not_convex(keys: str, expected: object) -> None:
    text = DATA + f'[problem]\npooled = true\nstrength = 0.1\nregulariser = "mcp"\n{keys}'
    assert parse_config(text).problem().regulariser == expected
    assert parse_config(text.replace("mcp", "scad")).problem().regulariser == bf.SCAD(
        *([0.1, 5.0][: 1 + bool(keys)])
    )


def test_parameters_that_do_not_go_together_are_said_before_anything_is_read() -> None:
    pooled = DATA + '[problem]\npooled = true\n[risk]\nname = "human_aligned"\na = 0.4\nb = 30.0\n'
    with pytest.raises(ConfigError, match=r"line 7, risk.a: .*use b from"):
        parse_config(pooled)


def test_pooled_rows_keep_their_owners() -> None:
    text = '[data]\nname = "hospitals"\nshifted = ["Lakeview"]\n[problem]\npooled = true\n'
    parts = prepare(parse_config(text))
    assert parts.train.clients == ("pooled",)
    assert len(parts.owners.clients) == 5
    assert sum(parts.owners.sizes) == parts.train.sizes[0] == parts.ranked
    assert parts.tests["held-out rows"].clients == parts.owners.clients
    apart = prepare(parse_config(text.replace("pooled = true", "")))
    assert apart.owners.digests() == parts.owners.digests()
    ownerless = parse_config('[data]\nname = "breast_cancer"\n[problem]\npooled = true')
    assert prepare(ownerless).train.n_clients == 1
