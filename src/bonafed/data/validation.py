"""Checks on the clients' rows, whose errors say what was given, what is needed and what to do; also
grouping of rows by client, rows held out, and digests.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence, Sized
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed.arrays import Array, Slices, each_changed, in_one, joined
from bonafed.client_names import ByClient, ClientName, by_position, client_name, repeated
from bonafed.data.row_errors import Place, RowError, listed

EXTREME = 1e100  # squares of larger numbers, or of the inverse of smaller ones, leave float64


Rows: TypeAlias = Any  # an array, or a `scipy.sparse.csr_array`: scipy is imported only for these


def one_per_client(clients: Sequence[ClientName], **parts: Sized) -> None:
    """Refuse duplicate or missing names, and sequences that are not one entry per client."""
    if not clients:
        raise ValueError("a federation needs at least one client, got none.")
    if twice := repeated(clients):
        raise ValueError(
            f"client names must be distinct, got {', '.join(map(repr, twice))} more than once."
            " Rename one, or join their rows (names are compared as text: 1 and '1' are the same"
            " client)."
        )
    for key, part in parts.items():
        if len(part) != len(clients):
            raise ValueError(
                f"{key} must have one array for each of the {len(clients)} clients, got"
                f" {len(part)}."
            )


def features(x: object, client: ClientName, names: Sequence[str] | None) -> Rows:
    """(m, d) dense float64 in C order, or CSR with sorted indices."""
    if hasattr(x, "tocsr"):
        from scipy.sparse import csr_array

        rows: Any = csr_array(x, dtype=np.float64)
        if not rows.has_canonical_format:
            rows = rows.copy()  # the caller's matrix is not changed
            rows.sum_duplicates()
        return rows
    X = np.asarray(x)
    numbers = X.dtype.kind == "O" and not any(isinstance(v, str | bytes) for v in X.flat)
    if numbers and X.ndim == 2:
        X = np.where(np.vectorize(missing, otypes=[bool])(X), np.nan, X).astype(np.float64)
    if X.dtype.kind not in "buif":
        rows, what, shown = [], X.dtype, ""
        for (row, column), cell in np.ndenumerate(X) if X.ndim == 2 else ():
            if isinstance(cell, str):
                name = column if names is None or column >= len(names) else repr(names[column])
                rows, what, shown = [row], f"text in column {name}", f" (first: {cell!r})"
                break
        raise RowError(
            f"client {client!r}",
            f"X must hold numbers, got {what}",
            shown=shown,
            rows=rows,
            do="For a table with text columns use Federation.from_frame(..., schema=Recipe()).",
        )
    if X.ndim != 2:
        raise ValueError(f"client {client!r}: X must have shape (rows, features), got {X.shape}.")
    return np.ascontiguousarray(X, dtype=np.float64)


def features_of(
    parts: Sequence[object], clients: Sequence[ClientName], names: Sequence[str] | None
) -> tuple[Sequence[Rows], tuple[str, ...]]:
    """The features of all clients, who must have as many, and the names of the features."""
    X = in_one(parts)
    if isinstance(X, Slices) and X.whole.ndim == 2 and X.whole.dtype.kind in "buif":
        X = X.of(np.ascontiguousarray(X.whole, dtype=np.float64))
    else:
        each = zip(parts, clients, strict=True)
        X = in_one([features(x, client, names) for x, client in each])
    d = X[0].shape[1]
    for name, x in () if isinstance(X, Slices) else zip(clients, X, strict=True):
        if x.shape[1] != d:
            raise ValueError(
                f"client {name!r} has {x.shape[1]} features, but client {clients[0]!r} has {d}: "
                "all clients need the same columns in the same order."
            )
    if d == 0:
        raise ValueError(
            "X has no features: a federation needs at least one column. For a constant use a column"
            " of ones."
        )
    names = tuple(f"x{j}" for j in range(d)) if names is None else tuple(names)
    if len(names) != d or len(set(names)) != d:
        raise ValueError(
            f"feature_names must be {d} distinct names, got {len(names)} ({len(set(names))}"
            " distinct)."
        )
    return X, names


def rows(client: ClientName, x: Rows, y: NDArray[Any], names: Sequence[str]) -> None:
    """Refuse a client without rows, with rows and targets that do not match, or with values that
    are not finite.
    """
    if x.shape[0] == 0:
        raise ValueError(
            f"client {client!r} has no rows: its mean loss is undefined. Leave it out of the"
            " federation."
        )
    if x.shape[0] != len(y):
        raise ValueError(f"client {client!r}: X has {x.shape[0]} rows but y has {len(y)} targets.")
    values, at = (x, None) if isinstance(x, np.ndarray) else (x.data, x.tocoo().coords)
    if np.isfinite(values).all():
        row = None if at is None else at[0]
        in_range(values, f"client {client!r}", "X", least=1 / EXTREME, rows=row)
        return
    odd = np.nonzero(~np.isfinite(values))
    row, column = odd if at is None else (at[0][odd], at[1][odd])
    columns = [repr(names[j]) for j in np.unique(column)]
    count = "1 value that is" if len(row) == 1 else f"{len(row)} values that are"
    raise RowError(
        f"client {client!r}",
        f"X has {count} missing or infinite, of {listed(columns, 'column')},",
        rows=np.unique(row).tolist(),
        do="Remove or impute them; a Schema imputes by the mean over all clients.",
    )


def rows_of(
    clients: Sequence[ClientName],
    X: Sequence[Rows],
    y: Sequence[NDArray[Any]],
    names: Sequence[str],
) -> None:
    """The same of all clients; where they are slices of one array, those that look odd are looked
    at by themselves.
    """
    odd: Iterable[int] = range(len(clients))
    if isinstance(X, Slices) and isinstance(y, Slices):
        some, wrong = X.sizes > 0, X.sizes != y.sizes
        held = X if some.all() else Slices(X.whole, np.append(X.cuts[:-1][some], X.cuts[-1]))
        with np.errstate(invalid="ignore"):
            most = np.maximum(held.reduced(np.maximum), -held.reduced(np.minimum))
        wrong[some] |= ~((most == 0) | ((most >= 1 / EXTREME) & (most <= EXTREME)))
        odd = np.flatnonzero(wrong | ~some).tolist()
    for i in odd:
        rows(clients[i], X[i], y[i], names)


def in_single(X: Sequence[Rows], clients: Sequence[ClientName]) -> Sequence[Rows]:
    """The rows in single precision; numbers whose squares it cannot hold are refused."""
    for x, client in zip(X, clients, strict=True):
        largest = _largest(x if isinstance(x, np.ndarray) else x.data)
        if largest > 1e18:
            raise RowError(
                f"client {client!r}",
                "X has a number too large for single precision",
                shown=f" ({largest:.3g})",
                do="Change the unit, or keep double precision.",
            )
    return each_changed(lambda x: x.astype(np.float32), X)


def in_range(
    values: NDArray[Any],
    where: str,
    what: str,
    least: float = 0.0,
    rows: NDArray[np.intp] | None = None,
    place: Place | None = None,
) -> None:
    """Refuse finite numbers whose squares would overflow, and those that are all below ``least``
    but not all 0; ``rows`` are those of the values where not each has a separate row.
    """
    largest = _largest(values)
    if largest > EXTREME or 0 < largest < least:
        large = np.unique(np.nonzero(np.abs(values) > EXTREME)[0])
        raise RowError(
            where,
            f"{what} has a largest absolute value that is too {'large' if len(large) else 'small'}",
            shown=f" ({largest:.3g})",
            rows=np.unique(large if rows is None else rows[large]).tolist(),
            do="Its square is not a number in float64: change the unit.",
            place=place,
        )


def _largest(values: NDArray[Any]) -> float:
    """The largest absolute value, 0 of none."""
    return max(float(values.max(initial=0)), -float(values.min(initial=0)))


REMOVE = "Remove these rows (of a table by `drop_missing_target`)."


def targets(y: ArrayLike, client: ClientName, what: str = "y") -> NDArray[Any]:
    """(m,) booleans, int64, float64 or text; ``what`` names them in errors."""
    y, who = np.asarray(y), f"client {client!r}"
    if y.ndim != 1:
        raise ValueError(f"{who}: {what} must have shape (rows,), got {y.shape}.")
    if y.dtype.kind == "O":
        if absent := [r for r, v in enumerate(y) if missing(v)]:
            raise RowError(who, f"{what} is missing", rows=absent, do=REMOVE)
        text = [r for r, v in enumerate(y) if isinstance(v, str)]
        if 0 < len(text) < len(y):
            odd = f"{what} mixes text with other values; there is text"
            raise RowError(who, odd, rows=text, do="Use one type.")
        y = np.asarray(y.tolist())
    if y.dtype.kind not in "buifU":
        raise ValueError(f"{who}: {what} must hold numbers, booleans or text, got dtype {y.dtype}.")
    if y.dtype.kind == "f" and not float(np.abs(y).max(initial=0.0)) <= EXTREME:
        if (at := np.flatnonzero(~np.isfinite(y))).size:
            raise RowError(who, f"{what} is missing or infinite", rows=at.tolist(), do=REMOVE)
        in_range(y, who, what)
    if y.dtype.kind == "u" and y.max(initial=0) > np.iinfo(np.int64).max:
        raise RowError(
            who,
            f"{what} has a label beyond 64-bit integers",
            shown=f" ({y.max()})",
            rows=[int(y.argmax())],
            do="Use smaller numbers.",
        )
    kind = {"u": np.int64, "i": np.int64, "f": np.float64}.get(y.dtype.kind)
    return y if kind is None else y.astype(kind, copy=False)


def distinct(y: NDArray[Any]) -> tuple[Any, ...]:
    """The values of checked targets, ascending."""
    few = len(y) <= 64  # which Python has sorted before NumPy has begun
    return tuple(sorted({*y.tolist()}) if few else np.unique(y).tolist())


def targets_of(y: Sequence[ArrayLike], clients: Sequence[ClientName]) -> Sequence[NDArray[Any]]:
    """The targets of all clients, of one type."""
    parts = in_one(y)
    if isinstance(parts, Slices) and parts.whole.dtype.kind != "O":
        try:
            return parts.of(targets(parts.whole, ""))
        except ValueError:  # which is to name the client
            pass
    each = [targets(t, name) for t, name in zip(y, clients, strict=True)]
    return in_one(same_type(each, clients))


def same_type(y: Sequence[NDArray[Any]], clients: Sequence[ClientName]) -> tuple[NDArray[Any], ...]:
    """Targets of one type over all clients: integers beside floats become floats, numbers beside
    text are an error.
    """
    kinds = {t.dtype.kind: name for t, name in zip(reversed(y), reversed(clients), strict=True)}
    if len(kinds) > 1 and not set(kinds) <= {"i", "f"}:
        kind = {"U": "text", "i": "integers", "f": "numbers", "b": "booleans"}
        types = ", ".join(f"{kind[k]} at client {name!r}" for k, name in kinds.items())
        raise ValueError(f"targets must be of one type at all clients, got {types}.")
    return tuple(t.astype(np.float64, copy=False) for t in y) if "f" in kinds else tuple(y)


def classes(
    y: Sequence[NDArray[Any]], declared: ArrayLike | None, clients: Sequence[ClientName]
) -> NDArray[Any] | None:
    """The sorted classes: those declared, else those of targets that are not floats, else None."""
    if declared is None:
        real = y[0].dtype.kind == "f"
        if isinstance(y, Slices):
            return None if real else np.unique(y.whole)
        return None if real else np.unique(np.concatenate([np.unique(t) for t in y]))
    known, whole = np.unique(np.asarray(declared)), isinstance(y, Slices)
    kinds = {y[0].dtype.kind} if whole else {t.dtype.kind for t in y}
    if known.dtype.kind == "U" and kinds <= {"i", "f"}:
        known = as_numbers(known)
    right = whole and (kinds == {"U"}) == (known.dtype.kind == "U")
    if right and np.isin(joined(y), known).all():
        return known
    for name, t in zip(clients, y, strict=True):
        # text is no number, even where they are written alike
        one_is_text = (t.dtype.kind == "U") != (known.dtype.kind == "U")
        odd = np.arange(len(t)) if one_is_text else np.flatnonzero(~np.isin(t, known))
        if len(odd):
            shown = ", ".join(map(repr, known.tolist()[:10]))
            raise RowError(
                f"client {name!r}",
                f"the target is none of the classes {shown}",
                shown=f": it is {t[odd[0]].item()!r}",
                rows=odd.tolist(),
                do="Correct these targets, or declare their class.",
            )
    return known


def as_numbers(classes: NDArray[Any]) -> NDArray[Any]:
    """Classes that were written as text, such as "0" and "1", as the numbers that they are, in the
    same order; others as they are.
    """
    try:
        numbers = classes.astype(np.float64)
    except ValueError:
        return classes
    whole = (numbers == np.rint(numbers)).all()
    return numbers.astype(np.int64) if whole else numbers


def ordered(known: NDArray[Any] | None, positive: str | float | None) -> NDArray[Any] | None:
    """The classes as (negative, positive) where one of two is called positive, else sorted."""
    if positive is None:
        return known
    named = {} if known is None else {str(name): name for name in known.tolist()}
    positive = named.get(str(positive), positive)
    if known is None or len(known) != 2 or positive not in known.tolist():
        raise RowError(
            "",
            f"positive = {positive!r} must be one of two classes",
            shown=", and there are none" if known is None else f", which {known.tolist()[:6]} are",
            do="Leave it out, or correct it.",
        )
    return known if known[1] == positive else known[::-1].copy()


def persons(
    values: Sequence[ArrayLike], clients: Sequence[ClientName], lengths: Sequence[int]
) -> tuple[NDArray[Any], ...]:
    """One (m_i,) array of persons as text per client; whole numbers are written as such."""
    parts = per_row("persons", [np.asarray(v) for v in values], clients, lengths)
    for name, part in zip(clients, parts, strict=True):
        if rows := [r for r, value in enumerate(part.tolist()) if missing(value)]:
            do = "Every row needs a person, if need be a separate one."
            raise RowError(f"client {name!r}", "persons are missing", rows=rows, do=do)
        if part.dtype.kind == "f" and (rows := np.flatnonzero(abs(part) > 2**53).tolist()):
            what, do = "persons are numbers that float64 has rounded", "Give them as text."
            raise RowError(f"client {name!r}", what, rows=rows, do=do)
    return tuple(part.astype(str) for part in parts)


def per_row(
    key: str, parts: Sequence[NDArray[Any]], clients: Sequence[ClientName], lengths: Sequence[int]
) -> tuple[NDArray[Any], ...]:
    """One (m_i,) array per client."""
    if len(parts) != len(clients):
        one_per_client(clients, **{key: parts})
    for name, part, m in zip(clients, parts, lengths, strict=True):
        if part.shape != (m,):
            raise ValueError(
                f"client {name!r}: {key} must have one entry for each of its {m} rows, got"
                f" {part.shape}."
            )
    return tuple(parts)


def weights(
    values: Sequence[ArrayLike], clients: Sequence[ClientName], lengths: Sequence[int]
) -> Sequence[Array]:
    """One (m_i,) array of weights >= 0 with a positive sum per client."""
    given = per_row("sample_weight", [np.asarray(v) for v in values], clients, lengths)
    parts = list[Array]()
    for name, raw in zip(clients, given, strict=True):
        text = [r for r, value in enumerate(raw.tolist()) if isinstance(value, str | bytes)]
        if text:  # what NumPy says of it would show it
            what, do = "sample_weight must hold numbers, got text", "Give one number for each row."
            raise RowError(f"client {name!r}", what, rows=text, do=do)
        parts.append(part := raw.astype(np.float64))
        if not (np.isfinite(part).all() and (part >= 0).all() and 0 < part.sum() < np.inf):
            raise RowError(
                f"client {name!r}",
                "sample_weight must be finite and >= 0 with a positive sum, got others",
                shown=f" (values in [{part.min()}, {part.max()}])",
                rows=np.flatnonzero(~(np.isfinite(part) & (part >= 0))).tolist(),
                do="Leave out rows, or the client, instead of weighing all by 0.",
            )
    return in_one(parts)


def prior(
    prior: ArrayLike | ByClient[float], clients: Sequence[ClientName], sizes: NDArray[Any]
) -> Array:
    """(N,) weights over the clients that sum to one."""
    if isinstance(prior, str):
        if prior not in ("uniform", "size"):
            raise ValueError(
                f"prior must be 'uniform', 'size' or weights over the clients, got {prior!r}."
            )
        counts = np.ones(len(clients)) if prior == "uniform" else sizes
        return counts / counts.sum()
    if isinstance(prior, Mapping):
        prior = list(by_position(prior, clients, "prior").values())
    q = np.asarray(prior, dtype=np.float64)
    if q.shape != (len(clients),) or not (q >= 0).all() or not abs(q.sum() - 1) <= 1e-9:
        raise ValueError(
            f"prior must be {len(clients)} weights >= 0 that sum to 1, got shape {q.shape} with sum"
            f" {q.sum()}. Divide by their sum, or use 'uniform' or 'size'."
        )
    return q


def digest(x: Rows, y: NDArray[Any], share: Array, *more: NDArray[Any]) -> str:
    """blake2b of shapes, types and bytes; text by its characters, CSR by its rows' starts, indices
    and values.
    """
    parts, form = [x], "dense"
    if not isinstance(x, np.ndarray):
        parts, form = [x.indptr.astype(np.int64), x.indices.astype(np.int64), x.data], "csr"
    total = hashlib.blake2b(json.dumps([list(x.shape), form]).encode(), digest_size=16)
    for part in (*parts, share, y, *more):
        little = part.astype(part.dtype.newbyteorder("<"), copy=False)
        total.update(f"{little.dtype.kind}{part.shape}".encode())
        if little.dtype.kind in "UO":
            total.update(json.dumps(little.tolist(), default=str).encode())
        else:
            total.update(np.ascontiguousarray(little).data)
    return total.hexdigest()


def grouped(
    groups: Iterable[object], n: int, what: str = "groups"
) -> tuple[tuple[ClientName, ...], list[Any]]:
    """Names in the order of first appearance, and the rows of each: slices where they lie together,
    else indices.
    """
    names, order, cuts = in_order(groups, n, what)
    if order is None:
        return names, [slice(*pair) for pair in pairwise(cuts)]
    return names, np.split(order, cuts[1:-1])


def in_order(
    groups: Iterable[object], n: int, what: str = "groups"
) -> tuple[tuple[ClientName, ...], NDArray[np.intp] | None, NDArray[np.intp]]:
    """Names in the order of first appearance; the rows of all one after the other, None where they
    lie so already; and where those of each begin, and n.
    """
    ways = (how for how in ("tolist", "to_list", "to_pylist") if hasattr(groups, how))
    labels = getattr(groups, next(ways, ""), lambda: list(groups))()
    if getattr(groups, "ndim", 1) != 1 or len(labels) != n:
        got = groups.shape if isinstance(groups, np.ndarray) else len(labels)
        raise ValueError(f"groups must have one entry for each of the {n} rows, got {got}.")
    if n == 0:
        raise ValueError("X has no rows: a federation needs at least one client with one row.")
    seen: dict[Any, int] = {label: k for k, label in enumerate(dict.fromkeys(labels))}
    codes = np.fromiter(map(seen.__getitem__, labels), np.intp, n)
    if unnamed := [k for label, k in seen.items() if missing(label)]:
        at = np.flatnonzero(np.isin(codes, unnamed))
        raise RowError(
            what,
            f"{len(at)} missing {'entry' if len(at) == 1 else 'entries'},",
            rows=at.tolist(),
            do="Give one for every row, or leave these rows out (of a table by"
            " `drop_missing_client`).",
        )
    called = [*map(client_name, seen)]
    del seen, labels  # as large as the rows, of very many clients
    names = tuple(dict.fromkeys(called))  # labels that look alike are one client
    if len(names) < len(called):
        codes = np.array([*map(names.index, called)])[codes]
    cuts = np.append(0, np.cumsum(np.bincount(codes, minlength=len(names))))
    alone = (np.diff(codes) >= 0).all()
    return names, None if alone else np.argsort(codes, kind="stable"), cuts


def missing(value: object) -> bool:
    """Whether a value is None, NaN, or the missing value of a table library."""
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and value != value)
    )


def linear(
    parts: Sequence[tuple[ArrayLike, ArrayLike]], owners: Sequence[ClientName], d: int
) -> tuple[tuple[Array, Array], ...]:
    """One (C, d) of shapes (k, d) and (k,) per owner, finite."""
    one_per_client(owners, linear=parts)
    checked = []
    for owner, part in zip(owners, parts, strict=True):
        C, offset = (np.ascontiguousarray(each, float) for each in part)
        if C.ndim != 2 or C.shape[1] != d or offset.shape != (len(C),):
            raise ValueError(
                f"{owner!r}: C and d must have shapes (k, {d}) and (k,), got {C.shape} and"
                f" {offset.shape}: one row and one number for each equation C w + d = 0."
            )
        if not (np.isfinite(C).all() and np.isfinite(offset).all()):
            raise ValueError(f"{owner!r}: C and d must be finite.")
        checked.append((C, offset))
    return tuple(checked)


def stacked(parts: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Several clients' (C, d) as (n, k, d) and (n, k), filled up with rows of zeros."""
    k = max(len(offset) for _, offset in parts)
    C, offsets = np.zeros((len(parts), k, parts[0][0].shape[1])), np.zeros((len(parts), k))
    for i, (rows_, offset) in enumerate(parts):
        C[i, : len(offset)], offsets[i, : len(offset)] = rows_, offset
    return C, offsets


def quadratics(A: Sequence[Array], b: Sequence[Array], clients: Sequence[ClientName]) -> None:
    """Refuse matrices that are not symmetric positive semidefinite, of one size with the
    vectors.
    """
    one_per_client(clients, A=A, b=b)
    d = len(b[0])
    for name, matrix, vector in zip(clients, A, b, strict=True):
        if matrix.shape != (d, d) or vector.shape != (d,):
            raise ValueError(
                f"client {name!r}: A and b must have shapes ({d}, {d}) and ({d},), got"
                f" {matrix.shape} and {vector.shape}."
            )
        size, odd = (np.abs(each).max(initial=0.0) for each in (matrix, matrix - matrix.T))
        if not np.isfinite(matrix).all() or odd > 1e-12 * size:
            raise ValueError(f"client {name!r}: A must be finite and symmetric: give (A + A') / 2.")
        least = float(np.linalg.eigvalsh(matrix)[0]) if size else 0.0
        if least < -1e-10 * size:
            raise ValueError(
                f"client {name!r}: A must be positive semidefinite, its smallest eigenvalue is"
                f" {least:.3g}: then w'A w / 2 is not convex and this client's part has no minimum."
            )
