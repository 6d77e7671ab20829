"""What ``solve`` returns: a model that predicts, why its run ended, and what is guaranteed of it.

It keeps no row of a client, so that it may be saved and handed on as far as its text may.

Of a private run only the public part may leave the owners of the data: numbers that are public, and
answers with noise, which the budget pays for.

In a file values are bytes of the codec of the wire, so that no code is stored or run. A value of a
class that `names.py` lists, or of one in ``MORE``, is stored as the place of its class and its
fields, and made again by calling the class, whose checks then apply. What holds Python code (a
function, a torch module, an object of a class of the user's) is stored as a description only.
"""

import enum
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Self, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed.arrays import Array
from bonafed.certificates.certificate import Certificate
from bonafed.codec import FIELDS, CodecError, decode, encode
from bonafed.data.federation import Federation
from bonafed.data.schema import Schema
from bonafed.engines.run_record import Log
from bonafed.names import listed_places, of_place
from bonafed.parameters import checking, checking_methods
from bonafed.privacy.accounting import Release
from bonafed.privacy.ledger import Ledger
from bonafed.privacy.moments import Moments
from bonafed.problem.calibration import Sigmoid
from bonafed.problem.losses import expected
from bonafed.problem.lower_bounds import Duals, Multipliers
from bonafed.problem.predictors.affine import Rows, scores
from bonafed.problem.predictors.torch_module import TorchPredictor
from bonafed.problem.problem import Problem, checked_model
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.rounds import Outcome
from bonafed.solution import predictions
from bonafed.solution.outcome import public_outcome
from bonafed.solution.plots import Kind, plotted
from bonafed.solution.predictions import Inputs, Rated, decisions
from bonafed.solution.tables import Records, Table, frame
from bonafed.solution.trivial import Triviality
from bonafed.storage import write_whole
from bonafed.text import card, in_words, listed, shown
from bonafed.text import described as as_text
from bonafed.worst_client import CONFIDENCE

if TYPE_CHECKING:
    from bonafed.drawing import Axes


# columns of the history that follow from public numbers and noisy answers
HISTORY = ("round", "rho", "step", "clip", "gap", "noise", "bytes_up", "bytes_down")
# of private rounds
MESSAGES = ("Bent", "Perturb", "Perturbed", "Blur", "Blurred", "Trim", "Trimmed")
# what a solution has and its public part has not, and where it comes from
WITHHELD = {
    "duals": "they are computed from the rows without noise",
    "certificate": "it is computed from the rows without noise",
    "notes": "they tell of the rows",
    "seconds": "times follow the rows",
    "copies": "they are the clients' own",
    "state": "it is kept where the run was",
    "tries": "they tell of the rows",
    "constraints": "they are measured on the rows without noise",
    "log": "who answered when follows the rows",
    "trivial": "it is judged on the rows without noise",
}


