"""Client names stay what the user gave, and every setting by client name takes the same names."""

import numpy as np
import pytest

import bonafed as bf
from bonafed.client_names import by_position, client_name, closest, position, repeated
from bonafed.model_selection import WithinClients

GROUPS = np.repeat([3, 10, 7], [12, 9, 15])
NUMBERS, TEXTS = (3, 10, 7), ("3", "10", "7")


def rows(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((len(GROUPS), 2))
    return X, np.where(X[:, 0] + 0.5 * rng.standard_normal(len(GROUPS)) > 0, 1, -1)


def federation(groups=GROUPS):
    return bf.Federation.from_arrays(*rows(), groups)


def by_name(values, kind):
    """A mapping by client name, with numbers or texts as keys."""
    return {kind(name): value for name, value in zip(NUMBERS, values, strict=True)}


def stop_early(row, state):
    if row["round"] == 2:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("name", "kept"),
    [(3, 3), (np.int16(3), 3), ("3", "3"), (np.str_("a"), "a"), (True, "True"), (1.5, "1.5")],
)
def test_a_name_is_text_or_a_whole_number(name, kept):
    assert client_name(name) == kept
    assert type(client_name(name)) is type(kept)


def test_a_mapping_is_resolved_in_the_order_of_the_clients():
    assert list(by_position({"b": 2, 1: 3}, (1, "b"), "radius").items()) == [(0, 3), (1, 2)]
    assert by_position({"1": 3}, (1, "b"), "stragglers", all_clients=False) == {0: 3}
    assert by_position({"1": 3, "c": 4}, (1,), "prior", others=True) == {0: 3}
    assert (position("7", NUMBERS), position(7, TEXTS)) == (2, 2)
    assert repeated(("b", 1, "a", "1", "b")) == ["1", "b"]
    assert closest("nroth", ["north", 3]) == "; there are 'north', 3. Did you mean 'north'?"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"nort": 1}, "radius names 'nort', who is not a client; .* Did you mean 'north'?"),
        ({"north": 1}, "radius by client name has no entry for 3: it needs exactly one"),
        ({"north": 1, 3: 1, "3": 2}, "radius names client '3' twice"),
    ],
)
def test_mistakes_are_refused_in_one_way(values, text):
    with pytest.raises(ValueError, match=text):
        by_position(values, ("north", 3), "radius")


def test_numbers_and_text_name_the_same_client():
    with pytest.raises(ValueError, match="distinct, got '3' more than once"):
        bf.Federation((3, "3"), (np.ones((1, 1)),) * 2, ([0.0], [1.0]))


def test_names_stay_and_random_choices_do_not_depend_on_their_type():
    fed, texts = federation(), federation(GROUPS.astype(str))
    assert (fed.clients, texts.clients) == (NUMBERS, TEXTS)
    assert (fed.names, fed.digests()) == (TEXTS, texts.digests())
    for a, b in zip(fed.split(0.3, 5), texts.split(0.3, 5), strict=True):
        assert (a.clients, a.digests()) == (NUMBERS, b.digests())
    X, y = rows()
    folds = zip(*[WithinClients(3).split(X, y, g) for g in (GROUPS, GROUPS.tolist())], strict=True)
    for (train, _), (other, _) in folds:
        np.testing.assert_array_equal(train, other)


def test_a_frame_keeps_whole_numbers_and_files_have_text():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"site": GROUPS, "x": rows()[0][:, 0], "y": rows()[1]})
    assert bf.Federation.from_frame(frame, "site", "y").clients == NUMBERS
    assert bf.Federation.from_frame(frame.astype({"site": str}), "site", "y").clients == TEXTS
    tables = {3: {"x": [1.0], "y": [0.0]}, "b": {"x": [2.0], "y": [1.0]}}
    assert bf.Federation.from_tables(tables, "y").clients == (3, "b")


@pytest.mark.parametrize("kind", [int, str])
def test_every_setting_by_name_takes_numbers_and_text(kind):
    """The same numbers whichever type the federation's names and the setting's keys have."""
    radius, prior = (0.01, 0.03, 0.02), (0.2, 0.5, 0.3)
    for clients in (NUMBERS, TEXTS):
        fed = federation()._with(clients=clients)
        problem = bf.Problem(
            bf.Hinge(),
            over_samples=bf.WassersteinBall(by_name(radius, kind)),
            over_clients=bf.LpBall(0.1, 2, by_name(prior, kind)),
        )
        concrete, _ = problem.at(fed)
        assert concrete.over_samples.radius.tolist() == list(radius)
        assert concrete.over_clients.prior.tolist() == list(prior)
        for risk in (
            bf.CDNorm(0.3, bounds=by_name(prior, kind)),
            bf.Box(0.0, by_name((0.5, 0.6, 0.7), kind)),
            bf.Ellipsoid(by_name((1.0, 2.0, 3.0), kind), 0.2),
            bf.WassersteinOverClients(0.1, by_name((0.0, 1.0, 2.0), kind)),
        ):
            assert risk.at(fed.sizes, fed.clients).contains(np.full(3, 1 / 3), 1.0)
        level = bf.NeymanPearson(1, by_name((0.5, 0.6, 0.7), kind))
        local = bf.Problem(bf.Logistic(), bf.Linear(True), local_constraint=level)
        concrete, coded = local.at(fed)
        limits = [concrete.local_constraint.limits(coded.block(i))[0, 0] for i in range(3)]
        assert limits == [0.5, 0.6, 0.7]
        budget = bf.Budget(1, 1e-6, sizes=by_name((12, 9, 15), kind))
        assert budget.sizes_of(fed.clients, fed.sizes) == (12, 9, 15)
        assert fed.restrict([kind(7), kind(3)]).names == ("3", "7")
        assert fed.pooled(by_name(prior, kind)).share(0).sum() == pytest.approx(1)


