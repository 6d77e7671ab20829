"""Statements: problems and algorithms travel exactly, under a digest that is the same everywhere,
and bytes of strangers build nothing but what bonafed lists.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from fuzz import mutate, records
from toy import federation

import bonafed as bf
from bonafed import statements
from bonafed.algorithms.method import Method
from bonafed.codec import CodecError, decode, encode
from bonafed.engines.checkpoint import describe
from bonafed.names import of_place
from bonafed.parameters import parameters, setters, takes
from bonafed.problem.problem import Problem
from bonafed.rounds import Outcome, Stop
from bonafed.solution.solve import solve
from bonafed.statements import FORMAT, MOST, WITH_CODE, digest, lines, stated, statement_bytes
from examples import (
    ALGORITHMS,
    CONSTRAINTS,
    HINGE,
    NEYMAN_PEARSON,
    NONCONVEX_RISKS,
    PREDICTORS,
    REGULARISERS,
    RISKS,
)

STATED: dict[str, tuple[Problem, Any]] = {
    name: example.stated for name, example in ALGORITHMS.items() if example.stated is not None
}
MORE = [  # classes that no example has
    bf.CentralConic(),
    bf.CentralisedAL(),
    bf.FedAvg(aggregate=bf.Bulyan(1)),
    bf.FedAvg(aggregate=bf.CoordinateMedian()),
    bf.FedAvg(aggregate=bf.TrimmedMean(0.1)),
    bf.PrivateADMM(rho=bf.Penalty()),
    bf.RankADMM(penalty=bf.Balanced()),
    bf.RankADMM(penalty=bf.ByResidual()),
    bf.Sigmoid(1.0, 0.0),
    bf.Sum(),
    bf.DemographicParity("age", 0.1, bf.Score()),
    Problem(bf.Quadratic(), local_constraint=bf.LinearEquality()),
    Problem(bf.Absolute(), constraint=bf.LinearEquality(((1.0, 2.0),), 0.5)),
    Problem(bf.Absolute(), constraint=bf.LinearInequality(np.eye(2), (1.0, 2.0))),
    Problem(bf.EpsilonInsensitive(0.1)),
    Problem(bf.Huber(1.0)),
    bf.Spectral(np.arange(1.0, 7.0) / 21),  # of which the sum is one but for rounding
    Problem(bf.Quantile(0.3)),
    Problem(bf.Poisson()),
    Problem(bf.SmoothHinge(), class_weight={False: 3, 1: 2.0, "1": 0.5}),
    Problem(bf.Squared(), privacy=bf.Budget(1.0, 1e-6, sizes={2: 30, "north": 10})),
    Problem(bf.Exponential(), over_clients=bf.Sum()),
    bf.WassersteinBall("auto", support=bf.BoxSupport((-1.0, 0.0), 1.0)),
    bf.WassersteinBall([0.1, 0.2], support=bf.PolytopeSupport([[1.0, 1.0]], [1.0])),
]
PARTS = [
    *itertools.chain.from_iterable(STATED.values()),
    *(risk for risk in [*RISKS, *NONCONVEX_RISKS] if not isinstance(risk, bf.OwnSet)),
    *REGULARISERS,
    *PREDICTORS,
    *(c.stated for c in CONSTRAINTS.values() if not isinstance(c.stated, bf.Constraint)),
    *MORE,
]
PINNED = {
    "efeb-8231-d5ee-114d-753d-5bca-8b69-c077-3bc8-7047": HINGE,
    "667e-ee03-e714-a7fe-dd66-8586-6a91-57f5-ac9e-378e": Problem(
        bf.Logistic(),
        over_samples=bf.Mean(label="yes"),
        over_clients=bf.LpBall(0.1, math.inf, {"north": 0.25, "south": 0.75}),
        regulariser=bf.Bounds(np.array([-1.0, -math.inf]), 1 / 3),
        local_constraint=(bf.NeymanPearson("no", 0.1), bf.Sign({"größe": 1, "alter": -1})),
        privacy=None,
    ),
    "186c-7b2a-0f9b-d344-ec9e-f7f7-6cb5-e1dd-dee8-7e1c": Problem(
        bf.Multinomial(),
        bf.MLP((8, 4), classes=3, seed=2**40),
        class_weight={True: 1e-300, 2: 5e-324, 1.5: 0.1, "ja": 3},
        regulariser=bf.L2(1e-3),
        privacy=None,
    ),
}


def inside(value: Any) -> Iterator[Any]:
    """The value and all classes in it."""
    if is_dataclass(value):
        yield value
        for field in fields(value):
            yield from inside(getattr(value, field.name))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from inside(part)


def by_class() -> dict[str, Any]:
    """One value of every class in the examples."""
    return {type(part).__name__: part for whole in PARTS for part in inside(whole)}


def forged(tree: Any) -> bytes:
    """A statement with a valid checksum, of whatever it says."""
    return encode({"what": FORMAT, "value": tree})


def tree_of(value: Any) -> Any:
    return decode(statement_bytes(value))["value"]


# ---- the law


@pytest.mark.parametrize("value", PARTS, ids=lambda value: type(value).__name__)
def test_a_statement_is_read_as_it_was_written(value: Any):
    data = statement_bytes(value)
    read = stated(data, type(value))
    assert type(read) is type(value)
    assert statement_bytes(read) == data
    assert digest(read) == digest(value) == digest(data)
    if "np.float64" not in describe(value):  # such a number becomes Python's
        assert describe(read) == describe(value)


def test_every_class_of_the_list_travels():
    classes = (of_place(place) for place in statements._places().values())
    names = {cls.__name__ for cls in classes if statements._is_part(cls)}
    assert names == set(by_class())


def test_a_statement_of_each_example_is_small():
    sizes = [len(statement_bytes(part)) for part in itertools.chain(*STATED.values())]
    assert max(sizes) < 2_000


@pytest.mark.parametrize(
    "name", ["bundle", "AFL, subgradients, extrapolated and averaged", "interior point"]
)
def test_what_was_read_is_solved_to_the_same_bits(name: str):
    problem, algorithm = STATED[name]
    fed = federation((20, 35, 12, 28, 9), 4)
    read = stated(statement_bytes(problem), Problem), stated(statement_bytes(algorithm), Method)
    one = solve(problem, fed, algorithm=algorithm, max_rounds=8)
    other = solve(read[0], fed, algorithm=read[1], max_rounds=8)
    assert one.w.tobytes() == other.w.tobytes()
    assert one.certificate.value == other.certificate.value


# ---- the digest


def test_digests_are_the_same_on_every_machine():
    assert {digest(problem): problem for problem in PINNED.values()} == PINNED


# another value of fields that the values below do not suit
ELSE: dict[str, Any] = {
    "*.problem": HINGE,
    "Problem.loss": bf.Hinge(),
    "Problem.predictor": bf.MLP(),
    "Problem.over_samples": bf.Superquantile(0.5),
    "Problem.over_clients": bf.Simplex(),
    "Problem.regulariser": bf.L2(0.5),
    "Problem.constraint": (bf.Sign({"a": 1}),),
    "Problem.local_constraint": bf.NeymanPearson(1, 0.5),
    "Problem.privacy": bf.Budget(1.0, 1e-6),
    "Problem.over_rows": bf.TopK(3),
    "WassersteinBall.norm": "linf",
    "Bundle.variant": "level",
    "Bundle.metric": "identity",
    "MultiplierMethod.metric": "hessian",
    "RowMultiplierMethod.metric": "hessian",
    "ADLPMM.steps": "tight",
    "FedAvg.aggregate": bf.Average(),
    "Coupled.constraint": bf.LossGap("age", 0.5),
    "Budget.repeat": "error",
    "ASPIRE.bounds": (None, 1.0, None, 2.0),
    "Budget.adjacency": "replace",
    "Budget.view": "sum",
    "PrivateADMM.mechanism": "laplace",
    "PrivateADMM.update": "prox",
    "PrivateADMM.radius": "1/t",
    "PrivateADMM.region": "l2",
    "PrivateADMM.eta": bf.Penalty(),
    "PrivateADMM.noise": "secure",
    "PrivateSGD.mechanism": "laplace",
    "PrivateSGD.noise": "secure",
    "PrivateSGD.sampling": 0.25,
    "PrivateNewton.noise": "secure",
    "PrivateSGD.quantile": 0.25,
    "OutputPerturbedADMM.mechanism": "laplace",
    "OutputPerturbedADMM.radius": "1/t",
    "OutputPerturbedADMM.region": "l2",
    "OutputPerturbedADMM.eta": bf.Penalty(),
    "OutputPerturbedADMM.noise": "secure",
    "RankedRange.order": "ascending",
    "RankADMM.starts": (bf.Start(None),),
    "SmoothedRankADMM.smoothing": bf.Smoothing(least=1e-3),
    "SmoothedRankADMM.penalty": bf.Growing(),
    "Polyhedron.D": np.eye(6),
    "Polyhedron.c": np.arange(6.0),
    "MLP.activation": "relu",
    "PolytopeSupport.C": [[1.0, 2.0]],
    "PolytopeSupport.d": [2.0],
    "Spectral.sigma": [0.25, 0.75],
}
ALONE = {"Problem.over_rows": Problem(bf.Logistic())}  # what has a field that others exclude
REFUSED = {  # values that only runs have
    *("Bundle.known", "PrivateADMM.plan", "PrivateSGD.plan", "OutputPerturbedADMM.plan"),
    *("PrivateNewton.plan", "PrivateNewton.mechanism"),
    "CentralisedAL.multipliers",
    # one value, or one that changes with another field alone
    *("OutputPerturbedADMM.update", "PrivateADMM.sensitivity", "OutputPerturbedADMM.sensitivity"),
}
USUAL = (None, True, False, 0, 1, 2, 3, 0.25, 0.5, 0.75, 2.5, "size", "a", (1.0,), (1, 2))
USUAL = (*USUAL, ("a", "b"), {"a": 1}, np.array([0.5, 0.25]))


@pytest.mark.parametrize("value", by_class().values(), ids=by_class())
def test_another_value_of_any_field_is_another_digest(value: Any):
    for name, parameter in setters(type(value)).items():
        where, changed = f"{type(value).__name__}.{name}", []
        value = ALONE.get(where, value)
        of_field = [ELSE[key] for key in ELSE if key in (where, f"*.{name}")]
        for other in (*of_field, *USUAL):
            try:
                if parameter == name:
                    new = replace(value, **{name: other})
                else:  # of a class with one parameter, which is called otherwise
                    new = type(value)(**{parameter: other})
                if describe(getattr(new, name)) != describe(getattr(value, name)):
                    changed.append(digest(new))
            except (ValueError, TypeError, OverflowError, AttributeError):
                continue  # no value of this field
        if name in getattr(value, "unstated", ()):
            assert set(changed) == {digest(value)}
        elif where not in REFUSED:
            assert changed, f"give another value of {where} in ELSE"
            assert digest(value) not in changed


def test_zero_and_minus_zero_and_numbers_of_another_kind_differ():
    same = [bf.L2(0), bf.L2(0.0), bf.L2(-0.0), bf.MLP(seed=1), bf.MLP(seed=0)]
    arrays = [np.zeros(2), np.zeros(2, np.float32), np.zeros(2, int), np.zeros((1, 2))]
    whole = [*same, *(bf.AFL(start=array) for array in arrays)]
    assert len({digest(value) for value in whole}) == len(whole)


def test_what_is_the_same_has_one_digest():
    clients = {"north": 0.5, "south": 0.25, 3: 0.25, 12: 0.0, True: 1.0}
    backwards = dict(reversed(clients.items()))
    assert digest(bf.Mean(clients)) == digest(bf.Mean(backwards))
    assert list(stated(statement_bytes(bf.Mean(backwards)), bf.Mean).prior) == [
        *(True, 3, 12, "north", "south")
    ]
    pairs = [
        (bf.L2(0.1), bf.L2(np.float64(0.1))),
        (bf.MLP((4, 3)), bf.MLP([4, np.int32(3)])),
        (bf.MLP((0, 1, 2)[1:]), bf.MLP(range(1, 3))),
        (bf.NeymanPearson("a", 0.1), bf.NeymanPearson(np.str_("a"), 0.1)),
        (bf.AFL(average=True), bf.AFL(average=np.bool_(True))),
        (bf.AFL(start=np.arange(6.0)[::2]), bf.AFL(start=np.array([0.0, 2.0, 4.0], ">f8"))),
        (Problem(bf.Hinge()), Problem(bf.Hinge(), bf.Linear())),
        (bf.Box(np.array(0.1), 0.5), bf.Box(np.array(0.1), np.float64(0.5))),
    ]
    for one, other in pairs:
        assert statement_bytes(one) == statement_bytes(other)


def test_neither_the_ledger_file_nor_the_problem_of_an_algorithm_is_stated(tmp_path: Path):
    budget = bf.Budget(1.0, 1e-6, book=tmp_path / "secret.json")
    data = statement_bytes(Problem(bf.Logistic(), privacy=budget))
    assert b"secret" not in data
    assert b"book" not in data
    assert stated(data, Problem).privacy == replace(budget, book=None)
    configured = replace(bf.Bundle(), problem=HINGE)
    assert statement_bytes(configured) == statement_bytes(bf.Bundle())


# ---- what cannot be stated


class Loss:
    """A class of a user's."""


