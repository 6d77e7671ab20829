"""The policy of a site: what its owner lets others compute on its rows.

A site holds every run that it is asked for against its policy before the first step, and every
message before it is answered. The policy stands in the site's own ``site.toml`` and nowhere else:
nothing that a server sends can change it. A rule that cannot be judged, because a fact of the run
is not known, refuses the run.

`RULES` is the table of all rules: a rule is added there, with what it is called, means and checks,
and nowhere else. Rules and defaults are those that data owners know from DataSHIELD (the options
``nfilter.*`` of its package dsBase) and from vantage6 (the settings ``GLM_*`` of its generalised
linear model, and the ``policies`` of a node). Where their defaults differ, the stricter one stands
here: DataSHIELD lets a model have a parameter for every three rows, vantage6 one for every ten.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import numpy as np
from pydantic import Field, PlainValidator, create_model, model_validator

from bonafed.config.schema import Count, Positive, Probability, Section
from bonafed.config.sections import ConstraintSection
from bonafed.config.toml_file import Refusal as Fault
from bonafed.config.toml_file import not_among
from bonafed.data.profile import fold
from bonafed.names import NAMED
from bonafed.problem.constraints.constraint import Slot, Stack, Stated, several
from bonafed.problem.constraints.group_means import MOST_GROUPS, Coupled, Global, Score
from bonafed.text import shown

if TYPE_CHECKING:
    from bonafed.problem.metadata import Introduced


FILE = "[policy] of site.toml"


class When(enum.IntEnum):
    """When a rule is judged: as soon as its facts are there, and again at every later step of a
    run up to its beginning. Messages are judged one by one.
    """

    SERVER = 0  # who asks
    PROBLEM = 1  # the problem and the columns, before any row is read
    ROWS = 2  # the rows
    TOLD = 3  # what the site would tell of them
    SIZE = 4  # how large the model is
    AGREEMENT = 5  # who takes part, and the problem with all their facts
    RUN = 6  # the algorithm
    MESSAGE = 7  # the class of a message
    PARTS = 8  # the groups of rows that a message asks about


def _algorithms(value: object) -> list[str]:
    """Short names of algorithms, or modules and classes of other people's."""
    for name in (names := _texts(value)):
        if name not in NAMED["algorithm"] and ":" not in name:
            raise ValueError(Fault(not_among(name, [*NAMED["algorithm"]])))
    return names


def _digests(value: object) -> list[str]:
    """Whole digests in hexadecimal digits, since the first digits are easily those of another."""
    digests = [_plain(text) for text in _texts(value)]
    if any(len(text) < 32 or {*text} - {*"0123456789abcdef"} for text in digests):
        raise ValueError("allowed: a list of digests, each of at least 32 hexadecimal digits")
    return digests


def _plain(digest: str) -> str:
    """A digest without what makes it easier to read: groups of digits, and the kind before it."""
    return digest.lower().removeprefix("sha256:").replace("-", "")


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(v, str) and v.strip() for v in value):
        raise ValueError("allowed: a list of texts, none of them empty")
    return value


Names = Annotated[list[str] | None, PlainValidator(_texts)]
Algorithms = Annotated[list[str] | None, PlainValidator(_algorithms)]
Digests = Annotated[list[str] | None, PlainValidator(_digests)]


# ------------------------------------------------------------------------------- what is asked for


@dataclass(frozen=True)
class LevelCount:
    """The smallest category level of a column at this site: how many rows have it.

    ``level`` is its name, only where the policy allows to tell it (``show_levels``).
    """

    column: str
    rows: int
    level: str | None = None


