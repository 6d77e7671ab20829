"""What a solve is going to do, settled before it begins: the problem, the method, the engine.

    plan(problem, data) -> Plan     run(plan, engine) -> Finished     conclude(finished) -> Solution

The data are a `Federation` whose rows are here, or the `Metadata` of one whose rows are with their
owners; the three steps are the same. Where no method is named, it is the first in the order of
`preferred` that takes the problem.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import numpy as np
from scipy.sparse import issparse

from bonafed.algorithms.alternatives import check_requirements, taking
from bonafed.algorithms.federated.async_dro import AsyncDRO
from bonafed.algorithms.federated.bundle.async_bundle import AsyncBundle
from bonafed.algorithms.federated.bundle.bundle import Bundle, over_sites
from bonafed.algorithms.federated.bundle.masked_bundle import MaskedBundle, masked
from bonafed.algorithms.federated.interior_point import InteriorPoint
from bonafed.algorithms.federated.kinks import KinkInteriorPoint
from bonafed.algorithms.federated.multiplier_method import MultiplierMethod
from bonafed.algorithms.federated.private_newton import PrivateNewton, matrix_error
from bonafed.algorithms.federated.private_sgd import PrivateSGD
from bonafed.algorithms.federated.proximal_al.proximal_al import ProximalAL
from bonafed.algorithms.federated.rank_rows import RankBundle, RankInteriorPoint
from bonafed.algorithms.federated.row_multipliers import RowMultiplierMethod
from bonafed.algorithms.method import Answer, Method, settings_of
from bonafed.algorithms.pooled.rank_admm import RankADMM
from bonafed.algorithms.requirements import Setting
from bonafed.arrays import Array, is_number
from bonafed.certificates.duality import Certification
from bonafed.data.federation import Federation
from bonafed.engines.engine import Engine
from bonafed.engines.inprocess import InProcess
from bonafed.engines.network import Network
from bonafed.privacy.accounting import noise_for
from bonafed.privacy.secure_sum.messages import option_of
from bonafed.problem.centring import Centred, centred
from bonafed.problem.losses import Squared
from bonafed.problem.metadata import Metadata
from bonafed.problem.own_functions import check_own
from bonafed.problem.parts import has_smooth_part
from bonafed.problem.problem import Problem, only_constrained
from bonafed.problem.regularisers import L2, Zero
from bonafed.problem.risks.weight_sets import Mean, Sum
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.solution.thresholds import settled

READABLE = 0.5  # the error of a matrix, `matrix_error`, up to which Newton steps are the default
SMALL = 500  # coefficients up to which second-order steps are the default
SOLVED = 1_500  # the same, where a system of them is solved some twenty times
THIN = 500  # and of rows that are sparse
LONG = 500  # rows for every coefficient, from which rounds of gradients are for kinks
TALL = 4  # and below which an ADMM on one client's rows is
SPARE = 1.25  # up to which that ADMM is faster for smooth objectives too
ROUNDS = 5_000  # of all clients at once, at most, where nothing can be proved
CELLS = 100_000  # of the tables, from which on many rounds of gradients cost less than few Hessians
WIDE = 200  # coefficients from which on they do so however far the clients' weights move
LITTLE = 0.6  # by which they raise risks that are even from -1 to 1, where they move little
FLAT = 50_000  # rows squared for each coefficient, up to which free ones are nearly undetermined
FAR = 400  # of these, from which on rounds of gradients come before the first Hessian
SEVERAL = 1_000  # clients up to which they do so for few coefficients
# coefficients up to which rounds of gradients are in the metric of second derivatives, and numbers
# in a table whose memory does not matter
MATRIX, LIGHT = 2_000, 2_500_000
FEW = 100  # clients up to which the server solves a program for every answer by default
CROWD = 20_000  # and up to which it does so for all answers at once


@dataclass(frozen=True)
class Plan:
    """What a solve is going to do.

    Attributes
    ----------
    problem : as stated, with its radius settled
    data : as given: rows, or what is known of them
    concrete, coded : the problem with arrays for this data, and the data as it reads them
    method : the algorithm with the concrete problem of the run
    engine : that runs it
    rows : the data of the run: the coded ones, or centred ones
    centre : how these are centred, or None
    """

    problem: Problem
    data: Federation | Metadata
    concrete: Problem
    coded: Federation | Metadata
    method: Method
    engine: Engine
    rows: Federation | Metadata
    centre: Centred | None = None

    def over_rows(self, method: Method) -> Method:
        """A configured method as it runs over these rows."""
        if self.centre is None:
            return method
        changes: Any = {"problem": self.problem.at(self.centre.fed)[0]}
        if (start := settings_of(method).get("start")) is not None:
            changes |= {"start": self.centre.turned(start)}
        return replace(method, **changes)  # type: ignore[type-var]

    def as_stated(self, answer: Answer) -> Answer:
        """What a run answers, as of the rows as they are given."""
        if self.centre is None:
            return answer
        proofs = {name: getattr(answer, name) for name in ("duals", "multipliers")}
        told = {k: replace(v, centre=self.centre.mean) for k, v in proofs.items() if v is not None}
        models = {name: getattr(answer, name) for name in ("w", "copies")}
        turned = {k: self.centre.turned(v, True) for k, v in models.items() if v is not None}
        return answer._replace(**told, **turned)


def read_with_sums(problem: Problem) -> str:
    """What a server reads of every client in a run with secure sums, beside sums over them."""
    sums = isinstance(problem.over_clients, Mean | Sum)
    each = {**({} if sums else MaskedBundle.readable), **Certification.readable}
    return (
        "with secure sums the server reads of every client, beside sums over all,"
        f" {'; '.join(each.values())}; and its figures on held-out rows"
    )


class Settings(TypedDict, total=False):
    """What `bonafed.solve` may be given beside the problem and the data."""

    algorithm: Method | None
    engine: Engine | None
    tol: float | None
    atol: float | None
    max_rounds: int | None
    start: Array | None


def plan(problem: Problem, data: Federation | Metadata, **settings: Unpack[Settings]) -> Plan:
    """Settle everything that a solve needs, or raise where it cannot be done.

    Parameters
    ----------
    data : the rows by client, or the `Metadata` of rows that are elsewhere
    settings : as of `bonafed.solve`
    """
    given = {"engine": InProcess(), **{k: v for k, v in settings.items() if v is not None}}
    engine: Any = given["engine"]
    problem = settled(problem, data)
    concrete, coded = problem.at(data)
    if isinstance(coded, Federation):  # no functions travel to sites
        check_own(concrete, coded)
    chosen: Any = given.pop("algorithm", None) or default_algorithm(concrete, coded, engine)
    method = configure(chosen, concrete, coded, **given)
    made = Plan(problem, data, concrete, coded, method, engine, coded)
    # a private method looks at no row, and a comparator's or a paper's is as it is
    as_given = method.requirements.private or method.advised
    if as_given or (centre := centred(problem, data)) is None:
        return made
    made = replace(made, rows=problem.at(centre.fed)[1], centre=centre)
    return replace(made, method=made.over_rows(method))


def setting_of(fed: Federation | Metadata, engine: Engine | None = None) -> Setting:
    """What algorithms may know of the data and the engine before they run."""
    asynchronous = bool(getattr(engine, "asynchronous", False))
    rows, sparse = 0, False
    if isinstance(fed, Federation) and not isinstance(engine, Network):
        rows, sparse = int(np.sum(fed.sizes)), issparse(fed.X[0])
    return Setting(fed.n_clients, fed.alike, asynchronous, has_secure_sum(engine), rows, sparse)


def has_secure_sum(engine: object) -> bool:
    """Whether the server of an engine reads sums over the clients only."""
    return option_of(getattr(engine, "secure_sum", None)) is not None


def needs_secure_sum(problem: Problem) -> bool:
    """Whether the guarantee of a problem is for anyone who sees the clients' sums only, so that
    their single answers must be secret.
    """
    return problem.privacy is not None and problem.privacy.view == "sum"


def configure(
    algorithm: Method,
    problem: Problem,
    fed: Federation | Metadata,
    tol: float | None = None,
    atol: float | None = None,
    max_rounds: int | None = None,
    start: Array | None = None,
    engine: Engine | None = None,
) -> Any:
    """The algorithm with the concrete problem and the caller's overrides; in its place what it is
    where the engine has a secure sum (``MaskedBundle`` for ``Bundle``), or where clients are sites
    (``Bundle(metric="secant")``).

    Raises
    ------
    RefusedError
        where the algorithm does not take the problem, with what would do
    ValueError, TypeError
        for settings out of range, and settings that the algorithm does not have
    """
    _check_method(algorithm)
    overrides = {"tol": tol, "atol": atol, "max_rounds": max_rounds, "start": start}
    overrides = {name: value for name, value in overrides.items() if value is not None}
    known = settings_of(algorithm)
    if unknown := [name for name in overrides if name not in known]:
        raise TypeError(f"{type(algorithm).__name__} takes no {', '.join(unknown)}: leave it out.")
    settings = known | overrides
    for name, least in (("tol", 0), ("atol", 0), ("max_rounds", 1)):
        if (value := settings.get(name)) is None:
            continue
        if not (is_number(value) and value >= least):
            raise ValueError(f"{name} must be >= {least}, got {value!r}.")
        if name == "max_rounds" and value != math.inf and value != int(value):
            raise ValueError(f"max_rounds must be a whole number, got {value}.")
    if settings.get("start") is not None:
        array, D = np.asarray(settings["start"]), problem.predictor.dimension(fed.n_features)
        array = array.astype(float) if array.dtype.kind in "fiu" else array
        if array.shape != (D,) or array.dtype != float or not np.isfinite(array).all():
            raise ValueError(f"start must be {D} finite numbers, got shape {array.shape}.")
        overrides |= {"start": array} if start is not None else {}
    check_requirements(algorithm, problem, setting_of(fed, engine))
    # the server of sites would see single answers; in one process there is none
    if needs_secure_sum(problem) and isinstance(engine, Network) and not has_secure_sum(engine):
        raise ValueError(
            f'Budget(view="sum") needs sums in which single answers are secret, and the server of'
            f" {type(engine).__name__} sees each: give the engine a secure sum, or take"
            ' view="answers".'
        )
    if has_secure_sum(engine):
        algorithm = masked(algorithm)
    elif isinstance(engine, Network):
        algorithm = over_sites(algorithm)
    algorithm.check_problem(problem, fed)
    return replace(algorithm, problem=problem, **overrides)  # type: ignore[type-var]


def _check_method(method: Method) -> None:
    """Raise ``TypeError`` unless ``solve`` can run a method of the user's."""
    name = type(method).__name__
    if "problem" not in getattr(method, "__dataclass_fields__", ()):
        raise TypeError(
            f"{name} must be a dataclass with a field for the problem: decorate the class with"
            " @dataclass(frozen=True) and write problem: Problem | None = None in it."
        )
    if type(method).answer is Method.answer:
        raise TypeError(f"{name} must define answer(state, concluded), which returns Answer(w).")


