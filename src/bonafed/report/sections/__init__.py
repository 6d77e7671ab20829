"""The sections of a report, in the order of a page."""

from bonafed.report.sections.border import Border
from bonafed.report.sections.certificate import Certificate
from bonafed.report.sections.checks import Checks
from bonafed.report.sections.clients import Clients
from bonafed.report.sections.clock import Clock
from bonafed.report.sections.coefficients import Coefficients
from bonafed.report.sections.constraints import Constraints
from bonafed.report.sections.evaluation import Evaluation
from bonafed.report.sections.messages import Configuration, Messages
from bonafed.report.sections.privacy import Guarantee, OwnersPart
from bonafed.report.sections.quality import Quality
from bonafed.report.sections.questions import Opening
from bonafed.report.sections.ranks import Ranks
from bonafed.report.sections.section import ReportSection
from bonafed.report.sections.summary import Summary, Warnings
from bonafed.report.sections.sweep import Sweep
from bonafed.report.sections.trivial import Trivial

SECTIONS: tuple[ReportSection, ...] = (
    Trivial(),
    Guarantee(),
    OwnersPart(),
    Opening(),
    Warnings(),
    Quality(),
    Evaluation(),
    Checks(),
    Coefficients(),
    Summary(),
    Constraints(),
    Sweep(),
    Clock(),
    Certificate(),
    Ranks(),
    Clients(),
    Border(),
    Messages(),
    Configuration(),
)