@dataclass(frozen=True)
class Proposal:
    """The facts of a run that a server asks a site to take part in. None: not known.

    Attributes
    ----------
    server : who asks
    site : the name under which this site takes part
    problem_digest, software_digest : hexadecimal digests of the problem and of the software
    version : of bonafed, at the server
    algorithm : its short name, such as "bundle", or module and class of other people's
    messages : the classes of the messages that the server will send
    sites : the names of all sites that take part
    columns : of the table that features, target, groups and persons are made of
    parameters : D, how many numbers the model has
    rows : of this site that take part
    levels : the smallest level of every column with categories; () where no column has any
    epsilon, delta : the privacy budget of the run; epsilon is inf where it has none
    constraints : those of the problem, see `held_constraints`
    held_out : rows of this site that would be held out
    told : what the site would tell of its rows
    averaged : over what the answers average beside all rows, and over how many rows each
    jumps : why two answers may differ by a single row, in words; "" where they do not
    parts : the rows of the smallest group that a message asks about
    """

    server: str | None = None
    site: str | None = None
    problem_digest: str | None = None
    software_digest: str | None = None
    version: str | None = None
    algorithm: str | None = None
    messages: Sequence[str] | None = None
    sites: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    parameters: int | None = None
    rows: int | None = None
    levels: Sequence[LevelCount] | None = None
    epsilon: float | None = None
    delta: float | None = None
    constraints: Sequence[Held] | None = None
    held_out: int | None = None
    told: Introduced | None = None
    averaged: Sequence[tuple[str, int]] | None = None
    jumps: str | None = None
    parts: int | None = None

    @property
    def private(self) -> bool:
        """Whether the run has a privacy budget."""
        return self.epsilon is not None and self.epsilon < math.inf


@dataclass(frozen=True)
class Refusal:
    """Why a site does not do what it is asked.

    Attributes
    ----------
    rule : the key of the policy
    text : for the people of the site: what was given, what is needed, what to do
    answer : for the server: the same without a number that was counted in the site's rows
    """

    rule: str
    text: str
    answer: str


# ---------------------------------------------------------------------------------------- the rules

LISTED = "what is (not) listed"
PRIVACY = "a problem with a larger privacy budget, or none"
FEW_ROWS = (
    "fewer rows of the site, held out, or of a group whose mean or cut is told; of a category"
    " level, missing cells included"
)
SITES = "fewer sites; only known names count, as a server may invent others"
MODELS = (
    "longer models, in units of the columns (and of a target of numbers); more models in an"
    " experiment"
)
DIGESTS = "other digests"

Check: TypeAlias = Callable[["Policy", Proposal], Iterator[Refusal]]


@dataclass(frozen=True)
class Rule:
    """A rule of the policy: a key of [policy], what it means, and what it refuses.

    Attributes
    ----------
    name, type, default : of the key
    stated : what it means, a sentence with ``{}`` for the value
    page : what it refuses, in the table of the documentation; rules with one text share a line
    checks : yield why a run is refused, by the step at which their facts are known; none for a rule
        that is held against answers and counts
    absent : what holds where the key is not stated
    example : a value to show where there is no default; of several lines, the lines
    known : the same setting elsewhere, such as "DataSHIELD: nfilter.tab = 3"
    of_rows : whether a refusal depends on rows, so that the server is not told why
    """

    name: str
    type: Any
    default: Any
    stated: str
    page: str
    checks: Mapping[When, Check] = field(default_factory=dict)
    absent: str = ""
    example: str = ""
    known: tuple[str, ...] = ()
    of_rows: bool = False

    def about(self) -> str:
        """The meaning without a value, for a comment."""
        text = self.stated.removesuffix(": {}").format("N")
        return f"{text}; where this is not stated, {self.absent}" if self.absent else text

    def words(self, value: Any) -> Iterator[str]:
        """What holds with a value, a sentence for each of several constraints."""
        many = self.default == []
        for one in value if many else [] if value is None else [value]:
            yield self.stated.format(_value(one))
        if value is None or (many and not value):
            yield self.absent

    @property
    def key(self) -> str:
        """The key with its default, for the table of the documentation."""
        if self.default == []:
            return f"`[[policy.{self.name}]]`"
        default = "" if self.default is None else f" ({json.dumps(self.default)})"
        return f"`{self.name}`{default.replace('.0)', ')')}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return value.words() if isinstance(value, ConstraintSection) else str(value)


