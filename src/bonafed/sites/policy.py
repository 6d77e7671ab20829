"""The policy of a site: what its owner lets others compute on its rows.

A site holds every run that it is asked for against its policy before the first step, and every
message before it is answered. The policy stands in the site's own ``site.toml`` and nowhere else:
nothing that a server sends can change it. A rule that cannot be judged, because a fact of the run
is not known, refuses the run.

A rule is a field of `Policy`, with what it is called, means and checks, and stands nowhere else.
Rules and defaults are those that data owners know from DataSHIELD (the options ``nfilter.*`` of its
package dsBase) and from vantage6 (the settings ``GLM_*`` of its generalised linear model, and the
``policies`` of a node). Where their defaults differ, the stricter one stands here: DataSHIELD lets
a model have a parameter for every three rows, vantage6 one for every ten.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, PlainValidator, model_validator

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

    ``level`` is its name, only where the policy allows to tell it (``show_levels``); ``do`` says
    what to declare of a column whose cells look like limits, dates or numbers.
    """

    column: str
    rows: int
    level: str | None = None
    do: str = ""


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

Words = tuple[str, ...]  # of a refusal, as of `refused` after the rule
Known = Any  # a `Proposal` whose facts are known


class Check(NamedTuple):
    """What a rule judges at one step of a run.

    Attributes
    ----------
    when : the step
    facts : those that it needs, and what they are called
    why : yields why a run is refused, in the words of `refused`
    """

    when: When
    facts: Mapping[str, str]
    why: Callable[[Policy, Known], Iterator[Words]]

    def refusals(self, key: str, policy: Policy, run: Proposal) -> Iterator[Refusal]:
        """Why a run is refused by the rule of this key."""
        unknown = [called for fact, called in self.facts.items() if getattr(run, fact) is None]
        for called in unknown[:1]:
            ask = "Ask for it to be stated"
            text = f"{called} is not known, so this rule cannot be judged"
            yield refused(key, text, ask, ask=ask)
        if not unknown:
            yield from (refused(key, *words) for words in self.why(policy, run))


class Rule(NamedTuple):
    """A rule of the policy, the facts of one key of [policy]: what it means, and what it refuses.

    Attributes
    ----------
    default : of the key
    stated : what it means, a sentence with ``{}`` for the value
    checks : by which a run is refused, while the key has a value; none of a rule that is held
        against answers and counts
    absent : what holds where the key is not stated
    example : a value to show where there is no default; of several lines, the lines
    known : the same setting elsewhere, such as "DataSHIELD: nfilter.tab = 3"
    of_rows : whether a refusal depends on rows, so that the server is not told why
    hidden : whether noise hides what it is about, where the policy limits all budgets together
    """

    default: Any
    stated: str
    checks: tuple[Check, ...] = ()
    absent: str = ""
    example: str = ""
    known: tuple[str, ...] = ()
    of_rows: bool = False
    hidden: bool = False

    def holds(self, value: Any) -> bool:
        """Whether the rule is in force with this value of its key."""
        return not (value is None or value is False or value == self.default == [])

    def words(self, value: Any) -> Iterator[str]:
        """What holds with a value, a sentence for each of several constraints."""
        many = self.default == []
        for one in value if many else [] if value is None else [value]:
            yield self.stated.format(_value(one))
        if value is None or (many and not value):
            yield self.absent


def rule(default: Any, stated: str, *checks: Check, **more: Any) -> Any:
    """The field of a rule; parameters as of `Rule`."""
    known: Any = {"rule": Rule(default, stated, checks, **more)}
    return Field(default=default, json_schema_extra=known)


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
    both = (text, do), (answer or text, ask)  # of the site and of the server
    mine, theirs = (". ".join(one.removesuffix(".") for one in each if one) for each in both)
    return Refusal(rule, f"{rule}: {mine}.", f"{rule}: {theirs}.")