def public_history(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The columns of every round that may leave the owner."""
    return [{key: row[key] for key in HISTORY if key in row} for row in rows]


def public_messages(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages of the rounds, without those of the certificate."""
    return [{**row} for row in rows if row["message"] in MESSAGES]


LEFT_OUT = ("state",)  # fields that a file has not: the server's state is what a checkpoint keeps
# what stands where a public part has nothing
BLANK: dict[str, Any] = {"duals": None, "certificate": None, "notes": (), "seconds": 0.0}


@checking_methods
@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """A model, why the run ended, and what is guaranteed about it.

    Attributes
    ----------
    problem : as stated
    w : (D,) the model
    duals : what proves the bound, or None
    outcome : ``outcome.stop`` and, in words, ``outcome.text``
    rounds : finished rounds
    history : one row a round
    certificate : recomputed independently of the algorithm; None of a private run across sites
    clients : one row a client
    ledger : of a private run, what every client has spent; None else. Such a run's certificate,
        clients, notes and seconds come from the rows themselves: they are for the owners, and no
        guarantee covers them; `public` is the solution without them
    messages : counts and bytes by message type and direction, certification included. Not counted
        are the sums over clients of ``radius="auto"`` and its pilot model, of ``calibration`` and
        of ``trivial``
    notes : warnings about the problem and the data
    seconds : wall time of the whole solve
    copies : (N, D) clients' copies of the model, where the algorithm keeps them
    state : the server's last state; its models are of the rows less ``duals.centre`` where there is
        one
    tries : for methods with several starts, one row a start
    constraints : one row for every constraint and owner: limit, measured, slack, price (0 if
        infeasible), met
    calibration : makes probabilities of the scores of a classifier of two classes; None of a
        private run, of regression and of several classes
    trivial : why the model is no better than a constant, and None where it is; of a private run for
        the owners only
    log : of an asynchronous engine, who answered when; ``Replay(log)`` repeats the run
    inputs : names of features and classes, and how a table becomes features
    moments : of a private run for inference, what `private_intervals` are computed from

    Examples
    --------
    >>> import numpy as np, bonafed as bf
    >>> X = np.random.default_rng(0).normal(size=(90, 2))
    >>> y = np.where(X[:, 0] > 0.5, "ill", "well")
    >>> fed = bf.Federation.from_arrays(X, y, np.repeat(["a", "b", "c"], 30))
    >>> problem = bf.Problem(bf.Logistic(), bf.Linear(fit_intercept=True), regulariser=bf.L2(0.01))
    >>> solution = bf.solve(problem, fed)
    >>> solution.predict(X[:2]).tolist()
    ['well', 'ill']
    >>> [row["client"] for row in solution.evaluate(fed)]
    ['a', 'b', 'c', 'all clients']
    """

    problem: Problem
    w: Array
    duals: Duals | Multipliers | None
    outcome: Outcome
    rounds: int
    history: list[dict[str, Any]]
    certificate: Certificate
    clients: Records | list[dict[str, Any]]
    messages: list[dict[str, Any]]
    notes: tuple[str, ...]
    seconds: float
    ledger: Ledger | None = None
    copies: Array | None = None
    state: Any = None
    tries: list[dict[str, Any]] = field(default_factory=list)
    constraints: list[dict[str, Any]] = field(default_factory=list)
    log: Log | None = None
    calibration: Sigmoid | None = None
    inputs: Inputs = field(default_factory=lambda: Inputs(()))
    trivial: Triviality | None = None
    moments: Moments | None = None

    # ------------------------------------------------------------------------------- predictions

    def decision_function(self, X: Rated, unknown: str = "error") -> Array:
        """The scores of rows: (m,), above 0 where the last of two classes is predicted, or (m, C).

        Parameters
        ----------
        X : (m, d) array or sparse matrix of features; or a table (pandas, polars, Arrow, a mapping
            of columns), whose columns are found by name in any order and become features by the
            schema of the federation, where it had one
        unknown : what becomes of a category that the schema does not have: "error", or "ignore" for
            zeros
        """
        self._of_classes("decision_function")
        return decisions(self._scores(X, unknown))

    def predict(self, X: Rated, unknown: str = "error") -> NDArray[Any]:
        """(m,) the predicted class of each row, or of a regression its number, of Poisson() the
        expected count; X as in `decision_function`.
        """
        return self.inputs.labels(expected(self.problem.loss, self._scores(X, unknown)))

    def predict_proba(self, X: Rated, unknown: str = "error") -> Array:
        """(m, C) the probabilities of the classes, in the order of ``inputs.classes``; X as in
        `decision_function`. Those of two classes are calibrated, see ``calibration``.
        """
        self._of_classes("predict_proba")
        scored = self._scores(X, unknown)
        return predictions.probabilities(scored, self.problem.loss, self.calibration)

    def score(self, X: Rated, y: ArrayLike | str) -> float:
        """The accuracy on rows with the targets y, (m,) or the name of their column in the table X;
        of a regression R2.
        """
        scores, truth = expected(self.problem.loss, self._scores(X)), predictions.targets(X, y)
        return predictions.score(scores, truth, self.inputs)

    def evaluate(self, fed: Federation, *, confidence: float = CONFIDENCE) -> Table:
        """The figures that people judge a model by (``bonafed.measures``): one row for each client
        of a federation, and one for all of their rows together.

        Its ``text`` says what holds of new rows at every client with this ``confidence``, and
        columns such as ``accuracy_at_least`` what holds in all lines of the table at once
        (``bonafed.worst_client``); both are for rows that had no part in training or in a choice.

        Of classes: accuracy, balanced accuracy, recall, precision, AUC, Brier score, log loss,
        counts, and exact 95 % intervals of the rates. Of a regression: MAE, RMSE, R2. ``small``
        marks clients whose figures are mostly chance. ``.frame()`` makes a data frame of it.
        """
        if not 0 < confidence < 1:
            raise ValueError(f"confidence must lie between 0 and 1, such as .95, got {confidence}.")
        self._of_rows()
        of_model = self._forward, self.inputs, self.problem.loss, self.calibration
        return predictions.evaluated(self.inputs.aligned(fed), *of_model, confidence)

    @property
    def module(self) -> Any:
        """The trained torch module, a copy of the one that ``TorchPredictor`` was given."""
        if not isinstance(self.problem.predictor, TorchPredictor):
            raise TypeError(
                f"the model is {shown(self.problem.predictor)} and no torch module: its parameters"
                " are solution.w."
            )
        return self.problem.predictor.trained(self.w)

    def _scores(self, X: Rated, unknown: str = "error") -> Array:
        self._of_rows()
        return self._forward(self.inputs.features(X, unknown))

    def _forward(self, features: Rows) -> Array:
        classes = self.inputs.classes if self.problem.loss.targets == "class" else None
        model: Any = self.problem.predictor
        if hasattr(model, "sized"):
            model = model.sized(len(self.inputs.feature_names), classes and len(classes))
        return scores(model, self.w, features)

    def _of_rows(self) -> None:
        if self.problem.loss.targets == "quadratic":
            raise TypeError(
                "the clients of Quadratic() hold no rows, so there is nothing to predict: the"
                " optimum is solution.w."
            )

    def _of_classes(self, name: str) -> None:
        if self.inputs.classes is None:
            self._of_rows()
            raise TypeError(
                f"{name} is for classes, and the model predicts numbers: use solution.predict(X)."
            )

    # ------------------------------------------------------------------------------------ tables

    def clients_frame(self, backend: str | None = None) -> Any:
        """``clients`` as a data frame of "pandas", "polars" or "pyarrow"; None: the first of them
        that is installed.
        """
        return frame(self.clients, backend)

    def history_frame(self, backend: str | None = None) -> Any:
        """``history`` as a data frame, as `clients_frame` does."""
        return frame(self.history, backend)

    def plot(self, kind: Kind | None = None, *, axes: "Axes | Sequence[Axes] | None" = None) -> Any:
        """Draw the run with matplotlib.

        Parameters
        ----------
        kind : "convergence" (the gap by round, or where there is none the residual or objective),
            "clients" (their mean losses and risks), "weights" (of the clients, at the model);
            None: all three
        axes : to draw on, one for a kind, three for None; None: a new figure of pyplot

        Returns
        -------
        the axes: one for a kind, a list of three for None
        """
        ball = isinstance(self.problem.over_samples, WassersteinBall)
        risk = "worst-case loss" if ball else "risk in the problem"
        proof = getattr(self, "certificate", None)  # a public part has none
        return plotted(kind, axes, self.history, self.clients, proof, risk)

    # ------------------------------------------------------------------------------ files, texts

    @property
    def value(self) -> float | None:
        """The objective at the model, as its certificate has it; None where it has none."""
        return self.certificate and self.certificate.value

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the solution to a file, in one step, for ``bonafed.load``.

        The file holds numbers and texts and no code: of functions and torch modules in the problem
        it has a description, and ``load(path, problem=problem)`` needs them again. The server's
        ``state`` is left out. Of a private solution the file has the public part only.
        """
        part = self.public()
        left_out = (*LEFT_OUT, *WITHHELD) if self.private else LEFT_OUT
        kept = {f.name: getattr(part, f.name) for f in fields(part) if f.name not in left_out}
        problem = kept.pop("problem")
        slots = {slot.name: described(getattr(problem, slot.name)) for slot in fields(problem)}
        values = {"problem": slots, "solution": {k: described(v) for k, v in kept.items()}}
        with in_words(path):
            write_whole(Path(path), encode({"what": FORMAT, **values}))

    @property
    def private(self) -> bool:
        """Whether the run had a privacy budget: then a part of the solution is for the owners of
        the rows only.
        """
        return self.problem.privacy is not None and self.ledger is not None

    def public(self) -> "Solution":
        """What may leave the owners of the rows: of a private run the model, the history, ledger
        and messages, all of them public numbers or answers with noise, which the budget pays for;
        of any other run all of it.

        The rest is not in it: duals, certificate, clients' copies, state, log, notes and seconds
        come from the rows themselves, and to ask for one raises ``AttributeError``, which says so.
        A file, a pickle and the text of a private solution are those of its public part.

        Examples
        --------
        >>> import numpy as np, bonafed as bf
        >>> X = np.random.default_rng(0).uniform(-1, 1, (400, 2))
        >>> fed = bf.Federation.from_arrays(X, np.sign(X[:, 0]), np.repeat(["a", "b"], 200))
        >>> problem = bf.Problem(bf.Logistic(), privacy=bf.Budget(1.0, 1e-6, sizes=200))
        >>> solution = bf.solve(problem, fed, max_rounds=20)
        >>> part = solution.public()
        >>> bool((part.w == solution.w).all()), hasattr(part, "certificate")
        (True, False)
        """
        if not self.private or self.ledger is None:
            return self
        budget = replace(self.ledger.budget, book=None)  # a path of the owner's machine
        part = object.__new__(PublicSolution)  # with no attribute beside these
        vars(part).update(
            {key: getattr(self, key) for key in ("w", "rounds", "inputs", "moments")},
            problem=replace(self.problem, privacy=budget),
            outcome=public_outcome(self.outcome, self.rounds),
            history=public_history(self.history),
            clients=[{"client": client, "n": n} for client, n in self.ledger.sizes.items()],
            messages=public_messages(self.messages),
            ledger=replace(self.ledger, budget=budget),
            calibration=None,
        )
        return part

    def __reduce_ex__(self, protocol: Any) -> Any:
        """What a pickle holds: of a private solution the public part only."""
        part = self.public()
        return super().__reduce_ex__(protocol) if part is self else (_itself, (part,))

    def __copy__(self) -> Self:  # no pickle: a copy stays in the process, and is whole
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        memo[id(self)] = copied = object.__new__(type(self))
        vars(copied).update(deepcopy(vars(self), memo))
        return copied

    def _facts(self) -> list[tuple[str, str]]:
        """What it is, for people: names and values."""
        part, names = self.public(), self.inputs.feature_names
        trivial = getattr(part, "trivial", None)  # a public part has none
        zeros = int((self.w == 0).sum())
        model = f"{len(self.w):,} coefficients" + f", {zeros:,} of them 0" * bool(zeros)
        model += f"; features {listed(names, len(names))}" * bool(names)
        if self.inputs.classes is not None:
            model += f"; classes {listed(self.inputs.classes, len(self.inputs.classes))}"
        clients = f"{len(part.clients)} with {sum(row['n'] for row in part.clients):,} rows"
        facts = [("warning", trivial.text)] if trivial is not None else []
        facts += [("outcome", part.outcome.text), ("problem", part.problem.in_words())]
        if self.private and self.ledger is not None:
            facts.append(("privacy", self.ledger.text))
        else:
            facts.append(("value", self.certificate.in_words()))
            worst = max(part.clients, key=lambda row: row["weight"])
            alike = worst["weight"] - min(row["weight"] for row in part.clients) <= 1e-9
            has = "as all others the" if alike else "the largest"
            clients += f"; client {shown(worst['client'], 40)} has {has} weight"
            clients += f" {worst['weight']:.3g}, and mean loss {worst['loss']:.4g}"
        return [*facts, ("model", model), ("clients", clients)]

    def __repr__(self) -> str:
        return as_text(f"Solution: {self.outcome.stop.value}", self._facts())

    def _repr_html_(self) -> str:
        return card(f"Solution: {self.outcome.stop.value}", self._facts())


class PublicSolution(Solution):
    """The public part of a private solution, see ``Solution.public``: it has no attribute of what
    the budget does not pay for.
    """

    def __getattribute__(self, name: str) -> Any:
        if name not in WITHHELD:
            return super().__getattribute__(name)
        raise AttributeError(
            f"the public part of a private solution has no {name}: {WITHHELD[name]}, and the"
            " privacy budget does not pay for that. The rows' owners have it, in the process in"
            f" which solve(...) ran: solution.{name}. Files and pickles have the public part only."
        )

    def public(self) -> "PublicSolution":
        """Itself."""
        return self


def _itself(part: PublicSolution) -> PublicSolution:
    """A pickle of a private solution is this function and its public part."""
    return part


FORMAT = "bonafed solution 1"
MORE = {f"{cls.__module__}:{cls.__name__}": cls for cls in (Inputs, Release)}


class HoldsCodeError(Exception):
    """A value holds Python code, which no file holds."""


@dataclass(frozen=True)
class Absent:
    """In the place of a value that a file does not hold, and what it is."""

    description: str


def packed(value: Any) -> Any:
    """The value as the codec takes it.

    Raises
    ------
    HoldsCodeError : where it, or a part of it, is code
    """
    plain = type(value) in (type(None), bool, int, str, float, *FIELDS)
    if plain or isinstance(value, enum.Enum | np.generic):
        return value
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in "biufc" else ("texts", *map(packed, value.tolist()))
    if type(value) is tuple or isinstance(value, list | Records):
        return ("tuple" if type(value) is tuple else "list", *map(packed, value))
    if isinstance(value, Mapping):
        return ("map", *((packed(key), packed(part)) for key, part in value.items()))
    if isinstance(value, Absent):
        return ("absent", value.description)
    if isinstance(value, os.PathLike):
        return ("path", os.fspath(value))
    if isinstance(value, Schema):
        return ("schema", packed(value.to_dict()))
    place = f"{type(value).__module__}:{type(value).__qualname__}"
    if not is_dataclass(value) or not (place in MORE or place in listed_places()):
        raise HoldsCodeError
    kept = {f.name: packed(getattr(value, f.name)) for f in fields(value) if f.init}
    return ("object", place, kept)


def described(value: Any) -> Any:
    """The value packed, or what it is where it is code."""
    try:
        return packed(value)
    except HoldsCodeError:
        return packed(Absent(shown(value)))


def unpacked(value: Any) -> Any:
    """The inverse of `packed`; raises ``ValueError`` or ``TypeError`` for what it never makes."""
    if not isinstance(value, tuple):
        if isinstance(value, dict):
            raise ValueError("a mapping outside an object")
        return value
    tag, *parts = value
    if tag == "object":
        place, kept = parts
        cls = MORE.get(place) or of_place(place)
        known = [f.name for f in fields(cls) if f.init]
        if {*kept} != {*known}:
            raise ValueError(f"{cls.__name__} has the fields {sorted(known)}")
        # by place: one class calls its parameter otherwise than its field
        return cls(*(unpacked(kept[name]) for name in known))
    if tag == "map":
        return {unpacked(key): unpacked(part) for key, part in parts}
    return MAKERS[tag](map(unpacked, parts))


MAKERS: dict[str, Callable[[Any], Any]] = {
    "list": list,
    "tuple": tuple,
    "texts": lambda parts: np.array([*parts]),
    "absent": lambda parts: Absent(*parts),
    "schema": lambda parts: Schema.from_dict(*parts),
    "path": lambda parts: Path(*parts),
}


def _stored(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The packed values in a file; raises as `load` does."""
    if Path(path).is_dir():
        raise ValueError(
            f"{path} is a folder: a solution is a file that solution.save(path) wrote. The model of"
            " a run's folder predicts by `bonafed predict`."
        )
    try:
        with in_words(path):
            values = decode(Path(path).read_bytes())
    except CodecError as error:
        raise ValueError(
            f"{path} is not a solution that solution.save(path) wrote, or it was changed since:"
            f" {error}"
        ) from error
    if not isinstance(values, dict) or values.get("what") != FORMAT:
        held = shown(values.get("what")) if isinstance(values, dict) else type(values).__name__
        raise ValueError(
            f"{path} holds no {FORMAT!r}, but {held}: give a file that solution.save(path) wrote."
        )
    return values


@checking
def load(path: str | os.PathLike[str], *, problem: Problem | None = None) -> Solution:
    """The solution that ``solution.save(path)`` wrote. No code in the file is run.

    Parameters
    ----------
    problem : as it was solved; needed where it holds Python code, such as a torch module or a
        function, of which the file has a description only

    Raises
    ------
    ValueError
        for a file that was damaged or changed, that holds something else or comes from a newer
        bonafed, and where ``problem`` is needed or is another one
    OSError
        for a file that cannot be read

    Examples
    --------
    >>> import numpy as np, bonafed as bf
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> fed = bf.Federation.from_arrays(X, np.sign(X[:, 0]), np.repeat(["a", "b"], 30))
    >>> solution = bf.solve(bf.Problem(bf.Logistic(), regulariser=bf.L2(0.01)), fed)
    >>> solution.save("model.solution")
    >>> bool((bf.load("model.solution").predict(X) == solution.predict(X)).all())
    True
    """
    return stated_in(path, problem).public()


def stated_in(path: str | os.PathLike[str], problem: Problem | None = None) -> Solution:
    """What the file of ``load`` states, with None and nothing for what a public part has not."""
    values = _stored(path)
    with _made_of(path):
        slots = {name: unpacked(part) for name, part in values["problem"].items()}
        kept = {name: unpacked(part) for name, part in values["solution"].items()}
    stated = _problem(path, slots, values["problem"], problem)
    with _made_of(path):
        blank = BLANK if kept.get("ledger") is not None else {}  # a public part has not all
        solution = Solution(problem=stated, **dict.fromkeys(LEFT_OUT), **{**blank, **kept})
        _check(solution)
        repr(solution)
    return solution


@contextmanager
def _made_of(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever an object raises that is made of a file's values is about that file."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise ValueError(
            f"{path} holds what no solution of this bonafed has ({error}): restore it from a copy,"
            " or update bonafed."
        ) from error


def _problem(
    path: str | os.PathLike[str], slots: dict[str, Any], raw: Any, given: Problem | None
) -> Problem:
    """The problem in the file, or the one that is given, which has to be the same."""
    code = {name: value.description for name, value in slots.items() if isinstance(value, Absent)}
    if given is None:
        for name, description in code.items():
            raise ValueError(
                f"the {name} of the problem is {description}: Python code, which {path} does not"
                " hold. Give it again: bonafed.load(path, problem=problem)."
            )
        with _made_of(path):
            return Problem(**slots)
    for name in (slot.name for slot in fields(Problem) if slot.name not in code):
        if encode((described(getattr(given, name)),)) != encode((raw.get(name),)):
            raise ValueError(
                f"the problem that is given has another {name} than the one in {path}, which is"
                f" {shown(slots.get(name))}: give the problem that was solved."
            )
    return given


def _check(solution: Solution) -> None:
    """Raise ``ValueError`` or ``TypeError`` unless the parts are what they should be and fit."""
    for name, hint in get_type_hints(Solution).items():
        # an object's own checks say what a problem is; w is checked below
        if name in ("problem", "w", *LEFT_OUT):
            continue
        value, union = getattr(solution, name), get_origin(hint) in (Union, UnionType)
        kinds = [get_origin(part) or part for part in (get_args(hint) if union else (hint,))]
        kinds += [type(None)] * (name == "certificate" and solution.private)
        if not isinstance(value, tuple(kinds)):
            raise TypeError(f"{name} is a {type(value).__name__}")
        if list in kinds and not all(isinstance(row, dict) for row in value):
            raise TypeError(f"{name} has a row that is not a table's")
    if not isinstance(solution.w, np.ndarray) or solution.w.dtype != np.float64:
        raise TypeError("w is not an array of float64")
    checked_model(solution.w, len(solution.w))
    if solution.problem.loss.targets != "quadratic":
        solution.predict(np.zeros((1, len(solution.inputs.feature_names))))
