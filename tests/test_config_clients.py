"""Configurations of sets of weights, simulated clocks and models: what valid ones build, what
invalid ones say.
"""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bonafed as bf
from bonafed.config.config import Config, ConfigError, parse_config, read_config
from bonafed.names import NAMED
from bonafed.problem.predictors.mlp import MLP
from bonafed.runs.splits import prepare

DATA = '[data]\nname = "hospitals"\n'
LOGISTIC = DATA + '[problem]\nloss = "logistic"\n'
CLOCK = LOGISTIC + '[engine]\nkind = "virtual_clock"\n'
NAMES = ("a", "b", "c")
LOSSES = np.array([0.3, 1.2, 0.7])


SET = {  # keys of [clients], and the same set built by hand for three clients with 2, 1 and 1 rows
    "mean": ('prior = "size"', bf.Mean("size")),
    "simplex": ("", bf.Simplex()),
    "lp_ball": ("radius = 0.2\np = 1.0", bf.LpBall(0.2, 1.0)),
    "cd_norm": (
        (
            "budget = 1.0\nbounds = { a = 0.1, c = 0.3, b = 0.2 }\nprior = { b = 0.3, a = 0.5, c ="
            " 0.2 }"
        ),
        bf.CDNorm(1.0, [0.1, 0.2, 0.3], [0.5, 0.3, 0.2]),
    ),
    "box": ("lower = 0.1\nupper = { a = 0.4, b = 0.5, c = 0.6 }", bf.Box(0.1, [0.4, 0.5, 0.6])),
    "ellipsoid": (
        'shape = [0.5, 1.0, 2.0]\nradius = 0.05\nprior = "size"',
        bf.Ellipsoid([0.5, 1, 2], 0.05, "size"),
    ),
    "polyhedron": (
        "D = [[1, 0, -1], [0, 1, 0]]\nc = [0.1, 0.6]",
        bf.Polyhedron([[1, 0, -1], [0, 1, 0]], [0.1, 0.6]),
    ),
    "kl_ball": ('radius = 0.3\nprior = "size"', bf.KLBall(0.3, "size")),
    "chi_square": ("radius = 0.3", bf.ChiSquareBall(0.3)),
    "total_variation": (
        "radius = 0.15\nprior = [0.5, 0.3, 0.2]",
        bf.TotalVariationBall(0.15, [0.5, 0.3, 0.2]),
    ),
    "wasserstein": (
        "radius = 0.4\ncost = { a = 0.0, b = 2.5, c = 1.0 }",
        bf.WassersteinOverClients(0.4, [0.0, 2.5, 1.0]),
    ),
    "superquantile": ('tail = 0.5\nprior = "size"', bf.Superquantile(0.5, "size")),
}


@pytest.mark.parametrize("name", NAMED["risk over clients"])
def test_every_set_that_can_be_named_is_that_set(name):
    keys, expected = SET[name]
    config = parse_config(f'{LOGISTIC}[clients]\nrisk = "{name}"\n{keys}\n')
    built = config.problem().over_clients.at([2, 1, 1], NAMES)
    assert type(built) is type(expected)
    expected = expected.at([2, 1, 1], NAMES)
    assert built.value(LOSSES) == pytest.approx(expected.value(LOSSES), rel=1e-12)
    assert built.value(-LOSSES) == pytest.approx(expected.value(-LOSSES), rel=1e-12)
    assert parse_config(config.text()).model_dump() == config.model_dump()
    words = config.sentence()
    assert (
        "the mean over the clients" in words
        if name == "mean"
        else "worst weighted mean over the clients" in words
    )
    assert ("prior" in words) == config.clients.centred


def test_a_wasserstein_cost_may_be_a_matrix_or_the_order():
    text = LOGISTIC + '[clients]\nrisk = "wasserstein"\nradius = 0.4\n'
    matrix = (
        parse_config(text + "cost = [[0, 1, 2], [1, 0, 1], [2, 1, 0]]\n").problem().over_clients
    )
    order = parse_config(text).problem().over_clients
    assert matrix.at([1] * 3, NAMES).value(LOSSES) == pytest.approx(
        order.at([1] * 3, NAMES).value(LOSSES)
    )


