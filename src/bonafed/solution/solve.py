"""Solve a problem over a federation: pick the algorithm and the engine, run, certify.

The certificate of a run's model takes rounds that prove it, through the same engine. Along a
path of Wasserstein radii every model is judged on held-out rows.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np

from bonafed.algorithms.federated.bundle.bundle import Bundle, BundleState
from bonafed.algorithms.federated.bundle.masked_bundle import MaskedBundle
from bonafed.algorithms.federated.private.method import PrivateMethod
from bonafed.algorithms.method import Answer, Concluded, Method, settings_of
from bonafed.arrays import Array
from bonafed.certificates import duality
from bonafed.certificates.certificate import Certificate, without_numbers
from bonafed.certificates.certify import certify_constrained, completed
from bonafed.certificates.row_ranks import certify_ranks
from bonafed.client_names import ByClient, ClientName
from bonafed.data.federation import BLOCK, Federation
from bonafed.engines.engine import Engine, Run, Watch
from bonafed.engines.network import StateLostError
from bonafed.parameters import checking
from bonafed.privacy.ledger import Ledger
from bonafed.problem import calibration, conic_form
from bonafed.problem.lower_bounds import (
    Duals,
    Multipliers,
    no_multipliers,
    row_duals,
    signed,
    weighting,
)
from bonafed.problem.metadata import Metadata
from bonafed.problem.problem import Problem, only_constrained, remembering
from bonafed.problem.risks.weight_sets import Mean, Sum
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.rounds import Stop, decode, encode
from bonafed.solution.blame import triviality
from bonafed.solution.outcome import (
    Ended,
    UnprovenWarning,
    budget_used,
    diverged,
    reached,
    stated,
    unproven,
)
from bonafed.solution.plan import Plan, Settings, configure, plan
from bonafed.solution.predictions import Inputs
from bonafed.solution.privacy_account import charged
from bonafed.solution.solution import BLANK, Solution
from bonafed.solution.tables import Limits, Records, client_table, constraint_table
from bonafed.solution.trivial import TrivialModelWarning, finding
from bonafed.solution.warnings import RARER, RareClassWarning, notes
from bonafed.storage import OWN, write_whole
from bonafed.text import printable, short, warn, within

Radius = float | Sequence[float] | Array | ByClient[float]  # of the Wasserstein balls
INTERRUPTED = "interrupted"  # why a proof failed: by Ctrl-C
PROVING_ROUNDS = 100  # at most, for the bound of a model whose algorithm proves none
RESTARTS = 5  # of a run whose sites lose what they keep
LOST = "The site {} lost what it keeps of the run, which then began again at its model."


@checking
def solve(
    problem: Problem,
    fed: Federation | Metadata,
    *,
    algorithm: Method | None = None,
    engine: Engine | None = None,
    tol: float | None = None,
    atol: float | None = None,
    max_rounds: int | None = None,
    start: Array | None = None,
    seed: int = 0,
    watch: Sequence[Watch] = (),
    resume: bool = False,
) -> Solution:
    """Solve ``problem`` over ``fed``.

    Parameters
    ----------
    fed : the rows by client; or the `Metadata` of rows that stay at their owners' sites, for an
        engine that reaches these. Then the checks that read rows are left out: ``calibration`` and
        ``trivial`` are None, and so is the ``certificate`` of a private run
    algorithm : such as ``Bundle()`` (the default for several clients), ``RankADMM()`` (for few rows
        of one, or ranked ones), ``KinkInteriorPoint()`` (means of hinge, absolute or quantile
        losses), ``RowMultiplierMethod()`` (these, and superquantiles of all rows, of many
        coefficients or rows), ``InteriorPoint()`` (with constraints and up to 500 coefficients),
        ``ProximalAL()`` (with more), ``AsyncBundle()`` (convex, on an asynchronous engine),
        ``AsyncDRO()`` (for smooth losses where the problem is not convex, or there are many clients
        or coefficients on an asynchronous engine), ``MultiplierMethod()`` (smooth, convex, with
        over 500 coefficients or large tables in one process); with a budget ``PrivateSGD()``, or
        ``PrivateNewton(bound=1)`` for few features of many rows of length 1
    engine : such as ``InProcess(checkpoint="run.bft")`` or ``VirtualClock()``; by default in this
        process
    tol, atol, max_rounds, start : override the algorithm's own
    seed : of every random stream
    watch : called with (history row, server state) after every round. Where columns are far from 0,
        states are about the rows less a centre, see ``solution.duals.centre``
    resume : go on from the engine's checkpoint

    Returns
    -------
    Solution
        never called optimal at a cap; see ``solution.outcome``. Where the proof fails, of whatever
        cause, the outcome says so, and there is no bound. The certificate costs two more rounds
        (with constraints up to eight, and with more than 500 coefficients 400), and where the
        algorithm leaves no duals (the ADMMs) rounds of cuts started at its model prove the bound;
        these are counted in ``messages`` and in the clients' bytes, not in ``rounds``

    Warns
    -----
    UnprovenWarning
        the model is not proven to be within the tolerance of the best one
    RareClassWarning
        the model finds few rows of a class that has few; never from a search or cross-validation
    TrivialModelWarning
        the model is no better than a constant (``solution.trivial`` says why); never of a private
        run, whose ``trivial`` is for the owners

    Raises
    ------
    ValueError, TypeError
        where problem, data and algorithm do not fit; the text says what would
    ImpossibleAnswerError
        a site elsewhere answers what no rows answer, before there is a model; names it. Later it
        ends the run with ``Stop.IMPOSSIBLE`` and the model so far
    KeyboardInterrupt
        Ctrl-C before there is a model; later it ends the run with ``Stop.INTERRUPTED``, during the
        proof too, which ``resume`` then repeats

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, tol=1e-8)
    >>> solution.outcome.stop.value, bool(solution.certificate.relative_gap < 1e-8)
    ('optimal', True)
    """
    settings: Settings = {"algorithm": algorithm, "engine": engine, "tol": tol, "atol": atol}
    settings |= {"max_rounds": max_rounds, "start": start}
    solution = solved(problem, fed, seed=seed, watch=watch, resume=resume, **settings)
    warn_of(solution)
    return solution


def solved(problem: Problem, fed: Federation | Metadata, **given: Any) -> Solution:
    """`solve` without warnings."""
    # once an array as large as a block was freed, glibc takes smaller ones from its heap, whose
    # pages are there, instead of mapping new pages for each of them
    np.empty(BLOCK)
    with remembering():
        solution = fit(problem, fed, **given)
        interrupted, proof = solution.outcome.stop is Stop.INTERRUPTED, solution.certificate
        if isinstance(fed, Metadata) or interrupted or proof.failed:
            return solution
        found = triviality(solution.problem, fed, solution.w, proof)
    return replace(solution, trivial=found)


def warn_of(solution: Solution, category: type[Warning] = UnprovenWarning) -> None:
    """Warn where a model is not proven near the optimum, is trivial or finds few rows of a rare
    class. Of a private one only that its run was interrupted: all else would have to be paid for.
    """
    private, end = solution.problem.privacy is not None, solution.outcome
    if end.stop is Stop.INTERRUPTED if private else unproven(end.stop, end.text):
        warn(end.text, category)
    if (found := solution.trivial) is not None and not private:
        warn(found.text, TrivialModelWarning)
    elif not (private or solution.problem.constrained or within("sklearn.model_selection")):
        for note in (note for note in solution.notes if note.startswith(RARER)):
            warn(note, RareClassWarning)


def fit(
    problem: Problem,
    fed: Federation | Metadata,
    *,
    seed: int = 0,
    watch: Sequence[Watch] = (),
    resume: bool = False,
    **settings: Unpack[Settings],
) -> Solution:
    """`solve` without the check for a trivial model, for models that are steps to others;
    ``settings`` are the other parameters of `solve`.
    """
    engine = settings.get("engine")
    if engine is not None and (isinstance(engine, type) or not hasattr(engine, "run")):
        raise TypeError(f"engine must be such as InProcess() or VirtualClock(), got {engine!r}.")
    began = time.perf_counter()
    with remembering():
        finished = run(plan(problem, fed, **settings), seed=seed, watch=watch, resume=resume)
        return replace(conclude(finished), seconds=time.perf_counter() - began)


@dataclass(frozen=True)
class Finished:
    """A plan that was carried out.

    Attributes
    ----------
    plan : with the method that ran, whose noise is planned where it is private
    run : of the engine
    seed : of every random stream
    ledger : of a private run
    lost : the sites that lost what they keep, whereupon the run began again at its model
    """

    plan: Plan
    run: Run
    seed: int
    ledger: Ledger | None = None
    lost: tuple[str, ...] = ()


def run(
    plan: Plan, *, seed: int = 0, watch: Sequence[Watch] = (), resume: bool = False
) -> Finished:
    """Carry out a plan; parameters as of `solve`."""
    clients, lost, method = plan.data.clients, list[str](), plan.method
    watch = [lambda row, state, see=see: see(_named_row(row, clients), state) for see in watch]
    checkpoint = getattr(plan.engine, "checkpoint", None)
    # where the model stands at which a run has begun again, beside its checkpoint
    file = None if checkpoint is None else Path(f"{checkpoint}.start")
    if file is not None and resume and file.is_file():
        method = replace(method, start=decode(file.read_bytes()))  # type: ignore[type-var]
    elif file is not None and not resume:
        file.unlink(missing_ok=True)
    while True:
        plan = replace(plan, method=method)
        try:
            if not isinstance(method, PrivateMethod):
                ran = plan.engine.run(method, plan.rows, seed=seed, watch=watch, resume=resume)
                return Finished(plan, ran, seed, None, tuple(lost))
            with charged(plan, resume) as charge:
                ran = charge.run(seed, watch)
            ledger = charge.ledger and charge.ledger.named(charge.fed.clients)
            return Finished(replace(plan, method=charge.algorithm), ran, seed, ledger)
        except StateLostError as error:
            # at the model at which a site lost what it keeps all duals begin anew, at every client,
            # so that they fit each other
            again = "start" in settings_of(method) and not method.requirements.private
            if not again or error.state is None or len(lost) >= RESTARTS:
                raise
            w = method.answer(error.state).w
            if not len(w) or not np.isfinite(w).all():
                raise
            if file is not None:  # a server that dies from now on begins there, too
                write_whole(file, encode(w), OWN)
            method, resume = replace(method, start=w), False  # type: ignore[type-var]
            lost.append(error.site)


def conclude(finished: Finished) -> Solution:
    """The solution of a plan that was carried out: its certificate, tables and warnings.

    The rows of a private run may be at their owners' sites. Then it has public numbers, and what
    the sites answered with noise: a certificate, computed from the rows without noise, stays there.
    """
    began = time.perf_counter()
    plan, run, ledger = finished.plan, finished.run, finished.ledger
    data, concrete, method = plan.data, plan.concrete, plan.method
    answer = plan.as_stated(_answer(method, run))
    known: dict[str, Any] = {
        "problem": plan.problem,
        "w": answer.w,
        "rounds": run.rounds,
        "ledger": ledger,
        "history": [_named_row(row, data.clients) for row in run.history],
        "copies": answer.copies,
        "state": run.state,
        "log": run.log,
        "inputs": Inputs.of(plan.problem.loss, data),
        "moments": answer.moments,
    }
    if plan.problem.privacy is not None and isinstance(data, Metadata):
        assert ledger is not None, "a private run has a ledger"
        sizes = [ledger.sizes[name] for name in data.clients]
        rows = Records({"client": data.clients, "n": sizes})
        outcome = run.outcome if run.outcome.text else budget_used(run.rounds)
        known |= BLANK | {"clients": _with_bytes(rows, [run]), "messages": _merged([run])}
        return Solution(**known | {"outcome": outcome, "seconds": time.perf_counter() - began})
    beside = plan.engine.beside_run() if hasattr(plan.engine, "beside_run") else plan.engine
    certificate, duals, side, limits = prove(finished, answer, beside)
    stop = Stop.INTERRUPTED if certificate.failed == INTERRUPTED else run.outcome.stop
    # the multipliers of a problem without a model are no shadow prices
    infeasible, said = stop is Stop.INFEASIBLE, run.outcome.text
    end = Ended(stop, run.rounds, method, None, infeasible, "", reached(run.history), said)
    table, multipliers = list[dict[str, Any]](), None
    if isinstance(duals, Multipliers) and limits is not None:
        shown = no_multipliers(concrete, data.n_clients) if infeasible else duals
        table = constraint_table(concrete, data.clients, limits, certificate, shown)
        multipliers = duals

    outcome = stated(end, concrete, certificate, data.clients, multipliers, table)
    runs, found = [run, *side], notes(concrete, data, plan.coded, answer.w, certificate)
    here = isinstance(data, Federation)
    return Solution(
        **known,
        duals=duals,
        outcome=outcome,
        certificate=certificate,
        clients=_with_bytes(client_table(concrete, data, certificate, table), runs),
        messages=_merged(runs),
        notes=(*(LOST.format(site) for site in finished.lost), *found),
        tries=answer.tries or [],
        constraints=table,
        calibration=calibration.calibrated(plan.problem, data, answer.w) if here else None,
        seconds=time.perf_counter() - began,
    )


def _answer(method: Method, run: Run) -> Answer:
    """What the run answers; raises where it ended before there was a model, or diverged."""

    def of_state(concluded: Concluded | None) -> Answer:
        if isinstance(answer := method.answer(run.state, concluded), Answer):
            return answer
        name, kind = type(method).__name__, type(answer).__name__
        raise TypeError(f"{name}.answer must return Answer(w), got a {kind}.")

    if run.rounds == 0 and not len(of_state(None).w):
        if run.outcome.stop is Stop.INTERRUPTED:
            raise KeyboardInterrupt
        raise run.lie or RuntimeError(run.outcome.text)
    answer, start = of_state(run.concluded), settings_of(method).get("start")
    # a run that has not left the model that it started with, zeros or one that it was given
    idle = not np.any(answer.w) if start is None else np.array_equal(answer.w, start)
    if run.lie is not None and idle:
        raise run.lie
    if run.outcome.stop is Stop.STALLED and not np.isfinite(answer.w).all():
        raise ArithmeticError(diverged(method, run.rounds))
    return answer


def _with_bytes(table: Records, runs: Sequence[Run]) -> Records:
    """The client table with what each client sent and received."""
    up, down = reduce(np.add, [run.exchanged for run in runs])
    return Records(table.columns | {"bytes_up": up, "bytes_down": down})


def _named_row(row: dict[str, Any], clients: tuple[ClientName, ...]) -> dict[str, Any]:
    """A row of the history with the name of the worst client instead of its position."""
    if (worst := row.get("worst_client")) is None:
        return row
    return {**row, "worst_client": clients[int(worst)] if worst >= 0 else ""}


def _merged(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Message tables added up by message and direction."""
    total: dict[tuple[str, str], dict[str, Any]] = {}
    for row in (row for run in runs for row in run.messages):
        kind = row["message"], row["direction"]
        if (known := total.setdefault(kind, row)) is not row:
            more = {key: known[key] + row[key] for key in ("count", "bytes")}
            held = {**known.get("held", {})}
            for name, new in row.get("held", {}).items():
                numbers = new["numbers"] + held.get(name, {"numbers": 0})["numbers"]
                held[name] = {**new, "numbers": numbers}
            total[kind] = known | more | ({"held": held} if held else {})
    return list(total.values())


