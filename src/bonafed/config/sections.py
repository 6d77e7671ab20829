"""The tables of a configuration that state a run: what is minimised ([problem], [risk], [robust],
[clients], [[constraint]]), within which budget ([privacy], [evaluation]), at which other values
([sweep]), by what ([algorithm]), and how clients are run ([engine]); and the problem, the method
and the engine that all of them state together.
"""

import copy
import math
import os
import re
from collections.abc import Hashable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, PlainValidator, PrivateAttr, model_validator

from bonafed.algorithms.federated.private_admm import Penalty
from bonafed.algorithms.method import Method
from bonafed.config import objects, schema
from bonafed.config.objects import Objects, in_words, known
from bonafed.config.schema import DataSection, ReportSection, Section, kept
from bonafed.config.toml_file import ConfigError, Refusal, near
from bonafed.engines.inprocess import InProcess, VirtualClock
from bonafed.names import NAMED, load
from bonafed.privacy.budget import Budget
from bonafed.problem.losses import Loss
from bonafed.problem.problem import Problem
from bonafed.problem.risks.weight_sets import Mean
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.problem.wasserstein.supports import BoxSupport, PolytopeSupport

# options of the private methods that are functions, or give steps that nobody can compute again
# from public numbers before the run
UNSAFE = ("eta", "quantile")
TYPES = {"rho": float | objects.as_table(Penalty)}  # of options


class ProblemSection(Objects):
    """The loss of one row, the model and its regulariser."""

    STATES: ClassVar = {"loss": "loss", "model": "model", "regulariser": "regulariser"}
    # the number of classes is the data's, the seed is the run's, the centre of a ball is 0, and
    # strength and l1_share stand for the others
    ELSEWHERE: ClassVar = ("classes", "seed", "l1", "l2", "ones", "centre")
    KEYS: ClassVar = {"gamma": "shape", "a": "shape"}  # where mcp and scad are flat

    loss: Annotated[str, known("loss")] = "hinge"
    # only rows of this class are minimised
    label: schema.Label | None = None
    regulariser: Annotated[str, known("regulariser")] = "l2"
    strength: schema.NonNegative = 1e-3
    l1_share: schema.Probability = 0.5
    fit_intercept: bool = True  # of "linear"; of "softmax" a feature of ones
    model: Annotated[str, known("model")] = "linear"
    # "balanced", or the weight of every class: of rows, and so of clients
    class_weight: Literal["balanced"] | dict[str, schema.Positive] | None = None
    # all rows in one place: one client to solve for; whose rows they are stays for the report
    pooled: bool = False

    def build(self, of: str, **more: object) -> Any:
        """As of any table, with the keys that stand for fields of another name."""
        share = self.l1_share
        stated = {
            "strength": self.strength,
            "l1": share * self.strength,
            "l2": (1 - share) * self.strength,
            # of "softmax" the rows have a feature of ones (`Tables.ones`)
            "fit_intercept": self.fit_intercept and self.model != "softmax",
            "ones": self.model == "softmax" and self.fit_intercept,
        }
        fields = objects.parameters(self.named_class(of))
        return super().build(of, **{k: v for k, v in (stated | more).items() if k in fields})


class RobustSection(Objects):
    """The Wasserstein ball round every client's rows."""

    STATES: ClassVar = {"ball": "ball"}
    DEFAULTS: ClassVar = {"radius": 0.0, "support": None}
    TYPES: ClassVar = {
        "norm": Literal["l1", "l2", "linf"],
        "radius": float | Mapping[str, float] | Literal["auto"],  # "auto": read off the rows
        "support": Literal["none"]
        | objects.as_table(BoxSupport)
        | objects.as_table(PolytopeSupport),
    }

    ball: ClassVar[str] = "wasserstein"
    # instead of a label cost: the share of every client's labels that can flip at most
    label_flips: Annotated[float | None, Field(ge=0, lt=0.5)] = None

    @model_validator(mode="after")
    def _one_cost_of_labels(self) -> Self:
        both = self.label_flips is not None and math.isfinite(self.label_cost)
        return kept(self, {"give label_cost or label_flips, not both: either limits flips": both})

    @property
    def flip_cost(self) -> float:
        """The label cost, as stated or by ``label_flips``; inf until the radius is known."""
        if self.label_flips is None:
            return self.label_cost
        radius = self.radius
        largest = max(radius.values()) if isinstance(radius, Mapping) else radius
        free = radius == "auto" or not self.label_flips or not largest
        return math.inf if free else largest / self.label_flips

    @property
    def is_robust(self) -> bool:
        """Whether any client has a ball."""
        radius = self.radius
        return any(radius.values()) if isinstance(radius, Mapping) else radius != 0

    def build(self, of: str = "ball", **more: object) -> WassersteinBall:
        """The ball; a radius that is read off the rows is 1 until they are known."""
        known = {"radius": 1.0} if self.radius == "auto" else {}
        support = {"support": None} if self.support == "none" else {}
        cost = {} if self.label_flips is None else {"label_cost": self.flip_cost}
        return super().build(of, **known | support | cost | more)