def default_algorithm(
    problem: Problem, fed: Federation | Metadata, engine: Engine | None = None
) -> Method:
    """The first algorithm, in the order of ``preferred``, whose requirements the problem meets.

    Raises
    ------
    RefusedError
        where no algorithm of bonafed takes the problem
    """
    setting, D = setting_of(fed, engine), problem.predictor.dimension(fed.n_features)
    if problem.privacy is not None:
        return choose(problem, setting, methods=private_methods(problem, fed, setting, D))
    return choose(problem, setting, D)


def choose(
    problem: Problem, setting: Setting, dimension: int = 1, methods: Iterable[Method] | None = None
) -> Method:
    """The same for a problem of D = ``dimension`` coefficients in a setting, among ``methods`` if
    they are given.
    """
    first = None
    for algorithm in methods or preferred(problem, setting, dimension):
        if first is None or (setting.secure_sum and first.requirements.with_sums is None):
            first = algorithm  # what is refused in words: with secure sums a method that has them
        if algorithm.requirements.refusal(type(algorithm).__name__, problem, setting) is None:
            return algorithm
    if others := taking(problem, setting):
        return others[0]()
    assert first is not None
    check_requirements(first, problem, setting)
    raise AssertionError("an algorithm that takes the problem was passed over")


def preferred(problem: Problem, setting: Setting, dimension: int) -> Iterator[Method]:
    """The algorithms that prove most, or come to the end soonest, on problems of a kind.

    ``PrivateSGD`` keeps a privacy budget. With constraints it is ``InteriorPoint`` up to 500
    coefficients, ``Bundle`` for what else is convex, and first ``ProximalAL`` beyond.
    ``RankInteriorPoint`` ranks the rows of all clients, ``Bundle`` where there are constraints, and
    with L2 ``RowMultiplierMethod`` does on tables of over 100,000 numbers, with over 200
    coefficients or with over 100 clients; ``RankADMM`` ranks those of one client. Means of losses
    with linear pieces go to ``KinkInteriorPoint`` up to 1,500 coefficients, with three exceptions:
    with L2 ``RowMultiplierMethod`` has tables of over 100,000 numbers with 500 rows or more for
    every coefficient, sparse rows of over 500 coefficients, and others of over 1,500; ``Bundle``
    has rows that are at sites, and else 2,000 rows or more for every coefficient; ``RankADMM``
    has the rows of one client where these are fewer than 4 for every coefficient, or than a 150th
    of the square of their number. It has means of smooth losses of one client too, except smooth
    objectives on a table of over 100,000 numbers with 5 rows or more for every 4 coefficients.
    ``Bundle`` proves a gap for convex problems, and so does ``AsyncBundle`` where answers come at
    different times, for up to 500 coefficients and 100 clients. ``AsyncDRO`` is for more, and where
    nothing can be proved; ``MultiplierMethod`` takes smooth problems with any convex regulariser,
    and comes first where the second derivatives of ``Bundle`` cost more than its many rounds: with
    over 500 coefficients, and in one process on tables of over 100,000 numbers with over 200
    coefficients (smaller ones too, where the objective is smooth), several classes or over 20,000
    clients, or with fewer where the clients' weights move little and the objective is smooth. Where
    the loss is smooth but not what is added to it, as a norm of the model, its rounds come first
    and ``Bundle`` goes on: on tables of over 100,000 numbers of up to 1,000 clients, or with over
    200 coefficients, up to 1,500 (500 with sparse rows), a round for every five coefficients; with
    400 coefficients or more that few rows leave nearly undetermined, under a ball in the norm "l1",
    one for every eight.
    """
    if problem.privacy is not None:
        yield PrivateSGD()
        return
    if only_constrained(problem):
        if problem.over_rows is not None:
            yield Bundle()
        if dimension > SMALL:
            yield ProximalAL()
        yield from (InteriorPoint(), Bundle(), ProximalAL())
        return
    by_rows = _by_rows(problem, setting)
    if problem.over_rows is not None:
        large = dimension > WIDE or setting.n_clients > FEW or setting.rows * dimension > CELLS
        if by_rows and large:
            yield _by_multipliers(setting, dimension, ranked=True)
        yield from (RankInteriorPoint(), RankBundle())
    # rows for every coefficient, n / D: a step of the interior point costs n D^2 operations, the
    # server's program of the bundle nothing for a row, a round of gradients or of the ADMM n D
    many, kinks = setting.rows / dimension, _for_kinks(problem, setting, dimension)
    long = many >= LONG and setting.rows * dimension > CELLS
    if by_rows and (long or (setting.sparse and dimension > THIN)):
        yield _by_multipliers(setting, dimension)
    if kinks and many >= 4 * LONG:
        yield Bundle()
    if kinks and many >= max(TALL, dimension / 150):
        yield KinkInteriorPoint()
    risk = problem.over_clients.value  # which of one client may be that client's own
    large = only_smooth(problem) and many >= SPARE and setting.rows * dimension > CELLS
    one = setting.n_clients == 1 and all(risk(np.array([own])) == own for own in (1.0, 2.0))
    if one and not large:
        yield RankADMM()
    if kinks:
        yield KinkInteriorPoint()
    if by_rows and dimension > SOLVED:
        yield _by_multipliers(setting, dimension)
    few = dimension <= SMALL and setting.n_clients <= FEW
    if setting.asynchronous and problem.convex and few:
        yield AsyncBundle()
    if setting.asynchronous or not problem.convex:  # of which nothing proves an end
        yield AsyncDRO() if setting.asynchronous else AsyncDRO(max_rounds=ROUNDS)
    if (both := _by_both(problem, setting, dimension)) is not None:
        yield both
    if problem.loss.smooth and not setting.secure_sum and by_gradients(problem, setting, dimension):
        curved = _holds_a_matrix(setting, dimension, MATRIX)
        if isinstance(problem.loss, Squared):  # whose one sum is worth as much memory as the rows
            thick = setting.rows >= dimension - 1 and not setting.sparse
            curved |= thick and dimension <= MATRIX + 1
        yield MultiplierMethod(tol=Bundle.tol, metric="hessian" if curved else "units")
    yield from (Bundle(), MultiplierMethod(), AsyncDRO())


