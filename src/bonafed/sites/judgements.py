"""What a site has told of models on the rows that it holds out, and what it tells of more of them.

A question is answered where there are not too many of them, about models that an agreed run has
led to: for each the site has answered a question of a certificate, to the same server. A model
whose figures would tell, beside those of a model that was judged earlier, of fewer people than the
policy lets be told, is answered with that model's figures (`bonafed.sites.judging`). What was
answered is about the rows: it stands on the site's disk for all experiments and servers.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.data.federation import Federation
from bonafed.data.holdout import drawn
from bonafed.engines.secure_summed import SecureSummed
from bonafed.problem.losses import Loss
from bonafed.rounds import Algorithm, decode, encode, record
from bonafed.sites import judging
from bonafed.sites.guard import refuses
from bonafed.sites.policy import Policy
from bonafed.storage import OWN, make_folder, write_whole

JUDGED, CERTIFIED = "judged", "certified"  # files
MOST_MODELS = 8  # that are judged at once
MOST_SEEN = 1_000  # models of certificates that are remembered, the last ones


@record
class OnRows:
    """What was answered about some rows.

    Attributes
    ----------
    rows : (m,) marks of the rows, in their order
    classes : those of the target, as text
    scores : the predictions of every model of which figures were told, in the order of ``rows``
    signs : of numbers, which of two models was closer to every row, as often as it was told
    """

    rows: NDArray[np.uint64]
    classes: str
    scores: tuple[Array, ...] = ()
    signs: tuple[NDArray[np.int8], ...] = ()


@record
class Answered:
    """The questions about held-out rows that a site has answered, for its disk."""

    questions: tuple[str, ...] = ()  # digests
    about: tuple[OnRows, ...] = ()


@dataclass(frozen=True)
class HeldOut:
    """The rows that a site holds out, as its answers about them are compared.

    Attributes
    ----------
    rows : (m,) marks of the rows, in their order
    order : (m,) the positions of these rows
    who : (m,) whose each row is, in the order of the marks
    classes : those of the target, as text
    """

    rows: NDArray[np.uint64]
    order: NDArray[np.intp]
    who: NDArray[np.intp]
    classes: str

    @classmethod
    def of(cls, test: Federation, classes: Sequence[object]) -> "HeldOut":
        """Those of a federation of one client."""
        numbers = np.array(drawn(test.X[0], test.y[0], 0), np.uint64)
        order = np.argsort(numbers, kind="stable")
        rows = numbers[order]
        # equal rows have marks one after the other
        rows = rows + (np.arange(len(rows)) - np.searchsorted(rows, rows)).astype(np.uint64)
        who = np.arange(len(rows))
        if test.persons is not None:
            who = np.unique(test.persons[0], return_inverse=True)[1][order]
        return cls(rows, order, who, repr([*classes]))


@dataclass(frozen=True)
class Judgements:
    """The answers of a site about its held-out rows; ``folder`` is where they are kept."""

    folder: Path

    def see(self, server: str, question: object) -> None:
        """Keep the model that a question of a certificate is about."""
        if isinstance(w := getattr(question, "w", None), np.ndarray):
            kept, model = _kept(self.folder / CERTIFIED, ()), _model(server, w)
            if model not in kept:  # digests of server and model
                _keep(self.folder / CERTIFIED, (*kept, model)[-MOST_SEEN:])

    def check(
        self, policy: Policy, server: str, agreement: bytes, ask: judging.JudgeRows, held: HeldOut
    ) -> None:
        """Count a question, of which one that was answered before is none; raise
        ``RefusedByPolicyError`` for one too many, for models of no agreed run, and about rows that
        few others have joined or left since an earlier answer.
        """
        question = f"{agreement.hex()} {hashlib.sha256(encode(ask)).hexdigest()}"
        kept, most = _kept(self.folder / JUDGED, Answered()), policy.maximum_judgements
        seen = _kept(self.folder / CERTIFIED, ())
        if any(_model(server, w) not in seen for w in np.atleast_2d(ask.models)):
            do = "Certify the model first"
            text = "a model is judged where this site has answered the certificate of it,"
            text += " in an experiment that it has agreed to with the same server"
            raise refuses("agreed_runs", text, do, ask=do)
        if question in kept.questions:
            return
        if len(ask.models) > MOST_MODELS or len(kept.questions) >= most:
            text = f"at most {MOST_MODELS} models are judged at once, and {most} times"
            do = f"Remove {self.folder / JUDGED} to begin the count anew."
            raise refuses("maximum_judgements", text, do, ask="Ask its owner")
        for about in kept.about:
            changed = len(np.setxor1d(about.rows, held.rows))
            if 0 < changed < policy.minimum_rows or (not changed and about.classes != held.classes):
                text = "since an earlier judgement few of the rows or classes have changed"
                raise refuses("minimum_rows", text, "Wait for more rows", ask="Ask its owner")
        _keep(self.folder / JUDGED, replace(kept, questions=(*kept.questions, question)))

    def judge(self, algorithm: Algorithm, held: HeldOut, least: int) -> Algorithm:
        """The round of judging as the site answers it; any other algorithm as it is."""
        if isinstance(algorithm, SecureSummed):
            return replace(algorithm, inner=self.judge(algorithm.inner, held, least))
        if isinstance(algorithm, judging.Judging):
            return replace(algorithm, site=AtSite(self, held, least))
        return algorithm


@dataclass(frozen=True)
class AtSite:
    """How a site judges: with what it has told of its rows before."""

    kept: Judgements
    held: HeldOut
    least: int

    def stand_ins(
        self, loss: Loss, predictions: Sequence[Array], y: Array
    ) -> tuple[list[Array], list[int]]:
        """The predictions of which figures may be told, in the place of those of some models, and
        the position of the model that each is of, `EARLIER` for one of an earlier question.
        """
        order, about = self.held.order, self._about()
        known, target = [_alike(one, predictions[0]) for one in about.scores], y[order]
        earlier, views = len(known), [judging.view(loss, one, target, self.least) for one in known]
        told, positions, of = list[Array](), list[int](), [judging.EARLIER] * earlier
        for k, prediction in enumerate(predictions):
            mine = judging.view(loss, prediction[order], target, self.least)
            stands = self._stand_in(mine, views)
            if stands is None:
                known, views, of = [*known, prediction[order]], [*views, mine], [*of, k]
            told.append(prediction if stands is None else known[stands][np.argsort(order)])
            positions.append(k if stands is None else of[stands])
        before = [(one, known[:k]) for k, one in enumerate(known)][earlier:]
        new = [one for one, others in before if not any(map(partial(np.array_equal, one), others))]
        self._keep(about, replace(about, scores=(*about.scores, *new)))
        return told, positions

    def _stand_in(self, mine: judging.View, views: Sequence[judging.View]) -> int | None:
        """The position of the model whose figures are told in the place of another's; None: its
        own may be told.
        """
        who, least = self.held.who, self.least
        close = (k for k, one in enumerate(views) if judging.too_close(mine, one, who, least))
        if (stands := next(close, None)) is not None or not (views and mine.classes):
            return stands
        apart = [judging.people_in(mine.decided != other.decided, who) for other in views]
        if min(apart) and judging.tell_of_few([one.decided for one in (*views, mine)], who, least):
            return int(np.argmin(apart))
        return None

    def signs(self, merit: Array) -> NDArray[Any]:
        """Which of two models is closer to every row, or what was told of other two that differ
        for few people.
        """
        about, mine = self._about(), np.sign(merit)[self.held.order].astype(np.int8)
        for other in about.signs:
            if 0 < judging.people_in(mine != other, self.held.who) < self.least:
                return other[np.argsort(self.held.order)]
        if not any(np.array_equal(mine, other) for other in about.signs):
            self._keep(about, replace(about, signs=(*about.signs, mine)))
        return np.sign(merit)

    def _about(self) -> OnRows:
        """What was answered about these rows."""
        for about in _kept(self.kept.folder / JUDGED, Answered()).about:
            if np.array_equal(about.rows, self.held.rows):
                return about
        return OnRows(self.held.rows, self.held.classes)

    def _keep(self, old: OnRows, new: OnRows) -> None:
        file = self.kept.folder / JUDGED
        kept = _kept(file, Answered())
        others = [one for one in kept.about if not np.array_equal(one.rows, old.rows)]
        _keep(file, replace(kept, about=(*others, new)))


def _alike(scores: Array, prediction: Array) -> Array:
    """Scores of two classes as one number a row or as two, like those of another model."""
    if scores.ndim == prediction.ndim:
        return scores
    two = scores.ndim == 2
    return scores[:, 1] - scores[:, 0] if two else np.stack([np.zeros(len(scores)), scores], axis=1)


def _keep(file: Path, kept: object) -> None:
    make_folder(file.parent)
    write_whole(file, encode(kept), OWN)


def _model(server: str, w: Array) -> str:
    return hashlib.sha256(encode((server, np.ascontiguousarray(w, float)))).hexdigest()[:32]


def _kept(file: Path, none: Any) -> Any:
    """A record from the disk, or the one without anything."""
    return decode(file.read_bytes()) if file.exists() else none