def rows_in_words(rows: int) -> str:
    """Such as "1 row" and "1,200 rows"."""
    return f"{rows:,} row{'s' * (rows != 1)}"


def refused(rule: str, text: str, do: str = "", answer: str = "", ask: str = "") -> Refusal:
    """A refusal: to the site ``text`` and what to ``do``, to the server ``answer`` (by default the
    same text) and what to ``ask`` for.
    """
    mine, theirs = (
        ". ".join(one.removesuffix(".") for one in each if one)
        for each in ((text, do), (answer or text, ask))
    )
    return Refusal(rule, f"{rule}: {mine}.", f"{rule}: {theirs}.")


def _unknown(rule: str, what: str) -> Refusal:
    ask = "Ask for it to be stated"
    return refused(rule, f"{what} is not known, so this rule cannot be judged", ask, ask=ask)


def _first(names: Sequence[str], most: int = 6) -> str:
    """The first of several names, whole, since digests are copied from here."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + more


def _among(rule: str, what: str, fact: str) -> Check:
    """The check of a rule that lists what is allowed; None allows everything."""

    def check(policy: Policy, run: Proposal) -> Iterator[Refusal]:
        allowed, given = getattr(policy, rule), getattr(run, fact)
        if allowed is None:
            return
        if given is None:
            yield _unknown(rule, what)
            return
        given = [_plain(given) if "digest" in fact else given] if isinstance(given, str) else given
        given = [name.rpartition(":")[2] for name in given] if fact == "messages" else given
        if odd := [name for name in dict.fromkeys(given) if name not in allowed]:
            text = f"{what} {_first(odd)} is not among those allowed"
            do = f"Add it to {rule} in {FILE}, or take no part"
            yield refused(rule, f"{text}: {_first(allowed) or 'none'}", do, answer=text)

    return check


def _listing(
    name: str, what: str, fact: str, when: Sequence[When], *words: Any, type: Any = None
) -> Rule:
    """A rule that lists what is allowed of a fact: ``what`` it is called, and the words `Rule`."""
    check, (stated, *more) = _among(name, what, fact), words
    page = DIGESTS if type is Digests else LISTED
    return Rule(name, type or Names, None, stated, page, dict.fromkeys(when, check), *more)


def _kept_back(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    rule, kept = "disallowed_columns", policy.disallowed_columns
    if kept is not None and run.columns is None:
        yield _unknown(rule, "column")
    elif odd := [name for name in dict.fromkeys(run.columns or ()) if name in (kept or ())]:
        text = f"column {_first(odd)} is kept back by this site"
        yield refused(rule, text, "Ask for a run without it")


def _organizations(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    rule, least, listed = "minimum_organizations", policy.minimum_organizations, None
    if policy.known_organizations is not None:
        listed = {fold(name) for name in policy.known_organizations}
    if run.sites is None:
        yield _unknown(rule, "who takes part")
        return
    names = {fold(name): name for name in run.sites}  # one in another spelling is the same
    counted = [name for folded, name in names.items() if listed is None or folded in listed]
    if len(counted) < least:
        who = f" ({_first(counted)})" if counted else ""
        known = "known " if listed is not None else ""
        text = f"{len(counted)} of the {least} {known}organisations that are needed take part{who}"
        yield refused(rule, text, f"Wait for others, or lower {rule} in {FILE}")


def _rows(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    rule, least = "minimum_rows", policy.minimum_rows
    if run.rows is None:
        yield _unknown(rule, "the number of rows")
    elif not run.rows >= least:
        yield refused(
            rule,
            f"{rows_in_words(run.rows)} of this site would take part, and {least} are needed",
            f"Add rows, or lower {rule} in {FILE}",
            "fewer rows than this site's policy needs",
            "Leave the site out, or ask its owner",
        )
    if run.held_out is None:
        yield _unknown(rule, "how many rows would be held out")
    elif 0 < run.held_out < least:  # the others, and a model on these, would tell of them
        yield refused(
            rule,
            f"{rows_in_words(run.held_out)} of this site would be held out, and {least} are needed",
            f"Take no part, or lower {rule} in {FILE}",
            "fewer rows would be held out than this site needs",
            "Hold out a larger share or none, or ask the site's owner",
        )


def _means(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    """Answers that are means over too few rows, such as of a group or the largest losses."""
    rule, least = "minimum_rows", policy.minimum_rows
    if run.averaged is None:
        yield _unknown(rule, "over which rows the run averages")
    for what, rows in run.averaged or ():
        if 0 < rows < least:
            yield refused(
                rule,
                f"the run averages over {what}, {rows_in_words(rows)} of this site, and {least}"
                " are needed",
                f"Take no part, or lower {rule} in {FILE}",
                f"the run averages over {what}, which are too few here",
                "Use coarser groups or a larger share, or ask the site's owner",
            )


def _parts(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    rule, least = "minimum_rows", policy.minimum_rows
    if run.parts is None:
        yield _unknown(rule, "the groups of rows of a message")
    elif not run.parts >= least:
        yield refused(
            rule,
            f"the run adds up groups of {rows_in_words(run.parts)} of this site, and {least} are"
            " needed",
            f"Take no part, or lower {rule} in {FILE}",
            "the run adds up groups of fewer rows than this site allows",
            "Ask for groups of more rows, Bundle(least_rows=...), or for one cut a client,"
            " Bundle(cuts=1)",
        )


def _levels(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    rule, least = "minimum_level_rows", policy.minimum_level_rows
    if run.levels is None:
        yield _unknown(rule, "how many rows every category level has")
        return
    for level in run.levels:
        if level.rows and not level.rows >= least:  # as nfilter.tab, about counts above 0
            named = f" {shown(level.level)}" if policy.show_levels and level.level else ""
            yield refused(
                rule,
                f"column {shown(level.column)} has a level{named} with"
                f" {rows_in_words(level.rows)} of this site, and {least} are needed",
                f"Merge levels, leave the column out, or lower {rule} in {FILE}",
                "a category level has fewer rows than this site's policy needs",
                "Use fewer columns or coarser categories, or ask the site's owner",
            )


def _groups(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    """What the site would tell of groups of its rows."""
    rule, least = "minimum_level_rows", policy.minimum_level_rows
    if run.told is None:
        yield _unknown(rule, "what the site would tell of its rows")
        return
    for name, values in run.told.values.items():
        if len(values) > MOST_GROUPS:
            yield refused(rule, f"column {name!r} makes more than {MOST_GROUPS} groups of rows")
    for name, cells in run.told.cells.items():
        if any(weight < least for *_, weight in cells):
            what = f"a group of {name or 'the target'!r} has too few rows at this site"
            yield refused(rule, what)


def _parameters(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    rule, share = "maximum_parameter_share", policy.maximum_parameter_share
    if run.parameters is None or run.rows is None:
        yield _unknown(rule, f"the number of {'parameters' if run.rows is not None else 'rows'}")
    elif not run.parameters <= share * run.rows * (1 + 1e-9):
        text = f"the model has {run.parameters} parameters"
        yield refused(
            rule,
            f"{text} for {rows_in_words(run.rows)} of this site, and at most {share:g} times as"
            " many as rows are allowed",
            f"Use fewer columns, or raise {rule} in {FILE}",
            f"{text}, too many for the rows of this site",
            "Use fewer columns, or ask its owner",
        )


def _budget(rule: str, what: str) -> Check:
    """The check of a limit of the privacy budget."""

    def check(policy: Policy, run: Proposal) -> Iterator[Refusal]:
        given, most = getattr(run, what), getattr(policy, rule)
        if most is not None and given is None:
            yield _unknown(rule, what)
        elif most is not None and not given <= most:
            has = "no privacy budget" if given == math.inf else f"{what} = {given:g}"
            text = f"the run has {has}, and {what} <= {most:g} is needed"
            do = f"Ask for a smaller {what} in [privacy], or raise {rule} in {FILE}"
            yield refused(rule, text, do)

    return check


def _constraints(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    rule = "constraint"
    if policy.constraint and run.constraints is None:
        yield _unknown(rule, "which constraints the problem has")
        return
    for demand in policy.constraint:
        if not any(satisfies(held, demand, run.site) for held in run.constraints or ()):
            text = f"the problem does not keep {demand.words()}, which this site insists on"
            do = f"State it in a [[constraint]], at most as loose, or remove it from {FILE}"
            yield refused(rule, text, do)


def _jumps(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    rule = "smooth_losses_only"
    if not policy.smooth_losses_only or policy.leaves_to_noise(run.private):
        return
    if run.jumps is None:
        yield _unknown(rule, "whether slopes jump")
    elif run.jumps:
        use = "Use Logistic(), Squared() or Multinomial() (or Huber() with secure_sum),"
        use += " label_cost=inf, no support and average losses, or a privacy budget where the"
        use += " site limits all of them"
        text = f"{run.jumps}, so that two answers may differ by a single row"
        yield refused(rule, text, f"{use}, or change {rule} in {FILE}", ask=use)


DEMAND = """\
in the words of a configuration:
[[policy.constraint]]
kind = "demographic_parity"
on = "clients"
column = "sex"
level = 0.1"""

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule(
            "minimum_rows",
            Count,
            10,
            "a run needs {} rows of this site or more, and so do judgements on held-out rows, and a"
            " group whose mean it tells",
            FEW_ROWS,
            {When.ROWS: _rows, When.AGREEMENT: _means, When.PARTS: _parts},
            known=("vantage6: GLM_MINIMUM_ROWS = 10", "DataSHIELD: nfilter.subset = 3"),
            of_rows=True,
        ),
        Rule(
            "minimum_level_rows",
            Count,
            3,
            "every category level that this site has in a column of a run has {} rows or more",
            FEW_ROWS,
            {When.ROWS: _levels, When.TOLD: _groups},
            known=("DataSHIELD: nfilter.tab = 3",),
            of_rows=True,
        ),
        Rule(
            "minimum_organizations",
            Count,
            3,
            "{} organisations or more take part, this one included",
            SITES,
            {When.AGREEMENT: _organizations},
            known=("vantage6: GLM_MINIMUM_ORGANIZATIONS = 3",),
        ),
        Rule(
            "known_organizations",
            Names,
            None,
            "of the sites that a server names, only these count as organisations: {}",
            SITES,
            absent="every site that a server names counts as one, and a server may invent names",
            example='["north", "east", "south"]',
        ),
        Rule(
            "maximum_parameter_share",
            Positive,
            0.1,
            "a model has at most {} times as many parameters as this site has rows",
            "more parameters than this share of the rows",
            {When.SIZE: _parameters},
            known=(
                "vantage6: GLM_MAX_PCT_VARS_VS_OBS = 10 (percent)",
                "DataSHIELD: nfilter.glm = 0.33",
            ),
            of_rows=True,
        ),
        _listing(
            "allowed_columns",
            "column",
            "columns",
            [When.PROBLEM],
            "only these columns may be used: {}",
            "every column of the table may be used",
            '["age", "sex"]',
            ("vantage6: GLM_ALLOWED_COLUMNS",),
        ),
        Rule(
            "disallowed_columns",
            Names,
            None,
            "these columns are never used: {}",
            LISTED,
            {When.PROBLEM: _kept_back},
            "no column is kept back by name",
            '["postcode"]',
            ("vantage6: GLM_DISALLOWED_COLUMNS",),
        ),
        _listing(
            "allowed_algorithms",
            "algorithm",
            "algorithm",
            [When.RUN],
            "only these algorithms may run, beside certificates and judgements of models, which"
            " allowed_messages can stop: {}",
            "every algorithm of the installed bonafed may run",
            '["bundle", "private_admm"]',
            ("vantage6: allowed_algorithms",),
            type=Algorithms,
        ),
        _listing(
            "allowed_messages",
            "message",
            "messages",
            [When.RUN, When.MESSAGE],
            "only these messages are answered: {}",
            "every message of allowed algorithms, certificates and judgements is answered",
            '["Survey", "Evaluate", "Certify"]',
        ),
        _listing(
            "allowed_servers",
            "server",
            "server",
            [When.SERVER],
            "only these servers may ask: {}",
            "every server that the site is connected to may ask",
            '["alliance"]',
            ("vantage6: allowed_users", "vantage6: allowed_organizations"),
        ),
        Rule(
            "maximum_epsilon",
            Positive | None,
            None,
            "a run has a privacy budget, and all runs together spend epsilon {} at most",
            PRIVACY,
            {When.PROBLEM: _budget("maximum_epsilon", "epsilon")},
            "a run needs no privacy budget",
            "1.0",
        ),
        Rule(
            "maximum_delta",
            Probability | None,
            None,
            "the delta of its privacy budget is {} at most, and epsilon is added up at this delta",
            PRIVACY,
            {When.PROBLEM: _budget("maximum_delta", "delta")},
            "delta has no limit, and no private run may begin where maximum_epsilon is stated",
            "1e-6",
        ),
        _listing(
            "pinned_problems",
            "problem",
            "problem_digest",
            [When.PROBLEM],
            "only problems with these digests are solved: {}",
            "a problem needs no approval by its digest",
            '["9f86d081884c7d659a2feaa0c55ad015"]',
            type=Digests,
        ),
        _listing(
            "pinned_software",
            "software",
            "software_digest",
            [When.PROBLEM],
            "only software with these digests is run: {}",
            "software needs no approval by its digest",
            '["2c26b46b68ffc68ff99b453c1d304134"]',
            type=Digests,
        ),
        _listing(
            "allowed_versions",
            "version",
            "version",
            [When.PROBLEM],
            "only these versions of bonafed may ask: {}",
            "every version of bonafed may ask",
            '["0.1.0"]',
        ),
        Rule(
            "show_levels",
            bool,
            False,
            "refusals in the site's log name the level that is too small: {}",
            "nothing: where it is true, the log names the level that is too small",
        ),
        Rule(
            "one_selection",
            bool,
            True,
            "the site answers for one choice of held-out rows only, and for each target for one"
            " choice of columns, since two would tell the rows in which they differ: {}",
            "a second choice of held-out rows, or of columns for a target, which would tell the"
            " rows between the two; a file `site.secret` decides these rows, too",
        ),
        Rule(
            "maximum_introductions",
            Count,
            100,
            "the site answers {} questions at most whether it takes part, each with another problem"
            " or other columns, since each tells something of its rows",
            "more questions whether the site takes part, by other columns, losses, constraints or"
            " other sites' facts; the same question again is free",
        ),
        Rule(
            "maximum_judgements",
            Count,
            3,
            "the site judges models on held-out rows {} times at most, eight models each, which"
            " agreed runs have led to, since answers about very many models would tell single rows",
            "more questions about held-out rows, of eight models each; and models whose certificate"
            " the site has not answered to the same server",
        ),
        Rule(
            "minimum_people",
            Positive,
            3.0,
            "nothing that leaves, and no difference of two answers, hangs on fewer than {} people;"
            " a run ends there, with what is proved so far. Private problems have noise instead,"
            " where maximum_epsilon and maximum_delta limit it",
            "answers that hang on fewer people, see below, and methods that do not say on how many:"
            " local steps and local solvers (`FedAvg`, `ProximalAL`), samples of rows and ranks of"
            " all rows",
        ),
        Rule(
            "maximum_model_length",
            Positive,
            30.0,
            "a model that is asked about is {} long at most, in units of the columns, since long"
            " ones show which side of them a row is on",
            MODELS,
        ),
        Rule(
            "maximum_models",
            Count,
            50,
            "the site answers about {} models of an experiment at most",
            MODELS,
        ),
        Rule(
            "smooth_losses_only",
            bool,
            True,
            "no loss or worst case is computed in which the slope of a row jumps, or is 0 for most"
            " rows, or, without secure_sum, its second derivative jumps, since two or more answers"
            " then differ by single rows: {}",
            "losses whose slopes jump (hinge, absolute, quantile) or are 0 for most rows (smooth"
            " hinge), without `secure_sum` those whose second derivatives jump (Huber), finite"
            " `label_cost`, supports, ranks",
            {When.AGREEMENT: _jumps},
        ),
        Rule(
            "constraint",
            list[ConstraintSection],
            [],
            "a problem keeps this or something stricter: {}",
            "a problem without it, or with a looser level",
            {When.PROBLEM: _constraints},
            "a problem needs no constraint",
            DEMAND,
        ),
    )
}


def rules_table() -> str:
    """The table of all rules, as the documentation has it."""
    order = [rule.page for rule in RULES.values()]
    rules = sorted(RULES.values(), key=lambda rule: order.index(rule.page))
    lines = ["| rule (default) | refuses |", "|---|---|"]
    for page, alike in groupby(rules, key=lambda rule: rule.page):
        lines.append(f"| {', '.join(rule.key for rule in alike)} | {page} |")
    return "\n".join(lines)


# --------------------------------------------------------------------------------------- the policy


class _Policy(Section):
    if TYPE_CHECKING:  # the keys are those of `RULES`

        def __getattr__(self, name: str) -> Any: ...

    @model_validator(mode="before")
    @classmethod
    def _names_elsewhere(cls, raw: object) -> object:
        """Settings under the names of other projects are answered with their names here."""
        if isinstance(raw, Mapping) and (faults := [*_foreign(raw)]):
            raise ValueError(*faults)
        return raw

    def refusals(self, proposal: Proposal, steps: Sequence[When] = tuple(When)) -> list[Refusal]:
        """Why a run is refused, by each rule of these steps that it breaks or that cannot be
        judged; none where the run may begin.
        """
        of = [(rule.checks, step) for step in steps for rule in RULES.values()]
        checks = [checks[step] for checks, step in of if step in checks]
        policy: Any = self
        found = (each for check in checks for each in check(policy, proposal))
        return [*dict.fromkeys(found)]

    def leaves_to_noise(self, private: bool) -> bool:
        """Whether noise hides what the rule of few people is about: of private problems, where the
        policy limits what all of them spend together. A budget that a server chooses hides nothing.
        """
        return private and None not in (self.maximum_epsilon, self.maximum_delta)

    def words(self) -> list[tuple[str, str]]:
        """Every rule in force, and what is not limited: pairs of a key and a sentence."""
        return [(key, text) for key, r in RULES.items() for text in r.words(getattr(self, key))]

    def digest(self) -> str:
        """A digest of all rules, for signatures and for the log: another policy has another one."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


