"""All sections of a run, in the order in which they are trained, judged and checked."""

from bonafed.runs.sections.checks import DataChecks, Trivial
from bonafed.runs.sections.clock import Clock
from bonafed.runs.sections.constraints import Constraints, Ranks
from bonafed.runs.sections.privacy import Privacy
from bonafed.runs.sections.section import Section
from bonafed.runs.sections.sweep import Sweep

SECTIONS: tuple[Section, ...] = (
    *(Trivial(), Ranks(), Constraints(), Clock(), Privacy(), Sweep(), DataChecks()),
)
