"""What the rows and the model of a run are checked for, each with its threshold and what was seen.

The checks are of the kind that a careful reader makes before he believes a figure: whether a
feature gives the target away, whether clients share rows, whether test rows were trained on. They
follow from the rows of the run, so that verification makes them again. A run keeps counts, shares
and names of features and clients only. Rows are compared by digests under a key that is drawn for
the comparison and kept nowhere, so that nobody can guess rows of few values from digests.

Whether the outcome is coded the other way round at client i is asked of the others: with x and y
centred at every client, so that only what holds within clients counts,

    w_i = (sum_j X_j^T X_j + c I)^-1 sum_{j != i} X_j^T y_j      no label of i is in it
    z_i = (AUC of X_i w_i - 1/2) / sqrt((n + 1) / (12 n+ n-))

and z_i below the quantile of a level over all clients says that it is, or that i truly differs. It
is also so where one feature k is coded the other way round at i, and matters. So by ranks within i

    u_ik = z of the partial correlation of x_ik with y_i, given b_ik = X_i w_i - x_ik w_ik
    v_ik = z of that of b_ik with y_i, given x_ik

u_ik against the sign of sum_{j != i} u_jk, where that is sure, says that k or y is turned: where
v_ik > 0 it is k, where v_ik < 0 it is y, and between the quantiles either may be.
"""

import hashlib
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

import numpy as np
from scipy.special import ndtri

from bonafed.arrays import Array
from bonafed.data import differences
from bonafed.data.differences import NAME, Found
from bonafed.data.federation import Federation
from bonafed.data.schema import Categorical, Schema
from bonafed.measures import auc, beyond_chance
from bonafed.problem.predictors.affine import scores
from bonafed.runs import forms
from bonafed.runs.files import Record
from bonafed.runs.sections.section import Inputs, Section
from bonafed.runs.splits import HELD_OUT, Parts
from bonafed.text import short
from bonafed.worst_client import once

IDENTIFIER = 0.9  # share of the rows that have a value of a column to themselves
COPY = 0.99  # AUC of one feature, or its correlation with the target
SHARED = 0.01  # share of the rows that stand elsewhere, too
TELLING = 0.95  # share of the rows that are alone at their client; with fewer, copies tell nothing
TIMES = 3  # how much more often rows across two sets are alike than by chance
TINY = 20  # rows of a client
LEFT_OUT = 0.05  # share of the rows that have no target, or no client
SHIFT = 0.8  # standardised difference of means: a large one by the usual convention
CHANCE = 0.005  # that some difference of means is larger than its sampling error allows
NAMED = 5  # features or clients that a check names
COMPARED = 5_000  # columns times clients that are compared by their values
WIDE = 8_000_000  # numbers in the ridge regressions of all clients and classes
RIDGE = 0.5  # of features of unit length
WRONG = 0.1  # level of all clients' z_i together, if those of the others are above chance
UNSURE = 0.01  # and if they are not
SURE = 3.0  # standard errors from which the others say how a feature goes with the outcome
RANKED = 2_000  # rows of a client that are ranked
EQUAL = 0.05  # level at which what is left contradicts an explanation
KEY = re.compile(r"(^|[\W_])(id|ids|uuid|guid|identifier|index|key|mrn|nr|no|number)$", re.I)


class DataChecks(Section):
    """The checks of rows and model."""

    name = "data checks"
    keys = forms.needs(list[forms.DATA_CHECK], "checks")

    def result(self, inputs: Inputs) -> Record:
        """Every check, in the order of a report."""
        parts, config = inputs.parts, inputs.config
        # a private run declares its columns, and here nothing more is read off its rows
        plain = config.privacy is None
        found = between_clients(parts, config.data.person) if plain else {}
        more = [_same(kind, each) for kind, each in found.items()]
        return {"checks": [*of_rows(parts), *more, _trivial(inputs)]}


