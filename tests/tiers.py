"""What the small tier runs: of a test with several parameters so many cases that each value of each
parameter occurs; of `examples.ALGORITHMS` one entry for each shape of messages, answers and memory;
and of tests that take long the parts below. ``--full`` runs everything.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
# files, or tests of them, that run with --full only: processes, daemons, notebooks
FULL = (
    "sites/test_over_flare.py",
    "sites/test_over_flower.py",
    "sites/test_three_hospitals.py",
    "sites/test_fresh_process.py",
    "test_kills.py",
    "test_notebooks.py",
    "test_site.py",
    "test_forgeries.py::test_random_forgeries_of_runs_with_constraints_are_found",
    "papers/drfl/test_admm.py::test_sampled_steps_come_near_but_never_claim_to_converge",
    "algorithms/test_bundle.py::test_programs_that_cannot_be_solved_are_never_called_optimal",
    "laws/test_combination_laws.py::test_every_algorithm_takes_or_refuses_in_words",
    "laws/test_combination_laws.py"
    "::test_bundle_takes_all_that_the_methods_take_that_name_it_at_their_cap",
    "privacy/test_accounting.py::test_noise_for_a_budget_never_overspends_and_hardly_wastes",
)
# of these files, or tests of them, one case in so many of each test with several cases
EVERY = {
    "algorithms/test_bundle_limits.py::test_pairs_are_proved_and_equal_a_central_solution": 7,
    "algorithms/test_bundle_limits.py::test_constraints_where_all_rows_are_ranked": 7,
    "test_forgeries.py::test_an_honest_run_verifies_whatever_its_method_and_its_end": 4,
    "sites/test_faults.py::test_lost_repeated_and_damaged_messages_change_no_bit": 2,
    "laws/test_combination_laws.py::test_a_file_is_taken_exactly_where_solve_takes_its_problem": 5,
    "laws/test_combination_laws.py::test_what_a_refusal_of_a_file_names_is_accepted": 4,
    "laws/test_clock_laws.py": 3,
    **dict.fromkeys(
        (
            "algorithms/test_bundle.py",
            "estimators/test_agnostic.py",
            "estimators/test_constrained.py",
            "estimators/test_private.py",
            "estimators/test_ranked.py",
            "estimators/test_robust.py",
            "privacy/test_attacks.py",
            "problem/test_supports.py",
        ),
        4,
    ),
    **dict.fromkeys(
        (
            "papers/drfl/test_admm.py",
            "papers/aspire/test_aspire.py",
            "algorithms/test_async_bundle.py",
            "algorithms/test_async_dro.py",
            "algorithms/test_interior_outcomes.py",
            "algorithms/test_interior_programs.py",
            "algorithms/test_min_max.py",
            "algorithms/test_private_admm.py",
            "algorithms/test_proximal_al.py",
            "algorithms/test_rank_admm_inputs.py",
            "algorithms/test_rank_admm_nonconvex.py",
            "papers/rank/test_rank_baselines.py",
            "papers/rank/test_smoothed_rank_admm.py",
            "algorithms/test_threshold_cuts.py",
            "certificates/test_constrained.py",
            "certificates/test_kkt.py",
            "papers/aspire/test_races.py",
            "laws/test_risk_laws.py",
            "privacy/test_accounting.py",
            "privacy/test_audit.py",
            "privacy/test_unfinished_rounds.py",
            "problem/test_class_balls.py",
            "problem/test_client_sets.py",
            "problem/test_curved_sets.py",
            "problem/test_polyhedron_kept.py",
            "papers/drfl/test_epigraph.py",
            "solvers/test_pava.py",
            "solvers/test_rank_newton.py",
        ),
        3,
    ),
}


def left_out(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """The tests and cases that only ``--full`` runs."""
    tests: dict[Hashable, list[Any]] = defaultdict(list)
    for item in items:
        tests[name_of(item)].append(item)
    for name, cases in tests.items():
        file = name.partition("::")[0]
        if file in FULL or name in FULL:
            yield from cases
        elif hasattr(cases[0], "callspec"):
            every = EVERY.get(name, EVERY.get(file, 1))
            kept = {*covering([values(case) for case in cases])[::every]}
            yield from (case for k, case in enumerate(cases) if k not in kept)


def name_of(item: Any) -> str:
    """The file and the function of a test, without its parameters."""
    file = item.path.relative_to(HERE).as_posix() if item.path.is_relative_to(HERE) else ""
    return f"{file}::{getattr(item, 'originalname', None) or item.name}"


def values(case: Any) -> dict[str, Hashable]:
    """What a case has to cover: of each list of parameters the place in it; of a list with entries
    of `examples.ALGORITHMS` their shapes and each other value.
    """
    of = case.callspec
    found: dict[str, Hashable] = {}
    for mark in case.iter_markers("parametrize"):
        names = mark.args[0]
        names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
        shapes = {name: shape_of(case.module, of.params[name]) for name in names}
        if any(shapes.values()):
            found |= {name: shapes[name] or str(of.params[name]) for name in names}
        else:
            found[names[0]] = of.indices[names[0]]
    return found or dict(of.indices)  # of a fixture


def shape_of(module: Any, value: Any) -> Hashable:
    """The shape of an example or of the name of one, in a file about `examples.ALGORITHMS`; None of
    all else.
    """
    examples = sys.modules.get("examples")
    if examples is None or not (hasattr(module, "ALGORITHMS") or hasattr(module, "examples")):
        return None
    example = examples.ALGORITHMS.get(value) if isinstance(value, str) else value
    return shape(example) if isinstance(example, examples.Example) else None


@cache
def shape(example: Any) -> Hashable:
    """What an engine sees of an algorithm."""
    of, fed = example.algorithm, example.federation
    memory = type(of.client_start(fed.blocks(1)[0]))
    return frozenset(of.on_client), frozenset(of.on_server), memory, of.donates, of.private


def covering(cases: Sequence[dict[str, Hashable]]) -> list[int]:
    """Few cases, in order, in which each value of each parameter occurs: the next is one with the
    most values that are new, and of these one whose values occurred least.
    """
    if len(cases[0]) == 1:  # the first with each
        first = {(*case.items(),): k for k, case in reversed([*enumerate(cases)])}
        return sorted(first.values())
    cases = [[*case.items()] for case in cases]
    left, seen, found = {pair for case in cases for pair in case}, Counter(), []
    while left:
        new = [sum(pair in left for pair in case) for case in cases]
        most = max(new)
        best = min(
            (k for k, n in enumerate(new) if n == most),
            key=lambda k: sum(seen[pair] for pair in cases[k]),
        )
        left.difference_update(cases[best])
        seen.update(cases[best])
        found.append(best)
    return sorted(found)
