"""The policy of a site: what its owner lets others compute on its rows.

A site holds every run that it is asked for against its policy before the first step, and every
message before it is answered. The policy stands in the site's own ``site.toml`` and nowhere else:
nothing that a server sends can change it. A rule that cannot be judged, because a fact of the run
is not known, refuses the run.

Rules and defaults are those that data owners know from DataSHIELD (the options ``nfilter.*`` of its
package dsBase) and from vantage6 (the settings ``GLM_*`` of its generalised linear model, and the
``policies`` of a node). Where their defaults differ, the stricter one stands here: DataSHIELD lets
a model have a parameter for every three rows, vantage6 one for every ten.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import Field, PlainValidator, model_validator

from bonafed.config.constraints import ConstraintSection
from bonafed.config.errors import Refusal as Fault
from bonafed.config.errors import not_among
from bonafed.config.schema import Count, Positive, Probability, Section
from bonafed.data.profile import fold
from bonafed.names import NAMED
from bonafed.text import shown

if TYPE_CHECKING:
    from bonafed.sites.demands import Held

FILE = "[policy] of site.toml"


class Known(NamedTuple):
    """The same setting in another project: whose, its name, and its default there."""

    project: str
    name: str
    default: str = ""


@dataclass(frozen=True)
class Says:
    """What a key of the policy means, in words.

    Attributes
    ----------
    stated : a sentence, with ``{}`` for the value
    absent : what holds where the key is not stated
    example : a value to show where there is no default
    known : the same setting elsewhere
    """

    stated: str
    absent: str = ""
    example: str = ""
    known: tuple[Known, ...] = ()

    def about(self) -> str:
        """The meaning without a value, for a comment."""
        text = self.stated.removesuffix(": {}").format("N")
        return f"{text}; where this is not stated, {self.absent}" if self.absent else text

    def elsewhere(self) -> str:
        """The same setting in other projects, such as "DataSHIELD: nfilter.tab = 3"."""
        texts = (f"{k.project}: {k.name}" + f" = {k.default}" * bool(k.default) for k in self.known)
        return "; ".join(texts)


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
    constraints : those of the problem, see `bonafed.sites.demands.held_constraints`
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


# --------------------------------------------------------------------------------------- the policy


class Policy(Section):
    """The table [policy] of a site.toml."""

    minimum_rows: Annotated[
        Count,
        Says(
            "a run needs {} rows of this site or more, and so do judgements on held-out rows, and a"
            " group whose mean it tells",
            known=(
                Known("vantage6", "GLM_MINIMUM_ROWS", "10"),
                Known("DataSHIELD", "nfilter.subset", "3"),
            ),
        ),
    ] = 10
    minimum_level_rows: Annotated[
        Count,
        Says(
            "every category level that this site has in a column of a run has {} rows or more",
            known=(Known("DataSHIELD", "nfilter.tab", "3"),),
        ),
    ] = 3
    minimum_organizations: Annotated[
        Count,
        Says(
            "{} organisations or more take part, this one included",
            known=(Known("vantage6", "GLM_MINIMUM_ORGANIZATIONS", "3"),),
        ),
    ] = 3
    known_organizations: Annotated[
        Names,
        Says(
            "of the sites that a server names, these alone count as organisations: {}",
            "every site that a server names counts as one, and a server may invent names",
            '["north", "east", "south"]',
        ),
    ] = None
    maximum_parameter_share: Annotated[
        Positive,
        Says(
            "a model has at most {} times as many parameters as this site has rows",
            known=(
                Known("vantage6", "GLM_MAX_PCT_VARS_VS_OBS", "10 (percent)"),
                Known("DataSHIELD", "nfilter.glm", "0.33"),
            ),
        ),
    ] = 0.1
    allowed_columns: Annotated[
        Names,
        Says(
            "these columns alone may be used: {}",
            "every column of the table may be used",
            '["age", "sex"]',
            (Known("vantage6", "GLM_ALLOWED_COLUMNS"),),
        ),
    ] = None
    disallowed_columns: Annotated[
        Names,
        Says(
            "these columns are never used: {}",
            "no column is kept back by name",
            '["postcode"]',
            (Known("vantage6", "GLM_DISALLOWED_COLUMNS"),),
        ),
    ] = None
    allowed_algorithms: Annotated[
        Algorithms,
        Says(
            "these algorithms alone may run, beside certificates and judgements of models, which"
            " allowed_messages can stop: {}",
            "every algorithm of the installed bonafed may run",
            '["bundle", "private_admm"]',
            (Known("vantage6", "allowed_algorithms"),),
        ),
    ] = None
    allowed_messages: Annotated[
        Names,
        Says(
            "these messages alone are answered: {}",
            "every message of allowed algorithms, certificates and judgements is answered",
            '["Survey", "Evaluate", "Certify"]',
        ),
    ] = None
    allowed_servers: Annotated[
        Names,
        Says(
            "these servers alone may ask: {}",
            "every server that the site is connected to may ask",
            '["alliance"]',
            (Known("vantage6", "allowed_users"), Known("vantage6", "allowed_organizations")),
        ),
    ] = None
    maximum_epsilon: Annotated[
        Positive | None,
        Says(
            "a run has a privacy budget, and all runs together spend epsilon {} at most",
            "a run needs no privacy budget",
            "1.0",
        ),
    ] = None
    maximum_delta: Annotated[
        Probability | None,
        Says(
            "the delta of its privacy budget is {} at most, and epsilon is added up at this delta",
            "delta has no limit, and no private run may begin where maximum_epsilon is stated",
            "1e-6",
        ),
    ] = None
    pinned_problems: Annotated[
        Digests,
        Says(
            "the problems with these digests alone are solved: {}",
            "a problem needs no approval by its digest",
            '["9f86d081884c7d659a2feaa0c55ad015"]',
        ),
    ] = None
    pinned_software: Annotated[
        Digests,
        Says(
            "the software with these digests alone is run: {}",
            "software needs no approval by its digest",
            '["2c26b46b68ffc68ff99b453c1d304134"]',
        ),
    ] = None
    allowed_versions: Annotated[
        Names,
        Says(
            "these versions of bonafed alone may ask: {}",
            "every version of bonafed may ask",
            '["0.1.0"]',
        ),
    ] = None
    show_levels: Annotated[
        bool,
        Says(
            "refusals in the site's log name the level that is too small: {}",
        ),
    ] = False
    one_selection: Annotated[
        bool,
        Says(
            "the site answers for one choice of held-out rows alone, and for each target for one"
            " choice of columns, since two would tell the rows in which they differ: {}",
        ),
    ] = True
    maximum_introductions: Annotated[
        Count,
        Says(
            "the site answers {} questions at most whether it takes part, each with another problem"
            " or other columns, since each tells something of its rows",
        ),
    ] = 100
    maximum_judgements: Annotated[
        Count,
        Says(
            "the site judges models on held-out rows {} times at most, eight models each, which"
            " agreed runs have led to, since answers about very many models would tell single rows",
        ),
    ] = 3
    minimum_people: Annotated[
        Positive,
        Says(
            "nothing that leaves, and no difference of two answers, hangs on fewer than {} people;"
            " a run ends there, with what is proved so far. Private problems have noise instead,"
            " where maximum_epsilon and maximum_delta limit it",
        ),
    ] = 3.0
    maximum_model_length: Annotated[
        Positive,
        Says(
            "a model that is asked about is {} long at most, in units of the columns, since long"
            " ones show which side of them a row is on",
        ),
    ] = 30.0
    maximum_models: Annotated[
        Count,
        Says("the site answers about {} models of an experiment at most"),
    ] = 50
    smooth_losses_only: Annotated[
        bool,
        Says(
            "no loss or worst case is computed in which the slope of a row jumps, or is 0 for most"
            " rows, or, without secure_sum, its second derivative jumps, since two or more answers"
            " then differ by single rows: {}",
        ),
    ] = True
    constraint: Annotated[
        list[ConstraintSection],
        Says("a problem keeps this or something stricter: {}", "a problem needs no constraint"),
    ] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _names_elsewhere(cls, raw: object) -> object:
        """Settings under the names of other projects are answered with their names here."""
        if isinstance(raw, Mapping) and (faults := [*_foreign(raw)]):
            raise ValueError(*faults)
        return raw

    def refusals(self, proposal: Proposal) -> list[Refusal]:
        """Why a run is refused, one refusal for each rule that it breaks or that cannot be judged;
        none where the run may begin.
        """
        return [refusal for rule in RULES for refusal in rule(self, proposal)]

    def leaves_to_noise(self, private: bool) -> bool:
        """Whether noise hides what the rule of few people is about: of private problems, where the
        policy limits what all of them spend together. A budget that a server chooses hides nothing.
        """
        return private and None not in (self.maximum_epsilon, self.maximum_delta)

    def words(self) -> list[tuple[str, str]]:
        """Every rule in force, and what is not limited: pairs of a key and a sentence."""
        return [(key, text) for key in type(self).model_fields for text in self._in_words(key)]

    def digest(self) -> str:
        """A digest of all rules, for signatures and for the log: another policy has another one."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _in_words(self, key: str) -> Iterator[str]:
        value, says = getattr(self, key), meaning(key)
        if key == "constraint":
            yield from (says.stated.format(one.words()) for one in value)
        elif value is not None:
            yield says.stated.format(_value(value))
        if value is None or (key == "constraint" and not value):
            yield says.absent


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def meaning(key: str) -> Says:
    """What a key of the policy means."""
    return next(m for m in Policy.model_fields[key].metadata if isinstance(m, Says))