class Proof(NamedTuple):
    """A certificate, the duals or multipliers it stands on, and the runs that made it.

    ``limits`` are those of the constraints, as their owners told them, where there are any.
    """

    certificate: Certificate
    duals: Duals | Multipliers | None
    runs: list[Run]
    limits: Limits | None = None


def prove(finished: Finished, answer: Answer, engine: Engine) -> Proof:
    """Certify the answer of a run by further rounds through ``engine``.

    A proof that fails, whatever is raised in it, loses no model: then the certificate has what can
    be computed without a bound, and says why there is none.
    """
    failed = INTERRUPTED
    try:
        return _prove(finished, answer, engine)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        failed = short(printable(f"{type(error).__name__}: {error}"), 300)
    # only now, when the frames of the error no longer hold its arrays
    try:
        proof = _prove(finished, answer, engine, bounded=False)
    except (Exception, KeyboardInterrupt):
        proof = Proof(without_numbers(finished.plan.data.n_clients), None, [])
    return proof._replace(certificate=replace(proof.certificate, failed=failed))


def _prove(finished: Finished, answer: Answer, engine: Engine, bounded: bool = True) -> Proof:
    """The same; without a bound where it shall not be ``bounded``."""
    plan, constrained = finished.plan, only_constrained(finished.plan.problem)
    constrained |= plan.method.requirements.constrained
    prove = _prove_constrained if constrained else _prove_by_duals
    proof = prove(finished, answer, engine, bounded)
    whole = completed(plan.problem, plan.data, answer.w, proof.certificate)
    return proof._replace(certificate=whole)


