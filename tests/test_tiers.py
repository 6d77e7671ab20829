"""What the small tier runs; a new seed reaches every process."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import tiers

from examples import ALGORITHMS

HERE = Path(__file__).parent


def test_each_value_of_each_parameter_occurs_in_few_cases():
    sizes = {"loss": 3, "norm": 5, "seed": 2}
    of_each = itertools.product(*map(range, sizes.values()))
    cases = [dict(zip(sizes, places, strict=True)) for places in of_each]
    kept = [cases[k] for k in tiers.covering(cases)]
    assert len(kept) == max(sizes.values())
    assert {name: {case[name] for case in kept} for name in sizes} == {
        name: {*range(size)} for name, size in sizes.items()
    }


@pytest.mark.parametrize(("one", "two"), [(0, "a"), (0, "b"), (0, "c")])
@pytest.mark.parametrize("other", [1.5, 2.5])
def test_an_entry_of_a_list_is_the_same_in_all_cases(one, two, other, request):
    name = tiers.name_of(request.node)
    cases = [item for item in request.session.items if tiers.name_of(item) == name]
    values = [tiers.values(case) for case in cases]
    assert len({each["one"] for each in values}) == 3
    assert len({each["other"] for each in values}) == 2
    option = request.config.option  # -m full has the cases that the small tier leaves out
    assert len(cases) == (6 if option.full and not option.markexpr else 3)


def test_there_is_an_algorithm_of_each_shape():
    shapes = {name: tiers.shape(example) for name, example in ALGORITHMS.items()}
    assert 20 < len({*shapes.values()}) < len(shapes)
    assert shapes["bundle"] == shapes["bundle, level"] != shapes["masked bundle"]


@pytest.mark.parametrize("name", [*tiers.FULL, *tiers.FREE, *tiers.EVERY])
def test_a_name_of_a_test_or_file_is_that_of_one(name):
    file, _, test = name.partition("::")
    assert f"def {test}" in (HERE / file).read_text("utf-8")


def test_only_full_draws_anew(drawn_seed, pytestconfig):
    given = pytestconfig.option.seed
    assert pytestconfig.option.full or given is None
    assert drawn_seed == (given if pytestconfig.option.full else 0)
