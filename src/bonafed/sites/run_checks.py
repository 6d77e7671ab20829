"""Checks of a finished run over sites, whose rows are not here.

    from the configuration      the model's metadata, the sentence of the problem, title and texts
    from the folder itself      figures of all rows from those of every site, verdict, warnings
    from what the sites signed  certificate, clients, constraints, warnings, outcome, baselines,
                                the figures of every site

Whatever is in none of the three is listed. The signed answers are those of
`bonafed.sites.signed_answers`; without them, and without the sites' public keys, what they would
show is listed, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from bonafed.arrays import Array
from bonafed.certificates.certificate import Certificate
from bonafed.codec import CodecError
from bonafed.config.config import ConfigError
from bonafed.measures import NUMBERS, SEVERAL, TWO, told
from bonafed.problem.lower_bounds import Duals, Multipliers, no_multipliers, signed
from bonafed.problem.metadata import Metadata
from bonafed.problem.problem import Problem
from bonafed.runs import verification
from bonafed.runs.baselines import BASELINES, called, label
from bonafed.runs.checks import Check, compared, not_checked
from bonafed.runs.files import UNREADABLE, FormError, Record, plain
from bonafed.runs.folder import EVENTS, Render, read_run
from bonafed.runs.sections.constraints import of_constraints
from bonafed.runs.sections.section import Run
from bonafed.runs.training import check_outcome
from bonafed.sites import judging
from bonafed.sites import signed_answers as answers
from bonafed.sites.run import roles_of, signed_beside
from bonafed.sites.server import NOT_JUDGED, UNJUDGED
from bonafed.sites.signatures import read_keys
from bonafed.solution.outcome import UNPROVED, failed_in
from bonafed.solution.solve import LOST
from bonafed.solution.tables import client_table, constraint_table
from bonafed.solution.warnings import notes

# keys of result.json that follow from the configuration, or that the form of the folder fixes
KNOWN = {"format", "title", "model", "problem", "at_sites", "versions", "files", "seal"}
KNOWN |= {"evaluation", "seconds"}
# what is in other files that only the sites' answers show to be right
FILES = ("model.safetensors: w", "duals.safetensors", "baselines.safetensors")
FILES += ("history.jsonl", EVENTS, "config.toml")
# of two models on the rows of all sites, what does not follow from the figures of each
OF_PAIRS = ("better", "worse", "margin", "floor")


def verify_at_sites(
    path: Path, keys: Path | None = None, signed: Path | None = None, render: Render | None = None
) -> list[Check]:
    """Check a run over sites.

    Parameters
    ----------
    path : the folder of the run
    keys : the folder of the sites' public keys; None: nothing that only the sites know is checked
    signed : the signed answers; by default they lie beside the run
    render : draws the files of its report again
    """
    try:
        run = read_run(path)
    except FormError as error:
        return [Check("form", False, str(error))]
    checks = [check for check in verification.verified(run, render=render) if check.name != "data"]
    kept = None
    if keys is not None:
        file = signed or signed_beside(run.path)  # of all signed answers
        if not file.is_file():
            raise ConfigError(
                f"there are no signed answers {str(file)!r}: who ran it has them, where the sites"
                " sign; give their file by --signed"
            )
        kept = file.read_bytes(), read_keys(keys)
    try:
        told = None if kept is None else _SignedRun(run, answers.apart(kept[0]), kept[1])
        checks += _check_of(run, told)
    except CodecError as error:
        text = f"the file of signed answers cannot be read: {error}"
        checks.append(Check("signed answers", False, text))
    except UNREADABLE as error:
        checks.append(Check("numbers", False, f"cannot be computed again: {error}"))
    return checks


def _check_of(run: Run, told: "_SignedRun | None") -> Iterator[Check]:
    masked = bool(run.config.engine.get("secure_sum"))
    if not run.private:
        yield from verification.UNCHECKED_SETTINGS
        yield _check_figures(run)
    if told is not None:
        yield from told.check_agreed() if run.private or masked else told.checks()
    if run.private:
        text = "of a private run over sites there is none, since it would be computed without noise"
        yield not_checked("certificate", text)
    elif told is None or masked:
        text = "these numbers with them: give --keys, the sites' public keys"
        if masked:
            text = "with secure_sum they sign masked answers, which show none"
        of_result = (f"result.json: {key}" for key in run.result if key not in KNOWN)
        keys = (*of_result, *FILES, *_unsigned_figures(run))
        yield Check("data", None, f"stay at the sites, and {text}", keys=keys)


def _unsigned_figures(run: Run) -> tuple[str, ...]:
    real, several = run.config.loss().targets == "real", len(run.model["classes"] or ()) > 2
    figures = told(NUMBERS if real else SEVERAL if several else TWO)
    of_sites = ("n" if real else "confusion", *(figure.key for figure in figures))
    places = [f"measures.clients.{key}" for key in ("loss", *of_sites)]
    places += [f"pairs.{key}" for key in OF_PAIRS]
    return tuple(f"result.json: evaluation.{place}" for place in places)


def _check_figures(run: Run) -> Check:
    """Figures of all held-out rows from those of every site, and the verdict from these."""
    stated, config = run.result["evaluation"], run.config
    sites, wrong = [row["client"] for row in run.result["clients"]], ""
    if sorted(sites) != sorted(config.data.sites or ()):
        wrong = "the clients are not the sites of the configuration"
    elif any([site["client"] for site in row["clients"]] != sites for row in stated["measures"]):
        wrong = "its figures are of other sites than the table of clients"
    elif stated["measures"] and not config.data.test:
        wrong = "the configuration holds no rows out"
    elif config.data.test and not stated["measures"] and not _why_not_judged(run):
        wrong = "no figure of held-out rows, and no note says why"
    if wrong:
        return Check("evaluation", False, wrong)
    try:
        people = config.data.person is not None
        again = judging.added_up(config.problem(), [*_models(run)], stated, people)
    except UNREADABLE as error:
        return Check("evaluation", False, f"cannot be computed again: {error}")
    return compared("evaluation", stated, plain(again))


def _why_not_judged(run: Run) -> list[str]:
    """The note that says why no model was judged."""
    return [note for note in run.result["notes"] if note.startswith(UNJUDGED)][:1]


def _models(run: Run) -> dict[str, Array]:
    """The models by their names in tables, the main one first."""
    others = {called(name): run.baselines[name] for name in run.config.report.compare_with}
    return {label(run.config.problem()): run.w, **others}


@dataclass(frozen=True)
class _SignedRun:
    """A run, and what its sites signed."""

    run: Run
    parts: Mapping[str, bytes]
    keys: Mapping[str, bytes]

    @cached_property
    def problem(self) -> Problem:
        return self.run.config.problem()

    @cached_property
    def duals(self) -> Duals | Multipliers | None:
        of = Multipliers if self.run.config.constrained else Duals
        return of(**self.run.duals) if self.run.duals else None

    def checks(self) -> Iterator[Check]:
        """All checks; where the main certificate cannot be computed again, no further ones."""
        run, text = self.run, self.run.result["outcome"]["text"]
        if answers.MAIN not in self.parts:
            why = "the signed answers have none about the model: they are those of another run"
            yield Check("signed answers", False, why)
            return
        stop = run.result["outcome"]["stop"]
        of = self.parts[answers.MAIN], self.problem, run.w, self.duals
        how: Any = {"infeasible": stop == "infeasible" or UNPROVED in text}
        how["bounded"] = not failed_in(text) and stop != "unbounded"
        stated = run.result["certificate"], self.keys
        again = answers.verify_signed(*of, *stated, roles=roles_of(run.config).text(), **how)
        yield from again.checks
        if again.certificate is None or again.metadata is None:
            return
        proof = replace(again.certificate, failed=failed_in(text))
        yield from self._check_tables(proof, again.metadata, again)
        yield from verification.check_rounds(run)
        yield not_checked("events", "who answered when: no site signs a time", EVENTS)
        yield from self._check_baselines(again.metadata)
        yield from self._check_judged(again.metadata)

    def check_agreed(self) -> Iterator[Check]:
        """That the sites agreed to this problem, with these rows: of private and of masked runs
        they sign no more that could be computed with.
        """
        problem, roles = self.run.config.problem(), roles_of(self.run.config).text()
        told = answers.answered(self.parts.get(answers.MAIN, b""), problem, self.keys, roles)
        if not isinstance(told, answers.Answered):
            yield from told
            return
        yield from told.checks
        if not self.run.private:
            yield self._check_digests(told.metadata)
            rows = [[row["client"], row["n"]] for row in self.run.result["clients"]]
            again = zip(told.metadata.names, told.metadata.sizes.tolist(), strict=True)
            yield compared("clients", rows, plain([*again]))

    def _check_digests(self, metadata: Metadata) -> Check:
        digests = dict(zip(metadata.names, metadata.digests(), strict=True))
        return compared("data: train", self.run.result["data"], {"train": digests})

    def _check_tables(
        self, proof: Certificate, metadata: Metadata, told: answers.Verified
    ) -> Iterator[Check]:
        """What follows from certificate and introductions."""
        run, (concrete, data), mu = self.run, self.problem.at(metadata), self.duals
        table: list[Record] = []
        if isinstance(mu, Multipliers) and told.limits is not None:
            mu = signed(concrete, mu)
            none = no_multipliers(concrete, data.n_clients)
            prices = none if verification.tried_infeasible(run) else mu
            table = constraint_table(concrete, data.clients, told.limits, proof, prices)
        rows = [*client_table(concrete, data, proof, table)]
        stated = [{key: row.get(key) for key in rows[0]} for row in run.result["clients"]]
        yield compared("clients", stated, plain(rows), abs(proof.value))
        if again := of_constraints(self.problem, metadata, proof, mu, table):
            stated = {key: run.result.get(key) for key in again}
            yield compared("constraints", stated, plain(again), abs(proof.value))
        # the notes are the warnings, and what the server says of sites that it lost, of rows that
        # were not judged, of figures in the place of others and of a model that is no better than
        # a constant
        said, warnings = run.result["notes"], notes(concrete, metadata, data, run.w, proof)
        lost = [note for note in said if note in map(LOST.format, run.config.data.sites or ())]
        measures, labels = run.result["evaluation"]["measures"], run.model["classes"] or ()
        unjudged = [] if measures else _why_not_judged(run)
        poor = [judging.no_better_than_a_constant(row, labels) for row in measures[:1]]
        first = [note for row in measures[:1] for note in judging.contrary(row)]
        other = judging.in_place_of_others(measures)
        again = [*first, *lost, *warnings, *unjudged, *other, *filter(None, poor)]
        yield compared("notes", said, again)
        text = "whether a site lost its state, and why held-out rows were not judged"
        yield not_checked("notes", text, *(["result.json: notes"] if lost or unjudged else ()))
        yield from check_outcome(run, self.problem, metadata)
        yield self._check_digests(metadata)
        if run.result["certificate"]["consensus"] is not None:
            yield verification.UNCHECKED_CONSENSUS
        if isinstance(mu, Duals):
            yield verification.UNCHECKED_PROOF

    def _check_baselines(self, metadata: Metadata) -> Iterator[Check]:
        """Every baseline from the signed answers about its own model."""
        stated, names = verification.stated_baselines(self.run), self.run.config.report.compare_with
        for name in names:
            problem, _ = BASELINES[name](self.problem, metadata)  # type: ignore[arg-type]
            # what is stated of a baseline, beside its figures
            places = f"result.json: baselines.{name}", f"baselines.safetensors: {name}"
            told = self._told(name, problem, metadata, f"baseline {name}", places)
            if isinstance(told, Check):
                yield told
                continue
            duals = self.run.proofs.get(name)
            try:
                w, proof = self.run.baselines[name], Duals(**duals) if duals else None
                certificate = answers.proof_of(told, w, proof).certificate
                again = verification.baseline_again(self.run, name, problem, metadata, certificate)
            except answers.UNUSABLE as error:
                yield Check(f"baseline {name}", False, f"cannot be computed again: {error}")
                continue
            yield compared(f"baseline {name}", stated[name], plain(again), abs(certificate.value))
        if names:
            yield verification.unchecked_baselines(names)

    def _check_judged(self, metadata: Metadata) -> Iterator[Check]:
        """The figures of held-out rows from those that every site signed."""
        run, name = self.run, "signed evaluation"
        stated = run.result["evaluation"]
        if not stated["measures"] and answers.HELD_OUT not in self.parts:
            yield compared(name, stated, NOT_JUDGED)
            return
        told = self._told(answers.HELD_OUT, self.problem, metadata, name, _unsigned_figures(run))
        if isinstance(told, Check):
            yield told
            return
        try:
            people = run.config.data.person is not None
            of = told.problem, told.metadata, _models(run), told.engine, people
            yield compared(name, stated, plain(judging.judge_at_sites(*of)))
        except answers.UNUSABLE as error:
            yield Check(name, False, f"cannot be computed again: {error}")

    def _told(
        self, part: str, problem: Problem, metadata: Metadata, name: str, places: Sequence[str]
    ) -> answers.Answered | Check:
        """What the sites signed in one part of the file, about the rows of the main model; else a
        check called ``name``, about these ``places``.
        """
        if part not in self.parts:
            return Check(name, None, "the signed answers have none about it", keys=tuple(places))
        roles = roles_of(self.run.config).text()
        told = answers.answered(self.parts[part], problem, self.keys, roles)
        if not isinstance(told, answers.Answered):
            return Check(name, False, next(c.text for c in told if c.ok is False))
        if told.metadata.digests() != metadata.digests():
            return Check(name, False, "the sites signed answers about other rows")
        return told