def _prove_by_duals(finished: Finished, answer: Answer, engine: Engine, bounded: bool) -> Proof:
    """Certify a model by its duals, or by those of rounds of cuts that begin at it."""
    plan, stop, w = finished.plan, finished.run.outcome.stop, answer.w
    problem, fed, algorithm, concrete = plan.problem, plan.data, plan.method, plan.concrete
    if not bounded:
        certificate, rounds = duality.certify_run(problem, fed, w, None, engine, answer.copies)
        return Proof(certificate, None, [rounds])
    if problem.over_rows is not None:
        certificate, runs = certify_ranks(problem, fed, w, answer.duals, engine)
        return Proof(certificate, answer.duals, runs)
    duals, runs = answer.duals, []
    if answer.row_duals is not None:
        duals = row_duals(*answer.row_duals, len(w))
    elif duals is None and stop is not Stop.INTERRUPTED and _provable(algorithm, concrete, fed):
        cuts = Bundle(max_rounds=PROVING_ROUNDS)
        cuts = plan.over_rows(configure(cuts, concrete, plan.coded, start=w, engine=engine))
        runs.append(engine.run(cuts, plan.rows, seed=finished.seed))
        if runs[-1].outcome.stop is Stop.INTERRUPTED:
            raise KeyboardInterrupt
        duals = plan.as_stated(cuts.answer(runs[-1].state)).duals
    certificate, rounds = duality.certify_run(problem, fed, w, duals, engine, answer.copies)
    return Proof(certificate, duals, [*runs, rounds])


