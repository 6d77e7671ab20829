"""Models seen as flat vectors: the prediction of every row and its transpose, for a block of
clients.

Where a prediction is affine in w (``convex``) a convex loss makes a convex problem, whose optimum
has a proven bound. ``mlp`` and ``torch`` hold models for which no bound can be proved.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from scipy.sparse import csr_array, hstack

from bonafed.arrays import Array, Block, each_changed, shape_of
from bonafed.data.federation import Federation
from bonafed.names import load
from bonafed.parameters import Checked


class Predictor(Protocol):
    """A model f_w, with w a flat float64 vector (D,), or (n, D) for one model per client of the
    block.

    ``start(n_features) -> (D,)``, for a model that cannot start at 0, ``pullback`` (below), and
    ``units(sizes)``, the sizes of what the entries of w multiply, may be there too.
    """

    # whether predictions are affine in w; a predictor without the attribute counts as not affine
    convex: ClassVar[bool]

    # The least and the most numbers that it can predict for a row; one without the attribute.
    @property
    def outputs(self) -> tuple[float, float]: ...

    # The model for these data: of one number a row, or one for each of so many classes.
    def sized(self, n_features: int, classes: int | None) -> "Predictor": ...

    # D.
    def dimension(self, n_features: int) -> int: ...

    # Predictions (n, m), or (n, m, C).
    def forward(self, w: Array, block: Block) -> Array: ...

    # ``sum_i s_i d f_w(x_i) / dw`` as (n, D) for s of the predictions' shape.
    def backward(self, w: Array, s: Array, block: Block) -> Array: ...

    # The first entries of w, which norms and regularisers see, and the last ones, which are free.
    def split(self, w: Array) -> tuple[Array, Array | float]: ...


def pullback(
    predictor: Predictor, w: Array, block: Block
) -> tuple[Array, Callable[[Array], Array]]:
    """Predictions, and s -> ``backward(w, s, block)``, which need not compute them again."""
    both = getattr(predictor, "pullback", None)
    if both is not None:
        return both(w, block)
    return predictor.forward(w, block), lambda s: predictor.backward(w, s, block)


def is_affine(predictor: object) -> bool:
    """Whether predictions are affine in w, as far as the predictor says so."""
    return bool(getattr(predictor, "convex", False))


def outputs_of(predictor: object) -> tuple[float, float]:
    """The least and the most numbers that it can predict for a row."""
    return getattr(predictor, "outputs", (1, 1))


def check_count(classes: int | None) -> None:
    """Raise ``ValueError`` unless it is None or a number of classes."""
    if classes is not None and (classes < 2 or not isinstance(classes, int | np.integer)):
        raise ValueError(
            f"classes must be >= 2, got {classes!r}. For one number a row use Linear() or MLP()."
        )


class OfClasses(Checked):
    """The base of predictors of one number for each of so many classes; None: those of the data."""

    classes: int | None
    fewest: ClassVar[int] = 1

    @property
    def outputs(self) -> tuple[float, float]:
        return (self.fewest, math.inf) if self.classes is None else (self.classes, self.classes)

    def sized(self, n_features: int, classes: int | None) -> Self:
        least, most = self.outputs
        if not least <= (classes or 1) <= most:
            raise ValueError(
                f"the data have {classes or 1} classes and {type(self).__name__} has {least:g}:"
                " leave classes out, or declare the federation's classes."
            )
        stated: Any = self
        return replace(stated, classes=classes)


@dataclass(frozen=True)
class Linear(Checked):
    """<w, x> + b, or <w, x> with ``fit_intercept=False``. The intercept b is the last entry of w,
    free of norms and regularisers.

    Examples
    --------
    >>> import bonafed as bf
    >>> bf.Linear().dimension(3)  # three coefficients and an intercept
    4
    >>> bf.Linear(fit_intercept=False).dimension(3)
    3
    """

    fit_intercept: bool = True
    phrase: ClassVar[str] = "linear models"
    convex: ClassVar[bool] = True
    outputs = (1, 1)

    @property
    def intercept(self) -> bool:
        """Whether the last entry of w is free of norms and regularisers."""
        return self.fit_intercept

    def sized(self, n_features: int, classes: int | None) -> "Linear":
        return self

    def dimension(self, n_features: int) -> int:
        return n_features + self.intercept

    def split(self, w: Array) -> tuple[Array, Array | float]:
        """Coefficients and intercept (0 without one)."""
        return (w[..., :-1], w[..., -1]) if self.intercept else (w, 0.0)

    def forward(self, w: Array, block: Block) -> Array:
        coefficients, b = self.split(w)
        return block.forward(coefficients) + np.asarray(b)[..., None]

    def backward(self, w: Array, s: Array, block: Block) -> Array:
        gradient = block.backward(s)
        if not self.intercept:
            return gradient
        return np.concatenate([gradient, s.sum(1, keepdims=True)], 1)

    def units(self, sizes: Array) -> Array:
        """The size (..., D) of what each entry of w multiplies, for features of sizes (..., d)."""
        return with_one(sizes) if self.intercept else sizes

    def gram(self, s: Array, block: Block) -> Array:
        """``sum_i s_i x_i x_i'`` over the whole block as (D, D), with x_i extended by 1 for an
        intercept.
        """
        return block.gram(s, one=self.intercept)

    def grams(self, s: Array, block: Block) -> Array:
        """``X_i' diag(s_i) X_i`` of every client, (n, D, D), with rows extended by 1 for an
        intercept.
        """
        square = block.grams(s)
        if not self.intercept:
            return square
        edge = block.backward(s)[:, :, None]
        return np.block([[square, edge], [edge.transpose(0, 2, 1), s.sum(1)[:, None, None]]])


@dataclass(frozen=True)
class Softmax(OfClasses):
    """<w_c, x> + b_c for every class c; w is the (d + 1, C) matrix of coefficients, row by row: C
    numbers a feature, and the C intercepts.

    The intercepts are the coefficients of a feature of ones, which ``problem.at(fed)`` appends to
    the data, and are regularised as all others.

    Parameters
    ----------
    classes : C; None: the number of classes of the data, set by ``problem.at(fed)``
    fit_intercept : whether there are intercepts; without them w is (d, C)
    ones : whether the last feature of the rows is one of ones, so that its coefficients are the
        intercepts: a worst case moves all features but that one

    Examples
    --------
    >>> import bonafed as bf
    >>> bf.Softmax(classes=4).dimension(3)  # for three features and an intercept
    16
    """

    classes: int | None = None
    fit_intercept: bool = True
    ones: bool = False
    fewest: ClassVar[int] = 2
    intercept: ClassVar[bool] = False  # no entry of w is free of norms and regularisers
    phrase: ClassVar[str] = "softmax models, one linear score a class"
    convex: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count(self.classes)
        if self.fit_intercept and self.ones:
            raise ValueError(
                "Softmax(ones=True) has its intercepts as coefficients of the last feature: give"
                " fit_intercept=False too."
            )

    def dimension(self, n_features: int) -> int:
        if self.classes is None:
            raise ValueError(
                "Softmax() knows its classes from the data: use problem.at(fed), or give"
                " Softmax(classes)."
            )
        return (n_features + self.fit_intercept) * self.classes

    def split(self, w: Array) -> tuple[Array, float]:
        """Coefficients, and no free intercept."""
        return w, 0.0

    def matrix(self, w: Array, n_features: int) -> Array:
        """w with its last axis as (d, C), or (d + 1, C) with the intercepts."""
        return w.reshape(*w.shape[:-1], n_features + self.fit_intercept, -1)

    def forward(self, w: Array, block: Block) -> Array:
        d = block.n_features
        matrix = self.matrix(w, d)
        coefficients = matrix[..., :d, :]
        if isinstance(block.X, np.ndarray):
            scores = np.matmul(block.X, coefficients)
        else:
            rows = block.X if w.ndim == 1 else block.apart
            scores = np.asarray(rows @ coefficients.reshape(-1, coefficients.shape[-1]))
            scores = scores.reshape(*block.y.shape, -1)
        return scores + matrix[..., d:, :] if self.fit_intercept else scores

    def backward(self, w: Array, s: Array, block: Block) -> Array:
        d = block.n_features
        if isinstance(block.X, np.ndarray):
            gradient = np.matmul(block.X.transpose(0, 2, 1), s)
        else:
            gradient = np.asarray(block.across @ s.reshape(-1, s.shape[-1]))
            gradient = gradient.reshape(len(s), d, -1)
        if self.fit_intercept:
            gradient = np.concatenate([gradient, s.sum(1, keepdims=True)], 1)
        return gradient.reshape(len(s), -1)

    def units(self, sizes: Array) -> Array:
        """The size (..., D) of what each entry of w multiplies, for features of sizes (..., d)."""
        sizes = with_one(sizes) if self.fit_intercept else sizes
        return np.repeat(sizes, self.classes or 1, axis=-1)


def with_one(sizes: Array) -> Array:
    """The sizes with a 1 at the end of the last axis, that of the feature of an intercept."""
    return np.concatenate([sizes, np.ones((*sizes.shape[:-1], 1))], -1)


# The prediction function of a model, and its values on the rows of a table.

Rows = Array | csr_array


def predictor(keys: Mapping[str, Any]) -> Predictor:
    """The predictor that [problem] of a configuration, or a saved model's metadata, describes."""
    cls = load("model", keys.get("model", "linear"))
    names = [field.name for field in fields(cls) if field.name != "classes"]
    values = {name: keys[name] for name in names if keys.get(name) is not None}
    if "fit_intercept" in names:  # data that go with a softmax model have a feature of ones
        values["fit_intercept"] = keys.get("intercept", True) and "ones" not in names
    return cls(**values)


def scores(model: Predictor, w: Array, X: Rows) -> Array:
    """The predictions of the rows X: (m,), or one number a class (m, C)."""
    m, rows = shape_of(X)[0], X[None] if isinstance(X, np.ndarray) else X
    block = Block(rows, np.zeros((1, m)), np.full((1, m), 1 / m), np.array([0]), ("",))
    return model.forward(w, block)[0]


def with_ones(X: Rows) -> Rows:
    """X and a last column of ones."""
    ones = np.ones((shape_of(X)[0], 1))
    if isinstance(X, np.ndarray):
        return np.hstack([X, ones])
    return csr_array(hstack([X, ones], format="csr"))


def federation_with_ones(fed: Federation) -> Federation:
    """The federation with a last feature of ones, which stands for the intercepts of several
    classes.
    """
    names = None if fed.feature_names is None else (*fed.feature_names, "1")
    return fed._with(X=each_changed(with_ones, fed.X), feature_names=names)