@dataclass(frozen=True)
class Own:
    """A loss that every site has installed."""

    strength: float
    parts: tuple[Own, ...] = ()
    seen: ClassVar[list[Own]] = []

    def __post_init__(self) -> None:
        self.seen.append(self)


def odd(**fields: Any) -> bf.AFL:
    """A method with values that its class refuses to take."""
    method = bf.AFL()
    for name, value in fields.items():
        object.__setattr__(method, name, value)
    return method


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (bf.PrivateADMM(rho=lambda t: 1.0), r"PrivateADMM\.rho is a function, and no code travels"),
        (bf.OwnSet(lambda losses: losses), "OwnSet holds code of yours.* state the set as Poly"),
        (
            replace(NEYMAN_PEARSON, local_constraint=bf.Constraint(lambda w, X, y: (w, w))),
            r"Problem\.local_constraint cannot be stated: Constraint holds code.* LinearInequality",
        ),
        (odd(start=Loss()), "Loss is not a class of bonafed, and no code .* every site install"),
        (odd(start=Own(1.0)), "Own is not a class of bonafed, and no code .* every site instal"),
        (odd(start=Path("w.npy")), r"AFL\.start is the path of a file"),
        (odd(tol=math.nan), r"AFL\.tol is NaN, which is not a number to agree on"),
        (odd(start=np.array([math.nan])), r"AFL\.start holds NaN"),
        (odd(start=np.zeros((0, 2**40))), "without entries: leave it out"),
        (odd(start=np.array(["a"])), "is an array of <U1: give a tuple of texts"),
        (odd(start=np.array([1j])), "is an array of complex128"),
        (odd(start={1, 2}), "is a set: give a tuple"),
        (odd(start=b"w"), "is a bytes: give a tuple"),
        (odd(start=bf.Hinge), r"is the class Hinge: give a value, such as Hinge\(\.\.\.\)"),
        (odd(step_size=np.float32(1)), r"is a NumPy float32: give float\(value\)"),
        (bf.L2(2**64), "has more than 64 bits"),
        (bf.NeymanPearson("\ud800", 0.1), "is not valid Unicode text"),
        (bf.Mean({("a", 1): 0.5}), "a key of Mean.prior"),
        (bf.Mean({None: 0.5}), r"a key of Mean\.prior must be text, a number or a truth value"),
        (odd(average=1), r"AFL\.average must be True or False, got 1"),
        (odd(tol="1e-3"), r"AFL\.tol must be a number, got"),
        (bf.InProcess(), "InProcess is not part of a statement: state the problem and the algo"),
        (replace(HINGE).at(federation())[0], "Global is not part .* as you give them to solve"),
        (bf.Duals(*np.ones((3, 1, 1))), "Duals is not part of a statement"),
        (Outcome(Stop.OPTIMAL, "done"), "Outcome is not part of a statement"),
    ],
)
def test_what_cannot_be_stated_is_refused_with_what_to_do(value: object, words: str):
    with pytest.raises(CodecError, match=words):
        statement_bytes(value)


