"""The sections of a report, in the order of a page."""

from bonafed.report.sections.certificate import Certificate, Clock
from bonafed.report.sections.constraints import Constraints
from bonafed.report.sections.evaluation import Evaluation, Quality
from bonafed.report.sections.model import Clients, Coefficients, Ranks
from bonafed.report.sections.opening import Checks, Opening, Summary, Trivial, Warnings
from bonafed.report.sections.privacy import Border, Configuration, Guarantee, Messages, OwnersPart
from bonafed.report.sections.section import ReportSection
from bonafed.report.sections.sweep import Sweep

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
