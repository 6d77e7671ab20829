"""What the numbers of a run mean, in plain sentences."""

from bonafed.report.tables import Record, Result, by_set, capital, merit, number, people, precise
from bonafed.rounds import Stop
from bonafed.solution.outcome import unproven as warned
from bonafed.text import counted, first_true

CLASHING = 12  # constraints of a proof that are named
CONDITION = " if all other answers of the site that is named are true"  # after what is proven
KNOWN_AS = {"superquantile": "superquantile (CVaR)"}  # what a risk is called elsewhere


# ------------------------------------------------------------------------------ what kind of run


def constrained(result: Result) -> bool:
    """Whether the run has constraints, or one class only in its objective."""
    return "constraints" in result


def infeasible(result: Result) -> bool:
    """Whether the run proves that no model meets all constraints."""
    return result["outcome"]["stop"] == "infeasible"


def pooled(result: Result) -> bool:
    """Whether the rows of all clients were pooled in one place."""
    return result.get("risk", {}).get("pooled", False)


def together(result: Result) -> bool:
    """Whether all rows have one ranking, pooled or where they are: no client has a weight."""
    return "owners" in result


def private(result: Result) -> bool:
    """Whether the model was trained within a privacy budget."""
    return result["model"] == "private"


def public_part(result: Result) -> bool:
    """Whether this is the public part of a private run, which holds no exact number."""
    return "privacy" in result


def contradicted(result: Result) -> bool:
    """Whether a site answered what no rows answer: then its other answers need not be true."""
    return result["outcome"]["stop"] == "impossible"


def proven(result: Result) -> bool:
    """Whether there is a lower bound on the objective."""
    return result["certificate"]["bound"] is not None


def unproven(result: Result) -> bool:
    """Whether a reader has to be warned of how the run ended."""
    stop, text = result["outcome"]["stop"], result["outcome"]["text"]
    said = private(result) or public_part(result) or infeasible(result)
    return not said and warned(Stop(stop), text)


# ---------------------------------------------------------------------------------------- phrases


def clients(n: int) -> str:
    """A number of clients."""
    return f"{n} client{'s' * (n != 1)}"


def risk_called(risk: Record) -> str:
    """The name of a spectral risk, with what the field calls it."""
    name: str = risk["name"]
    return KNOWN_AS.get(name, name)


def risk_words(risk: Record) -> str:
    """The risk with its parameters, with what the field calls it."""
    words: str = risk["words"]
    name = risk["name"]
    known = name not in KNOWN_AS or "CVaR" in words
    return words if known else words.replace(name, KNOWN_AS[name], 1)


def ended(result: Result) -> str:
    """How the run ended, as a sentence."""
    text = result["outcome"]["text"].strip()
    return capital(text) + ("" if text.endswith(".") else ".")


# ---------------------------------------------------------------------------------------- summary


def lead(result: Result) -> str:
    """What kind of model this is, and where its rows were."""
    risk = result.get("risk")
    models = {
        "A distributionally robust model (DRFL)": result["model"] == "DRFL",
        "A model under constraints": constrained(result),
        f"A model of the {risk and risk_called(risk)} of the losses": risk,
        "A model": True,
    }
    rows = f"{'the pooled' if pooled(result) else 'the'} rows of {clients(len(people(result)))}"
    rows = f"rows that stayed at {len(people(result))} sites" if at_sites(result) else rows
    return f"{first_true(models)} over {rows}, and what is guaranteed about it."


def done(result: Result) -> list[str]:
    """What was done, and what is guaranteed."""
    met = constraints_met(result) if constrained(result) else [guarantee(result)]
    return [f"{_took(result)} {ended(result)}", result["problem"], *met]


def summary(result: Result) -> list[str]:
    """What was done, what is guaranteed and how it was checked."""
    sentences, certificate = done(result), result["certificate"]
    if infeasible(result):
        return sentences
    objective = f"The objective of the model is {number(certificate['value'])}; {_unproven(result)}"
    if proven(result):
        objective = (
            f"The objective of the model is {precise(certificate['value'])}. It is proven that no"
            f" model of this kind has an objective below {precise(certificate['bound'])}: this one"
            f" is within {certificate['relative_gap']:.2g} (relative) of the best"
            f"{CONDITION * contradicted(result)}."
        )
    duals = "multipliers" if constrained(result) else "dual weights"
    again = "from what the sites signed" if at_sites(result) else "from this folder"
    return [
        *(*sentences, objective),
        f"These numbers were computed after the run from data, model and {duals} only, without the"
        f" algorithm; bonafed verify computes them again {again}.",
    ]


def at_sites(result: Result) -> bool:
    """Whether the rows of the run are at sites."""
    return result.get("at_sites", False)


def whoever(result: Result) -> str:
    """Who can check a run."""
    if at_sites(result):
        signed = "Anyone who has the sites' public keys can check what they signed"
        return f"{signed}: bonafed verify --keys."
    return "Anyone who has the data can check model, certificate and figures: bonafed verify."


def _took(result: Result) -> str:
    rows, n = sum(row["n"] for row in result["clients"]), len(people(result))
    rounds = counted(result["rounds"], "round")
    if pooled(result):
        return f"{rows:,} pooled rows of {clients(n)} were fitted in {rounds}."
    return f"{clients(n)} with {rows:,} rows took part in {rounds}."