def _prove_constrained(finished: Finished, answer: Answer, engine: Engine, bounded: bool) -> Proof:
    """Certify a model under constraints by its multipliers; ``bounded``: with a bound."""
    plan, stop, concrete = finished.plan, finished.run.outcome.stop, finished.plan.concrete
    n, given = plan.data.n_clients, answer.multipliers
    multipliers = no_multipliers(concrete, n) if given is None else signed(concrete, given)
    if not isinstance(concrete.over_clients, Mean | Sum):
        multipliers = replace(multipliers, weights=weighting(concrete, multipliers, n))
    # an objective that falls without end has no bound, however far one is charged
    bounded = bounded and stop is not Stop.UNBOUNDED
    w, of, copies = answer.w, (plan.problem, plan.data), answer.copies
    infeasible = stop is Stop.INFEASIBLE
    certificate, runs = certify_constrained(*of, w, multipliers, engine, infeasible, bounded)
    first = runs[0].state.first
    consensus = None if copies is None else float(np.abs(copies - w).max())
    certificate = replace(certificate, consensus=consensus)
    return Proof(certificate, multipliers, runs, Limits(first.limits, first.shared_limits))


def _provable(algorithm: Method, problem: Problem, fed: Federation | Metadata) -> bool:
    """Whether rounds of cuts can prove a bound that the algorithm has not proved itself:
    ``Bundle`` would have, and the clients of a private run are not asked again.
    """
    if isinstance(algorithm, Bundle | MaskedBundle) or algorithm.requirements.private:
        return False
    with suppress(ValueError):  # the server's program has no form for a custom regulariser or risk
        conic_form.public_shape(problem, fed.n_clients)
        return True
    return False


