"""Files written in turns: after a crash one of the last two records is there. And locks."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.storage import Lock, read_in_turns, write_in_turns

RECORDS = st.lists(st.binary(max_size=80), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("turns") / "record"


@given(RECORDS, st.integers(0, 2**40))
def test_the_last_record_is_read_whatever_the_sizes(place: Path, records: list[bytes], first: int):
    place.unlink(missing_ok=True)
    assert read_in_turns(place) is None
    for number, record in enumerate(records, first):
        write_in_turns(place, number, record)
        assert read_in_turns(place) == record
        write_in_turns(place, number, record)  # again, by a process that did not know
        assert read_in_turns(place) == record


@given(RECORDS, st.binary(max_size=80), st.data())
def test_a_crash_at_any_byte_leaves_one_of_the_last_two(
    place: Path, records: list[bytes], more: bytes, draw: st.DataObject
):
    place.unlink(missing_ok=True)
    for number, record in enumerate(records):
        write_in_turns(place, number, record)
    before = place.read_bytes()
    write_in_turns(place, len(records), more)
    after = place.read_bytes()
    if len(after) != len(before):
        return  # it took its place as a whole
    changed = [k for k in range(len(after)) if after[k] != before[k]]
    landed = draw.draw(st.sets(st.sampled_from(changed))) if changed else set()
    torn = bytes(after[k] if k in landed else before[k] for k in range(len(after)))
    place.write_bytes(torn)
    assert read_in_turns(place) == (more if torn == after else records[-1])


def test_no_name_in_the_folder_changes_while_records_fit(tmp_path: Path):
    file = tmp_path / "record"
    write_in_turns(file, 0, bytes(100))
    one = file.stat().st_ino
    write_in_turns(file, 1, bytes(100))
    assert file.stat().st_ino == one
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["record"]


def test_what_was_never_written_so_is_no_record(tmp_path: Path):
    file = tmp_path / "record"
    file.write_bytes(b"something else " * 40)
    assert read_in_turns(file) is None


def test_a_thread_that_takes_a_lock_as_another_frees_it_has_it_until_it_frees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lock, other, close = Lock(tmp_path / "lock"), Lock(tmp_path / "lock"), os.close

    def close_and_let_go_on(file: int) -> None:
        close(file)
        monkeypatch.setattr(os, "close", close)
        assert lock.take()  # the other thread

    assert lock.take()
    monkeypatch.setattr(os, "close", close_and_let_go_on)
    lock.free()
    assert not other.take()
    lock.free()
    assert other.take()
    other.free()