def test_a_class_of_the_user_is_stated_where_it_is_allowed():
    value = odd(start=Own(0.5, (Own(0.25),)))
    with pytest.raises(CodecError, match="start must be numbers or None"):
        statement_bytes(value, allowed=[Own])
    value = Own(0.5, (Own(0.25),))
    data = statement_bytes(value, allowed=[Own])
    assert stated(data, Own, allowed=[Own]) == value
    assert digest(value, allowed=[Own]) == digest(data)
    Own.seen.clear()
    with pytest.raises(CodecError, match="test_statements:Own', which is not a class that"):
        stated(data, Own)
    assert not Own.seen


# ---- what a stranger sends


def test_no_module_of_a_stranger_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')\nclass Hinge: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    names = ["os:system", "subprocess:Popen", "trap:Hinge", "trap", "trap:", ":Hinge", "hinge"]
    names += ["bonafed.problem.losses:Hinge", ".problem.losses:Hinge", "Hinge()", "Ledger", "solve"]
    names += ["Book", "Federation", "InProcess", "load", "RiskADMM", "FedProx", "BudgetSpentError"]
    names += ["Duals", "Multipliers", "Method", *WITH_CODE]
    for name in (*names, None, 7, 0.5, ("Hinge",), {"a": 1}):
        with pytest.raises(CodecError, match="which is not a class that a statement may hold"):
            stated(forged(("object", name, {})), object)
    assert not {name for name in set(sys.modules) - before if not name.startswith("bonafed")}