def _first(names: Sequence[str], most: int = 6) -> str:
    """The first of several names, whole, since digests are copied from here."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + more


def _listing(name: str, what: str, fact: str, whens: Sequence[When], text: str, **more: Any) -> Any:
    """A rule that lists what is allowed of a fact: ``what`` it is called, and the words of `Rule`;
    None allows everything.
    """

    def why(policy: Policy, run: Known) -> Iterator[Words]:
        allowed, given = getattr(policy, name), getattr(run, fact)
        given = [_plain(given) if "digest" in fact else given] if isinstance(given, str) else given
        given = [name.rpartition(":")[2] for name in given] if fact == "messages" else given
        if odd := [name for name in dict.fromkeys(given) if name not in allowed]:
            text = f"{what} {_first(odd)} is not among those allowed"
            do = f"Add it to {name} in {FILE}, or take no part"
            yield f"{text}: {_first(allowed) or 'none'}", do, text

    return rule(None, text, *(Check(when, {fact: what}, why) for when in whens), **more)


def _kept_back(policy: Policy, run: Known) -> Iterator[Words]:
    kept = policy.disallowed_columns or ()
    if odd := [name for name in dict.fromkeys(run.columns) if name in kept]:
        yield f"column {_first(odd)} is kept back by this site", "Ask for a run without it"


def _organizations(policy: Policy, run: Known) -> Iterator[Words]:
    least, listed = policy.minimum_organizations, policy.known_organizations
    names = {fold(name): name for name in run.sites}  # one in another spelling is the same
    known = names if listed is None else {fold(name) for name in listed}
    counted = [name for folded, name in names.items() if folded in known]
    if len(counted) < least:
        who, which = f" ({_first(counted)})" if counted else "", "" if listed is None else "known "
        text = f"{len(counted)} of the {least} {which}organisations that are needed take part{who}"
        yield text, "Wait for others to take part"


def _least(when: When, fact: str, called: str, text: str, *words: str, none: bool = False) -> Check:
    """A number of rows that may not be smaller than ``minimum_rows``, or several, each of some
    ``{what}``; ``none``: and may be 0.
    """

    def why(policy: Policy, run: Known) -> Iterator[Words]:
        given, least, (do, answer, ask) = getattr(run, fact), policy.minimum_rows, words
        for what, rows in [("", given)] if isinstance(given, int) else given:
            if not rows >= least and (rows or not none):
                counted = text.format(rows=rows_in_words(rows), what=what)
                yield f"{counted}, and {least} are needed", do, answer.format(what=what), ask

    return Check(when, {fact: called}, why)


def _levels(policy: Policy, run: Known) -> Iterator[Words]:
    least = policy.minimum_level_rows
    for level in run.levels:
        if level.rows and not level.rows >= least:  # as nfilter.tab, about counts above 0
            named = f" {shown(level.level)}" if policy.show_levels and level.level else ""
            yield (
                f"column {shown(level.column)} has a level{named} with"
                f" {rows_in_words(level.rows)} of this site, and {least} are needed",
                level.do or "Merge levels, or leave the column out",
                "a category level has fewer rows than this site's policy needs",
                "Use fewer columns or coarser categories, or ask the site's owner",
            )


def _groups(policy: Policy, run: Known) -> Iterator[Words]:
    """What the site would tell of groups of its rows."""
    for name, values in run.told.values.items():
        if len(values) > MOST_GROUPS:
            yield (f"column {name!r} makes more than {MOST_GROUPS} groups of rows",)
    for name, cells in run.told.cells.items():
        if any(weight < policy.minimum_level_rows for *_, weight in cells):
            yield (f"a group of {name or 'the target'!r} has too few rows at this site",)


SIZES = {"rows": "the number of rows", "parameters": "the number of parameters"}


def _parameters(policy: Policy, run: Known) -> Iterator[Words]:
    share = policy.maximum_parameter_share
    if not run.parameters <= share * run.rows * (1 + 1e-9):
        text = f"the model has {run.parameters} parameters"
        yield (
            f"{text} for {rows_in_words(run.rows)} of this site, and at most {share:g} times as"
            " many as rows are allowed",
            "Use fewer columns",
            f"{text}, too many for the rows of this site",
            "Use fewer columns, or ask its owner",
        )


def _budget(what: str) -> Check:
    """The check of a limit of the privacy budget."""

    def why(policy: Policy, run: Known) -> Iterator[Words]:
        given, most = getattr(run, what), getattr(policy, f"maximum_{what}")
        if not given <= most:
            has = "no privacy budget" if given == math.inf else f"{what} = {given:g}"
            yield (
                f"the run has {has}, and {what} <= {most:g} is needed",
                f"Ask for a smaller {what}",
            )

    return Check(When.PROBLEM, {what: what}, why)


def _constraints(policy: Policy, run: Known) -> Iterator[Words]:
    for demand in policy.constraint:
        if not any(satisfies(held, demand, run.site) for held in run.constraints):
            text = f"the problem does not keep {demand.words()}, which this site insists on"
            yield text, "State it in a [[constraint]], at most as loose"


def _jumps(policy: Policy, run: Known) -> Iterator[Words]:
    if run.jumps:
        use = "Use Logistic(), Squared() or Multinomial() (or Huber() with secure_sum),"
        use += " label_cost=inf, no support and average losses, or a privacy budget where the"
        use += " site limits all of them"
        text = f"{run.jumps}, so that two answers may differ by a single row"
        yield text, use, "", use


DEMAND = """\
in the words of a configuration:
[[policy.constraint]]
kind = "demographic_parity"
on = "clients"
column = "sex"
level = 0.1"""

# --------------------------------------------------------------------------------------- the policy


class Policy(Section):
    """The table [policy] of a site.toml: a field for each rule."""

    minimum_rows: Count = rule(
        10,
        "a run needs {} rows of this site or more, and so do judgements on held-out rows, and a"
        " group whose mean it tells",
        _least(
            *(When.ROWS, "rows", "the number of rows"),
            *("{rows} of this site would take part", "Add rows"),
            "fewer rows than this site's policy needs",
            "Leave the site out, or ask its owner",
        ),
        _least(  # the others, and a model on these, would tell of them
            *(When.ROWS, "held_out", "how many rows would be held out"),
            *("{rows} of this site would be held out", "Take no part"),
            "fewer rows would be held out than this site needs",
            "Hold out a larger share or none, or ask the site's owner",
            none=True,
        ),
        _least(  # means of answers, such as of a group or the largest losses
            *(When.AGREEMENT, "averaged", "over which rows the run averages"),
            *("the run averages over {what}, {rows} of this site", "Take no part"),
            "the run averages over {what}, which are too few here",
            "Use coarser groups or a larger share, or ask the site's owner",
            none=True,
        ),
        _least(
            *(When.PARTS, "parts", "the groups of rows of a message"),
            *("the run adds up groups of {rows} of this site", "Take no part"),
            "the run adds up groups of fewer rows than this site allows",
            "Ask for groups of more rows, Bundle(least_rows=...), or for one cut a client,"
            " Bundle(cuts=1)",
        ),
        known=("vantage6: GLM_MINIMUM_ROWS = 10", "DataSHIELD: nfilter.subset = 3"),
        of_rows=True,
    )
    minimum_level_rows: Count = rule(
        3,
        "every category level that this site has in a column of a run has {} rows or more",
        Check(When.ROWS, {"levels": "how many rows every category level has"}, _levels),
        Check(When.TOLD, {"told": "what the site would tell of its rows"}, _groups),
        known=("DataSHIELD: nfilter.tab = 3",),
        of_rows=True,
    )
    minimum_organizations: Count = rule(
        3,
        "{} organisations or more take part, this one included",
        Check(When.AGREEMENT, {"sites": "who takes part"}, _organizations),
        known=("vantage6: GLM_MINIMUM_ORGANIZATIONS = 3",),
    )
    known_organizations: Names = rule(
        None,
        "of the sites that a server names, only these count as organisations: {}",
        absent="every site that a server names counts as one, and a server may invent names",
        example='["north", "east", "south"]',
    )
    maximum_parameter_share: Positive = rule(
        0.1,
        "a model has at most {} times as many parameters as this site has rows",
        Check(When.SIZE, SIZES, _parameters),
        known=(
            "vantage6: GLM_MAX_PCT_VARS_VS_OBS = 10 (percent)",
            "DataSHIELD: nfilter.glm = 0.33",
        ),
        of_rows=True,
    )
    allowed_columns: Names = _listing(
        *("allowed_columns", "column", "columns", [When.PROBLEM]),
        "only these columns may be used: {}",
        absent="every column of the table may be used",
        example='["age", "sex"]',
        known=("vantage6: GLM_ALLOWED_COLUMNS",),
    )
    disallowed_columns: Names = rule(
        None,
        "these columns are never used: {}",
        Check(When.PROBLEM, {"columns": "column"}, _kept_back),
        absent="no column is kept back by name",
        example='["postcode"]',
        known=("vantage6: GLM_DISALLOWED_COLUMNS",),
    )
    allowed_algorithms: Algorithms = _listing(
        *("allowed_algorithms", "algorithm", "algorithm", [When.RUN]),
        "only these algorithms may run, beside certificates and judgements of models, which"
        " allowed_messages can stop: {}",
        absent="every algorithm of the installed bonafed may run",
        example='["bundle", "private_admm"]',
        known=("vantage6: allowed_algorithms",),
    )
    allowed_messages: Names = _listing(
        *("allowed_messages", "message", "messages", [When.RUN, When.MESSAGE]),
        "only these messages are answered: {}",
        absent="every message of allowed algorithms, certificates and judgements is answered",
        example='["Survey", "Evaluate", "Certify"]',
    )
    allowed_servers: Names = _listing(
        *("allowed_servers", "server", "server", [When.SERVER]),
        "only these servers may ask: {}",
        absent="every server that the site is connected to may ask",
        example='["alliance"]',
        known=("vantage6: allowed_users", "vantage6: allowed_organizations"),
    )
    maximum_epsilon: Positive | None = rule(
        None,
        "a run has a privacy budget, and all runs together spend epsilon {} at most",
        _budget("epsilon"),
        absent="a run needs no privacy budget",
        example="1.0",
    )
    maximum_delta: Probability | None = rule(
        None,
        "the delta of its privacy budget is {} at most, and epsilon is added up at this delta",
        _budget("delta"),
        absent="delta has no limit, and no private run may begin where maximum_epsilon is stated",
        example="1e-6",
    )
    pinned_problems: Digests = _listing(
        *("pinned_problems", "problem", "problem_digest", [When.PROBLEM]),
        "only problems with these digests are solved: {}",
        absent="a problem needs no approval by its digest",
        example='["9f86d081884c7d659a2feaa0c55ad015"]',
    )
    pinned_software: Digests = _listing(
        *("pinned_software", "software", "software_digest", [When.PROBLEM]),
        "only software with these digests is run: {}",
        absent="software needs no approval by its digest",
        example='["2c26b46b68ffc68ff99b453c1d304134"]',
    )
    allowed_versions: Names = _listing(
        *("allowed_versions", "version", "version", [When.PROBLEM]),
        "only these versions of bonafed may ask: {}",
        absent="every version of bonafed may ask",
        example='["0.1.0"]',
    )
    show_levels: bool = rule(
        False, "refusals in the site's log name the level that is too small: {}"
    )
    one_selection: bool = rule(
        True,
        "the site answers for one choice of held-out rows only, and for each target for one"
        " choice of columns, since two would tell the rows in which they differ: {}",
    )
    maximum_introductions: Count = rule(
        100,
        "the site answers {} questions at most whether it takes part, each with another problem"
        " or other columns, since each tells something of its rows",
    )
    maximum_judgements: Count = rule(
        3,
        "the site judges models on held-out rows {} times at most, eight models each, which"
        " agreed runs have led to, since answers about very many models would tell single rows",
    )
    minimum_people: Positive = rule(
        3.0,
        "nothing that leaves, and no difference of two answers, hangs on fewer than {} people;"
        " a run ends there, with what is proved so far. Private problems have noise instead,"
        " where maximum_epsilon and maximum_delta limit it",
    )
    maximum_model_length: Positive = rule(
        30.0,
        "a model that is asked about is {} long at most, in units of the columns, since long"
        " ones show which side of them a row is on",
    )
    maximum_models: Count = rule(50, "the site answers about {} models of an experiment at most")
    smooth_losses_only: bool = rule(
        True,
        "no loss or worst case is computed in which the slope of a row jumps, or is 0 for most"
        " rows, or, without secure_sum, its second derivative jumps, since two or more answers"
        " then differ by single rows: {}",
        Check(When.AGREEMENT, {"jumps": "whether slopes jump"}, _jumps),
        hidden=True,
    )
    constraint: list[ConstraintSection] = rule(
        [],
        "a problem keeps this or something stricter: {}",
        Check(When.PROBLEM, {"constraints": "which constraints the problem has"}, _constraints),
        absent="a problem needs no constraint",
        example=DEMAND,
    )

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
        budget = proposal.epsilon  # inf where there is none
        noise = self.leaves_to_noise(budget is not None and budget < math.inf)
        stated = [(key, r) for key, r in RULES.items() if r.holds(getattr(self, key))]
        checks = [(key, each) for key, r in stated if not (noise and r.hidden) for each in r.checks]
        of_steps = [(key, each) for step in steps for key, each in checks if each.when == step]
        found = (why for key, each in of_steps for why in each.refusals(key, self, proposal))
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


_FIELDS: Any = Policy.model_fields
RULES: dict[str, Rule] = {key: one.json_schema_extra["rule"] for key, one in _FIELDS.items()}


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
            yield Fault(f"{project}'s {name} is {key} here: write {key} in its place", *place)


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
    pairs = zip([getattr(one, "of_model", False) for _, one in places], places, strict=True)
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