class RiskSection(Objects):
    """The risk over the losses of rows: within every client, with `on` = "together" over the rows
    of all clients, which stay where they are, or with `problem.pooled` over all in one place.
    """

    STATES: ClassVar = {"name": "risk over samples"}
    ELSEWHERE: ClassVar = ("prior", "label", "code")  # rows have no prior; the label is [problem]'s

    name: Annotated[str, known("risk over samples")] = "mean"
    # whose rows are ranked among each other; None: "clients", each client's own
    on: Literal["clients", "together"] | None = None

    @property
    def together(self) -> bool:
        """Whether the rows of all clients are ranked together."""
        return self.on == "together"

    @property
    def by_rank(self) -> bool:
        """Whether losses are weighed by their rank at all."""
        return self.name != "mean"

    @property
    def title(self) -> str:
        """The name as text."""
        return self.name.replace("_", " ")

    def words(self) -> str:
        """What it is of the losses, such as "superquantile (mean of the largest 20 %)"."""
        phrase = self.phrase("name")
        return f"{self.title} ({phrase})" if hasattr(self.named_class("name"), "phrase") else phrase


class ClientsSection(Objects):
    """The risk over clients."""

    STATES: ClassVar = {"risk": "risk over clients"}
    ELSEWHERE: ClassVar = ("label", "code")
    DEFAULTS: ClassVar = {"radius": 0.1}

    risk: Annotated[str, known("risk over clients")] = "lp_ball"

    @property
    def centred(self) -> bool:
        """Whether the weights are near a prior."""
        return "prior" in self.parameters()

    def build(self, of: str = "risk", **more: object) -> Any:
        """The risk; raises ``ValueError`` for weights that no clients can have."""
        risk = super().build(of, **more)
        prior = getattr(risk, "prior", "size")
        if not isinstance(prior, str):
            weights = prior.values() if isinstance(prior, Mapping) else prior
            if not all(0 <= weight < math.inf for weight in weights):
                raise ValueError(f"prior allows finite numbers >= 0, got {prior!r}")
        return risk

    def words(self) -> str:
        """What it is of the clients' losses, such as "the worst weighted mean over the clients
        (any weights)".
        """
        prior = f"{self.prior if isinstance(self.get('prior'), str) else 'given'} prior"
        if self.risk == "mean":
            alike = ": each counts alike, whatever its rows" if prior == "uniform prior" else ""
            return f"the mean over the clients ({prior}{alike})"
        phrase = self.phrase("risk")
        more = f", {prior}" if self.centred and prior not in phrase else ""
        return f"the worst weighted mean over the clients ({phrase}{more})"