@pytest.mark.parametrize(
    "part",
    [
        Outcome(Stop.OPTIMAL, "done"),
        Stop.OPTIMAL,
        (),
        ("tuples",),
        ("object",),
        ("object", "Hinge"),
        ("object", "Hinge", ()),
        ("object", "Hinge", {}, {}),
        ("object", "Hinge", {"margin": 1}),
        ("object", "Simplex", {}),
        ("object", "L2", {"strength": 0.1}),
        ("map", ("a",)),
        ("map", ("a", 1, 2)),
        ("map", (("tuple", 1), 2)),
        ("path", "/etc/passwd"),
        {"a": 1},
        np.float64(0.5),
        np.zeros((0, 10**15)),
        math.nan,
        "hinge",
    ],
    ids=repr,
)
def test_a_loss_that_is_none_is_refused(part: Any):
    tag, name, kept = tree_of(HINGE)
    with pytest.raises(CodecError):
        stated(forged((tag, name, {**kept, "loss": part})), Problem)


def test_a_meaning_has_one_form():
    tag, name, kept = tree_of(bf.Mean({"a": 0.5, "b": 0.5}))
    other = [
        (tag, name, dict(reversed(kept.items()))),
        (tag, name, {**kept, "prior": ("map", *reversed(kept["prior"][1:]))}),
        (tag, name, {**kept, "prior": (*kept["prior"], ("b", 0.5))}),
        (tag, name, {**kept, "prior": ("map", (1, 0.5), (True, 0.5))}),
        (tag, name, {**kept, "prior": ("map", ("a", np.float64(0.5)))}),
    ]
    for tree in other:
        with pytest.raises(CodecError, match="not in the one form that its meaning has"):
            stated(forged(tree), bf.Mean)
    data = encode({"what": FORMAT, "value": (tag, name, kept)})
    assert stated(data, bf.Mean) == bf.Mean({"a": 0.5, "b": 0.5})
    for tops in ({"value": 1, "what": FORMAT}, {"what": FORMAT}, {"what": "x", "value": 1}, (1, 2)):
        with pytest.raises(CodecError):
            stated(encode(tops), object)