if TYPE_CHECKING:

    class Policy(_Policy):
        """The table [policy] of a site.toml: a value for each of `RULES`."""

else:
    Policy = create_model(
        "Policy",
        __base__=_Policy,
        __doc__="The table [policy] of a site.toml: a value for each of `RULES`.",
        **{rule.name: (rule.type, Field(default=rule.default)) for rule in RULES.values()},
    )


def _foreign(raw: Mapping[str, object]) -> Iterator[Fault]:
    """Keys that are another project's names of a rule."""
    settings = [(known.split(" = ")[0], key) for key, rule in RULES.items() for known in rule.known]
    names = {setting.partition(": ")[2].lower(): (setting, key) for setting, key in settings}
    nested = raw.get("nfilter")  # TOML reads nfilter.tab = 3 as a table
    inside = nested if isinstance(nested, Mapping) else {}
    for place in (*((key,) for key in raw), *(("nfilter", key) for key in inside)):
        setting, key = names.get(".".join(place).lower(), ("", ""))
        if setting and key not in raw:
            project, name = setting.split(": ")
            text = f"{project}'s {name} is {key} here: write {key} in its place"
            yield Fault(text, *place)


# Constraints that a site insists on, held against those that a problem has.
#
# A constraint of a problem satisfies a demand where it is of the same class and in the same place,
# its limit is at most the limit that is demanded, and all else of it is the same. So a problem may
# be stricter than the site asks, and never looser.