def _holds_a_matrix(setting: Setting, dimension: int, most: int) -> bool:
    """Whether a D x D sum over the rows costs little, in one process: its memory too."""
    few = setting.rows * dimension <= LIGHT or setting.rows >= 4 * dimension
    return setting.rows > 0 and not setting.sparse and dimension <= most and few


def _by_multipliers(setting: Setting, dimension: int, ranked: bool = False) -> RowMultiplierMethod:
    thin = ranked and setting.sparse and dimension <= SOLVED
    curved = thin or _holds_a_matrix(setting, dimension, MATRIX)
    return RowMultiplierMethod(metric="hessian" if curved else "units")


def _by_both(problem: Problem, setting: Setting, dimension: int) -> Bundle | None:
    """``Bundle`` after rounds of gradients, where h is not smooth: these end soon where columns
    differ, and hardly ever where they are alike.
    """
    few = setting.rows > 0 and dimension <= SOLVED and setting.n_clients <= CROWD
    if not few or setting.asynchronous or setting.secure_sum or only_smooth(problem):
        return None
    if MultiplierMethod.requirements.refusal("MultiplierMethod", problem, setting) is not None:
        return None
    if not has_smooth_part(problem):  # `Bundle` has no second derivatives
        return None
    if _nearly_free(problem, setting, dimension):  # whatever columns are
        if dimension < FAR:
            return None
        rounds, tol = dimension // 8, 0.5
    else:
        large = setting.rows * dimension > CELLS and setting.n_clients <= SEVERAL
        if not (large or dimension > WIDE) or (setting.sparse and dimension > THIN):
            return None
        rounds, tol = max(20, dimension // 5), 0.0
    most = Bundle.max_rounds + rounds
    return Bundle(gradient_rounds=rounds, gradient_tol=tol, max_rounds=most)


def _nearly_free(problem: Problem, setting: Setting, dimension: int) -> bool:
    """Whether rows leave coefficients nearly undetermined, which a penalty on the largest one does
    not bound either.
    """
    ball = problem.over_samples
    largest = isinstance(ball, WassersteinBall) and ball.norm == "l1"
    return largest and setting.rows**2 <= FLAT * dimension


def only_smooth(problem: Problem) -> bool:
    """Whether the loss is smooth, and so is all else but the risk over the clients."""
    plain = isinstance(problem.over_samples, Mean) and isinstance(problem.regulariser, Zero | L2)
    return problem.loss.smooth and plain


def _by_rows(problem: Problem, setting: Setting) -> bool:
    """Whether ``RowMultiplierMethod`` takes a problem, whose rows are here or ranked."""
    requirements = RowMultiplierMethod.requirements
    if problem.over_rows is None and (setting.asynchronous or not setting.rows):
        return False
    return requirements.refusal("RowMultiplierMethod", problem, setting) is None


def _for_kinks(problem: Problem, setting: Setting, dimension: int) -> bool:
    """Whether ``KinkInteriorPoint`` takes a problem whose matrices are not too large for it."""
    requirements = KinkInteriorPoint.requirements
    if setting.asynchronous or not setting.rows or dimension > SOLVED:
        return False
    return requirements.refusal("KinkInteriorPoint", problem, setting) is None


def by_gradients(problem: Problem, setting: Setting, dimension: int) -> bool:
    """Whether many rounds of gradients cost less than few of second derivatives."""
    n, rows = setting.n_clients, setting.rows
    if not rows:
        return dimension > SMALL
    if _nearly_free(problem, setting, dimension) and dimension <= SOLVED:
        return False
    if dimension > SMALL:
        return True
    wide, smooth = dimension > WIDE, only_smooth(problem)
    if rows * dimension <= CELLS and not (wide and smooth):
        return False
    risk, even = problem.over_clients.value, np.linspace(-1.0, 1.0, n)
    moved = float((risk(even) + risk(-even)) / (2 * risk(np.ones(n))))
    several = problem.loss.targets == "class"  # of which `Bundle` has no second derivatives
    return wide or several or n > CROWD or (smooth and moved <= LITTLE)


def private_methods(
    problem: Problem, fed: Federation | Metadata, setting: Setting, dimension: int
) -> Iterator[Method]:
    """The methods for a problem with a budget, from public numbers only (docs/private.md,
    "Gradient descent").

    Where the schema makes rows of length 1, ``PrivateSGD`` knows it. Where noise also leaves the
    matrix of curvature readable, eight rounds of ``PrivateNewton`` are as accurate as its hundred.
    """
    budget, schema, newton = problem.privacy, getattr(fed, "schema", None), PrivateNewton(bound=1.0)
    unit_rows = schema is not None and schema.unit
    takes = newton.requirements.refusal("PrivateNewton", problem, setting) is None
    if takes and unit_rows and budget is not None and budget.view == "answers":
        # of all who are declared: else somebody's only row would tell by which method it is fitted
        declared = isinstance(budget.sizes, Mapping) and [*budget.sizes.values()]
        sizes = declared or budget.sizes_of(fed.clients, fed.sizes)
        noise = noise_for(budget, 1) * budget.spread * len(sizes) ** 0.5 / sum(sizes)
        if matrix_error(noise, dimension) <= READABLE:
            yield newton
    yield PrivateSGD(bound=1.0 if unit_rows else None)


def second_order(problem: Problem, fed: Federation) -> bool:
    """Whether ``InteriorPoint`` takes a concrete problem."""
    requirements = InteriorPoint.requirements
    return requirements.refusal("InteriorPoint", problem, setting_of(fed)) is None