class AlgorithmSection(Section):
    """How it is solved, and when to stop."""

    name: Annotated[str, known("algorithm", "auto")] = "auto"
    tol: schema.Positive | None = None
    max_rounds: schema.Count | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def is_private(self) -> bool:
        """Whether it names a method that adds noise for privacy."""
        return self.name != "auto" and getattr(load("algorithm", self.name), "private", False)

    def build(self, name: str, **defaults: object) -> Method:
        """The algorithm of a name with its options; ``defaults`` are those that are not stated.

        Raises
        ------
        ValueError : an unknown option, or a value that the algorithm refuses, with its key
        """
        cls = load("algorithm", name)
        values = {key: self._option(name, key, value) for key, value in self.options.items()}
        try:
            return cls(**defaults | values)
        except (TypeError, ValueError) as error:
            raise ValueError(self.refusal(str(error))) from error

    def _option(self, name: str, key: str, value: object) -> object:
        """The value of one option as the algorithm takes it."""
        fields = objects.parameters(load("algorithm", name))
        names = [field for field in fields if field not in type(self).model_fields]
        types = {field: TYPES.get(field, fields[field].type) for field in names}
        allowed = [f for f in names if f not in UNSAFE and objects.in_file(types[f]) is not None]
        if key not in allowed:
            hint = near(key, allowed, " Did you mean {!r}?")
            text = f"{name!r} has no such option, it takes {', '.join(allowed)}.{hint}"
            if key in types and key in UNSAFE:
                text = "a function or a clip that moves: leave it out"
            raise ValueError(self.refusal(text, key))
        try:
            return objects.as_object(types[key], objects.read(types[key], value))
        except ValueError as error:
            raise ValueError(self.refusal(str(error), key)) from None

    def refusal(self, text: str, key: str = "") -> Refusal:
        """What is wrong with an option, such as the first one that the text names."""
        named = [key] if key else [k for k in re.findall(r"\w+", text) if k in self.options]
        return Refusal(text, "algorithm", "options", *named[:1])


# -------------------------------------------------------------------------------------- constraints
#
# A constraint on rows is about every client's own rows (on = "clients"), about the rows of all
# clients ("together"), or about data of the server ("server"). One on the coefficients by
# themselves has no rows and no such key.

WHERE = {
    "clients": "at every client",
    "together": "over all clients together",
    "server": "on the server's data",
}


class ConstraintSection(Objects):
    """One thing that the model has to keep."""

    STATES: ClassVar = {"kind": "constraint"}
    KEYS: ClassVar = {"of": "signs"}
    OWNED: ClassVar = ("measure",)

    kind: Annotated[str, known("constraint")]
    # None: "clients" where it is on rows
    on: Literal["clients", "together", "server"] | None = None
    # of "together": all rows alike, or a mean over clients
    prior: Literal["rows", "uniform", "size"] | None = None
    # of what the groups' means are; None: the class's default
    measure: Annotated[str, known("measure")] | None = None

    @model_validator(mode="after")
    def _place(self) -> "ConstraintSection":
        levels = isinstance(self.get("level"), dict)
        rules = {
            f"has `on`, and {self.kind!r} is about the coefficients only, the same for all: leave"
            " it out": self.place == "model" and self.on is not None,
            "has `prior`, which weighs the clients: it belongs to on = 'together'": (
                self.prior is not None and self.on != "together"
            ),
            f"has a level for each client, and on = {self.on!r} has one limit: give one number": (
                levels and self.place != "clients"
            ),
        }
        return kept(self, rules)

    @property
    def place(self) -> str:
        """Whose rows: "clients", "together", "server", or "model" where there are none."""
        of_model = getattr(self.named_class("kind"), "of_model", False)
        return "model" if of_model else self.on or "clients"

    def words(self) -> str:
        """Such as "mean loss of class 1 at most 0.2 at every client"."""
        return self.phrase("kind") + (f" {WHERE[self.place]}" if self.place != "model" else "")

    def build(self, of: str = "kind", **more: object) -> Any:
        """The constraint, for its slot of the problem."""
        measure = {} if self.measure is None else {"measure": load("measure", self.measure)()}
        constraint = super().build(of, **measure, **more)
        if self.place != "together":
            return constraint
        from bonafed.problem.constraints.group_means import Coupled

        return Coupled(constraint, self.prior or "rows")


def slots(constraints: list[ConstraintSection]) -> dict[str, Any]:
    """The slots of the problem that they fill; none where there are no constraints."""
    local = tuple(c.build() for c in constraints if c.place == "clients")
    shared = tuple(c.build() for c in constraints if c.place != "clients")
    slots = {"local_constraint": local, "constraint": shared}
    return {name: filled for name, filled in slots.items() if filled}


# ------------------------------------------------------------------------------------------ privacy