LIMITS = ("level", "limit")  # what bounds the measured number: the smaller, the stricter


class Held(NamedTuple):
    """A constraint that a problem has, and on whose rows.

    Attributes
    ----------
    place : "clients", "together", "server", or "model" where it is about the coefficients only,
        as `ConstraintSection.place` has it
    constraint : as somebody stated it, such as ``DemographicParity("sex", level=0.1)``
    """

    place: str
    constraint: Stated


def held_constraints(local: Stack | Slot, shared: Global | Slot) -> tuple[Held, ...] | None:
    """The constraints in the slots ``local_constraint`` and ``constraint`` of a problem; None where
    they are no longer as somebody stated them, so that they cannot be held against a demand.
    """
    if isinstance(local, Stack) or isinstance(shared, Global):
        return None
    places = [("clients", one) for one in several(local, "local_constraint")]
    for one in several(shared, "constraint"):
        places.append(("together" if isinstance(one, Coupled) else "server", one))
    of_model = [getattr(one, "of_model", False) for _, one in places]
    pairs = zip(of_model, places, strict=True)
    return tuple(Held("model" if of else place, one) for of, (place, one) in pairs)


def satisfies(held: Held, demand: ConstraintSection, site: str | None) -> bool:
    """Whether a constraint of a problem is what a site insists on, at least as strict.

    ``site`` is the name under which the site takes part: of levels by client its own one counts.
    """
    return held.place == demand.place and _is_as_strict(held.constraint, demand.build(), site)