def test_another_kind_of_thing_is_refused():
    with pytest.raises(CodecError, match="is of a Bundle, and needs to be of a Problem"):
        stated(statement_bytes(bf.Bundle()), Problem)
    with pytest.raises(CodecError, match="is of a Problem, and needs to be of a Method"):
        stated(statement_bytes(HINGE), Method)


def test_depth_and_size_are_bounded():
    deep: Any = ("tuple", 1)
    for _ in range(40):
        deep = ("tuple", deep)
    with pytest.raises(CodecError, match="more than 16 levels deep"):
        stated(forged(deep), object)
    for _ in range(2_000):  # deeper than Python goes
        deep = ("tuple", deep)
    with pytest.raises((CodecError, RecursionError)):
        encode(deep)
    nested = b'["t",' * 50_000
    with pytest.raises(CodecError):
        stated(sealed(statement_bytes(HINGE), nested), object)
    with pytest.raises(CodecError, match="has 65,537 entries, and can have at most 65,536"):
        statement_bytes(bf.MLP(range(1, 2**16 + 2)))
    with pytest.raises(CodecError, match="has 501 characters, and can have at most 500"):
        statement_bytes(bf.NeymanPearson("a" * 501, 0.1))
    with pytest.raises(CodecError, match="and at most 4,194,304 are read: refuse it"):
        stated(bytes(MOST + 1), Problem)
    long = statement_bytes(bf.AFL(start=np.zeros(MOST // 8)))
    with pytest.raises(CodecError, match="at most 4,194,304 are read"):
        stated(long, Method)
    assert isinstance(stated(long, Method, most=2**23), bf.AFL)


def test_no_pair_of_arrays_makes_a_constructor_need_their_product():
    n, tried = 1_500, 0  # NumPy shows longer arrays than 1,000 in short
    sides = [np.linspace(0.1, 0.9, n), np.linspace(0.1, 0.9, n)[:, None]]
    for name, value in by_class().items():
        kept = tree_of(value)[2]
        for one, other in itertools.permutations(kept, 2):
            data = forged(("object", name, {**kept, one: sides[0], other: sides[1]}))
            tracemalloc.start()
            try:
                stated(data, object)
            except CodecError:
                pass
            finally:
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
            tried += 1
            assert peak < n * n, f"{name}({one}, {other}) needs {peak:,} bytes"
    assert tried > 100


def test_no_array_of_texts_is_much_larger_than_its_statement():
    """NumPy gives every text of an array the room of the longest one."""
    texts, open_to_texts = (*["a"] * 4_000, "b" * 400), []
    for name, value in by_class().items():
        known = parameters(type(value))
        for field in (kept := tree_of(value)[2]):
            if not takes(known[setters(type(value))[field]].type, texts):
                continue
            open_to_texts.append(f"{name}.{field}")
            tracemalloc.start()
            try:
                stated(forged(("object", name, {**kept, field: ("tuple", *texts)})), object)
            except CodecError:
                pass
            finally:
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
            # of GroupL2 the groups are texts
            assert peak < (2e6 if name != "GroupL2" else 4 * 401 * 4_001 + 2e6), open_to_texts[-1]
    assert {"GroupL2.groups", "Monotone.features"} < set(open_to_texts)


# ---- fuzz


def sealed(data: bytes, header: bytes | None = None) -> bytes:
    """Damaged bytes with a length and a checksum that are right again, and another header."""
    if header is not None:
        data = data[:8] + len(header).to_bytes(4, "little") + bytes(8) + header + bytes(16)
    body = data[:12] + len(data).to_bytes(8, "little") + data[20:-16]
    return body + hashlib.blake2b(body, digest_size=16).digest()


def judged(data: bytes) -> bool:
    """Whether bytes are taken; anything but a refusal in words, or one form, breaks the law."""
    text = ""
    try:
        value = stated(data, object)
    except CodecError as error:
        text = str(error)
    if text:
        assert text.isprintable()
        assert len(text) < 2_000
        return False
    assert statement_bytes(value) == data
    assert lines(value)
    return True


def load_all() -> set[str]:
    """The modules that are there once every class of a statement is."""
    for place in statements._places().values():
        of_place(place)
    return set(sys.modules)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_bytes_are_refused_in_words(seed: int):
    rng, before, taken = np.random.default_rng(seed), load_all(), 0
    wholes = [statement_bytes(part) for part in PARTS]
    for _ in range(400):
        data = mutate.pick(rng, wholes)
        damaged = mutate.damaged(data, rng)
        assert damaged == data or not judged(damaged)
        at = int(rng.integers(20, len(data) - 16))
        flipped = data[:at] + bytes([data[at] ^ (1 << int(rng.integers(8)))]) + data[at + 1 :]
        taken += judged(sealed(flipped))
    assert taken  # another digit is another statement
    assert set(sys.modules) == before


@pytest.mark.parametrize("seed", range(4))
def test_statements_with_other_parts_are_taken_or_refused_in_words(seed: int):
    rng, before = np.random.default_rng(seed), load_all()
    trees = [tree_of(part) for part in PARTS]
    odd = [*mutate.ODD_TEXT, *(value for value in mutate.ODD if not isinstance(value, list | dict))]
    taken = 0
    for _ in range(600):
        tree = mutate.pick(rng, trees)
        ways = [way for way, _ in records.leaves(tree)]
        way = mutate.pick(rng, ways)
        way = way[: int(rng.integers(1, len(way) + 1))] if way else way
        if rng.integers(2):
            donor = mutate.pick(rng, trees)
            other = records.at(donor, mutate.pick(rng, [w for w, _ in records.leaves(donor)])[:1])
            new = mutate.pick(rng, (donor, other))
        else:
            new = mutate.pick(rng, odd)
        taken += judged(forged(records.put(tree, way, new)))
    assert taken
    assert set(sys.modules) == before


# ---- in words


def test_an_owner_reads_every_class_and_every_value():
    problem = Problem(
        bf.Logistic(),
        over_clients=bf.WassersteinOverClients(0.1, np.arange(9.0).reshape(3, 3) * 0, "size"),
        regulariser=bf.GroupL2(0.1, ("a", "a", "b")),
        local_constraint=(
            bf.NeymanPearson(1, {"north\x1b[2J": 0.25, "south": 0.5}),
            bf.Monotone([f"dose {k}" for k in range(120)]),
        ),
    )
    text = lines(problem)
    assert text[0] == f"digest: {digest(problem)}"
    assert text[1].startswith("statement: Problem. minimise R(F_1(w), ..., F_N(w)) + h(w)")
    for line in (
        "  loss: Logistic. log(1 + exp(-m)).",
        "    cost: 3 x 3 numbers from 0.0 to 0.0",
        "    groups: ('a', 'a', 'b')",
        "  local_constraint: 2 entries",
        "      level: 2 entries",
        r"        'north\x1b[2J': 0.25",
        "      features: 120 entries",
        "        100: 'dose 99'",
        "        and 20 more",
        "  privacy: None",
    ):
        assert line in text
    assert all(line.isprintable() and len(line) <= 240 for line in text)