@pytest.mark.parametrize("setting", ["stragglers", "outages", "crashes"])
def test_an_unknown_name_on_the_clock_is_refused_as_elsewhere(setting):
    value = [(2.0, 9.0)] if setting == "outages" else 5.0
    engine = bf.VirtualClock(**{setting: {4: value}})
    with pytest.raises(ValueError, match=rf"{setting} names 4, who is not a client; there are 3"):
        bf.solve(bf.Problem(bf.Logistic()), federation(), algorithm=bf.AsyncDRO(), engine=engine)


def test_declared_sizes_name_who_is_no_client():
    fed = federation()
    budget = bf.Budget(1, 1e-6, sizes={"33": 5, 10: 12, 7: 9})
    with pytest.raises(
        ValueError,
        match=r"no entry for 3: declare.*names '33', who has no rows; there are .* mean 3\?",
    ):
        budget.sizes_of(fed.clients, fed.sizes)


@pytest.mark.parametrize("kind", [int, str])
@pytest.mark.parametrize("groups", [GROUPS, GROUPS.astype(str)], ids=["numbers", "texts"])
def test_the_clock_takes_numbers_and_text(kind, groups):
    engine = bf.VirtualClock(
        stragglers={kind(3): 5.0}, outages={kind(10): [(2.0, 9.0)]}, crashes={kind(7): 1e9}
    )
    problem = bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.L2(0.1))
    solution = bf.solve(
        problem, federation(groups), algorithm=bf.AsyncDRO(max_rounds=20), engine=engine
    )
    assert [row["client"] for row in solution.clients] == list(dict.fromkeys(groups.tolist()))
    other = bf.VirtualClock(stragglers={"3": 5.0}, outages={"10": [(2.0, 9.0)]}, crashes={"7": 1e9})
    reference = bf.solve(
        problem, federation(GROUPS.astype(str)), algorithm=bf.AsyncDRO(max_rounds=20), engine=other
    )
    assert solution.w.tolist() == reference.w.tolist()
    assert solution.history[-1]["time"] == reference.history[-1]["time"]
    for what in ("stragglers", "crashes"):
        with pytest.raises(ValueError, match=rf"{what} names 77, .* not a client.*mean '?7'?\?"):
            bf.solve(problem, federation(groups), engine=bf.VirtualClock(**{what: {77: 2.0}}))


def test_a_run_goes_on_from_a_checkpoint_of_either_type(tmp_path):
    engine = bf.InProcess(checkpoint=tmp_path / "run.bonafed")
    problem = bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.L2(0.1))
    options = {"algorithm": bf.Bundle(), "engine": engine}
    first = bf.solve(problem, federation(GROUPS.astype(str)), **options, watch=(stop_early,))
    assert first.outcome.stop.value == "interrupted"
    resumed = bf.solve(problem, federation(), **options, resume=True)
    assert resumed.rounds > 2
    assert [row["client"] for row in resumed.clients] == list(NUMBERS)


def test_a_private_run_charges_numbers_and_text_alike(tmp_path):
    def run(groups, book):
        budget = bf.Budget(1, 1e-6, sizes={"3": 12, 10: 9, "7": 15}, book=tmp_path / book)
        problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1), privacy=budget)
        algorithm = bf.PrivateADMM(max_rounds=3, noise="simulation")
        return bf.solve(
            problem, federation(groups), algorithm=algorithm, engine=bf.InProcess("each")
        )

    one, two = run(GROUPS, "one.json"), run(GROUPS.astype(str), "two.json")
    assert one.w.tolist() == two.w.tolist()
    by_text = {str(name): spent for name, spent in one.ledger.releases.items()}
    assert by_text == two.ledger.releases
    spent = bf.Book(tmp_path / "one.json").spent(TEXTS)
    assert spent == bf.Book(tmp_path / "two.json").spent(TEXTS)
