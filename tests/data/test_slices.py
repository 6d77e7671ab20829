"""Federations of many small clients hold their rows as slices of one array: nothing that is made of
them, refused or solved is otherwise than of clients with an array each.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bonafed as bf
from bonafed import arrays
from bonafed.arrays import Block, Slices, in_one, joined
from bonafed.problem.metadata import Metadata
from bonafed.solution.tables import Records

SIZES = [3, 1, 1, 4, 2, 2]
CUTS = np.append(0, np.cumsum(SIZES))
NAMES = tuple("abcdef")


def rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(CUTS[-1], 3))
    return X, np.where(X[:, 0] + rng.normal(size=len(X)) > 0, 1.0, -1.0)


def cut(whole: np.ndarray) -> list[np.ndarray]:
    return [whole[start:end] for start, end in pairwise(CUTS)]


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], tuple[Any, Any]]:
    """What a function makes where every client has an array, and where all are slices of one."""

    def made(make: Callable[[], Any]) -> tuple[Any, Any]:
        monkeypatch.setattr(arrays, "MANY", 10**9)
        apart = make()
        monkeypatch.setattr(arrays, "MANY", 1)
        return apart, make()

    return made


def bytes_of(block: Block) -> list[Any]:
    values = [getattr(block, each.name) for each in fields(Block)]
    return [v.tobytes() if isinstance(v, np.ndarray) else repr(v) for v in values]


def test_slices_are_a_sequence_of_arrays():
    X, _ = rows()
    parts = Slices(X, CUTS)
    assert len(parts) == 6
    assert [len(part) for part in parts] == SIZES == parts.sizes.tolist()
    for mine, part in zip(cut(X), parts, strict=True):
        assert np.shares_memory(part, X)
        assert (part == mine).all()
    assert (parts[-1] == X[-2:]).all()
    assert [part.tolist() for part in parts[1:4:2]] == [X[3:4].tolist(), X[5:9].tolist()]
    with pytest.raises(IndexError):
        parts[6]
    for again in (copy.deepcopy(parts), pickle.loads(pickle.dumps(parts))):
        assert [part.tolist() for part in again] == [part.tolist() for part in parts]
    least = parts.reduced(np.minimum)
    assert least.tolist() == [part.min() for part in parts]


def test_views_in_order_are_not_copied_and_others_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(arrays, "MANY", 2)
    X, y = rows()
    wide = np.hstack([X, X])
    for whole in (X, y, X[2:], X.astype(np.float32)):
        parts = [whole[k : k + 2] for k in range(0, len(whole) - 1, 2)]
        found = in_one(parts)
        assert isinstance(found, Slices)
        assert np.shares_memory(found.whole, whole)
        assert [part.tolist() for part in found] == [part.tolist() for part in parts]
    others = [
        [X[2:4], X[:2]],
        [wide[:1, :3], wide[1:2, :3]],
        [X[:4:2], X[4:6]],
        [X[:2], X[:2]],
        [X[:2].copy(), X[2:4].copy()],
    ]
    for parts in others:
        found = in_one(parts)
        assert isinstance(found, Slices)
        assert not any(np.shares_memory(found.whole, part) for part in parts)
        assert [part.tolist() for part in found] == [part.tolist() for part in parts]
        assert joined(found).tolist() == np.concatenate(parts).tolist()
    large = np.zeros((2000, 3))
    unlike = [[X[:1], y[1:2]], [X[:1], X[1:2].astype(int)], [[1.0], [2.0]], [large, large]]
    for parts in [*unlike, [sparse.csr_array(X)] * 2]:
        assert type(in_one(parts)) is tuple


@pytest.mark.parametrize("how", ["plain", "weights", "text", "columns", "persons", "whole"])
def test_federations_are_alike(both: Any, how: str):
    X, y = rows()
    more: dict[str, Any] = {}
    if how == "weights":
        more["sample_weight"] = np.linspace(1, 2, len(y))
    if how == "columns":
        more["columns"] = {"sex": np.arange(len(y)) % 2}
    if how == "persons":
        more["persons"] = np.arange(len(y)) // 2
    targets = {"text": np.where(y > 0, "ill", "well"), "whole": y.astype(int)}.get(how, y)
    groups = np.repeat(NAMES, SIZES)
    shuffled = np.random.default_rng(1).permutation(len(y))
    for order in (np.arange(len(y)), shuffled):
        given = {
            k: {c: v[order] for c, v in part.items()} if isinstance(part, dict) else part[order]
            for k, part in more.items()
        }
        make = lambda at=order, given=given: bf.Federation.from_arrays(  # noqa: E731
            X[at], targets[at], groups[at], **given
        )
        apart, slices = both(make)
        assert type(apart.X) is tuple
        assert isinstance(slices.X, Slices)
        assert isinstance(slices.y, Slices)
        assert repr(apart) == repr(slices)
        assert apart.digests() == slices.digests()
        assert apart.shares().tobytes() == slices.shares().tobytes()
        assert [*map(str, apart.classes)] == [*map(str, slices.classes)] if how == "text" else True
        for one, other in zip(apart.split(seed=1), slices.split(seed=1), strict=True):
            assert one.digests() == other.digests()
        names = apart.clients[1::2]
        assert apart.restrict(names).digests() == slices.restrict(names).digests()
        assert apart.pooled("uniform").digests() == slices.pooled("uniform").digests()
        assert apart.single().digests() == slices.single().digests()
        if how == "text":
            with pytest.raises(ValueError, match="text"):
                slices.blocks()
            continue
        for size in (1, 2, 1024):
            pairs = zip(apart.blocks(size), slices.blocks(size), strict=True)
            assert all(bytes_of(one) == bytes_of(other) for one, other in pairs)
        pairs = zip(apart.batches(), slices.batches(), strict=True)
        assert all(bytes_of(one) == bytes_of(other) for one, other in pairs)


def put(values: np.ndarray, at: Any, value: Any) -> np.ndarray:
    values = values.copy()
    values[at] = value
    return values


X0, Y0 = rows()
WRONG: dict[str, Callable[[], Any]] = {
    "not finite": lambda: bf.Federation(NAMES, cut(put(X0, (4, 1), np.nan)), cut(Y0)),
    "infinite": lambda: bf.Federation(NAMES, cut(put(X0, (5, 2), -np.inf)), cut(Y0)),
    "too large": lambda: bf.Federation(NAMES, cut(put(X0, (4, 1), 1e200)), cut(Y0)),
    "too small": lambda: bf.Federation(NAMES, cut(put(X0, slice(3, 4), 1e-200)), cut(Y0)),
    "no rows": lambda: bf.Federation((*NAMES, "g"), [*cut(X0), X0[:0]], [*cut(Y0), Y0[:0]]),
    "no rows within": lambda: bf.Federation(("g", *NAMES), [X0[:0], *cut(X0)], [Y0[:0], *cut(Y0)]),
    "other rows": lambda: bf.Federation(NAMES, cut(X0), [*cut(Y0)[:-1], Y0[-1:]]),
    "targets": lambda: bf.Federation(NAMES, cut(X0), cut(put(Y0, 6, np.nan))),
    "large targets": lambda: bf.Federation(NAMES, cut(X0), cut(put(Y0, 6, 1e150))),
    "classes": lambda: bf.Federation(NAMES, cut(X0), cut(put(Y0, 6, 3.0)), classes=[-1.0, 1.0]),
    "text": lambda: bf.Federation(NAMES, cut(X0), cut(Y0.astype(str)), classes=["a", "b"]),
    "mixed": lambda: bf.Federation(NAMES, cut(X0), cut(put(Y0.astype(object), 6, "ill"))),
    "features": lambda: bf.Federation(NAMES, [*cut(X0)[:-1], X0[-2:, :2]], cut(Y0)),
    "names": lambda: bf.Federation(NAMES, cut(X0), cut(Y0), feature_names=("a", "b")),
    "shape": lambda: bf.Federation(NAMES, cut(Y0), cut(Y0)),
    "table of targets": lambda: bf.Federation(NAMES, cut(X0), cut(X0)),
    "cells of text": lambda: bf.Federation(NAMES, cut(X0.astype(str)), cut(Y0)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_same_is_refused_in_the_same_words(both: Any, wrong: str):
    def said() -> str:
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            WRONG[wrong]()
        return f"{type(caught.value).__name__}: {caught.value}"

    apart, slices = both(said)
    assert apart == slices


L2 = bf.L2(0.1)
PROBLEMS: dict[str, bf.Problem] = {
    "logistic": bf.Problem(bf.Logistic(), bf.Linear(fit_intercept=True), regulariser=L2),
    "squared": bf.Problem(bf.Squared(), regulariser=L2),
    "poisson": bf.Problem(bf.Poisson(), bf.Linear(fit_intercept=True), regulariser=L2),
    "classes": bf.Problem(bf.Multinomial(), bf.Softmax(), regulariser=L2),
    "weights of classes": bf.Problem(bf.Logistic(), class_weight="balanced", regulariser=L2),
    "rows ranked": bf.Problem(bf.Logistic(), over_rows=bf.Superquantile(0.5), regulariser=L2),
    "radii": bf.Problem(
        bf.Logistic(), over_clients=bf.LpBall(0.1), over_samples=bf.WassersteinBall(0.1)
    ),
}


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("far", [0.0, 1e5])
def test_solutions_are_the_same_numbers(both: Any, problem: str, far: float):
    X, y = rows(1)
    labels = np.abs(y + (np.arange(len(y)) % 3 == 0)).astype(int)
    targets = {"poisson": labels, "classes": labels}.get(problem, y)

    def numbers() -> list[Any]:
        fed = bf.Federation(NAMES, cut(X + far), cut(targets))
        found = bf.solve(PROBLEMS[problem], fed, max_rounds=5)
        table, judged = [*found.clients], [*found.evaluate(fed)]
        return [found.w.tolist(), repr(found.certificate.numbers()), repr(table), repr(judged)]

    with np.errstate(all="ignore"):
        apart, slices = both(numbers)
    assert apart == slices


def test_clients_that_tell_the_same_are_asked_once(both: Any):
    X, y = rows()
    y[3] = y[4]  # of two clients of a row each
    weights = np.where(np.arange(len(y)) < 4, 1.0, np.linspace(1, 2, len(y)))
    for name in ("logistic", "squared", "weights of classes", "weights of rows"):
        problem = PROBLEMS[name.replace("weights of rows", "logistic")]
        given = {"sample_weight": cut(weights)} if name == "weights of rows" else {}
        make = lambda p=problem, given=given: p.metadata(  # noqa: E731
            bf.Federation(NAMES, cut(X), cut(y), **given)
        )
        apart, slices = both(make)
        assert isinstance(slices, Metadata)
        assert len(slices.introductions) < len(apart.introductions) == slices.n_clients == 6
        for fact in ("clients", "names", "n_features", "labels", "named", "alike", "columns"):
            assert getattr(apart, fact) == getattr(slices, fact)
        assert apart.sizes.tolist() == slices.sizes.tolist()
        assert apart.masses.tolist() == slices.masses.tolist()
        assert apart.digests() == slices.digests()
        assert apart.linear is slices.linear is None
        if name == "weights of classes":
            assert apart.class_masses().tolist() == slices.class_masses().tolist()
            concrete = [problem._concrete(facts) for facts in (apart, slices)]
            assert repr(concrete[0][0]) == repr(concrete[1][0])
            assert concrete[0][1].masses.tolist() == concrete[1][1].masses.tolist()


def test_records_are_dictionaries_made_of_columns():
    rows = Records({"client": ("a", 3), "n": np.array([2, 1]), "part": [None, 0.5]})
    listed = [{"client": "a", "n": 2, "part": None}, {"client": 3, "n": 1, "part": 0.5}]
    assert [*rows] == [rows[0], rows[-1]] == rows[:] == listed
    assert rows == listed
    assert repr(rows) == repr(listed)
    assert type(rows[0]["n"]) is int
    assert rows != listed[:1]