class PrivacySection(Objects):
    """One total (epsilon, delta) for every record of the training rows, whatever is run within
    it.
    """

    STATES: ClassVar = {"total": "budget"}
    DEFAULTS: ClassVar = {"sizes": None, "book": None}

    total: ClassVar[str] = "privacy"
    counted: bool = False  # sizes are those of the rows; written by a run
    rehearsal: bool = False  # the rows are public: the guarantee is only tried out

    def budget(self, folder: Path, **changes: object) -> Budget:
        """As the library has it; ``folder`` is where a relative path of the ledger starts."""
        book = {} if self.book is None else {"book": folder / self.book}
        return self.build("total", **book | changes)


class EvaluationSection(Section):
    """Who may see how the model does on the rows that it is judged on."""

    # the rows judged on are nobody's secret: the model's numbers on them may travel
    public: bool = False


# -------------------------------------------------------------------------------------------- sweep
#
# A key is given by its dotted name in the file, such as "robust.radius"; constraints are counted
# from 1, as in "constraint.2.level". At every value the run must be one that could be stated.

TABLES = ("problem", "risk", "robust", "clients", "constraint")  # of keys that may be changed
EPSILON = "privacy.epsilon"
MOST = 1000  # values: each is a run
JUDGED = 0.3  # share of the training rows that judges, where a sweep is made to choose a value


