"""All sections of a run, in the order in which they are trained, judged and checked."""

from __future__ import annotations

from bonafed.runs.sections.checks import DataChecks
from bonafed.runs.sections.clock import Clock
from bonafed.runs.sections.constraints import Constraints
from bonafed.runs.sections.privacy import Privacy
from bonafed.runs.sections.privacy_curve import PrivacyCurve
from bonafed.runs.sections.radius_path import RadiusPath
from bonafed.runs.sections.ranks import Ranks
from bonafed.runs.sections.section import Section
from bonafed.runs.sections.trade_off import TradeOff
from bonafed.runs.sections.trivial import Trivial

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
