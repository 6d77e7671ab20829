"""The public part of a private solution: the same bytes for neighbours that answer alike, and of
what is not paid for nothing, in attributes, files, pickles and texts.
"""

import copy
import pickle
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import pytest
from private_cases import answer_alike

import bonafed as bf
from bonafed.codec import encode
from bonafed.solution.solution import HISTORY, WITHHELD, Solution, described

SIZES = {"south": 60, "north": 60, "east": 60}  # east may be without rows


class Rows(NamedTuple):
    X: Any
    y: Any
    clients: Any


def drawn(n=80, clients=("north", "south", "east")):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (n, 3))
    return Rows(X, (X[:, 0] > 0).astype(int), np.array(clients)[np.arange(n) % len(clients)])


def solved(rows, sizes=SIZES, noise="secure", **options):
    fed = bf.Federation.from_arrays(rows.X, rows.y, rows.clients, classes=[0, 1])
    problem = bf.Problem(
        bf.Logistic(),
        bf.Linear(True),
        over_clients=bf.Mean("size"),
        regulariser=bf.L2(1e-3),
        privacy=bf.Budget(1.0, 1e-4, sizes=sizes),
    )
    algorithm = bf.PrivateADMM(max_rounds=3, noise=noise, **options)
    return bf.solve(problem, fed, algorithm=algorithm, seed=3)


def shown(solution, folder):
    """All that leaves: attributes, pickles, a file and texts."""
    part, file = solution.public(), folder / "file"
    solution.save(file)
    again = bf.load(file)
    kept = [described(getattr(part, name)) for name in vars(part)]
    texts = [text for each in (solution, part, again) for text in (repr(each), str(each))]
    pickles = [pickle.dumps(each) for each in (solution, part)]
    html = [each._repr_html_() for each in (solution, part, again)]
    part.save(folder / "part")
    return [encode(tuple(kept)), *pickles, file.read_bytes(), (folder / "part").read_bytes()], [
        *texts,
        *html,
    ]


@pytest.mark.parametrize("noise", ["secure", "simulation"])
def test_neighbours_that_answer_alike_leave_the_same_bytes(noise, monkeypatch, tmp_path):
    answer_alike(monkeypatch)
    rows = drawn()
    base = shown(solved(rows, noise=noise), tmp_path)
    for gone in (0, 1, 41):  # of the first rows the names are in the order of the clients
        kept = np.arange(80) != gone
        assert shown(solved(Rows(*(part[kept] for part in rows)), noise=noise), tmp_path) == base
    X, y = rows.X.copy(), rows.y.copy()
    X[5], y[5] = [1e6, -3.0, 0.25], 1 - y[5]
    assert shown(solved(Rows(X, y, rows.clients), noise=noise), tmp_path) == base
    other = shown(solved(rows, {**SIZES, "east": 61}, noise), tmp_path)
    assert all(a != b for a, b in zip(other[0], base[0], strict=True))  # and bytes are compared


def test_the_only_row_of_a_client_leaves_the_same_bytes(monkeypatch, tmp_path):
    answer_alike(monkeypatch)
    rows = drawn(clients=("north", "south"))
    own = Rows(
        np.vstack([rows.X, [[0.5, 0.5, 0.5]]]), np.append(rows.y, 1), [*rows.clients, "east"]
    )
    with_it, without = solved(own), solved(rows)
    assert len(with_it.clients) == 3
    assert len(without.clients) == 2
    assert shown(with_it, tmp_path) == shown(without, tmp_path)
    assert [row["client"] for row in without.public().clients] == sorted(SIZES)


def test_of_what_is_not_paid_for_there_is_nothing():
    solution = solved(drawn())
    part = solution.public()
    assert set(vars(part)) | {*WITHHELD} == {f.name for f in fields(Solution)}
    assert not set(vars(part)) & {*WITHHELD}
    for name in WITHHELD:
        getattr(solution, name)  # the owners have it
        with pytest.raises(AttributeError, match=rf"has no {name}: .*owners have it.*\.{name}"):
            getattr(part, name)
    assert {key for row in part.history for key in row} <= {*HISTORY}
    assert [set(row) for row in part.clients] == 3 * [{"client", "n"}]
    assert part.public() is part
    held = pickle.dumps(solution) + pickle.dumps(part)
    proof = solution.certificate
    for number in (proof.value, *proof.client_losses, solution.seconds, *solution.copies.ravel()):
        assert np.float64(number).tobytes() not in held
        assert np.float64(number).tobytes()[::-1] not in held  # as pickles have floats
    released = np.float64(part.w[0]).tobytes()
    assert released in held


def test_a_public_part_predicts_draws_and_travels(tmp_path):
    rows = drawn()
    solution = solved(rows)
    solution.save(tmp_path / "file")
    parts = [
        solution.public(),
        pickle.loads(pickle.dumps(solution)),
        bf.load(tmp_path / "file"),
        pickle.loads(pickle.dumps(solution.public())),
        copy.deepcopy(solution.public()),
    ]
    fed = bf.Federation.from_arrays(rows.X, rows.y, rows.clients, classes=[0, 1])
    for part in parts:
        assert not hasattr(part, "certificate")
        assert part.predict(rows.X).tolist() == solution.predict(rows.X).tolist()
        assert [*part.evaluate(fed)] == [*solution.evaluate(fed)]
        assert part.private
        assert part.ledger.text == solution.ledger.text
    pytest.importorskip("matplotlib")
    for kind in ("convergence", "clients", "weights"):
        assert parts[0].plot(kind) is not None


def test_a_copy_within_the_process_is_whole():
    solution = solved(drawn())
    for copied in (copy.copy(solution), copy.deepcopy(solution)):
        assert copied.certificate.value == solution.certificate.value
        assert copied.seconds == solution.seconds
    assert copy.deepcopy(solution).w is not solution.w


def test_without_a_budget_all_of_a_solution_is_public():
    rows = drawn()
    fed = bf.Federation.from_arrays(*rows)
    solution = bf.solve(bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1)), fed)
    assert solution.public() is solution
    again = pickle.loads(pickle.dumps(solution))
    assert again.certificate.value == solution.certificate.value
    assert again.seconds == solution.seconds