def engine(text: str) -> object:
    return parse_config(CLOCK + text).solve_arguments()["engine"]


def test_clocks_are_those_that_python_builds(tmp_path: Path):
    assert engine("") == bf.VirtualClock()
    assert engine(
        'stragglers = { "Old Mill" = 10.0 }\nmax_time = 5.0\nkeep_rows = 3\nblock_size ='
        " 8\nevery = 7"
    ) == (
        bf.VirtualClock(
            stragglers={"Old Mill": 10.0}, max_time=5.0, keep_rows=3, block_size=8, every=7
        )
    )
    assert engine(
        "outages = { Lakeview = [[1.0, 2.0], [3, 4]] }\ncrashes = { Hillcrest = 9.0 }"
    ) == (
        bf.VirtualClock(outages={"Lakeview": [[1.0, 2.0], [3.0, 4.0]]}, crashes={"Hillcrest": 9.0})
    )
    for text, delays in (
        (
            '{ kind = "lognormal", sigma = 0.1, client_sigma = 0.0, unit = 2.0 }',
            bf.LogNormal(0.1, 0.0, unit=2.0),
        ),
        ('{ kind = "constant", seconds = 3.0, per_gradient = 0.5 }', bf.Constant(3.0, 0.5)),
    ):
        assert engine(f"delays = {text}") == bf.VirtualClock(delays)
    for text, wait in (
        ('{ kind = "first", n = 4 }', bf.First(4)),
        ('{ kind = "stale", n = 2, tau = 5 }', bf.Stale(2, 5)),
        (
            '{ kind = "adaptive", n = 2, factor = 3.0, centre = "mean" }',
            bf.Adaptive(2, 3.0, "mean"),
        ),
    ):
        assert engine(f"wait = {text}") == bf.VirtualClock(wait=wait)
    (tmp_path / "d.csv").write_text("client,delay\nNorthgate,1.5\nNorthgate,2.5\n")
    config = parse_config(CLOCK + 'delays = { kind = "trace", path = "d.csv" }', folder=tmp_path)
    (tmp_path / "runs").mkdir()
    for there in (config, config.moved_to(tmp_path / "runs")):  # relative paths move with the file
        trace = there.solve_arguments()["engine"].delays
        assert trace.trips(0, "Northgate", 0, 0)[:3].tolist() == [1.5, 2.5, 1.5]
    assert engine("checkpoint = false") == bf.VirtualClock()
    with_file = parse_config(CLOCK).solve_arguments(tmp_path / "x")["engine"]
    assert with_file == bf.VirtualClock(checkpoint=tmp_path / "x")
    assert parse_config(CLOCK).solve_arguments(clock=False)["engine"] == bf.InProcess()
    assert parse_config(DATA).solve_arguments()["engine"] == bf.InProcess()


def test_models_and_methods():
    several = '[problem]\nloss = "multinomial"\nmodel = '
    assert parse_config(DATA + several + '"softmax"').problem().predictor == bf.Softmax(
        fit_intercept=False, ones=True
    )
    robust = DATA + several + '"softmax"\n[robust]\nradius = 0.1\n'
    assert parse_config(robust).problem().over_samples == bf.WassersteinBall(0.1)
    network = parse_config(
        "seed = 3\n" + DATA + several + '"mlp"\nhidden = [4, 3]\nactivation = "relu"'
    )
    assert network.problem().predictor == MLP((4, 3), "relu", seed=3)
    assert "neural networks (hidden layers of 4, 3 units, relu)" in network.sentence()
    assert "softmax models" in parse_config(DATA + several + '"softmax"').sentence()
    binary = parse_config(LOGISTIC + 'model = "mlp"\n').problem()
    assert (binary.predictor, binary.loss) == (MLP(), bf.Logistic())
    method = parse_config(
        LOGISTIC + '[algorithm]\nname = "aspire"\noptions = { bounds = [9.0, 9.0, 9.0, 9.0] }'
    )
    assert method.solve_arguments()["algorithm"] == bf.ASPIRE(bounds=(9.0, 9.0, 9.0, 9.0))
    mean = (
        LOGISTIC
        + '[clients]\nrisk = "mean"\n[algorithm]\nname = "fed_avg"\noptions = { strength = 0.1 }'
    )
    assert parse_config(mean).solve_arguments()["algorithm"] == bf.FedProx(0.1)