def _unproven(result: Result) -> str:
    """Why there is no bound, and what there is instead."""
    residuals = result["certificate"].get("residuals")
    texts = {
        "no lower bound is proven, and a better model may exist. The certificate says how far this"
        " one is from the conditions of optimality.": constrained(result),
        "no lower bound is proven, see the warnings.": not residuals,
        "the problem is not convex, so no lower bound can be proven, and a better model may exist."
        " What is checked is how far this one is from the three conditions of optimality:"
        f" {', '.join(map(precise, residuals or ()))} (KKT residuals).": True,
    }
    return first_true(texts)


def guarantee(result: Result) -> str:
    """The robust part of the objective as a guarantee."""
    certificate, risk = result["certificate"], result.get("risk")
    pairs = zip(certificate["weights"], certificate["client_risks"], strict=True)
    worst = number(sum(q * r for q, r in pairs) + (certificate["complementarity"] or 0.0))
    if risk is not None and together(result):
        worst = number(risk["together"]) if "together" in risk else worst
        rows = "" if pooled(result) else ", ranked over all clients,"
        return f"The {risk_words(risk)} of the training losses{rows} is {worst}."
    if risk is not None:
        return (
            "For all client weights in the stated set, the weighted mean of the clients' risks is"
            f" at most {worst}. The risk of a client is the {risk_words(risk)} of its training"
            " losses."
        )
    distance, balls = radii(result), ","
    if distance != "0":
        distance += "," * distance.endswith("client")
        balls = (
            f" and whatever each client's data become within Wasserstein distance {distance} of its"
            " training rows,"
        )
    return f"For all client weights in the stated set{balls} the expected loss is at most {worst}."


def radii(result: Result) -> str:
    """The radius of the Wasserstein balls, or the smallest and the largest by client."""
    different = sorted({row["radius"] for row in result["clients"]})
    if len(different) == 1:
        return number(different[0])
    return f"{number(different[0])} to {number(different[-1])}, by client"


def constraints_met(result: Result) -> list[str]:
    """How far the constraints are met on the training rows."""
    rows = result["constraints"]
    if infeasible(result):
        clash = [f"{row['owner']}: {row['constraint']}" for row in rows if row["weight"] > 1e-6]
        more = f" and {len(clash) - CLASHING} more" * (len(clash) > CLASHING)
        violation = number(result["certificate"]["feasibility"])
        return [
            f"The proof combines {'; '.join(clash[:CLASHING])}{more}.",
            f"No model is recommended. The model in this folder breaks a constraint by {violation}"
            " at worst: use it to see which limits contradict each other, and for nothing else.",
        ]
    if not rows:
        return ["There are no constraints; only one class is in the objective."]
    if unmet := [row for row in rows if not row["met"]]:
        worst = min(unmet, key=lambda row: row["slack"])
        return [
            f"{len(unmet)} of {len(rows)} constraints are not met on the training rows: the worst"
            f" is that of {worst['owner']} on {worst['constraint']}, {number(worst['measured'])}"
            f" where {number(worst['limit'])} is the limit."
        ]
    active = sum(abs(row["slack"]) <= 1e-6 * max(1.0, abs(row["limit"])) for row in rows)
    verb = "is" if active == 1 else "are"
    largest = precise(result["certificate"]["feasibility"])
    return [
        f"All {len(rows)} constraints are met on the training rows (largest violation {largest});"
        f" {active} of them {verb} active, that is, at the limit."
    ]


# -------------------------------------------------------------------------------------- new rows


def question(result: Result) -> str:
    """What the evaluation on new rows answers."""
    name = result.get("risk", {}).get("name", "mean")
    questions = {
        "On public rows it was not trained on": public_part(result),
        "What privacy cost": private(result),
        "On rows it was not trained on": not result["evaluation"]["verdict"],
        "Are the constraints met on new rows?": result.get("constraints"),
        "Is it better on new rows?": constrained(result),
        "Did robustness help?": name == "mean",
        f"Is the {name} of new losses lower?": True,
    }
    return first_true(questions)


def answer(result: Result) -> list[str]:
    """The verdict in short, then every comparison; where no model meets all constraints, that the
    verdict is about a model that nobody should use.
    """
    verdict = list(result["evaluation"]["verdict"])
    if verdict and constrained(result) and infeasible(result):
        verdict[0] = (
            "No model is recommended; what follows is about the one that breaks the constraints"
            f" least. {verdict[0]}"
        )
    return verdict


def cost(result: Result) -> list[str]:
    """What privacy cost, beside the same problem without it; for the owner of the rows."""
    value = precise(result["certificate"]["value"])
    objective = f"The exact objective of the private model on its training rows is {value}."
    for name, other in result["baselines"].items():
        objective += (
            f" That of the same problem without privacy ({name.upper()}) is"
            f" {precise(other['value'])}."
        )
    sentences = [objective]
    for name, rows in by_set(result["evaluation"]["measures"]).items():
        models = {row["model"]: row for row in rows}
        key, show = merit(models["private"])
        beside = f", {show(models['ERM'][key])} without privacy" if "ERM" in models else ""
        sentences.append(f"{capital(name)}: {key} {show(models['private'][key])}{beside}.")
    return sentences + answer(result)[1:]