def _is_as_strict(held: object, asked: object, site: str | None) -> bool:
    if type(held) is not type(asked) or not is_dataclass(asked):
        return False
    for name in [each.name for each in fields(asked)]:
        mine, theirs = getattr(held, name), getattr(asked, name)
        if name in LIMITS:
            fits = _limit(mine, site) <= _limit(theirs, site)
        elif name == "constraint":  # of Coupled: all clients have one limit
            fits = _is_as_strict(mine, theirs, None)
        elif name == "measure":  # None is what the class takes by default
            fits = (mine or Score()) == (theirs or Score())
        elif _is_several(mine) and _is_several(theirs):  # lists and arrays of the same entries
            fits = np.array_equal(np.asarray(mine), np.asarray(theirs))
        else:
            fits = _is_several(mine) == _is_several(theirs) and bool(mine == theirs)
        if not fits:
            return False
    return True


def _limit(value: object, site: str | None) -> float:
    """The limit that binds a site: its own one of a table by client, else the largest of several;
    NaN, which satisfies nothing, where there is none.
    """
    if isinstance(value, Mapping):
        value = [limit for name, limit in value.items() if site in (None, str(name))]
    try:
        limits = np.asarray(value, float)
    except (TypeError, ValueError):
        return math.nan
    return float(limits.max()) if limits.size else math.nan


def _is_several(value: object) -> bool:
    of_numbers = isinstance(value, np.ndarray)
    return of_numbers or (isinstance(value, Sequence) and not isinstance(value, str))
