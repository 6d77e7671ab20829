"""Named clients and their rows.

A `Federation` is what a problem is solved over: client i owns X_i (m_i, d) and y_i (m_i,). Clients
keep the order of their first appearance, and random choices are drawn from streams keyed by the
client's name, so that adding a client changes nobody else's rows or numbers. Rows never move
between clients; `blocks` only lays them out for batched steps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import client_names
from bonafed.arrays import (
    Array,
    Block,
    Index,
    Slices,
    adjoining,
    each_changed,
    in_one,
    joined,
    unwritable,
)
from bonafed.client_names import ByClient, ClientName
from bonafed.data import assembly
from bonafed.data import validation as check
from bonafed.data.assembly import TableOptions, codes_of
from bonafed.data.holdout import drawn, held_out, is_held
from bonafed.data.readers import Files, read_clients
from bonafed.data.reading import PLAIN
from bonafed.data.row_errors import before_a_problem, located
from bonafed.data.schema import Schema
from bonafed.data.tables import by_client_name, check_named, matrix, present, refined, table_of
from bonafed.parameters import checking
from bonafed.text import card, listed, short, shown

# numbers in the rows of a client up to which several share a batch, and numbers in a batch
FEW, BATCH = 2**12, 2**18
# numbers in the rows of a client up to which they are copied into a block, and numbers in a block
SMALL, BLOCK = 2**17, 2**19
# where a matrix over the features is as large as the rows, few blocks cost less: rows for every
# feature, of a client and of a block, up to which both may be larger, and what a client then has
TALL, LARGE = (16, 64), 2**19
SEVERAL, TOGETHER = 64, 1024  # clients in a block at most, and where they have few numbers
THIN = 2**15  # entries of a client's sparse rows up to which they share a block


@dataclass(frozen=True, eq=False, repr=False)
class Federation:
    """Clients, each with its own rows and targets.

    Parameters
    ----------
    clients : distinct names, text or whole numbers, in the order of their first appearance. They
        stay as they are given and are compared as text: 1 and "1" name the same client
    X : one (m_i, d) array per client; dense float64 in C order, or sparse (kept as CSR); no copy if
        right already, but small arrays of 100 clients and more are put into one, of which the items
        of ``X`` are then views
    y : one (m_i,) array of targets per client: numbers, text or booleans
    classes : the sorted classes; default: those seen at any client when the targets are not floats,
        else None
    feature_names : d distinct names; default x0, x1, ...
    sample_weight : one (m_i,) array of weights >= 0 per client, normalised inside each client by
        `Block.share`
    columns : further per-row columns, ``{name: one (m_i,) array per client}``, such as a sensitive
        attribute
    schema : how the features were made from a table, for predictions on new tables
    server : data that the server itself holds, ``(X0, y0)`` or a federation of one client; for
        constraints on them
    linear : one (C_i, d_i) of shapes (k_i, d) and (k_i,) per client: what ``LinearEquality()``
        reads as C_i w + d_i = 0
    persons : one (m_i,) array of text or numbers per client: whose each row is; rows of one person
        are on one side of every split, also where several clients have some
    positive : of two classes the one that counts as +1; ``classes`` are then (negative, positive)

    Raises
    ------
    ValueError : duplicate names, a client without rows, unequal numbers of features or rows, values
        that are not finite (naming client, rows and columns), targets of different types, targets
        outside the declared classes

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = bf.Federation.from_arrays(
    ...     [[0.0], [1.0], [2.0]], ["no", "no", "yes"], ["a", "a", "b"]
    ... )
    >>> fed.clients, fed.sizes.tolist(), fed.classes.tolist()
    (('a', 'b'), [2, 1], ['no', 'yes'])
    >>> train, test = load.hospitals().split(test=0.4, seed=0)
    >>> train.n_clients, int(train.sizes.sum() + test.sizes.sum())
    (6, 569)
    """

    clients: tuple[ClientName, ...]
    X: Sequence[Any]
    y: Sequence[NDArray[Any]]
    _: KW_ONLY
    classes: NDArray[Any] | None = None
    # always a tuple once constructed
    feature_names: tuple[str, ...] = None  # type: ignore[assignment]
    sample_weight: Sequence[Array] | None = None
    columns: Mapping[str, Sequence[NDArray[Any]]] | None = None
    schema: Schema | None = None
    server: Any = None  # a Federation of one client once constructed
    linear: tuple[tuple[Array, Array], ...] | None = None
    persons: tuple[NDArray[Any], ...] | None = None
    positive: str | float | None = None

    @before_a_problem()
    def __post_init__(self) -> None:
        clients = tuple(map(client_names.client_name, self.clients))
        check.one_per_client(clients, X=self.X, y=self.y)
        names = None if self.feature_names is None else tuple(map(str, self.feature_names))
        X, names = check.features_of(self.X, clients, names)
        y = check.targets_of(self.y, clients)
        check.rows_of(clients, X, y, names)
        lengths = _sizes(y).tolist()
        weights, linear = self.sample_weight, self.linear
        columns = {
            key: check.per_row(key, [np.asarray(part) for part in parts], clients, lengths)
            for key, parts in (self.columns or {}).items()
        }
        vars(self).update(
            clients=clients,
            X=X,
            y=y,
            feature_names=names,
            sample_weight=None if weights is None else check.weights(weights, clients, lengths),
            columns=columns,
            persons=None if self.persons is None else check.persons(self.persons, clients, lengths),
            classes=check.ordered(check.classes(y, self.classes, clients), self.positive),
            linear=None if linear is None else check.linear(linear, clients, X[0].shape[1]),
            server=self._of_server(self.server, names, X[0].shape[1]),
        )

    @staticmethod
    def _of_server(held: object, names: tuple[str, ...], d: int) -> Federation | None:
        """The server's own data as a federation of one client, "server"."""
        if held is None:
            return None
        if not isinstance(held, Federation):
            if not isinstance(held, tuple | list) or len(held) not in (2, 3):
                raise ValueError(
                    f"server must be (X0, y0) or (X0, y0, columns), got {type(held).__name__}."
                )
            X0, y0, *columns = held
            named = {key: (column,) for key, column in columns[0].items()} if columns else None
            held = Federation(("server",), (X0,), (y0,), columns=named)
            held = held._with(feature_names=names) if held.n_features == d else held
        if held.n_clients != 1 or held.n_features != d:
            raise ValueError(
                f"server must be one table with the clients' {d} features, got {held.n_clients}"
                f" clients of {held.n_features} features: give (X0, y0), or (X0, y0, columns)."
            )
        if held.feature_names != names:
            raise ValueError(
                f"server has the features {held.feature_names[:6]}, the clients {names[:6]}: give"
                " the same ones in the same order."
            )
        return held._with(clients=("server",))

    def _with(self, **changes: object) -> Federation:
        """A copy with other values in these fields, which are known to be right."""
        other = copy.copy(self)
        for known in ("sizes", "_shares"):
            vars(other).pop(known, None)
        vars(other).update(changes)
        return other

    # ---------------------------------------------------------------- constructors

    @classmethod
    @checking
    @before_a_problem()
    def from_arrays(
        cls,
        X: object,
        y: ArrayLike | str | None = None,
        groups: Iterable[object] | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        columns: Mapping[str, ArrayLike] | None = None,
        schema: Schema | None = None,
        persons: ArrayLike | None = None,
        positive: str | float | None = None,
    ) -> Federation:
        """A federation from one table with the rows of all clients, which is copied at most once;
        or from ``{client: (X_i, y_i)}``.

        Parameters
        ----------
        X : (n, d) numpy array, scipy.sparse matrix (kept sparse), or pandas, polars or Arrow table
            of numbers; or a mapping from client name to a pair (X_i, y_i), without y and groups:
            then sample_weight, persons and each of columns are mappings by client name too
        y : (n,) targets, or the name of their column in the table X
        groups : (n,) the client of each row, text or whole numbers; of other hashables their text;
            or the name of their column in the table X
        sample_weight : (n,) weights >= 0
        columns : further columns, ``{name: (n,) array}``
        persons : (n,) whose each row is

        The other parameters are those of `Federation`.

        Examples
        --------
        >>> import numpy as np, bonafed as bf
        >>> X, y = np.eye(4), np.array([0, 1, 0, 1])
        >>> bf.Federation.from_arrays(X, y, groups=[3, 3, 1, 1]).clients
        (3, 1)
        >>> bf.Federation.from_arrays({3: (X[:2], y[:2]), 1: (X[2:], y[2:])}).clients
        (3, 1)
        """
        if isinstance(X, Mapping) and y is None and groups is None:
            parts_of = assembly.by_client(X, feature_names, sample_weight, columns, persons)
            declared = None if classes is None else np.asarray(classes)
            return cls(**parts_of, classes=declared, schema=schema, positive=positive)
        if y is None or groups is None:
            raise ValueError(
                f"from_arrays needs {'y' if y is None else 'groups'}: give X, y and groups (the"
                " client of each row), or {client: (X, y)}; from_frame(df, client, target) takes"
                " both from a table."
            )
        given, owners, targets = X, groups, y
        if isinstance(groups, str):  # the name of a column, which leaves X
            given, owners = assembly.without_column(given, groups, "groups")
        if isinstance(y, str):
            given, targets = assembly.without_column(given, y, "y")
        if not (hasattr(given, "tocsr") or isinstance(given, np.ndarray | list | tuple)):
            columned = table_of(given)
            given = matrix(columned, tuple(columned))
            feature_names = feature_names or tuple(columned)
        cells: Any = given
        table: Any = cells.tocsr() if hasattr(cells, "tocsr") else np.asarray(cells)
        if table.ndim != 2:
            raise ValueError(
                f"X must be a table of rows and features, got {table.ndim} dimension(s)."
            )
        names, order, cuts = check.in_order(owners, table.shape[0])

        def sliced(whole: Any) -> Sequence[Any]:
            whole = whole if order is None else whole[order]
            if isinstance(whole, np.ndarray):
                return Slices(whole, cuts)
            return tuple(whole[start:end] for start, end in pairwise(cuts))

        def parts(column: ArrayLike, what: str) -> Sequence[NDArray[Any]]:
            whole = np.asarray(column)
            if whole.shape != (table.shape[0],):
                raise ValueError(
                    f"{what} must have shape ({table.shape[0]},) like the rows of X, got"
                    f" {whole.shape}."
                )
            return sliced(whole)

        features: Any = None if feature_names is None else tuple(feature_names)
        X_i, y_i = sliced(table), parts(targets, "y")
        more: dict[str, Any] = {"sample_weight": sample_weight, "persons": persons}
        more = {key: parts(column, key) for key, column in more.items() if column is not None}
        return cls(
            names,
            X_i,
            y_i,
            classes=None if classes is None else np.asarray(classes),
            feature_names=features,
            columns={key: parts(v, f"columns[{key!r}]") for key, v in (columns or {}).items()},
            schema=schema,
            positive=positive,
            **more,
        )

    @classmethod
    @checking
    @before_a_problem()
    def from_tables(
        cls, tables: ByClient[Mapping[str, Any]], target: str, **options: Unpack[TableOptions]
    ) -> Federation:
        """A federation from one table ``{column: (m_i,) array}`` per client name, as
        `bonafed.data.tables` reads them.

        ``target``, ``sample_weight`` and ``columns`` name columns; ``features`` defaults to all the
        others. Columns of text, and missing values, need a ``schema``: a fitted `Schema`, or a
        `Recipe` to fit one over the clients. ``unknown``: as in `Schema.transform`, for categories
        that a fitted schema does not have. ``reading`` says what is untidy in the tables, and
        ``person`` names the column of persons, which is not a feature; ``positive`` as in
        `Federation`.
        """
        reading = options.pop("reading", PLAIN)
        whole = assembly.tables_of(tables, target, reading, codes_of(options))
        declared = dict[str, Any](options)
        with located(whole):
            return cls(**assembly.federation_parts(whole, target, **declared))

    @classmethod
    @checking
    @before_a_problem()
    def from_frame(
        cls,
        df: object,
        client: str | None = None,
        target: str | None = None,
        *,
        groups: str | None = None,
        **options: Unpack[TableOptions],
    ) -> Federation:
        """A federation from a pandas, polars or Arrow table with a column ``client``, which may be
        given as ``groups`` too, and a column ``target``; options as in `from_tables`.
        """
        client = groups if client is None else client
        if client is None or target is None:
            raise ValueError(
                "from_frame needs the names of two columns, client and target, got"
                f" {shown(client, 40)} and {shown(target, 40)}; arrays go to from_arrays(X, y,"
                " groups)."
            )
        reading, table = options.get("reading", PLAIN), table_of(df)
        check_named(reading, table)
        table = refined(table, reading, codes_of(options))
        table = present(table, client) if reading.drop_missing_client else table
        return cls.from_tables(by_client_name(table, client), target, **options)

    @classmethod
    @checking
    @before_a_problem()
    def from_files(
        cls, files: Files, target: str, client: str | None = None, **options: Unpack[TableOptions]
    ) -> Federation:
        """A federation from CSV or Parquet files: one per client (named by its stem), or with a
        column ``client``.

        ``files`` is a path, a pattern such as "sites/*.csv" (sorted by name), or a list of them;
        options as in `from_tables`.
        """
        reading = options.get("reading", PLAIN)
        tables = read_clients(files, client, text=codes_of(options), reading=reading)
        return cls.from_tables(tables, target, **options)

    @classmethod
    @checking
    def from_quadratics(
        cls,
        A: Iterable[ArrayLike],
        b: Iterable[ArrayLike],
        C: Iterable[ArrayLike] | None = None,
        d: Iterable[ArrayLike] | None = None,
        *,
        clients: Iterable[object] | None = None,
    ) -> Federation:
        """A federation of quadratic functions f_i(w) = w'A_i w / 2 + b_i'w with constraints
        C_i w + d_i = 0, for ``Problem(loss=Quadratic(), ...)``.

        Parameters
        ----------
        A, b : n symmetric positive semidefinite (D, D) arrays, and n arrays (D,)
        C, d : n + 1 arrays (k_i, D) and (k_i,), the first the server's; None: no constraints
        clients : n names; default client 1, client 2, ...

        Raises
        ------
        ValueError : shapes that do not fit, matrices that are not symmetric positive semidefinite
        """
        matrices, vectors = (tuple(np.asarray(a, float) for a in each) for each in (A, b))
        if clients is None:
            clients = (f"client {i + 1}" for i in range(len(matrices)))
        names = tuple(map(client_names.client_name, clients))
        check.quadratics(matrices, vectors, names)
        if C is None and d is None:
            return cls(names, matrices, vectors)
        if C is None or d is None:
            raise ValueError(
                "from_quadratics got one of C and d: give both, or neither for no constraints."
            )
        D, owners = len(vectors[0]), ("server", *names)
        first, *linear = check.linear(list(zip(C, d, strict=True)), owners, D)
        server = cls(("server",), (np.zeros((1, D)),), (np.zeros(1),), linear=(first,))
        return cls(names, matrices, vectors, server=server, linear=tuple(linear))

    # ---------------------------------------------------------------- what it is

    @property
    def n_clients(self) -> int:
        """N."""
        return len(self.clients)

    @property
    def n_features(self) -> int:
        """The number d of features."""
        return int(self.X[0].shape[1])

    @cached_property
    def sizes(self) -> NDArray[np.intp]:
        """(N,) rows of each client."""
        return unwritable(_sizes(self.y))

    @property
    def alike(self) -> bool:
        """Whether all rows of a client count alike, at every client."""
        return bool(self.all_alike.all())

    @property
    def all_alike(self) -> NDArray[np.bool_]:
        """(N,) whether all rows of a client count alike."""
        weights = self.sample_weight
        if weights is None:
            return np.ones(self.n_clients, bool)
        if isinstance(weights, Slices):
            most, least = weights.reduced(np.maximum), weights.reduced(np.minimum)
            return most - least <= 1e-12 * most
        return np.array([self.rows_alike(i) for i in range(self.n_clients)])

    def rows_alike(self, i: int) -> bool:
        """Whether all rows of client i count alike."""
        weights = None if self.sample_weight is None else self.sample_weight[i]
        return weights is None or bool(np.ptp(weights) <= 1e-12 * np.max(weights))

    @property
    def fitted(self) -> bool:
        """Whether the features were made by a schema that was fitted on rows."""
        return self.schema is not None and self.schema.fitted

    def __len__(self) -> int:
        return len(self.clients)

    def __repr__(self) -> str:
        pairs = zip(self.clients, self.sizes.tolist(), strict=True)
        rows = (f"{short(str(name), 16)}: {m}" for name, m in pairs)
        kind = "real targets" if self.classes is None else f"{len(self.classes)} classes"
        return (
            f"Federation({self.n_clients} clients, {self.sizes.sum()} rows, {self.n_features}"
            f" features, {kind}; rows by client: {listed(rows, self.n_clients, 6)})"
        )

    def _repr_html_(self) -> str:
        names, n, known = self.feature_names, self.sizes, self.classes
        facts = {
            "clients": listed(self.clients, self.n_clients, 6),
            "rows": f"{n.sum():,}, from {n.min():,} to {n.max():,} a client",
            "features": f"{self.n_features:,}: {listed(names, len(names))}",
            "targets": "real",
        }
        if known is not None:
            facts["targets"] = f"{len(known)} classes: {listed(known, len(known))}"
        return card(f"Federation of {self.n_clients:,} clients", facts.items())

    @property
    def names(self) -> tuple[str, ...]:
        """The clients' names as text, as files and random streams know them."""
        return client_names.texts(self.clients)

    @property
    def whose(self) -> tuple[list[NDArray[Any] | None], NDArray[Any] | None]:
        """Whose each row is, by client and over all of them; None where that is not known."""
        if self.persons is None:
            return [None] * self.n_clients, None
        return [*self.persons], np.concatenate(self.persons)

    def position(self, client: ClientName) -> int:
        """The position of a client, by name."""
        return client_names.position(client, self.clients)

    def positions(self, clients: Iterable[ClientName]) -> list[int]:
        """The positions of several clients, by name."""
        return client_names.positions(clients, self.clients)

    def rows(self, i: int) -> tuple[Any, NDArray[Any]]:
        """(X_i, y_i)."""
        return self.X[i], self.y[i]

    def share(self, i: int) -> Array:
        """(m_i,) weight of each row of client i in its mean; sums to one."""
        if self.sample_weight is None:
            return np.full(m := len(self.y[i]), 1 / max(m, 1))
        weight = self.sample_weight[i]
        # a client that takes part without rows has one of weight zero
        return weight / (weight.sum() or 1.0)

    @checking
    def shares(self) -> Array:
        """The same of all clients' rows, in their order."""
        if self.sample_weight is None:
            return np.repeat(1 / np.maximum(self.sizes, 1), self.sizes)
        return joined(self._shares)

    @cached_property
    def _shares(self) -> Sequence[Array]:
        """(m_i,) of every client, of rows with weights."""
        return in_one([*map(self.share, range(self.n_clients))])

    @checking
    def by_client(self, reduce: np.ufunc, values: Any) -> NDArray[Any]:
        """(N,) numbers of the rows of all clients, in their order, reduced to one for each."""
        return reduce.reduceat(values, np.cumsum(self.sizes) - self.sizes)

    def digests(self) -> tuple[str, ...]:
        """One hexadecimal digest per client, of all that it and the server hold: equal data have
        equal digests.
        """
        server = [] if self.server is None else [np.array(self.server.digests())]
        columns = sorted((self.columns or {}).items())

        def digest(i: int, x: Any, y: NDArray[Any]) -> str:
            more = [array for key, parts in columns for array in (np.array([key]), parts[i])]
            more += [] if self.linear is None else self.linear[i]
            more += [] if self.persons is None else [np.array(["persons"]), self.persons[i]]
            return check.digest(x, y, self.share(i), *more, *server)

        return tuple(map(digest, range(self.n_clients), self.X, self.y))

    @checking
    def single(self) -> Federation:
        """The same rows in single precision: ``PrivateADMM`` then computes in it, at half the time
        and memory.
        """
        return self._with(X=check.in_single(self.X, self.clients))

    # ---------------------------------------------------------------- layout for batched steps

    def block(self, i: int) -> Block:
        """Client i by itself: (1, m_i, d), unpadded, its rows not copied (CSR where they are
        sparse).
        """
        x, columns = self.X[i], {key: parts[i][None] for key, parts in (self.columns or {}).items()}
        rows = x[None] if isinstance(x, np.ndarray) else x
        linear = None if self.linear is None else (self.linear[i][0][None], self.linear[i][1][None])
        y, share = self._coded(i)[None], self.share(i)[None]
        return Block(rows, y, share, np.array([i]), (self.clients[i],), columns, linear)

    def blocks(self, size: int = TOGETHER) -> list[Block]:
        """Clients sorted by size, at most ``size`` at a time, padded to the longest of each block;
        large ones, whose rows are then not copied, one by one.
        """
        if size < 1:
            raise ValueError(f"size must be >= 1, got {size}: it is how many clients a block has.")
        d = self.n_features
        own, most = min(max(SMALL, TALL[0] * d**2), LARGE), max(BLOCK, TALL[1] * d**2)
        small = self._dense & (self.sizes * d <= own)
        order = np.argsort(self.sizes, kind="stable")
        left, groups = order[small[order]], self._thin(order, min(size, SEVERAL))
        while len(left):
            count = np.arange(1, len(left[:size]) + 1)
            longest = self.sizes[left[:size]]
            fits = (count == 1) | (count * longest * d <= most)
            # with room for a matrix of every client beside its rows
            fits &= (count <= SEVERAL) | (count * np.maximum(longest, d) * d <= BATCH)
            group, left = np.split(left, [len(count) if fits.all() else int(fits.argmin())])
            groups.append(group)
        groups += self._others(groups)
        return [self.block(g.item()) if len(g) == 1 else self._padded(g) for g in groups]

    @property
    def _dense(self) -> NDArray[np.bool_]:
        """(N,) whose rows are not sparse."""
        if isinstance(self.X, Slices):
            return np.ones(self.n_clients, bool)
        return np.array([isinstance(x, np.ndarray) for x in self.X])

    def _others(self, groups: Sequence[Index]) -> list[Index]:
        """Each client that is in none of the groups by itself."""
        others = np.ones(self.n_clients, bool)
        for group in groups:
            others[group] = False
        return [*np.flatnonzero(others)[:, None]]

    def _thin(self, order: Index, size: int) -> list[Index]:
        """Those of these clients with few sparse entries, ``size`` at a time, and no more than
        have a batch of gradients.
        """
        sparse = order[~self._dense[order]]
        thin = np.array([i for i in sparse.tolist() if self.X[i].nnz <= THIN], np.intp)
        size = max(1, min(size, BATCH // self.n_features))
        return [thin[k : k + size] for k in range(0, len(thin), size)]

    @checking
    def batches(self) -> Iterator[Block]:
        """Clients sorted by size: small ones, whose rows are copied, many at a time, and the other
        ones one by one.
        """
        longest = np.where(self._dense, self.sizes * self.n_features, FEW + 1)
        order = np.argsort(longest, kind="stable")
        small = order[longest[order] <= FEW]
        groups = list[Index]()
        while len(small):
            # as many as fill a batch, each padded to the longest of them
            few = small[: BATCH // max(int(longest[small[0]]), 1) + 1]
            fits = np.arange(1, len(few) + 1) * longest[few] <= BATCH
            count = max(1, len(few) if fits.all() else int(fits.argmin()))
            groups.append(small[:count])
            small = small[count:]
        groups += self._thin(np.argsort(self.sizes, kind="stable"), self.n_clients)
        yield from map(self._padded, groups)
        yield from (self.block(group.item()) for group in self._others(groups))

    def _padded(self, index: NDArray[np.intp]) -> Block:
        sizes, extra, who = self.sizes[index], self.columns or {}, index.tolist()
        inside = np.arange(sizes.max()) < sizes[:, None]
        in_order = bool((np.diff(index) == 1).all())

        def padded(parts: Sequence[Any] | Mapping[int, Any]) -> NDArray[Any]:
            if isinstance(parts, Slices):
                return sliced(parts)
            rows = [parts[i] for i in who]
            shape = *inside.shape, *rows[0].shape[1:]
            if inside.all():
                whole = adjoining(rows) if rows[0].flags.behaved else None
                return (np.concatenate(rows) if whole is None else whole).reshape(shape)
            whole = np.zeros(shape, np.result_type(*rows[:1], *{part.dtype for part in rows}))
            for one, part in zip(whole, rows, strict=True):
                one[: len(part)] = part
            return whole

        def sliced(parts: Slices) -> NDArray[Any]:
            whole, first = parts.whole, parts.cuts[index]
            if in_order and inside.all() and whole.flags.behaved:  # as compiled loops take them
                return whole[first[0] : first[0] + inside.size].reshape(
                    *inside.shape, *whole.shape[1:]
                )
            at = first[:, None] + np.arange(inside.shape[1])
            rows = whole[np.where(inside, at, 0)]
            if not inside.all():
                rows[~inside] = 0
            return rows

        y = padded(self._coded_parts(who))
        if not inside.all():
            y = np.where(inside, y, y[:, :1])  # valid for every loss; its share is 0
        share = inside / np.maximum(sizes, 1)[:, None]
        if self.sample_weight is not None:
            share = padded(self._shares)
        columns = {key: padded(parts) for key, parts in extra.items()}
        linear = None if self.linear is None else check.stacked([self.linear[i] for i in who])
        names = self.clients[who[0] : who[-1] + 1]
        names = names if in_order else tuple(self.clients[i] for i in who)
        return Block(self._rows(who, padded), y, share, index, names, columns, linear)

    def _rows(self, who: list[int], padded: Callable[[Any], NDArray[Any]]) -> Any:
        """The rows of a block of these clients; sparse ones are padded with empty rows."""
        if isinstance(self.X[who[0]], np.ndarray):
            return padded(self.X)
        from scipy.sparse import csr_array

        counts = padded({i: np.diff(self.X[i].indptr) for i in who}).ravel()
        parts = [np.concatenate([getattr(self.X[i], k) for i in who]) for k in ("data", "indices")]
        starts = np.concatenate([[0], np.cumsum(counts)])
        return csr_array((*parts, starts), shape=(len(counts), self.n_features))

    def _coded_parts(self, who: Sequence[int]) -> Any:
        if isinstance(self.y, Slices) and self.y.whole.dtype == np.float64:
            return self.y
        return {i: self._coded(i) for i in who}

    def _coded(self, i: int) -> Array:
        y = self.y[i]
        if y.dtype.kind == "U":
            assert self.classes is not None
            names = ", ".join(map(repr, self.classes.tolist()[:4]))
            raise ValueError(
                f"the targets are text ({names}) and no numbers yet: problem.at(federation) codes"
                " them as the loss needs; by hand, use federation.with_targets(...)."
            )
        return y.astype(np.float64, copy=False)

    # ---------------------------------------------------------------- new federations

    @checking
    def with_targets(
        self, targets: Sequence[ArrayLike], classes: ArrayLike | None = "keep"
    ) -> Federation:
        """The same rows with other targets, one (m_i,) array per client; ``classes`` stay those of
        the labels.
        """
        check.one_per_client(self.clients, targets=targets)
        y = check.targets_of(targets, self.clients)
        if not np.array_equal(_sizes(y), self.sizes):
            check.per_row("targets", y, self.clients, self.sizes.tolist())
        if isinstance(classes, str):
            return self._with(y=y)
        return self._with(y=y, classes=check.classes(y, classes, self.clients), positive=None)

    @checking
    def with_features(self, X: Sequence[Any]) -> Federation:
        """The same clients and targets with other features, one (m_i, d) array per client."""
        check.one_per_client(self.clients, X=X)
        rows, _ = check.features_of(X, self.clients, self.feature_names)
        check.rows_of(self.clients, rows, self.y, self.feature_names)
        # rows may be of any length now
        schema = None if self.schema is None else replace(self.schema, unit=False)
        return self._with(X=rows, schema=schema)

    def without_server(self) -> Federation:
        """The clients only."""
        return self._with(server=None)

    @checking
    def restrict(self, names: ClientName | Iterable[ClientName]) -> Federation:
        """The named clients only, in the order they have here."""
        wanted = self.positions([names] if isinstance(names, str | int) else names)
        return self._pick([(i, slice(None)) for i in sorted({*wanted})])

    @checking
    def split(self, test: float = 0.4, seed: int = 0) -> tuple[Federation, Federation]:
        """(train, test): a share ``test`` of every client's rows is held out, class by class where
        there are classes.

        A client with two rows or more has at least one on either side; one with a single row is in
        train only. Where ``persons`` are known, the share is of persons, and all rows of one are on
        one side.
        """
        held = held_out(self.clients, self.y, test, seed, self.classes is not None, self.persons)
        if not any(part.any() for part in held):
            raise ValueError(
                "no client has two rows or more, so nothing can be held out within a client."
            )
        return self._where(each_changed(np.logical_not, held)), self._where(held)

    def _where(self, chosen: Sequence[NDArray[np.bool_]]) -> Federation:
        """The chosen rows of every client, and only the clients that have some."""
        if isinstance(chosen, Slices) and isinstance(self.X, Slices):
            return self._sieved(chosen)
        return self._pick([(i, np.flatnonzero(c)) for i, c in enumerate(chosen) if c.any()])

    def _sieved(self, chosen: Slices) -> Federation:
        """The same of slices."""
        count = chosen.reduced(np.add, chosen.whole.astype(np.intp))
        some = np.flatnonzero(count).tolist()
        cuts = np.append(0, np.cumsum(count[some]))

        def part(values: Sequence[Any]) -> Sequence[Any]:
            if isinstance(values, Slices):
                return Slices(values.whole[chosen.whole], cuts)
            return tuple(values[i][chosen[i]] for i in some)

        return self._of(some, part)

    def _pick(self, picks: Sequence[tuple[int, Any]]) -> Federation:
        return self._of(
            [i for i, _ in picks], lambda values: in_one([values[i][rows] for i, rows in picks])
        )

    def _of(self, who: Sequence[int], part: Callable[[Sequence[Any]], Sequence[Any]]) -> Federation:
        """These clients with a part of their rows."""
        if not who:
            raise ValueError("a federation needs at least one client, got none.")
        linear = self.linear
        return self._with(
            clients=tuple(self.clients[i] for i in who),
            X=part(self.X),
            linear=None if linear is None else tuple(linear[i] for i in who),
            **self._of_rows(part),
        )

    def _of_rows(self, change: Callable[[Sequence[Any]], Sequence[Any]]) -> dict[str, Any]:
        """What else each row has, with every list over the clients changed."""
        return {
            "y": change(self.y),
            "sample_weight": None if self.sample_weight is None else change(self.sample_weight),
            "columns": {key: change(parts) for key, parts in (self.columns or {}).items()},
            "persons": None if self.persons is None else change(self.persons),
        }

    @checking
    def pooled(self, prior: ArrayLike | ByClient[float] | None = None) -> Federation:
        """All rows as the one client "pooled".

        ``prior``: None weighs all rows alike (or by their sample weights); weights over the clients
        (array in the order of ``clients``, mapping by name, "uniform" or "size") give row j of
        client i the weight q_i share_ij.
        """
        if self._dense.all():
            X = self.X[0] if self.n_clients == 1 else joined(self.X)
        else:
            from scipy.sparse import csr_array, vstack

            X = csr_array(vstack([csr_array(x) for x in self.X]))
        changes = self._of_rows(lambda parts: (joined(parts),))
        if prior is not None:
            q = check.prior(prior, self.clients, self.sizes)
            weights = [q_i * self.share(i) for i, q_i in enumerate(q)]
            changes["sample_weight"] = (np.concatenate(weights),)
        if self.linear is not None:
            changes["linear"] = (tuple(map(np.concatenate, zip(*self.linear, strict=True))),)
        return self._with(clients=("pooled",), X=(X,), **changes)


def _sizes(parts: Sequence[NDArray[Any]]) -> NDArray[np.intp]:
    """(N,) the length of each."""
    if isinstance(parts, Slices):
        return parts.sizes
    return np.array([len(part) for part in parts], np.intp)


def apart(fed: Federation, share: float, seed: int) -> tuple[Federation, Federation | None]:
    """(train, test): every row by itself is held out with probability ``share``, decided by its own
    values, or by its person's name where persons are known.

    Equal rows are on the same side, and so are those of a person. A client all of whose rows are
    held out is not in train.
    """
    if fed.persons is None:
        each = (drawn(x, y, seed) for x, y in zip(fed.X, fed.y, strict=True))
        held = [np.array([number < share * 2**64 for number in numbers]) for numbers in each]
    else:
        held = [np.array([is_held(p, share, seed) for p in who]) for who in fed.persons]
    if all(part.all() for part in held):
        raise ValueError(
            "no client has a row left to train on: give a smaller data.test, or more rows."
        )
    train = fed._where([~part for part in held])
    return train, fed._where(held) if any(part.any() for part in held) else None
