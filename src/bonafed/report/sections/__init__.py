"""The sections of a report, in the order of a page."""

from bonafed.report.blocks import About, Section
from bonafed.report.sections import (
    certificate,
    clients,
    constraints,
    evaluation,
    governance,
    opening,
    privacy,
    sweep,
)
from bonafed.runs.sections.section import Run

SECTIONS: tuple[About, ...] = (
    *(opening.about_trivial, privacy.about_guarantee, privacy.about_owners_part),
    *(opening.about_differences, opening.about_questions, opening.about_warnings),
    *(evaluation.about_quality, evaluation.about_evaluation, opening.about_checks),
    *(clients.about_coefficients, opening.about_summary),
    *(constraints.about_constraints, sweep.about_sweep),
    *(certificate.about_clock, certificate.about_certificate),
    *(clients.about_ranks, clients.about_clients),
    *(governance.about_governance, opening.about_configuration),
)


def told(run: Run) -> list[Section]:
    """The sections of which the run has anything."""
    return [section for about in SECTIONS if (section := about(run)) is not None]