@checking
def radius_path(
    problem: Problem,
    fed: Federation,
    *,
    radii: Sequence[Radius],
    client_radii: Sequence[float] | None = None,
    test: Federation | None = None,
    held_out: float = 0.3,
    seed: int = 0,
    algorithm: Method | None = None,
    engine: Engine | None = None,
    tol: float | None = None,
    max_rounds: int | None = None,
    watch: Callable[[dict[str, Any]], None] | None = None,
) -> list[dict[str, Any]]:
    """Solve the problem at every radius and client radius, each from its neighbour's model, and
    judge every model on held-out rows.

    Parameters
    ----------
    problem : with a ``WassersteinBall`` over the samples and, for ``client_radii``, an ``LpBall``
        over the clients
    radii : Wasserstein radii; each a number, one per client, or a mapping by client name
    client_radii : radii of the ball of client weights; None keeps the problem's
    test : held-out rows of the clients; None holds out the share ``held_out`` of every client's
        rows, by ``seed``
    algorithm, engine, tol, max_rounds : as in `bonafed.solve`
    watch : called with every row of the table

    Returns
    -------
    list of rows : radius, client_radius, value, bound, relative_gap, rounds, outcome, trivial; on
        the held-out rows loss, worst_loss and worst_client (largest mean loss), and accuracy,
        worst_accuracy (classification) or mae, worst_mae; w, the model, and duals, what proves its
        bound. Choose a row by a held-out
        column, then solve over all rows. The held-out figures of the chosen row are optimistic,
        because they decided the choice.

    Raises
    ------
    KeyboardInterrupt : Ctrl-C; the rows so far went to ``watch``

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> ball = bf.WassersteinBall(radius=0.1)
    >>> problem = bf.Problem(bf.Hinge(), over_samples=ball, regulariser=bf.L2(0.1))
    >>> train, test = fed.split(test=0.4, seed=0)
    >>> path = bf.radius_path(problem, train, radii=[0.0, 0.1], test=test)
    >>> [point["radius"] for point in path]
    [0.0, 0.1]
    """
    ball, clients = problem.over_samples, problem.over_clients
    if not isinstance(ball, WassersteinBall):
        raise TypeError(f"radius_path needs over_samples=WassersteinBall(...), got {ball!r}.")
    if client_radii is not None and not hasattr(clients, "radius"):
        raise TypeError(
            f"client_radii need over_clients with a radius, such as LpBall(0.1), got {clients!r}."
        )
    if len(radii) == 0 or (client_radii is not None and len(client_radii) == 0):
        raise ValueError("radii and client_radii must hold at least one radius each.")
    train, test = fed.split(held_out, seed) if test is None else (fed, test)
    algorithm = algorithm or Bundle()
    settings: Any = {"engine": engine, "tol": tol, "max_rounds": max_rounds, "seed": seed}
    sets = [clients] if client_radii is None else [replace(clients, radius=r) for r in client_radii]
    table, open_at = list[dict[str, Any]](), list[Any]()
    corner = None  # the solution at the first radius of the last client radius
    balls = [replace(ball, radius=radius) for radius in radii]
    for risk in sets:
        last = corner
        for k, ball in enumerate(balls):
            point, warm = replace(problem, over_samples=ball, over_clients=risk), algorithm
            if last is not None and "start" in settings_of(algorithm):
                settings["start"] = last.w
            # where the cuts of the last solve hold at any radius, and are not sums over the clients
            state = last.state if last is not None and last.problem.joint_cuts else None
            if isinstance(algorithm, Bundle) and isinstance(state, BundleState):
                warm = replace(algorithm, known=state.cuts)
            last = fit(point, train, algorithm=warm, **settings)
            corner = last if k == 0 else corner
            if last.outcome.stop is Stop.INTERRUPTED:
                raise KeyboardInterrupt
            proof = last.certificate
            row = {
                "radius": ball.radius,
                "client_radius": getattr(risk, "radius", None),
                "value": proof.value,
                "bound": proof.bound,
                "relative_gap": proof.relative_gap,
                "rounds": last.rounds,
                "outcome": last.outcome.stop.value,
                "trivial": trivial(point, train, last.w, proof),
            }
            table.append(row | judged(point, test, last.w) | {"w": last.w, "duals": last.duals})
            open_at += [ball.radius] * unproven(last.outcome.stop, last.outcome.text)
            if watch is not None:
                watch(table[-1])
    if open_at:
        text = (
            f"{len(open_at)} of {len(table)} models are not proven to be within tol of the best"
            f" ones, at the radii {short(str(open_at), 80)}: see relative_gap and outcome, and"
            " raise max_rounds or tol."
        )
        warn(text, UnprovenWarning)
    return table