def of_rows(parts: Parts) -> Iterator[Record]:
    """The checks that rows and schema are enough for."""
    fed = parts.owners
    X, y = np.concatenate(fed.X), np.concatenate(fed.y)
    if parts.left_out:
        yield _left_out(parts)
    yield _identifier(fed, X)
    yield _copy(fed, X, y)
    yield from _shared_rows(fed, parts.tests)
    yield _missing_class(fed)
    small = sorted((n, name) for n, name in zip(fed.sizes.tolist(), fed.names, strict=True))
    tiny = [name for n, name in small if n < TINY]
    yield _check("tiny", not tiny, TINY, small[0][0], tiny)
    yield _shift(fed, X)


def _left_out(parts: Parts) -> Record:
    """The rows that are left out for want of a target or a client; rows may lack it for a reason
    that has to do with it.
    """
    left = sum(sum(by_client.values()) for by_client in parts.left_out.values())
    share = left / parts.read
    where = [
        f"{name or 'no client'}: {n:,}"
        for by_client in parts.left_out.values()
        for name, n in sorted(by_client.items(), key=lambda one: (-one[1], one[0]))
    ]
    return _check("left_out", share <= LEFT_OUT, LEFT_OUT, share, where)


def _check(
    name: str, passed: bool | None, limit: float, seen: float | None, where: Sequence[str] = ()
) -> Record:
    """One check, about all of ``where``; None where it does not apply or cannot be judged."""
    numbers = {"name": name, "passed": passed, "limit": limit, "seen": seen}
    return {**numbers, "where": list(where[:NAMED]), "count": len(where)}


# ----------------------------------------------------------------------------------------- features


def _identifier(fed: Federation, X: Array) -> Record:
    """Columns in which nearly every row has a value to itself, and which are text, or count, or are
    named as a key; measurements have values to themselves and are none of these.
    """
    shares, at = {}, 0
    for column in () if fed.schema is None else fed.schema.columns:
        values, width = X[:, at], len(column.feature_names)
        if isinstance(column, Categorical):
            alone = float((X[:, at : at + width].sum(0) == 1).sum())
        else:
            values = values * column.scale + column.centre
            counts = _counts(values, fed) or KEY.search(column.name)
            alone = float((np.unique(values, return_counts=True)[1] == 1).sum()) if counts else 0.0
        shares[column.name] = alone / len(X)
        at += width
    return _largest("identifier", shares, IDENTIFIER, len(X) >= TINY)


def _counts(values: Array, fed: Federation) -> bool:
    """Whether a column has whole numbers that hardly leave one out, or grow from row to row of
    every client.
    """
    whole = np.rint(values)
    if (np.abs(values - whole) > 1e-6 * np.maximum(1.0, np.abs(whole))).any():
        return False
    by_client = np.split(whole, np.cumsum(fed.sizes)[:-1])
    return bool(np.ptp(whole) < 2 * len(whole)) or all((np.diff(v) > 0).all() for v in by_client)


