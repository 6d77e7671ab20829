"""All sections of a run, in the order in which they are trained, judged and checked."""

from __future__ import annotations

from quorate.runs.sections.checks import DataChecks
from quorate.runs.sections.clock import Clock
from quorate.runs.sections.constraints import Constraints
from quorate.runs.sections.privacy import Privacy
from quorate.runs.sections.privacy_curve import PrivacyCurve
from quorate.runs.sections.radius_path import RadiusPath
from quorate.runs.sections.ranks import Ranks
from quorate.runs.sections.section import Section
from quorate.runs.sections.trade_off import TradeOff
from quorate.runs.sections.trivial import Trivial

SECTIONS: tuple[Section, ...] = (
    Trivial(),
    Ranks(),
    Constraints(),
    RadiusPath(),
    TradeOff(),
    Clock(),
    Privacy(),
    PrivacyCurve(),
    DataChecks(),
)