def _foreign(raw: Mapping[str, object]) -> Iterator[Fault]:
    """Keys that are another project's names of a rule."""
    names = {k.name.lower(): (k, key) for key in Policy.model_fields for k in meaning(key).known}
    nested = raw.get("nfilter")  # TOML reads nfilter.tab = 3 as a table
    inside = nested if isinstance(nested, Mapping) else {}
    for place in (*((key,) for key in raw), *(("nfilter", key) for key in inside)):
        known, key = names.get(".".join(place).lower(), (None, ""))
        if known is not None and key not in raw:
            text = f"{known.project}'s {known.name} is {key} here: write {key} in its place"
            yield Fault(text, *place)


# ---------------------------------------------------------------------------------------- the rules


def rows_in_words(rows: int) -> str:
    """Such as "1 row" and "1,200 rows"."""
    return f"{rows:,} row{'s' * (rows != 1)}"


def _unknown(rule: str, what: str) -> Refusal:
    text = f"{rule}: {what} is not known, so this rule cannot be judged. Ask for it to be stated."
    return Refusal(rule, text, text)


def _among(
    rule: str, what: str, given: Sequence[str] | None, allowed: Sequence[str] | None
) -> Iterator[Refusal]:
    """A rule that lists what is allowed; None allows everything."""
    if allowed is None:
        return
    if given is None:
        yield _unknown(rule, what)
    elif odd := [name for name in dict.fromkeys(given) if name not in allowed]:
        text = f"{rule}: {what} {_first(odd)} is not among those allowed"
        do = f"Add it to {rule} in {FILE}, or take no part."
        yield Refusal(rule, f"{text}: {_first(allowed) or 'none'}. {do}", f"{text}.")