def _number(value: object) -> float:
    """A finite number >= 0; whole ones stay whole."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        return value
    raise ValueError("allowed: a finite number >= 0")


def several(value: object) -> list[float]:
    """A list of numbers, or {from, to, count}: a geometric one, rounded to four digits between its
    ends.
    """
    if isinstance(value, Mapping) and {*value} == {"from", "to", "count"}:
        first, last, count = _number(value["from"]), _number(value["to"]), value["count"]
        if type(count) is int and 2 <= count <= MOST and 0 < first < last:
            ratio = last / first
            inner = [f"{first * ratio ** (k / (count - 1)):.4g}" for k in range(1, count - 1)]
            value = [float(first), *map(float, inner), float(last)]
    if not isinstance(value, list) or not 0 < len(value) <= MOST:
        raise ValueError(
            f"allowed: a list of at most {MOST:,} numbers >= 0, or {{ from = a, to = b, count = n"
            f" }} with 0 < a < b and n from 2 to {MOST:,}"
        )
    numbers = [_number(one) for one in value]
    if len({*numbers}) < len(numbers):
        raise ValueError("allowed: every value once")
    return numbers


def _name(name: str) -> str:
    parts = name.split(".")
    if parts[0] == "constraint" and len(parts) == 3 and parts[1].isdigit() and int(parts[1]):
        return name
    if name == EPSILON or (len(parts) == 2 and parts[0] in TABLES[:-1] and parts[1]):
        return name
    raise ValueError(
        f"allowed: a key of {', '.join(TABLES[:-1])} by its dotted name, such as 'robust.radius',"
        f" 'constraint.1.level' or {EPSILON!r}"
    )


class SweepSection(Section):
    """Other values of one key, at each of which the problem is solved and judged."""

    parameter: Annotated[str, AfterValidator(_name)]
    values: Annotated[list[float], PlainValidator(several)]
    # share of every client's training rows that judges the models, which are trained on the rest;
    # 0: they are trained on all, and the rows judge that judge the run; None: by the key
    test: schema.Share | None = None

    @property
    def constraint(self) -> tuple[int, str] | None:
        """The position of the constraint whose key is changed, from 0, and the key."""
        table, *rest = self.parameter.split(".")
        return (int(rest[0]) - 1, rest[1]) if table == "constraint" else None

    @property
    def held(self) -> float:
        """The share of the training rows that judges."""
        prices = self.constraint is not None or self.parameter == EPSILON
        return self.test if self.test is not None else 0.0 if prices else JUDGED

    def placed(self, raw: Mapping[str, Any], value: float) -> dict[str, Any]:
        """The tables of a run with another value of the key."""
        table: Any = (raw := copy.deepcopy({**raw}))
        *way, key = self.parameter.split(".")
        for part in way:
            try:
                table = table[int(part) - 1 if part.isdigit() else part]
            except LookupError:
                raise ConfigError(f"there is no such table as {'.'.join(way)!r}") from None
        table[key] = value
        return raw

    def own(self, raw: Mapping[str, Any]) -> float | None:
        """The value of the run itself; None where that is not one number."""
        value: Any = raw
        for part in self.parameter.split("."):
            if isinstance(value, list):
                value = value[int(part) - 1]
            else:
                value = value.get(part) if isinstance(value, Mapping) else None
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        return value if plain and math.isfinite(value) else None


# ------------------------------------------------------------------------------------------- engine

PLAIN = "mode", "block_size", "every", "secure_sum"  # keys of the engine in this process


class DelaysSection(Objects):
    """How long a client takes to answer, in virtual seconds."""

    STATES: ClassVar = {"kind": "delays"}
    KEYS: ClassVar = {"recorded": "path"}  # CSV with the columns client and delay

    kind: Annotated[str, known("delays")] = "lognormal"

    def build(self, of: str = "kind", folder: Path | None = None, **more: object) -> Any:
        """The model of delays; recorded ones are read from ``folder`` on, and without it not."""
        if (path := self.get("path")) is None:
            return super().build(of, **more)
        return None if folder is None else super().build(of, recorded=str(folder / path), **more)


class WaitSection(Objects):
    """How many answers the server waits for."""

    STATES: ClassVar = {"kind": "waiting"}

    kind: Annotated[str, known("waiting")] = "first"

    def words(self) -> str:
        """Such as "the first 10 answers"."""
        n = self.get("n") or 1
        first = f"the first {n} answers" if n > 1 else "the first answer"
        if self.kind == "stale":
            return f"{first}, and for those that would be older than {self.get('tau')} rounds"
        if self.kind == "adaptive":
            return f"everybody while nobody is slow, else for {first}"
        return first if self.kind == "first" else self.phrase("kind")


class EngineSection(Objects):
    """How the clients are run: all in this process, at once or on a simulated clock."""

    STATES: ClassVar = {"kind": "engine"}
    DEFAULTS: ClassVar = {"every": None, "max_time": None}
    OWNED: ClassVar = ("delays", "wait")

    kind: Annotated[str, known("engine")] = "in_process"
    checkpoint: bool = True
    delays: DelaysSection = Field(default_factory=DelaysSection)
    wait: WaitSection = Field(default_factory=WaitSection)

    @property
    def clocked(self) -> bool:
        """Whether time is simulated."""
        return self.kind == "virtual_clock"

    def check_clients(self, n_clients: int) -> None:
        """Raise ``ConfigError`` where more answers are waited for than clients are trained on."""
        if self.clocked and (n := self.wait.get("n") or 0) > n_clients:
            raise ConfigError(
                f"engine.wait.n = {n} waits for more answers than there are clients to train on,"
                f" {n_clients}: set engine.wait.n to {n_clients} at most"
            )

    def engine(
        self, folder: Path, checkpoint: str | os.PathLike[str] | None, clock: bool = True
    ) -> InProcess | VirtualClock:
        """The engine; without ``clock`` all clients at once, whatever it is. Raises ``ValueError``
        and ``OSError`` for times and files that do not fit.
        """
        kept = checkpoint if self.checkpoint else None
        if not (clock and self.clocked):
            # a clock has other defaults
            keys = (key for key in PLAIN if not self.clocked or key in self.model_fields_set)
            stated = {key: self.get(key) for key in keys if self.get(key)}
            return InProcess(**stated, checkpoint=kept)
        parts = {"delays": self.delays.build(folder=folder), "wait": self.wait.build("kind")}
        return self.build("kind", checkpoint=kept, **parts)


# --------------------------------------------------------------------------------- all together


@cache
def names_with(kind: str, fact: str, value: Hashable = True) -> list[str]:
    """The short names of one kind whose class has a fact, such as smooth losses."""
    return [name for name in NAMED[kind] if getattr(load(kind, name), fact, None) == value]


class Tables(Section):
    """What a file states, table by table."""

    title: str | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    data: DataSection
    problem_: Annotated[ProblemSection, Field(alias="problem", default_factory=ProblemSection)]
    risk: Annotated[RiskSection, Field(default_factory=RiskSection)]
    robust: Annotated[RobustSection, Field(default_factory=RobustSection)]
    clients: Annotated[ClientsSection, Field(default_factory=ClientsSection)]
    constraint: Annotated[list[ConstraintSection], Field(default_factory=list)]
    sweep: SweepSection | None = None
    privacy: PrivacySection | None = None
    evaluation: EvaluationSection = EvaluationSection()
    algorithm: Annotated[AlgorithmSection, Field(default_factory=AlgorithmSection)]
    engine: Annotated[EngineSection, Field(default_factory=EngineSection)]
    report: ReportSection = ReportSection()
    _folder: Path = PrivateAttr(default_factory=Path.cwd)
    _trace: str = PrivateAttr("[engine]")  # where the file says which delays were recorded

    @model_validator(mode="before")
    @classmethod
    def _mean_of_clients(cls, raw: object) -> object:
        """With constraints or a privacy budget, or where all rows are ranked together, the clients
        are averaged unless the file says otherwise.
        """
        if not isinstance(raw, dict):
            return raw
        problem, risk, clients = (raw.get(key, {}) for key in ("problem", "risk", "clients"))
        one_class = isinstance(problem, dict) and "label" in problem
        together = isinstance(risk, dict) and risk.get("on") == "together"
        mean = raw.get("constraint") or one_class or together or "privacy" in raw
        if isinstance(clients, dict) and mean:
            return raw | {"clients": {"risk": "mean", **clients}}
        return raw

    @property
    def folder(self) -> Path:
        """Relative paths of the file start here."""
        return self._folder

    def loss(self) -> Loss:
        """The loss of one row."""
        return self.problem_.build("loss")

    @property
    def constrained(self) -> bool:
        """Whether the run has multipliers: there are constraints, only one class is in the
        objective, or the method that the file names returns some.
        """
        name = self.algorithm.name
        named = name != "auto" and load("algorithm", name).requirements.constrained
        return bool(self.constraint) or self.problem_.label is not None or named

    @property
    def weighs_clients(self) -> bool:
        """Whether [clients] states more than a mean."""
        return self.clients not in (ClientsSection(), ClientsSection(risk="mean"))

    @property
    def logged(self) -> bool:
        """Whether the run has a log of who answered when, which a private one does not show."""
        return self.engine.clocked or (self.data.sites is not None and self.privacy is None)

    @property
    def labels(self) -> list[str | float]:
        """The classes that the objective and the constraints name."""
        labels = [self.problem_.label, *(one.get("label") for one in self.constraint)]
        return [label for label in labels if label is not None]

    @property
    def loss_of_classes(self) -> bool:
        """Whether the target is one of two classes, or of several."""
        return self.loss().targets in ("sign", "class")

    @property
    def budgets(self) -> list[float]:
        """The other totals epsilon that a private run tries."""
        return [] if self.privacy is None or self.sweep is None else self.sweep.values

    @property
    def judges_choose(self) -> bool:
        """Whether the rows that judge the run also judge other values of a key of it, so that its
        value may have been chosen by them.
        """
        return self.sweep is not None and not self.sweep.held

    @property
    def ones(self) -> bool:
        """Whether a feature of ones stands for the intercepts of several classes."""
        return self.problem_.model == "softmax" and self.problem_.fit_intercept

    # ------------------------------------------------------------------------- what is stated

    def problem(self) -> Problem:
        """The problem as stated; with radius = "auto" it needs the rows:
        ``config.settled(rows).problem()``.

        Raises
        ------
        ConfigError : a combination that has no finite or tractable worst case
        """
        if self.robust.radius == "auto":
            raise ConfigError(
                "radius = 'auto' is read off the training rows: use config.settled(rows).problem()"
            )
        return self.stated()

    def stated(self) -> Problem:
        """The problem before the data are read: a radius that is read off the rows is 1."""
        if self.labels and self.loss().targets != "sign":
            loss, others = self.problem_.loss, ", ".join(names_with("loss", "targets", "sign"))
            raise ConfigError(
                f"`label` needs two classes, and problem.loss = {loss!r} has none: leave it out, or"
                f" use one of {others}"
            )
        together = self.risk.together
        if self.problem_.label is not None:
            over_samples = Mean(label=self.problem_.label)
        elif self.robust.radius != 0:
            over_samples = self.robust.build()
        else:
            over_samples = Mean() if together else self.risk.build("name")
        one_ranking = together or self.problem_.pooled
        try:
            return Problem(
                loss=self.loss(),
                predictor=self.problem_.build("model", seed=self.seed),
                over_samples=over_samples,
                over_clients=Mean() if one_ranking else self.clients.build("risk"),
                over_rows=self.risk.build("name") if together else None,
                regulariser=self.problem_.build("regulariser"),
                privacy=self.privacy and self.privacy.budget(self._folder),
                class_weight=self.problem_.class_weight,
                **slots(self.constraint),
            )
        except (ValueError, TypeError) as error:
            raise ConfigError(str(error)) from error

    def method(self) -> Method | None:
        """The algorithm with its options; None where the problem decides.

        Raises
        ------
        ValueError : an option that it does not take, with its key
        """
        a, noise = self.algorithm, {}
        if self.privacy is not None:  # noise that nobody else can make again
            noise = {"noise": "simulation" if self.privacy.rehearsal else "secure"}
        if a.name == "auto" and self.privacy is None:
            if a.options:
                text = "algorithm.options needs algorithm.name: 'auto' takes no options"
                raise ValueError(Refusal(text, "algorithm", "options"))
            return None
        name = "private_sgd" if a.name == "auto" else a.name
        return a.build(name, **(noise if name in names_with("algorithm", "private") else {}))

    def solve_arguments(
        self, checkpoint: str | os.PathLike[str] | None = None, clock: bool = True
    ) -> dict[str, Any]:
        """algorithm, engine, tol, max_rounds and seed, as `bonafed.solve` takes them; ``clock``: by
        [engine] at all.
        """
        a, method = self.algorithm, self.method()
        try:
            engine = self.engine.engine(self._folder, checkpoint, clock)
        except (ValueError, OSError) as error:
            raise ConfigError(f"{self._trace}: {error}") from error
        stopping = {"tol": a.tol, "max_rounds": a.max_rounds}
        return {"algorithm": method, "engine": engine, **stopping, "seed": self.seed}


# ----------------------------------------------------------------------------------------- in words


def sentence(config: Tables) -> str:
    """What is minimised: risk over clients, risk over rows, regulariser."""
    h, losses = config.problem_, _over_rows(config)
    one = h.pooled or config.risk.together
    over = losses if one else f"{config.clients.words()} of {losses}"
    text = f"Minimised over {h.phrase('model')}: {over}"
    if h.class_weight is not None:
        text += ", every row counted by the weight of its class"
    if h.regulariser == "ball":
        text += f", over models at most {h.radius:g} long"
    elif h.regulariser != "none":
        text += f", plus {h.regulariser} regularisation of strength {h.strength:g}"
    if config.constraint:
        text += f", subject to: {'; '.join(one.words() for one in config.constraint)}"
    return f"{text}."


def _over_rows(config: Tables) -> str:
    """The risk over the losses of rows."""
    risk, h, ball = config.risk, config.problem_, config.robust
    loss, pooled = h.loss.replace("_", " "), " of all rows, pooled" * h.pooled
    if risk.together:
        return f"the {risk.words()} of the {loss} losses of all clients' rows, ranked together"
    whose, of = ("the", "the") if h.pooled else ("each client's", "its")
    if risk.by_rank:
        return f"{whose} {risk.words()} of {of} {loss} losses{pooled}"
    if not ball.is_robust:
        label = "" if h.label is None else f" of its rows of class {h.label}"
        return f"{whose} mean {loss} loss{label}{pooled}"
    return f"{whose} worst mean {loss} loss{pooled} ({_near(config)})"


def _near(config: Tables) -> str:
    """The Wasserstein ball."""
    ball = config.robust
    near = f"within Wasserstein distance {in_words(ball.radius)} of its rows"
    if ball.radius == "auto":
        near = 'near its rows, the Wasserstein distance read off them ("auto")'
    what, fixed = "flipping a label", "labels never flip"
    if not config.loss_of_classes:
        what, fixed = "moving a target by one", "targets never move"
    target = fixed if math.isinf(ball.label_cost) else f"{what} costs {ball.label_cost:g}"
    if ball.label_flips is not None:
        target = f"at most {ball.label_flips:.3g} of a client's labels flip"
    support = "" if ball.support in (None, "none") else ", features stay in the support"
    return f"{near}, {ball.norm} norm on the features, {target}{support}"
