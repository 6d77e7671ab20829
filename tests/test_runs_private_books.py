"""Private runs on the same rows: books, curves, and runs that go on stay within the total together."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import small_run

from quorate import charge
from quorate.config import read_config
from quorate.engines import inprocess
from quorate.parts import prepare
from quorate.privacy.accounting import Release, gaussian_epsilon
from quorate.privacy.book import Book
from quorate.privacy.budget import BudgetSpentError
from quorate.private_trial import run_private, train_private, with_sizes
from quorate.runs import read_run
from quorate.verify import passed, verify_run

CURVED = small_run.PRIVATE.replace("[privacy]", "[privacy]\ncurve = [1.0, 1.5]")


def begun(tmp_path: Path, text: str) -> tuple[Any, Any, Path]:
    config = read_config(small_run.write_config(tmp_path, text.replace("[report]", "[report]\nhtml = false")))
    parts, work = prepare(config), tmp_path / "runs" / "clinics.partial"
    work.mkdir(parents=True)
    return with_sizes(config, parts.rows), parts, work


class Cut:
    """Ctrl-C in a round of one model."""

    def __init__(self, model: str, at: int) -> None:
        self.model, self.at = model, at

    def watch(self, model: str) -> Callable[[dict, object], None]:
        def see(row: dict, state: object) -> None:
            if model == self.model and row["round"] == self.at:
                raise KeyboardInterrupt

        return see

    def done(self, model: str, said: str) -> None:
        return None


def charged(book: Path) -> list[tuple[str, float]]:
    """State, and epsilon alone, of every run in a book."""
    found = Book(book).runs()
    releases = [[Release(*r) for r in run["releases"]["North"]] for run in found]
    return [(run["state"], gaussian_epsilon(own, 1e-5) or 0.0) for run, own in zip(found, releases, strict=True)]


def test_runs_in_one_book_stay_within_the_total_together(tmp_path: Path) -> None:
    text = small_run.PRIVATE.replace("[privacy]", '[privacy]\nbook = "book.json"').replace('["erm"]', "[]")
    first = text.replace("epsilon = 3.0", "epsilon = 1.0")
    small_run.private_run(tmp_path, text=first)
    run = small_run.private_run(tmp_path, text=text)
    states = charged(tmp_path / "book.json")
    assert [state for state, _ in states] == ["ended", "ended"]
    assert states[0][1] == pytest.approx(1.0, rel=1e-2)
    assert 1.0 < states[1][1] < 3.0
    assert run.result["privacy"]["epsilon"] == pytest.approx(3.0, rel=1e-2)
    assert run.result["privacy"]["ledger"][0]["before"] == pytest.approx(1.0, rel=1e-2)
    assert passed(verify_run(run.path))
    with pytest.raises(BudgetSpentError):
        small_run.private_run(tmp_path, text=text)
    assert charged(tmp_path / "book.json") == states


@pytest.mark.parametrize(("model", "at"), [("epsilon 1", 3), ("epsilon 1.5", 5), ("private", 4), ("ERM", 2)])
def test_a_run_that_goes_on_spends_nothing_twice(tmp_path: Path, model: str, at: int) -> None:
    text = CURVED.replace("[privacy]", '[privacy]\nbook = "book.json"')
    config, parts, work = begun(tmp_path, text)
    assert train_private(config, parts, work, show=Cut(model, at)) is None  # type: ignore[arg-type]
    path = run_private(config, parts, work, True, None)
    assert path is not None
    run, states = read_run(path), charged(tmp_path / "book.json")
    assert [state for state, _ in states] == ["ended"] * 3
    assert [round(epsilon, 2) for _, epsilon in states[:2]] == [1.0, 1.5]
    assert run.result["privacy"]["epsilon"] <= 3.0
    assert [row["answers"] for row in run.result["privacy"]["ledger"]] == [8, 8]
    assert passed(verify_run(path))


class Killed(BaseException):
    """The machine dies."""


@pytest.mark.parametrize("book", ['book = "book.json"\n', ""])
@pytest.mark.parametrize("k", range(9))
def test_a_run_that_dies_between_its_charge_and_its_first_rounds_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, k: int, book: str
) -> None:
    """Note, book, note, checkpoint with the keys, book, note, rounds: of the first run of a curve."""
    config, parts, work = begun(tmp_path, CURVED.replace("[privacy]", f"[privacy]\n{book}"))
    with monkeypatch.context() as dying:
        count = iter(range(100))

        def last(real: Callable[..., Any]) -> Callable[..., Any]:
            def write(*given: Any) -> Any:
                if next(count) == k:
                    raise Killed
                return real(*given)

            return write

        for owner, name in ((charge.Note, "write"), (Book, "_write"), (inprocess.files, "save")):
            dying.setattr(owner, name, last(getattr(owner, name)))
        with pytest.raises(Killed):
            train_private(config, parts, work)
    path = run_private(config, parts, work, True, None)
    assert path is not None
    states = charged(tmp_path / "book.json" if book else work / "book.json")
    assert [state for state, _ in states] == ["ended"] * 3
    assert [round(epsilon, 2) for _, epsilon in states[:2]] == [1.0, 1.5]
    assert read_run(path).result["privacy"]["epsilon"] <= 3.0
    assert passed(verify_run(path))


def test_a_curve_of_public_rows_is_not_charged(tmp_path: Path) -> None:
    text = CURVED.replace("[privacy]", "[privacy]\nrehearsal = true").replace("[1.0, 1.5]", "[1.0, 6.0]")
    run = small_run.private_run(tmp_path, text=text)
    assert run.owner is not None
    assert run.result["privacy"]["before"] == {}
    assert "not charged" in run.result["privacy"]["rehearsal"]
    assert [round(point["alone"], 2) for point in run.owner.result["curve"]] == [1.0, 6.0]
    assert passed(verify_run(run.path))
