"""Private runs on the same rows: books, sweeps, and runs that go on stay within the total
together.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_run

from bonafed.config.config import read_config
from bonafed.engines import checkpoint
from bonafed.privacy.accounting import Release, gaussian_epsilon
from bonafed.privacy.budget import Budget, BudgetSpentError
from bonafed.privacy.ledger import Book
from bonafed.runs.folder import read_run
from bonafed.runs.pipeline import begin, run_study, trained
from bonafed.runs.sections.section import Silent, Study
from bonafed.runs.verification import passed, verify_run
from bonafed.solution import privacy_account as charge

BOOKED = small_run.PRIVATE.replace("[privacy]", '[privacy]\nbook = "book.json"').replace(
    '["erm"]', "[]"
)
CURVED = small_run.PRIVATE.replace(
    "[privacy]", small_run.sweep("privacy.epsilon", 1.0, 1.5) + "[privacy]"
)


def begun(tmp_path: Path, text: str) -> Study:
    config = read_config(
        small_run.write_config(tmp_path, text.replace("[report]", "[report]\nhtml = false"))
    )
    work = tmp_path / "runs" / "clinics.partial"
    work.mkdir(parents=True)
    return begin(config, work)


def gone_on(study: Study) -> Path:
    """The folder of the run once it is finished."""
    assert study.work is not None
    return run_study(replace(study, resume=True), study.work.parent)


class Cut(Silent):
    """Ctrl-C in a round of one model."""

    def __init__(self, model: str, at: int) -> None:
        self.model, self.at = model, at

    def watch(self, model: str) -> Callable[[dict, object], None]:
        def see(row: dict, state: object) -> None:
            if model == self.model and row["round"] == self.at:
                raise KeyboardInterrupt

        return see


def charged(book: Path) -> list[tuple[str, float]]:
    """State, and epsilon alone, of every run in a book."""
    found = Book(book).runs()
    releases = [[Release(*r) for r in run["releases"]["North"]] for run in found]
    return [
        (run["state"], gaussian_epsilon(own, 1e-5) or 0.0)
        for run, own in zip(found, releases, strict=True)
    ]


def test_a_run_after_a_search_in_its_book_is_stored_and_verified(tmp_path: Path) -> None:
    book, search = Book(tmp_path / "book.json"), Release("geometric", 8.0, candidates=5.0)
    spent = dict.fromkeys(("North", "East", "South"), (search,))
    book.close_run(book.open_run(spent, Budget(3.0, 1e-5)), spent)
    run = small_run.private_run(tmp_path, text=BOOKED)
    before = run.result["privacy"]["before"].values()
    assert {tuple(release) for releases in before for release in releases} == {
        ("geometric", 8.0, 1, 1.0, 5.0)
    }
    assert 2.99 < run.result["privacy"]["epsilon"] <= 3
    assert passed(verify_run(run.path))


def test_runs_in_one_book_stay_within_the_total_together(tmp_path: Path) -> None:
    first = BOOKED.replace("epsilon = 3.0", "epsilon = 1.0")
    small_run.private_run(tmp_path, text=first)
    run = small_run.private_run(tmp_path, text=BOOKED)
    states = charged(tmp_path / "book.json")
    assert [state for state, _ in states] == ["ended", "ended"]
    assert states[0][1] == pytest.approx(1.0, rel=1e-2)
    assert 1.0 < states[1][1] < 3.0
    assert run.result["privacy"]["epsilon"] == pytest.approx(3.0, rel=1e-2)
    assert run.result["privacy"]["ledger"][0]["before"] == pytest.approx(1.0, rel=1e-2)
    assert passed(verify_run(run.path))
    with pytest.raises(BudgetSpentError):
        small_run.private_run(tmp_path, text=BOOKED)
    assert charged(tmp_path / "book.json") == states


@pytest.mark.parametrize(
    ("model", "at"), [("epsilon 1", 3), ("epsilon 1.5", 5), ("private", 4), ("ERM", 2)]
)
def test_a_run_that_goes_on_spends_nothing_twice(tmp_path: Path, model: str, at: int) -> None:
    text = CURVED.replace("[privacy]", '[privacy]\nbook = "book.json"')
    study = begun(tmp_path, text)
    with pytest.raises(KeyboardInterrupt):
        trained(study, Cut(model, at))
    path = gone_on(study)
    run, states = read_run(path), charged(tmp_path / "book.json")
    assert [state for state, _ in states] == ["ended"] * 3
    assert [round(epsilon, 2) for _, epsilon in states[:2]] == [1.0, 1.5]
    assert run.result["privacy"]["epsilon"] <= 3.0
    assert [row["answers"] for row in run.result["privacy"]["ledger"]] == [8, 8]
    assert passed(verify_run(path))


class Killed(BaseException):
    """The machine dies."""


@pytest.mark.parametrize("book", ['book = "book.json"\n', ""])
@pytest.mark.parametrize("k", range(10))
def test_a_run_that_dies_between_its_charge_and_its_first_rounds_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, k: int, book: str
) -> None:
    """Note, book, note, keys, checkpoint, book, note, rounds: of the first run of a
    sweep.
    """
    study = begun(tmp_path, CURVED.replace("[privacy]", f"[privacy]\n{book}"))
    assert study.work is not None
    with monkeypatch.context() as dying:
        count = iter(range(100))

        def last(real: Callable[..., Any]) -> Callable[..., Any]:
            def write(*given: Any, **more: Any) -> Any:
                if next(count) == k:
                    raise Killed
                return real(*given, **more)

            return write

        for owner, name in ((charge.Note, "write"), (Book, "_write"), (checkpoint, "save")):
            dying.setattr(owner, name, last(getattr(owner, name)))
        with pytest.raises(Killed):
            trained(study, Silent())
    path = gone_on(study)
    states = charged(tmp_path / "book.json" if book else study.work / "book.json")
    assert [state for state, _ in states] == ["ended"] * 3
    assert [round(epsilon, 2) for _, epsilon in states[:2]] == [1.0, 1.5]
    assert read_run(path).result["privacy"]["epsilon"] <= 3.0
    assert passed(verify_run(path))


def test_a_sweep_of_public_rows_is_not_charged(tmp_path: Path) -> None:
    text = CURVED.replace("[privacy]", "[privacy]\nrehearsal = true").replace(
        "[1.0, 1.5]", "[1.0, 6.0]"
    )
    run = small_run.private_run(tmp_path, text=text)
    assert run.owner is not None
    assert run.result["privacy"]["before"] == {}
    assert "not charged" in run.result["privacy"]["rehearsal"]
    assert [round(point["alone"], 2) for point in run.owner.swept.table["points"]] == [1.0, 6.0]
    assert passed(verify_run(run.path))
