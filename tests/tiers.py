"""What the small tier runs: of a test with several parameters so many cases that each value of each
parameter occurs; of `examples.ALGORITHMS` one entry for each shape of messages, answers and memory;
and of tests that take long the parts below. ``--full`` runs everything.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
# files, or tests of them, that run with --full only: processes, daemons, notebooks
FULL = (
    "engines/test_flare.py::test_three_processes_step_exactly_once_and_filters_see_tasks_only",
    "sites/test_over_flare.py",
    "sites/test_over_flower.py",
    "sites/test_three_hospitals.py",
    "people/test_real_machines.py::test_every_command_of_the_page_that_one_machine_can_run",
    "sites/test_fresh_process.py",
    "sites/test_audit_log.py::test_several_processes_write_one_after_the_other",
    "test_kills.py",
    "test_notebooks.py",
    "test_site.py",
    "test_output.py::test_any_encoding_a_gone_reader_and_sigterm_lose_nothing",
    "test_work.py::test_of_two_that_go_on_with_a_run_one_works_and_the_other_is_told_who",
    "test_forgeries.py::test_random_forgeries_of_runs_with_constraints_are_found",
    "papers/drfl/test_admm.py::test_sampled_steps_come_near_but_never_claim_to_converge",
    "algorithms/test_bundle.py::test_programs_that_cannot_be_solved_are_never_called_optimal",
    "algorithms/test_async_dro.py::test_every_set_is_solved_at_one_setting",
    "border/test_forged_folders.py::test_of_a_run_over_a_carrier_as_well",
    "certificates/test_stationary.py::test_it_is_small_where_scipy_comes_to_rest",
    "solution/test_shapes.py::test_most_are_proved",
    "problem/test_polyhedron_kept.py::test_a_new_process_answers_alike",
    "test_statements.py::test_no_pair_of_arrays_makes_a_constructor_need_their_product",
    "privacy/test_audit.py::test_one_run_measures_the_noise_of_a_calibrated_gaussian",
    "privacy/test_ledger.py"
    "::test_processes_that_write_at_once_lose_nothing_and_stay_within_the_budget",
    "laws/test_combination_laws.py::test_every_algorithm_takes_or_refuses_in_words",
    "laws/test_combination_laws.py"
    "::test_bundle_takes_all_that_the_methods_take_that_name_it_at_their_cap",
    "privacy/test_audit.py::test_the_bound_nears_the_truth_where_the_attack_is_the_best_one",
    "privacy/test_accounting.py::test_noise_for_a_budget_never_overspends_and_hardly_wastes",
)
# tests whose parameters go together freely, though they are given as tuples
FREE = (
    "algorithms/test_bundle_limits.py::test_pairs_are_proved_and_equal_a_central_solution",
    "algorithms/test_bundle_limits.py::test_constraints_where_all_rows_are_ranked",
)
# of these files, or tests of them, one case in so many of each test with several cases
EVERY = {
    "algorithms/test_async_dro.py::test_the_slowest_of_few_clients_may_weigh_the_most": 6,
    "algorithms/test_bundle.py::test_equals_the_central_optimum": 9,
    "algorithms/test_bundle_limits.py": 2,
    "algorithms/test_client_sets.py::test_every_set_against_one_program": 2,
    "algorithms/test_client_sets.py::test_the_central_program_takes_every_set": 2,
    "algorithms/test_integer_gradient.py": 2,
    "algorithms/test_one_ulp.py": 3,
    "border/test_asked_over_carriers.py": 3,
    "border/test_forged_folders.py::test_a_run_by_any_method_over_sites_keeps_the_law": 4,
    "border/test_forged_folders.py::test_of_a_run_in_one_place_each_key_is_computed_again_or_listed"
    "": 16,
    "border/test_forged_folders.py::test_without_keys_more_is_listed_and_nothing_is_left_out": 3,
    "border/test_carriers.py"
    "::test_masks_carry_the_same_model_everywhere_and_nothing_unannounced": 3,
    "border/test_carriers.py"
    "::test_under_masks_a_liar_is_named_by_what_is_in_the_clear_and_never_optimal": 2,
    "border/test_judged_pairs.py::test_two_models_that_differ_by_little_tell_nobodys_class": 3,
    "border/test_forged_folders.py"
    "::test_of_a_run_over_sites_each_key_is_computed_again_signed_or_listed": 3,
    "border/test_judged_pairs.py::test_the_model_of_every_method_is_judged": 4,
    "border/test_masked_liars.py::test_a_sum_is_held_against_what_rows_can_be": 3,
    "border/test_rows_read.py": 5,
    "engines/test_impossible_checkpoints.py": 2,
    "engines/test_event_files.py::test_a_real_ctrl_c_waits_for_the_server_and_can_be_resumed": 2,
    "engines/test_inprocess.py::test_a_real_ctrl_c_ends_cleanly_and_can_be_resumed": 3,
    "engines/test_inprocess.py::test_an_interruption_at_any_line_leaves_a_run_that_can_go_on": 2,
    "engines/test_secure_sums.py::test_every_algorithm_gives_what_it_gives_without": 2,
    "laws/test_constraint_laws.py::test_convex_and_affine_claims_hold_on_segments": 2,
    "laws/test_engine_laws.py::test_a_blocked_run_ends_where_one_by_one_ends": 2,
    "laws/test_engine_laws.py::test_no_delay_changes_a_synchronous_algorithm": 2,
    "papers/drfl/test_admm.py::test_converges_to_the_central_optimum_primal_and_dual": 12,
    "papers/drfl/test_risk_admm.py": 2,
    "papers/aspire/test_aspire.py::test_every_set_of_weights": 2,
    "privacy/test_discrete_noise.py::test_tables_are_exact": 2,
    "report/test_report.py::test_nothing_is_cut_on_a_screen_a_phone_or_paper": 5,
    "report/test_private_report.py::test_runs_of_other_kinds_have_both_reports": 3,
    "report/test_sections.py::test_every_figure_has_one_place_and_every_chapter_one_anchor": 2,
    "sites/test_equality.py::test_iterates_across_sites_are_those_one_by_one": 2,
    "sites/test_run_at_sites.py::test_a_folder_over_sites_is_read_drawn_and_checked": 2,
    "sites/test_signatures.py::test_a_certificate_follows_from_what_the_sites_signed": 2,
    "sites/test_faults.py::test_a_site_whose_disk_is_lost_takes_part_again": 2,
    "solution/test_shapes.py::test_no_bound_is_above_an_independent_optimum": 30,
    "solution/test_object.py::test_every_kind_of_run_is_described_drawn_saved_and_read": 2,
    "test_solve.py::test_modes_end_with_the_same_certificate": 3,
    "privacy/test_audit.py"
    "::test_a_calibrated_mechanism_stands_and_one_with_too_little_noise_falls": 9,
    "privacy/test_attacks.py::test_no_attack_shows_more_than_the_stated_epsilon": 10,
    "test_client_names.py::test_the_clock_takes_numbers_and_text": 2,
    "test_config.py::test_every_algorithm_that_can_be_named_solves_and_verifies": 3,
    "test_defaults.py::test_limits_hold_on_either_side": 3,
    "test_folder_checks.py::test_another_schema_or_class_or_loss_is_found_even_resealed": 3,
    "test_forgeries.py::test_an_honest_run_verifies_whatever_its_method_and_its_end": 8,
    "test_forgeries.py::test_an_honest_run_verifies_with_digests_made_anew": 3,
    "test_forgeries.py::test_a_run_shows_30_lines_and_with_verbose_all_of_its_report": 3,
    "test_output.py::test_a_run_without_streams_or_on_a_full_disk_is_finished": 2,
    "test_private_intervals.py::test_they_hold_the_truth_as_often_as_they_say": 3,
    "test_sweep.py::test_a_better_looking_sweep_is_found_even_resealed": 2,
    "test_rank_trial.py::test_a_changed_number_is_found": 3,
    "test_runs_constrained.py::test_a_changed_number_is_found": 3,
    "test_runs_form.py::test_whatever_a_key_holds_a_run_is_read_or_refused_in_one_line": 4,
    "test_runs_private_books.py::test_a_run_that_dies_between_its_charge_and_its_first_rounds_goes"
    "_on": 4,
    "test_untidy.py::test_an_untidy_table_passes_without_an_edit": 2,
    "test_untidy.py::test_whatever_init_writes_is_read_without_an_edit": 12,
    "test_untidy.py::test_whatever_init_writes_runs_and_predicts_without_an_edit": 20,
    "people/test_exports.py::test_an_export_is_run_predicted_and_verified_without_an_edit": 9,
    "sites/test_run_at_sites.py::test_a_run_that_is_cut_short_goes_on_to_the_same_bits": 2,
    "sites/test_faults.py::test_lost_repeated_and_damaged_messages_change_no_bit": 2,
    "laws/test_combination_laws.py::test_a_file_is_taken_exactly_where_solve_takes_its_problem": 5,
    "laws/test_combination_laws.py::test_methods_that_a_refusal_of_a_file_names_are_accepted": 4,
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
            kept = {*covering([values(case, name in FREE) for case in cases])[::every]}
            yield from (case for k, case in enumerate(cases) if k not in kept)


def name_of(item: Any) -> str:
    """The file and the function of a test, without its parameters."""
    file = item.path.relative_to(HERE).as_posix() if item.path.is_relative_to(HERE) else ""
    return f"{file}::{getattr(item, 'originalname', None) or item.name}"


def values(case: Any, free: bool = False) -> dict[str, Hashable]:
    """What a case has to cover: of each list of parameters its entry; of a list with entries of
    `examples.ALGORITHMS` their shapes and each other value, and where they go together freely each
    value.

    An entry is known by the objects in it: the indices of a case count the cases of the test.
    """
    of, stated = case.callspec, set[str]()
    found: dict[str, Hashable] = {}
    for mark in case.iter_markers("parametrize"):
        names = mark.args[0]
        names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
        stated.update(names)
        shapes = {name: shape_of(case.module, of.params[name]) for name in names}
        if free or any(shapes.values()):
            found |= {name: shapes[name] or str(of.params[name]) for name in names}
        else:
            found[names[0]] = tuple(id(of.params[name]) for name in names)
    of_fixtures = {name: id(value) for name, value in of.params.items() if name not in stated}
    return found | of_fixtures


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
    return frozenset(of.on_client), frozenset(of.on_server), memory, of.mutates_state, of.private


def covering(cases: Sequence[dict[str, Hashable]]) -> list[int]:
    """Few cases, in order, in which each value of each parameter occurs: the next is one with the
    most values that are new, and of these one whose values occurred least.
    """
    if len(cases[0]) == 1:  # the first with each
        first = {(*case.items(),): k for k, case in reversed([*enumerate(cases)])}
        return sorted(first.values())
    number: dict[Any, int] = {}
    pairs = np.array([[number.setdefault(p, len(number)) for p in c.items()] for c in cases])
    left, seen, found = np.ones(len(number), bool), np.zeros(len(number)), []
    while left.any():
        best = int(np.lexsort((seen[pairs].sum(1), -left[pairs].sum(1)))[0])
        left[pairs[best]] = False
        seen[pairs[best]] += 1
        found.append(best)
    return sorted(found)
