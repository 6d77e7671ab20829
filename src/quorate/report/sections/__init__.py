"""The sections of a report, in the order of a page."""

from quorate.report.sections.border import Border
from quorate.report.sections.certificate import Certificate
from quorate.report.sections.checks import Checks
from quorate.report.sections.clients import Clients
from quorate.report.sections.clock import Clock
from quorate.report.sections.coefficients import Coefficients
from quorate.report.sections.constraints import Constraints
from quorate.report.sections.evaluation import Evaluation
from quorate.report.sections.messages import Configuration, Messages
from quorate.report.sections.privacy import Guarantee, OwnersPart
from quorate.report.sections.privacy_curve import PrivacyCurve
from quorate.report.sections.quality import Quality
from quorate.report.sections.questions import Opening
from quorate.report.sections.radius_path import RadiusPath
from quorate.report.sections.ranks import Ranks
from quorate.report.sections.section import ReportSection
from quorate.report.sections.summary import Summary, Warnings
from quorate.report.sections.trade_off import TradeOff
from quorate.report.sections.trivial import Trivial

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
    PrivacyCurve(),
    Constraints(),
    TradeOff(),
    Clock(),
    Certificate(),
    Ranks(),
    Clients(),
    RadiusPath(),
    Border(),
    Messages(),
    Configuration(),
)