def test_ones_stand_for_the_intercepts_of_several_classes():
    text = DATA + '[problem]\nloss = "multinomial"\nmodel = "softmax"\n'
    parts = prepare(parse_config(text))
    assert all((X[:, -1] == 1).all() for X in parts.train.X)
    plain = prepare(parse_config(text + "fit_intercept = false"))
    assert parts.train.n_features == plain.train.n_features + 1
    assert len(set(parts.train.feature_names)) == parts.train.n_features


def test_the_example_is_valid():
    config = read_config(Path(__file__).parents[1] / "examples" / "agnostic.toml")
    config.check()
    assert config.engine.clocked
    assert set(config.engine.stragglers) <= set(prepare(config).train.clients)


SIMPLEX = LOGISTIC + '[clients]\nrisk = "simplex"\n'
WRONG = {
    "set's name": (
        LOGISTIC + '[clients]\nrisk = "kl_bal"\n',
        ["line 6", "clients.risk", "did you mean 'kl_ball'"],
    ),
    "set's key": (SIMPLEX + "budget = 1.0\n", ["clients", "`budget`", "'cd_norm'"]),
    "key needed": (
        LOGISTIC + '[clients]\nrisk = "cd_norm"\nbudget = 1.0\n',
        ["clients", "needs `bounds`"],
    ),
    "keys needed": (LOGISTIC + '[clients]\nrisk = "box"\n', ["needs `lower` and `upper`"]),
    "negative": (
        LOGISTIC + '[clients]\nrisk = "cd_norm"\nbudget = 1.0\nbounds = -0.1\n',
        ["line 8", "clients.bounds"],
    ),
    "negative by name": (
        LOGISTIC + '[clients]\nrisk = "cd_norm"\nbudget = 1.0\nbounds = { a = -0.1 }\n',
        ["clients.bounds", ">= 0"],
    ),
    "true": (LOGISTIC + '[clients]\nrisk = "box"\nlower = true\nupper = 1\n', ["clients.lower"]),
    "ragged": (
        LOGISTIC + '[clients]\nrisk = "polyhedron"\nD = [[1, 2], [3]]\nc = [1, 1]\n',
        ["line 7, clients.D", "must be numbers"],
    ),
    "text": (
        LOGISTIC + '[clients]\nrisk = "polyhedron"\nD = [["a", 2]]\nc = [1]\n',
        ["line 7, clients.D", "each a number"],
    ),
    "tail": (
        LOGISTIC + '[clients]\nrisk = "superquantile"\ntail = 0.0\n',
        ["line 7, clients.tail", "in (0, 1], got 0.0"],
    ),
    "empty set": (LOGISTIC + '[clients]\nrisk = "box"\nlower = [0.9, 0.9]\nupper = 1.0\n', []),
    "clock's key": (
        LOGISTIC + "[engine]\nstragglers = { a = 2.0 }\n",
        ["engine", "`stragglers`", "'virtual_clock'"],
    ),
    "clock without modes": (CLOCK + 'mode = "each"\n', ["`mode`", "'in_process'"]),
    "kind of clock": (LOGISTIC + '[engine]\nkind = "clock"\n', ["engine.kind", "'virtual_clock'"]),
    "factor": (CLOCK + "stragglers = { a = 0.0 }\n", ["line 7", "engine.stragglers", "> 0"]),
    "span": (
        CLOCK + "outages = { a = [1.0, 2.0] }\n",
        ["line 7, engine.outages", "'a'", "a list, each a list"],
    ),
    "spans out of order": (
        CLOCK + "outages = { a = [[2.0, 1.0]] }\n",
        ["outages['a']", "from < to"],
    ),
    "crash": (CLOCK + 'crashes = { a = "soon" }\n', ["engine.crashes"]),
    "delays": (CLOCK + 'delays = { kind = "constant", sigma = 0.1 }\n', ["`sigma`", "'lognormal'"]),
    "trace": (CLOCK + 'delays = { kind = "trace" }\n', ["needs `path`"]),
    "no trace": (
        CLOCK + 'delays = { kind = "trace", path = "gone.csv" }\n',
        ["line 7, engine.delays.path", "gone.csv"],
    ),
    "wait": (CLOCK + 'wait = { kind = "first", tau = 3 }\n', ["`tau`", "'stale'"]),
    "wait for none": (CLOCK + 'wait = { kind = "first", n = 0 }\n', ["engine.wait.n"]),
    "rows kept": (CLOCK + "keep_rows = 0\n", ["engine.keep_rows"]),
    "several classes, one score": (
        DATA + '[problem]\nloss = "multinomial"\n',
        ["line 3, problem", "Multinomial needs the predictor Softmax()"],
    ),
    "several scores, two classes": (
        LOGISTIC + 'model = "softmax"\n',
        ["line 3, problem", "Logistic needs the predictor Linear()"],
    ),
    "layers of a linear model": (LOGISTIC + "hidden = [3]\n", ["`hidden`", "'mlp'"]),
    "layers": (LOGISTIC + 'model = "mlp"\nhidden = [0]\n', ["problem.hidden"]),
    "network in a ball": (
        LOGISTIC + 'model = "mlp"\n[robust]\nradius = 0.1\n',
        ["line 3, problem", "a WassersteinBall", "not for MLP", "use Linear()"],
    ),
    "network of cuts": (
        LOGISTIC + 'model = "mlp"\n[algorithm]\nname = "bundle"\n',
        ["'bundle' needs predictions that are affine", "use 'async_dro'"],
    ),
    "kinks": (
        DATA + '[algorithm]\nname = "async_dro"\n',
        ["'async_dro' needs a smooth loss", "'hinge'"],
    ),
    "balls": (
        LOGISTIC
        + '[robust]\nradius = 0.1\nlabel_cost = 1.0\n[algorithm]\nname = "multiplier_method"\n',
        ["'multiplier_method'", "use 'bundle'"],
    ),
    "averaging": (
        SIMPLEX + '[algorithm]\nname = "fed_avg"\n',
        ["'fed_avg' needs over_clients = Mean", "got clients.risk = 'simplex': use 'bundle'"],
    ),
    "option": (
        LOGISTIC + '[algorithm]\nname = "async_dro"\noptions = { setp = 0.1 }\n',
        ["Did you mean 'step'?"],
    ),
    "option's value": (
        LOGISTIC + '[algorithm]\nname = "async_dro"\noptions = { step = 0.0 }\n',
        ["algorithm.options.step", "positive"],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_run_is_said_before_anything_is_read(name):
    text, words = WRONG[name]
    if not words:
        config = parse_config(text)  # which clients there are is known once the data are
        with pytest.raises(ValueError, match="lower"):
            config.problem().over_clients.at([1, 1])
        return
    with pytest.raises(ConfigError) as caught:
        parse_config(text).check()
    for word in words:
        assert word in str(caught.value)


@settings(max_examples=30, deadline=None)
@given(
    factors=st.dictionaries(st.text(min_size=1, max_size=5), st.floats(1e-3, 1e3), max_size=3),
    n=st.integers(1, 9),
    tau=st.none() | st.integers(0, 9),
    most=st.none() | st.floats(0, 1e6),
    bounds=st.floats(0, 1) | st.lists(st.floats(0, 1), min_size=1, max_size=4),
)
def test_the_written_text_reads_back_as_the_same_run(factors, n, tau, most, bounds):
    wait = {"kind": "stale", "n": n} | ({} if tau is None else {"tau": tau})
    clock = {"kind": "virtual_clock", "stragglers": factors, "wait": wait, "max_time": most}
    clients = {"risk": "cd_norm", "budget": 1.0, "bounds": bounds}
    config = Config.model_validate(
        {"data": {"name": "hospitals"}, "engine": clock, "clients": clients}
    )
    assert parse_config(config.text()).model_dump() == config.model_dump()
