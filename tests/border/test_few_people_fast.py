"""The bounds of the rule of few people decide as its definition, which is written down here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from bonafed.arrays import Array
from bonafed.problem.parts import Sums
from bonafed.sites import people, spans
from bonafed.sites.people import MOST, SLOPES, SQUARES, Answers, Told
from bonafed.sites.policy import Policy

ROUNDING, NEW = spans.ROUNDING, spans.NEW
NONE = np.zeros((0, 1))  # models


class Asked(NamedTuple):
    """Sums over some rows of a site."""

    kind: str
    rows: Array  # (m,) or (m, C), 0 of rows that the answer is not about
    group: np.ndarray | None  # (m,)


class Plain:
    """The rule as it is defined, over m rows of these people."""

    def __init__(self, whose: np.ndarray, least: float) -> None:
        self.whose, self.least = whose, least
        self.told: list[Asked] = []
        self.basis: list[Array] = []

    def few(self, asked: list[Asked]) -> bool:
        """Whether an answer hangs on few people; else it is told."""
        new = [one for one in asked if not any(equal(one, other) for other in self.told)]
        basis = self.basis + self.added([column for one in new for column in columns(one)])
        if any(self.alone(one) for one in new) or self.share(basis) > MOST:
            return True
        self.told, self.basis = self.told + new, basis
        return False

    def alone(self, one: Asked) -> bool:
        earlier = [other for other in self.told if other.kind == one.kind]
        away = [
            apart(a, b)
            for other in earlier
            for a in sums(one)
            for b in sums(other)
            if a.shape == b.shape and ((a != 0) & (b != 0)).any()
        ]
        return any(self.effective(rows) < self.least for rows in [*sums(one), *away])

    def effective(self, rows: Array) -> float:
        lengths = np.abs(rows) if rows.ndim == 1 else np.linalg.norm(rows, axis=1)
        each = np.array([lengths[self.whose == who].sum() for who in np.unique(self.whose)])
        return each.sum() ** 2 / (each @ each) if each.any() else np.inf

    def added(self, vectors: list[Array]) -> list[Array]:
        new: list[Array] = []
        for vector in vectors:
            left = vector / (np.linalg.norm(vector) or 1.0)
            for _ in range(3):
                for each in self.basis + new:
                    left = left - each * (each @ left)
            if np.linalg.norm(left) > NEW:
                new.append(left / np.linalg.norm(left))
        return new

    def share(self, basis: list[Array]) -> float:
        if not basis:
            return 0.0
        Q = np.column_stack(basis)
        return max(np.linalg.norm(Q[self.whose == who], 2) ** 2 for who in np.unique(self.whose))


def sums(one: Asked) -> Iterator[Array]:
    yield one.rows
    for g in range(-1 if one.group is None else one.group.max() + 1):
        yield one.rows * np.reshape(one.group == g, (-1, *[1] * (one.rows.ndim - 1)))


def columns(one: Asked) -> Iterator[Array]:
    for each in sums(one):
        yield from np.reshape(each, (len(each), -1)).T


def apart(a: Array, b: Array) -> Array:
    rounding = ROUNDING * max(np.abs(a).max(), 1.0)
    return a - b if np.abs(a - b).max() > rounding else 0 * a


def equal(a: Asked, b: Asked) -> bool:
    same = np.array_equal(a.rows, b.rows) and a.kind == b.kind
    grouped = [None if each.group is None else each.group.tolist() for each in (a, b)]
    return same and grouped[0] == grouped[1]


# ------------------------------------------------------------------------------------ sequences


def asked(rng: np.random.Generator, m: int, shape: tuple[int, ...], groups: Any) -> Iterator[Asked]:
    """Answers of an adversary: random, near each other, apart in few rows, and combinations."""
    told = [rng.normal(size=(m, *shape))]
    kind, group = SLOPES, None
    for turn in range(40):
        last, some = told[rng.integers(len(told))], rng.integers(m, size=rng.integers(1, 5))
        few = np.zeros_like(last)
        few[some] = rng.normal(size=(len(some), *shape)) * 10.0 ** rng.integers(-9, 2)
        near = last + 0.5**turn * rng.normal(size=last.shape)
        weights = rng.normal(size=len(told))
        mixed = sum(c * each for c, each in zip(weights, told, strict=True))
        rows = [near, near, near, last + few, mixed, mixed + few, few, last * (1 + 1e-16), last]
        one = rows[rng.integers(len(rows)) if turn > 3 else 0]
        if rng.random() < 0.1:
            kind = SQUARES if kind == SLOPES else SLOPES
        if groups and rng.random() < 0.3:
            group = groups[rng.integers(len(groups))]
        told.append(one)
        yield Asked(kind, one / np.abs(one).max(), group)


def grouped(rng: np.random.Generator, m: int, kind: str) -> list[Any]:
    if kind == "none":
        return []
    halves = np.arange(m) % 2
    return [halves, np.where(rng.random(m) < 0.2, -1, np.arange(m) % 3), np.zeros(m, int), None]


@pytest.fixture(autouse=True)
def _told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people, "told_by", lambda told: told)


def refused(site: Answers, one: Asked, whose: np.ndarray) -> bool:
    answered: Any = [Told(one.kind, [Sums(one.rows, 1.0, one.group)], NONE)]
    whose = whose[: len(one.rows)]
    return site.refusal(Policy(minimum_people=3), "run", whose, answered) is not None


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shape", [(), (2,)], ids=["one score", "two scores"])
@pytest.mark.parametrize("groups", ["none", "several"])
@pytest.mark.parametrize("each", [1, 3])
def test_bounds_decide_as_the_definition(
    seed: int,
    shape: tuple[int, ...],
    groups: str,
    each: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """Also where few rows are looked at first, where rows come, and where the site reads anew what
    it has kept.
    """
    rng, m = np.random.default_rng(seed), 90
    monkeypatch.setattr(spans, "SOME", 7)
    monkeypatch.setattr(people, "WHOLE", 200 if seed % 2 else 40)
    whose = np.arange(m, dtype=np.uint64) // each
    site, plain = Answers(tmp_path / "kept"), Plain(whose, 3.0)
    found = []
    for turn, one in enumerate(asked(rng, m, shape, grouped(rng, m, groups))):
        here = m - 6 if turn < 15 else m
        rows, group = one.rows.copy(), one.group
        rows[here:] = 0.0
        asks = Asked(one.kind, rows[:here], None if group is None else group[:here])
        if group is not None:
            group = np.where(np.arange(m) < here, group, -1)
        few = plain.few([Asked(one.kind, rows, group)])
        assert refused(site, asks, whose) == few, turn
        found.append(few)
        if turn % 10 == 7:
            site = Answers(tmp_path / "kept")
    assert {*found} == {False, True}


def test_groups_that_were_refused_part_no_cells(tmp_path: Path):
    """A combination of sums over groups is told by cells of these groups, and by no others."""
    rng, whose, m = np.random.default_rng(0), np.arange(40, dtype=np.uint64), 40
    site, row, (u, v, a) = Answers(tmp_path), np.eye(m)[7], rng.normal(size=(3, m))
    turns, halves = np.arange(m) % 2, np.arange(m) // 20
    assert not refused(site, Asked(SLOPES, u, None), whose)
    assert not refused(site, Asked(SLOPES, v, None), whose)
    assert refused(site, Asked(SLOPES, u + v + row, turns), whose)
    assert not refused(site, Asked(SLOPES, a, halves), whose)
    assert refused(site, Asked(SLOPES, a * (1 + halves) + row, None), whose)


def test_all_rows_differ_from_a_group_in_the_others(tmp_path: Path):
    rng, whose, m = np.random.default_rng(0), np.arange(40, dtype=np.uint64), 40
    site, group, rows = Answers(tmp_path), np.repeat([0, 1, -1], [36, 2, 2]), np.ones(m)
    rows[group == 1] = 0.0
    near = rows + np.where(group == 0, 1e-3 * rng.normal(size=m), 0.0)
    assert not refused(site, Asked(SLOPES, rows, group), whose)
    assert refused(site, Asked(SLOPES, near, group), whose)