def _first(names: Sequence[str], most: int = 6) -> str:
    """The first of several names, whole, since digests are copied from here."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + more


def _server(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    return _among("allowed_servers", "server", _one(run.server), policy.allowed_servers)


def _software(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    digest, version = _digest(run.software_digest), _one(run.version)
    yield from _among("pinned_software", "software", digest, policy.pinned_software)
    yield from _among("allowed_versions", "version", version, policy.allowed_versions)


def _problem(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    digest = _digest(run.problem_digest)
    return _among("pinned_problems", "problem", digest, policy.pinned_problems)


def _algorithm(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    name = _one(run.algorithm)
    return _among("allowed_algorithms", "algorithm", name, policy.allowed_algorithms)


def _messages(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    given, allowed = (
        None if kinds is None else [kind.rpartition(":")[2] for kind in kinds]
        for kinds in (run.messages, policy.allowed_messages)
    )
    return _among("allowed_messages", "message", given, allowed)


def _columns(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    yield from _among("allowed_columns", "column", run.columns, policy.allowed_columns)
    rule, kept = "disallowed_columns", policy.disallowed_columns
    if kept is not None and run.columns is None:
        yield _unknown(rule, "column")
    elif odd := [name for name in dict.fromkeys(run.columns or ()) if name in (kept or ())]:
        text = f"{rule}: column {_first(odd)} is kept back by this site"
        yield Refusal(rule, f"{text}. Ask for a run without it.", f"{text}.")


def _organizations(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    rule, least, known = "minimum_organizations", policy.minimum_organizations, None
    if policy.known_organizations is not None:
        known = {fold(name) for name in policy.known_organizations}
    if run.sites is None:
        yield _unknown(rule, "who takes part")
        return
    names = {fold(name): name for name in run.sites}  # one in another spelling is the same
    counted = [name for folded, name in names.items() if known is None or folded in known]
    if len(counted) < least:
        who = f" ({_first(counted)})" if counted else ""
        what = "known organisations" if known is not None else "organisations"
        text = f"{rule}: {len(counted)} of the {least} {what} that are needed take part{who}"
        yield Refusal(rule, f"{text}. Wait for others, or lower {rule} in {FILE}.", f"{text}.")


def _rows(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    rule, least = "minimum_rows", policy.minimum_rows
    if run.rows is None:
        yield _unknown(rule, "the number of rows")
    elif not run.rows >= least:
        yield Refusal(
            rule,
            f"{rule}: {rows_in_words(run.rows)} of this site would take part, and {least} are"
            f" needed. Add rows, or lower {rule} in {FILE}.",
            f"{rule}: fewer rows than this site's policy needs. Leave the site out, or ask its"
            " owner.",
        )


def _levels(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    rule, least = "minimum_level_rows", policy.minimum_level_rows
    if run.levels is None:
        yield _unknown(rule, "how many rows every category level has")
        return
    for level in run.levels:
        if level.rows and not level.rows >= least:  # as nfilter.tab, about counts above 0
            named = f" {shown(level.level)}" if policy.show_levels and level.level else ""
            yield Refusal(
                rule,
                f"{rule}: column {shown(level.column)} has a level{named} with"
                f" {rows_in_words(level.rows)} of this site, and {least} are needed. Merge levels,"
                f" leave the column out, or lower {rule} in {FILE}.",
                f"{rule}: a category level has fewer rows than this site's policy needs. Use fewer"
                " columns or coarser categories, or ask the site's owner.",
            )


def _parameters(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    rule, share = "maximum_parameter_share", policy.maximum_parameter_share
    if run.parameters is None or run.rows is None:
        yield _unknown(rule, f"the number of {'parameters' if run.rows is not None else 'rows'}")
    elif not run.parameters <= share * run.rows * (1 + 1e-9):
        text = f"{rule}: the model has {run.parameters} parameters"
        yield Refusal(
            rule,
            f"{text} for {rows_in_words(run.rows)} of this site, and at most {share:g} times as"
            f" many as rows are allowed. Use fewer columns, or raise {rule} in {FILE}.",
            f"{text}, too many for the rows of this site. Use fewer columns, or ask its owner.",
        )


def _privacy(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    for rule, what, given, most in (
        ("maximum_epsilon", "epsilon", run.epsilon, policy.maximum_epsilon),
        ("maximum_delta", "delta", run.delta, policy.maximum_delta),
    ):
        if most is None:
            continue
        if given is None:
            yield _unknown(rule, what)
        elif not given <= most:
            has = "no privacy budget" if given == math.inf else f"{what} = {given:g}"
            text = f"{rule}: the run has {has}, and {what} <= {most:g} is needed"
            do = f"Ask for a smaller {what} in [privacy], or raise {rule} in {FILE}."
            yield Refusal(rule, f"{text}. {do}", f"{text}.")


def _constraints(policy: Policy, run: Proposal) -> Iterator[Refusal]:
    rule = "constraint"
    if policy.constraint and run.constraints is None:
        yield _unknown(rule, "which constraints the problem has")
        return
    for demand in policy.constraint:
        from bonafed.sites.demands import satisfies

        if not any(satisfies(held, demand, run.site) for held in run.constraints or ()):
            text = f"{rule}: the problem does not keep {demand.words()}, which this site insists on"
            do = f"State it in a [[constraint]], at most as loose, or remove it from {FILE}."
            yield Refusal(rule, f"{text}. {do}", f"{text}.")


def _one(name: str | None) -> Sequence[str] | None:
    return None if name is None else (name,)


def _digest(text: str | None) -> Sequence[str] | None:
    return None if text is None else (_plain(text),)


RULES: tuple[Callable[[Policy, Proposal], Iterator[Refusal]], ...] = (
    _server,
    _software,
    _problem,
    _algorithm,
    _messages,
    _columns,
    _organizations,
    _rows,
    _levels,
    _parameters,
    _privacy,
    _constraints,
)
