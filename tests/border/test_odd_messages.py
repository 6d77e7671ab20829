"""Messages of other shapes, and of the least numbers there are, tell no row: answers are sums over
rows with the slopes that `bonafed.sites.people` says.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from border.askers import MEAN, ROBUST, Asker
from border.readers import NAMES, as_rows, made, world

import bonafed as bf
from bonafed.algorithms.federated.bundle.bundle import Evaluate
from bonafed.algorithms.federated.interior_point import Expand
from bonafed.certificates.certify import Weigh, Weighing
from bonafed.certificates.duality import Certification, Certify
from bonafed.codec import FIELDS, Form, changed
from bonafed.problem.lower_bounds import Multipliers
from bonafed.problem.parts import Parts, stored
from bonafed.sites.people import SLOPES, SQUARES, TOLD, Answered, Answers, telling, told_by
from bonafed.sites.policy import RULES
from examples import ALGORITHMS

LEAST = 5e-324  # the least number there is
SMOOTH = stored(Parts(1, 1, 1))


def asker(place: Path, scale: float = 1.0) -> Asker:
    """A server that asks the first of three sites whatever it likes."""
    tables = {name: (scale * X, y) for name, (X, y) in made(60).items()}
    return Asker(world(place / "sites", tables), NAMES[0])


def forms(hint: Any) -> list[Form]:
    """The forms in the type of a field."""
    marks = getattr(hint, "__metadata__", ())
    inside = [form for part in typing.get_args(hint) for form in forms(part)]
    return [mark for mark in marks if isinstance(mark, Form)] + inside


MESSAGES = {kind for example in ALGORITHMS.values() for kind in example.algorithm.on_client}


@pytest.mark.parametrize(
    "kind", sorted({*TOLD, *filter(telling, MESSAGES)}, key=lambda kind: kind.__qualname__)
)
def test_every_array_of_a_message_about_rows_has_a_shape(kind: type):
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        if name in FIELDS[kind] and "ndarray" in str(hint):
            assert any(form.shape for form in forms(hint)), name


def weighed(run: Any, d: int, rows: np.ndarray) -> Any:
    """Second derivatives with a weight for every row."""
    return run.ask(Evaluate(np.zeros(d), SMOOTH, rows, None, "secant"))


@pytest.mark.parametrize("shape", [(60,), (1, 60), (60, 1), (1, 1, 60)])
def test_no_row_has_a_weight_of_its_own(shape: tuple[int, ...], tmp_path: Path):
    one = asker(tmp_path)
    run = one.run(replace(ROBUST, predictor=bf.Linear(fit_intercept=False)), bf.Bundle())
    assert weighed(run, 3, np.eye(60)[7].reshape(shape)) is None
    assert one.it.wire.told[-1].answer.rule == "message"
    assert weighed(run, 3, np.ones(1)) is not None


def asked(one: Asker) -> dict[str, tuple[Any, Any]]:
    """Runs, and an honest message in each."""
    d, z, none = one.d + 1, one.zero, Multipliers(np.zeros(0), np.zeros(0), np.zeros((1, 0)))
    pair = np.zeros((2, d))
    return {
        "bundle": (one.run(ROBUST, bf.Bundle()), Evaluate(z, SMOOTH, np.ones(1), pair, "hessian")),
        "certificate": (
            one.run(MEAN, Certification(np.zeros(1))),
            Certify(z, z[None], np.ones((1, 1)), pair=pair, weights=np.ones(1)),
        ),
        "minorant": (
            one.run(MEAN, Weighing(np.zeros(1), none)),
            Weigh(z, z, np.ones(1), np.zeros((1, 0)), np.zeros(0), True),
        ),
        "interior point": (
            one.run(MEAN, bf.InteriorPoint()),
            Expand(z, 1.0, np.ones(1), np.zeros((1, 0)), np.zeros(0)),
        ),
    }


@pytest.mark.parametrize("name", ["bundle", "certificate", "minorant", "interior point"])
def test_an_array_of_another_shape_is_answered_by_nobody(name: str, tmp_path: Path):
    run, message = asked(asker(tmp_path))[name]
    assert run.ask(message) is not None
    for field in FIELDS[type(message)]:
        array = getattr(message, field)
        if isinstance(array, np.ndarray) and array.size:
            rows = np.repeat(array[..., None], 60, -1)
            for other in (rows, np.moveaxis(rows, -1, 0), array.astype(int)):
                assert run.ask(changed(message, **{field: other})) is None, (field, other.shape)


def test_multipliers_of_parts_that_risks_do_not_have_are_no_combination(tmp_path: Path):
    """The second number of a point would count in the answer, and not in what it tells."""
    one = asker(tmp_path)
    run, points = one.run(MEAN, Certification(np.zeros(1))), np.stack([one.zero, one.zero + 1e-6])
    hidden = np.array([[[1.0, 0.0], [0.0, -1.0]]])
    assert run.ask(Certify(one.zero, points, hidden)) is None
    assert run.ask(Certify(one.zero, points, np.ones((1, 2, 1)))) is not None


def by_least_weights(one: Asker) -> Any:
    """Second derivatives at one model, by weights of so many least numbers: of every row that is
    rounded up to one of these, its own features are added.
    """
    run, w = one.run(ROBUST, bf.Bundle()), one.zero + 1e-5

    def ask(many: np.ndarray) -> np.ndarray | None:
        told = run.ask(Evaluate(w, SMOOTH, many * LEAST, None, "hessian"))
        return None if told is None else told.curvature[0, -1] / LEAST

    return ask


def test_the_least_numbers_there_are_weigh_nothing(tmp_path: Path):
    one = asker(tmp_path, 1e5)
    at, found = by_least_weights(one), set[int]()
    told = [at(np.array([many])) for many in np.linspace(1, 600, 400)]
    steps = np.diff([each for each in told if each is not None], axis=0)
    found |= one.it.read(one.site, as_rows(steps))
    assert not found
    assert not np.any(told)


def test_what_rounding_may_add_tells_no_sum_over_rows_of_one_sign(tmp_path: Path):
    """Where columns are positive, sizes of terms and their sum tell the sum of the positive ones,
    and as the threshold moves every row becomes one.
    """
    tables = {name: (X + 6, y) for name, (X, y) in made(60, targets="real").items()}
    one = Asker(world(tmp_path / "sites", tables, None), NAMES[0])
    none = Multipliers(np.zeros(0), np.zeros(0), np.zeros((1, 0)))
    run = one.run(replace(MEAN, loss=bf.Squared()), Weighing(np.zeros(1), none))
    told = []
    for threshold in np.linspace(-4, 4, 300):
        w = one.zero + threshold * np.eye(one.d + 1)[-1]
        up = run.ask(Weigh(w, 0 * w, np.ones(1), np.zeros((1, 0)), np.zeros(0), False))
        told += [] if up is None else [up.size[0] + up.balance[0]]
    assert len(told) > 200
    assert not one.it.read(one.site, as_rows(np.diff(told, 2, axis=0)))


METHODS: dict[str, tuple[str, Any, Any]] = {
    "default": ("sign", ROBUST, None),
    "hessian": ("sign", ROBUST, bf.Bundle(metric="hessian")),
    "one cut": ("sign", ROBUST, bf.Bundle(metric="identity", cuts=1)),
    "Huber": ("real", replace(MEAN, loss=bf.Huber(0.5)), None),
    "interior point": ("sign", MEAN, bf.InteriorPoint()),
    "asynchronous": ("sign", ROBUST, bf.AsyncBundle()),
    "AsyncDRO": ("sign", ROBUST, bf.AsyncDRO()),
    "multipliers": ("sign", ROBUST, bf.MultiplierMethod()),
    "limits": ("sign", replace(MEAN, local_constraint=bf.NeymanPearson("yes", 0.6)), None),
}


def left_over(vector: np.ndarray, others: list[np.ndarray]) -> float:
    """What no combination of others makes of a vector, relative to its length."""
    size = np.linalg.norm(vector)
    known = [each / np.linalg.norm(each) for each in others if each.any()]
    if not size or not known:
        return float(size > 0)
    A = np.stack(known, 1)
    return float(np.linalg.norm(vector - A @ np.linalg.lstsq(A, vector, rcond=1e-12)[0]) / size)


def matrices(one: Any, Z: np.ndarray) -> Iterator[np.ndarray]:
    """What the slopes of a part of an answer add up to: vectors, or matrices as vectors."""
    for sums in (each for each in one.sums if each.unit):
        group = np.zeros(len(Z), int) if sums.group is None else sums.group
        for g in range(group.max() + 1):
            s = np.where(group == g, sums.rows, 0.0)
            yield s @ Z if one.kind == SLOPES else ((Z.T * s) @ Z).ravel()


@pytest.mark.parametrize("name", METHODS)
def test_every_vector_that_leaves_combines_the_sums_that_are_described(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """And every matrix; but for what rounding may add, which is about squares of slopes."""
    heard = list[Answered]()
    monkeypatch.setattr(Answers, "refusal", lambda *a: heard.append(a[-1]))
    unchecked = RULES["smooth_losses_only"]._replace(checks=())
    monkeypatch.setitem(RULES, "smooth_losses_only", unchecked)
    targets, problem, method = METHODS[name]
    it = world(tmp_path, made(160, 14, targets), ("no", "yes") if targets == "sign" else None)
    it.solve("trial", problem, algorithm=method, max_rounds=5)
    assert len({type(each.ask) for each in heard}) >= 2
    for each in heard:
        Z = np.column_stack([np.asarray(each.block.X)[0], np.ones(160)])
        parts = told_by(each)
        slopes = [v for one in parts if one.kind == SLOPES for v in matrices(one, Z)]
        squares = [v for one in parts if one.kind == SQUARES for v in matrices(one, Z)]
        for field in FIELDS[type(each.upload)]:
            value = getattr(each.upload, field)
            if not isinstance(value, np.ndarray) or value.shape[-1:] != (15,) or field == "size":
                continue
            if value.shape == (1, 15, 15):
                assert left_over(value.ravel(), squares) < 1e-9, (type(each.ask), field)
            else:
                known = slopes + [np.asarray(w) for one in parts for w in one.models]
                for vector in value.reshape(-1, 15):
                    assert left_over(vector, known) < 1e-9, (type(each.ask), field)