def _copy(fed: Federation, X: Array, y: Array) -> Record:
    """Features that by themselves give the target away: by their AUC between two classes, else by
    their correlation with the target, with several classes the correlation ratio.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        if fed.classes is None:
            centred, target = X - X.mean(0), y - y.mean()
            like = np.abs(target @ centred) / np.sqrt((centred**2).sum(0) * (target @ target))
        elif len(fed.classes) == 2:
            chosen = y == fed.classes[1]
            above = np.array([auc(chosen, column) for column in X.T], float)
            like = np.maximum(above, 1 - above)
        else:
            members = [X[y == each] for each in fed.classes if (y == each).any()]
            between = sum(len(Z) * (Z.mean(0) - X.mean(0)) ** 2 for Z in members)
            like = np.sqrt(between / ((X - X.mean(0)) ** 2).sum(0))
    shares = dict(zip(fed.feature_names, np.nan_to_num(like).tolist(), strict=True))
    return _largest("copy", shares, COPY, len(X) >= TINY)


def _largest(name: str, shares: Mapping[str, float], limit: float, judged: bool) -> Record:
    """The check that no feature has a number as large as a limit."""
    order = sorted(shares, key=lambda each: -shares[each])
    odd = [each for each in order if shares[each] >= limit] if judged else []
    return _check(name, not odd if judged else None, limit, max(shares.values(), default=0.0), odd)


# ------------------------------------------------------------------------------------------- rows


def _shared_rows(fed: Federation, tests: Mapping[str, Federation]) -> Iterator[Record]:
    """Rows with their targets that stand at several clients, and rows to judge on that were trained
    on.
    """
    key = os.urandom(32)
    held = [*_digests(fed, key)]
    alone = sum(count == 1 for each in held for count in Counter(each).values())
    judged = alone >= TELLING * sum(map(len, held))
    clients = Counter(row for each in held for row in {*each})
    shared = [sum(clients[row] > 1 for row in each) / len(each) for each in held]
    at = [name for name, share in zip(fed.names, shared, strict=True) if share > SHARED]
    share = sum(s * len(each) for s, each in zip(shared, held, strict=True)) / fed.sizes.sum()
    own, every = np.sum([_alike(Counter(each)) for each in held], axis=0), Counter(chain(*held))
    columns = [*np.concatenate(fed.X).T, np.concatenate(fed.y)]
    values = [np.unique(column, return_counts=True)[1] / len(column) for column in columns]
    usual = math.prod(float(p @ p) for p in values)  # of pairs alike, if columns were independent
    copied = fed.n_clients > 1 and not _by_chance(_alike(every) - own, own, usual)
    yield _check("duplicates", _within(share, judged and copied), SHARED, float(share), at)
    shares, chance = {}, True
    persons = all(each.persons is not None for each in (fed, *tests.values()))
    known = Counter(chain(*_digests(fed, key, persons)))
    for name, test in tests.items():
        rows = [*chain(*_digests(test, key, persons))]
        shares[name] = sum(row in known for row in rows) / float(test.sizes.sum())
        alike = np.array([sum(known[row] for row in rows), known.total() * len(rows)])
        chance = chance and _by_chance(alike, _alike(known), usual)
    judged = judged and not (chance and tests)
    most = max(shares.values(), default=None)
    odd = [name for name, share in shares.items() if share > SHARED]
    yield _check("trained_on", _within(most, judged), SHARED, most, odd)


def _alike(counts: Counter[bytes]) -> Array:
    """How many pairs of rows are alike, and all pairs."""
    n = counts.total()
    return np.array([sum(c * (c - 1) for c in counts.values()), n * (n - 1)]) / 2


def _by_chance(across: Array, own: Array, usual: float) -> bool:
    """Whether pairs across two sets are alike hardly more often than those within one, or than is
    ``usual``: then few values make a row, and equal rows need not be copies.
    """
    rate = max(usual, own[0] / max(own[1], 1.0))
    return bool(0 < across[0] <= TIMES * rate * across[1])


def _within(share: float | None, judged: bool) -> bool | None:
    if share is None or (share > SHARED and not judged):
        return None
    return bool(share <= SHARED)


def _digests(fed: Federation, key: bytes, persons: bool = False) -> Iterator[list[bytes]]:
    """By client a digest of every row and its target, which nobody without the key can make; with
    ``persons`` also of whose it is: equal rows of two persons are not copies.
    """
    whose = fed.persons if persons else fed.y
    for X, y, who in zip(fed.X, fed.y, whose or fed.y, strict=True):
        rows = np.ascontiguousarray(X, dtype=np.float64) + 0.0  # -0 is 0
        yield [
            hashlib.blake2b(row.tobytes() + repr(more).encode(), key=key, digest_size=16).digest()
            for row, *more in zip(rows, y.tolist(), who.tolist(), strict=True)
        ]


# ---------------------------------------------------------------------------------------- clients


def _missing_class(fed: Federation) -> Record:
    """Clients without a row of some class."""
    if fed.classes is None:
        return _check("missing_class", None, 0, None)
    found = zip(fed.names, (len(np.unique(y)) for y in fed.y), strict=True)
    lacking = [name for name, n in found if n < len(fed.classes)]
    return _check("missing_class", not lacking, 0, len(lacking), lacking)


def _shift(fed: Federation, X: Array) -> Record:
    """The largest difference between a client's mean of a feature and that of all others, in
    standard deviations of the feature, beyond what sampling explains.
    """
    n = fed.sizes[:, None].astype(float)
    if fed.n_clients < 2:
        return _check("shift", None, SHIFT, None)
    means = np.array([part.mean(0) for part in fed.X])
    others = (X.mean(0) * len(X) - n * means) / (len(X) - n)
    deviation = X.std(0)
    varies = deviation > 1e-9 * np.maximum(1.0, np.abs(X).max(0))
    apart = np.abs(means - others)[:, varies] / deviation[varies]
    if fed.persons is not None:  # rows of one person say as much as one row, or little more
        n = np.array([[len(np.unique(of))] for of in fed.persons], float)
    error = -ndtri(CHANCE / max(2 * apart.size, 1)) * np.sqrt(1 / n + 1 / (n.sum() - n))
    most = np.maximum(apart - error, 0.0).max(1, initial=0.0)
    odd = [fed.names[i] for i in np.argsort(-most, kind="stable") if most[i] > SHIFT]
    return _check("shift", not odd, SHIFT, float(most.max()), odd)


# ------------------------------------------------------------- what one client writes otherwise


def _same(kind: str, found: list[Found] | None) -> Record:
    """That no client writes otherwise than the others."""
    where = [str(one) for one in found or ()]
    return _check(kind, None if found is None else not found, 0, len(where), where)


def between_clients(parts: Parts, person: str | None = None) -> dict[str, list[Found] | None]:
    """What a client writes otherwise than the others, by kind; None of a kind where nothing can be
    compared, or too much. ``person`` is the column of persons.
    """
    fed, schema, held = parts.owners, parts.owners.schema, parts.tests.get(HELD_OUT)
    found: dict[str, list[Found] | None] = dict.fromkeys(differences.KINDS)
    target = "the target" if schema is None or schema.target is None else schema.target
    turned: list[Found] | None = None
    if fed.n_clients > 1:
        found["names"] = differences.of_names(fed.names)
        whole = {name: [rows] for name, *rows in _of_clients(fed)}
        for name, *rows in () if held is None else _of_clients(held):
            whole[name].append(rows)
        rows = {
            name: [*map(np.concatenate, zip(*each, strict=True))] for name, each in whole.items()
        }
        if fed.persons is not None:
            people = {name: [*map(str, each.pop())] for name, each in rows.items()}
            cells = {name: each[0] for name, each in rows.items()}
            found["persons"] = differences.of_persons(person or "persons", people, cells)
            ones = {name: once(len(of), np.array(of)) for name, of in people.items()}
            rows = {name: [part[ones[name]] for part in each] for name, each in rows.items()}
        own = () if schema is None else schema.columns
        columns = [column.name for column in own for _ in column.feature_names]
        columns += fed.feature_names[len(columns) :]
        turned = contrary(target, rows, fed.classes, columns)
    if schema and not schema.unit and len(schema.columns) * fed.n_clients <= COMPARED:
        odd = [*_of_columns(fed, schema, target)]
        found |= {kind: [one for one in odd if one.kind == kind] for kind in differences.OF_COLUMNS}
    known = {one[1:3] for each in found.values() for one in each or ()}
    # of outcomes in several codes nothing is compared
    if turned is not None and not any(column == target for column, _ in known):
        found["labels"] = [one for one in turned if one.kind == "labels"]
        more = [one for one in turned if one.kind == "codes" and one[1:3] not in known]
        found["codes"] = [*(found["codes"] or ()), *more] if more else found["codes"]
    return found


def _of_clients(fed: Federation) -> Iterator[tuple[Any, ...]]:
    """Of every client its name, features, targets and, where that is known, whose each row is."""
    return zip(fed.names, fed.X, fed.y, *([fed.persons] if fed.persons else []), strict=True)


def _of_columns(fed: Federation, schema: Schema, target: str) -> Iterator[Found]:
    """What differs in columns and target, as they were before they were scaled."""
    at, names = 0, fed.names
    for column in schema.columns:
        own = [X[:, at : at + len(column.feature_names)] for X in fed.X]
        at += len(column.feature_names)
        if isinstance(column, Categorical):
            counts = [zip(column.categories, part.sum(0).tolist(), strict=False) for part in own]
            counted = [{value: int(n) for value, n in each if n} for each in counts]
            yield from differences.of_codes(column.name, dict(zip(names, counted, strict=True)))
            continue
        values = [part[:, 0] * column.scale + column.centre for part in own]
        digits = 9 - int(np.log10(max(1.0, *(abs(part).max() for part in values))))
        # missing cells are the mean, which tells nothing
        mean = round(column.mean, digits)
        values = [
            np.where(v == mean, np.nan, v) for v in (np.round(v, digits) + 0.0 for v in values)
        ]
        yield from differences.of_numbers(column.name, dict(zip(names, values, strict=True)))
    if fed.classes is None:
        yield from differences.of_numbers(target, dict(zip(names, fed.y, strict=True)))
    else:
        classes = [Counter(map(str, y.tolist())) for y in fed.y]
        yield from differences.of_codes(target, dict(zip(names, classes, strict=True)))


def contrary(
    target: str, rows: Mapping[str, Sequence[Array]], classes: Array | None, columns: Sequence[str]
) -> list[Found] | None:
    """The clients whose outcomes the model of all others ranks the wrong way, and those of whose
    features one goes the other way, of each client's features and outcomes; ``columns`` names the
    column of every feature. None where there are too many features.
    """
    X = [part - part.mean(0) for part, _ in rows.values()]
    of_several = classes is not None and len(classes) > 2
    truth = [
        y[:, None] > np.median(y)
        if classes is None
        else y[:, None] == np.asarray(classes)[None, (0 if of_several else 1) :]
        for _, y in rows.values()
    ]
    if X[0].shape[1] * max(X[0].shape[1], len(X) * truth[0].shape[1]) > WIDE:
        return None
    length = np.sqrt(sum((part**2).sum(0) for part in X))
    length = np.where(length > 0, length, np.inf)
    gram = sum((part / length).T @ (part / length) for part in X)
    said = np.stack([(part / length).T @ (y - y.mean(0)) for part, y in zip(X, truth, strict=True)])
    others = np.moveaxis(said.sum(0) - said, 0, 1)  # (D, N, C)
    w = np.linalg.solve(gram + RIDGE * np.eye(len(length)), others.reshape(len(length), -1))
    w = np.moveaxis((w / length[:, None]).reshape(others.shape), 1, 0)
    z, area = np.zeros((len(X), truth[0].shape[1])), np.ones(len(X))
    own = np.zeros((*z.shape, len(length)))  # of each feature, and of the model without its column
    rest = np.zeros_like(own)
    for i, (part, y) in enumerate(zip(X, truth, strict=True)):
        some = slice(None, None, 1 + len(y) // RANKED)
        ranks = _ranks(part[some])
        for c in np.flatnonzero(y.any(0) & ~y.all(0)):
            found = auc(y[:, c], part @ w[i, :, c]) or 0.0
            area[i] = min(area[i], found)
            z[i, c] = beyond_chance(found, len(y), int(y[:, c].sum()))
            yes = y[some, c].astype(float)
            own[i, c], rest[i, c] = _by_feature(part[some], ranks, yes, w[i, :, c], columns)
    works = (z.sum(0) - z) / np.sqrt(max(len(X) - 1, 1)) > -ndtri(UNSURE)
    odd = (z < ndtri(np.where(works, WRONG, UNSURE) / z.size)).any(1)
    usual = (own.sum(0) - own) / np.sqrt(max(len(X) - 1, 1))
    against = own * np.sign(usual) * (np.abs(usual) > SURE)
    turned = against < ndtri(WRONG / own.size)
    # where some are turned against others that are turned, the fewer ones are odd
    up, down = ((turned & (sign * own > 0)).sum(0) for sign in (1, -1))
    turned &= np.where(own > 0, (up <= down) | (down == 0), (down <= up) | (up == 0))
    made: list[Found] = []
    for i, name in enumerate(rows):
        c, k = divmod(int(against[i].argmin()), len(columns))
        column, agree = columns[k], rest[i, c, k]
        fits = bool(against[i, c, k] < ndtri(EQUAL) < agree)
        alone = fits and bool(agree > -ndtri(EQUAL))
        if odd[i] and not alone:
            why = f"a model of the other clients ranks its rows the wrong way: AUC {area[i]:.2f}"
            also = f"; {short(column, NAME)} the other way round would explain it as well"
            made.append(Found("labels", target, name, why + also * fits))
        elif odd[i] or (turned[i].any() and fits):
            why = f"it goes with {short(target, NAME)} the other way round than at the others"
            which = "it" if alone else f"it, or {short(target, NAME)},"
            made.append(Found("codes", column, name, f"{why}: is {which} coded so?"))
    return made


def _by_feature(
    X: Array, x: Array, y: Array, w: Array, columns: Sequence[str]
) -> tuple[Array, Array]:
    """(z of every feature, z of the model ``w`` without its column): their partial correlations
    with an outcome, each given the other one, by ranks; ``x`` has those of the features.
    """
    first = [k for k, name in enumerate(columns) if k == 0 or name != columns[k - 1]]
    said = np.repeat(np.add.reduceat(X * w, first, 1), np.diff([*first, len(columns)]), 1)
    m, t = _ranks((X @ w)[:, None] - said), _ranks(y[:, None])
    xm, xt, mt = (x * m).sum(0), (x * t).sum(0), (m * t).sum(0)
    own, rest = (
        (one - xm * other) / np.sqrt(np.maximum((1 - xm**2) * (1 - other**2), 1e-12))
        for one, other in ((xt, mt), (mt, xt))
    )
    z = np.arctanh(np.clip([own, rest], -0.999, 0.999)) * np.sqrt(max(len(y) - 4, 0))
    return z[0], z[1]


def _ranks(values: Array) -> Array:
    """The ranks of every column, centred, of length 1; equal values have the mean of theirs."""
    ranks = np.empty(values.shape)
    for column, own in zip(values.T, ranks.T, strict=True):
        _, place, count = np.unique(column, return_inverse=True, return_counts=True)
        own[:] = (np.cumsum(count) - count / 2)[place]
    ranks -= ranks.mean(0)
    return ranks / np.maximum(np.sqrt((ranks**2).sum(0)), 1e-12)


# ------------------------------------------------------------------------------------------ model


def _trivial(inputs: Inputs) -> Record:
    """Whether the model is no better than a constant, as ``trivial`` of the run has it, with the
    share of the training rows that get its commonest prediction. A model that shows that nothing
    meets all constraints is none to be judged.
    """
    fed, problem = inputs.parts.owners, inputs.problem
    w = next(iter(inputs.models.values()))
    said = np.concatenate([scores(problem.predictor, w, X) for X in fed.X])
    if problem.loss.targets == "class":
        said = said.argmax(1)
    elif problem.loss.targets == "sign":
        said = said > 0
    share = float(np.unique(said, return_counts=True)[1].max() / len(said))
    judged = inputs.certificate.infeasible is None
    return _check("trivial", inputs.trivial is None if judged else None, 1.0, share)


# ------------------------------------------------------------------------------------------ trivial


class Trivial(Section):
    """The model against the best constant one."""

    name = "trivial"
    keys = forms.needs(forms.TRIVIALITY | None, "trivial")

    def result(self, inputs: Inputs) -> Record:
        """The record, or None."""
        return {"trivial": None if inputs.trivial is None else asdict(inputs.trivial)}