def trivial(problem: Problem, fed: Federation, w: Array, proof: Certificate) -> bool:
    """Whether the model w is no better than a constant."""
    concrete, data = problem.at(fed)
    return finding(concrete, data, w, proof.value, proof.gap) is not None


def judged(problem: Problem, test: Federation, w: Array) -> dict[str, Any]:
    """Mean and worst client on held-out rows; the mean is over rows."""
    concrete, test = Problem(problem.loss, problem.predictor).at(test)
    blocks = [test.block(i) for i in range(test.n_clients)]
    predictions = [concrete.predictor.forward(w, block) for block in blocks]

    def by_client(of_rows: Callable[[Array, Array], Array]) -> tuple[Array, float]:
        """The mean over the rows of every client, and over all rows."""
        pairs = zip(blocks, predictions, strict=True)
        means = np.array([block.mean(of_rows(p, block.y))[0] for block, p in pairs])
        return means, float(np.average(means, weights=test.sizes))

    loss, mean = by_client(problem.loss.value)
    worst = {"worst_loss": float(loss.max()), "worst_client": test.clients[int(loss.argmax())]}
    if problem.loss.targets == "real":
        error, mae = by_client(lambda p, y: np.abs(p - y))
        return {"loss": mean, **worst, "mae": mae, "worst_mae": float(error.max())}
    several = problem.loss.targets == "class"
    right, accuracy = by_client(lambda p, y: p.argmax(-1) == y if several else (p > 0) == (y > 0))
    return {"loss": mean, **worst, "accuracy": accuracy, "worst_accuracy": float(right.min())}
