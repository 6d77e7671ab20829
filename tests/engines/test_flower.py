"""The Flower adapter against a grid in memory, and in Flower's simulation where it is installed."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from subprocess import PIPE
from typing import Any

import flower_stand_in
import pytest
from flower_grid import Answer, Error, Grid, Node, Sent, named, site, transport
from hypothesis import given, settings
from hypothesis import strategies as st

from bonafed.engines.flower import (
    FAILED,
    LOST,
    PROGRAM,
    STEP,
    FlowerError,
    FlowerTransport,
    MalformedError,
    NotApprovedError,
    RefusedError,
    SiteError,
    answer_in,
    check_approved,
    export_app,
    guarded,
    job_folder,
    opened,
    sealed,
    stand_before,
)
from bonafed.engines.flower import main as guard_main
from bonafed.engines.job import ERROR, PACKAGE, package_digest
from bonafed.sites import flower_app
from bonafed.sites.trial.flower import Deployment, _quoted, simulate
from bonafed.sites.trial.processes import TAG
from bonafed.storage import Lock

JOB = {"rounds": "6", "size": "5", "experiment": "one"}
NAMES = ("north", "south", "west")


def entries(carrier: FlowerTransport, count: int) -> list[tuple[str, int, bytes | Exception]]:
    """So many entries of `poll`."""
    seen: list[tuple[str, int, bytes | Exception]] = []
    while len(seen) < count:
        new = carrier.poll(timeout=5000.0)
        assert new, "nothing came"
        seen += new
    return seen


# ------------------------------------------------------------------------------------ the transport


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    twice=st.booleans(),
    delays=st.lists(st.floats(0, 100), min_size=3, max_size=3),
    deaths=st.lists(st.tuples(st.integers(0, 2), st.floats(0.1, 400)), max_size=4),
)
def test_every_push_yields_one_answer_whoever_dies_and_comes_back(
    seed: int, twice: bool, delays: list[float], deaths: list[tuple[int, float]]
):
    grid = Grid(seed=seed, twice=twice)
    homes = {k: k for k in range(3)}  # the node of each site, which changes

    def restart(k: int) -> None:
        grid.die(homes[k], noticed=60.0)
        homes[k] += 10
        grid.nodes[homes[k]] = named(NAMES[k])

    grid.nodes = {k: named(NAMES[k]) for k in range(3)}
    grid.delay = lambda sent: delays[sent.node % 10]
    grid.at = [(when, lambda k=k: restart(k)) for k, when in deaths]
    carrier = transport(grid, *NAMES, gather=5000, lost=5000)
    carrier.gather()
    for seq in range(3):
        for name in NAMES:
            carrier.push(name, seq, b"%d" % seq)
    expected = {(n, k): n.encode() + b" %d" % k for n in NAMES for k in range(3)}
    seen = entries(carrier, 9)
    assert {(name, seq): answer for name, seq, answer in seen} == expected
    assert len(seen) == 9
    assert carrier.poll(timeout=100.0) == []


def test_ids_are_the_names_of_the_sites_in_the_given_order():
    grid = Grid({7: named("south"), 3: named("north")})
    carrier = transport(grid, "south", "north")
    carrier.gather()
    assert carrier.ids() == ("south", "north")


def test_poll_returns_what_is_there_without_the_slow_one():
    grid = Grid({1: named("fast"), 2: named("slow")})
    grid.delay = lambda sent: 500.0 if sent.node == 2 and sent.kind == STEP else 1.0
    carrier = transport(grid, "fast", "slow")
    carrier.gather()
    for name in carrier.ids():
        carrier.push(name, 0, b"x")
    assert carrier.poll() == [("fast", 0, b"fast x")]
    began = grid.now
    assert carrier.poll(timeout=3.0) == []
    assert grid.now - began == pytest.approx(3.0)
    assert carrier.poll() == [("slow", 0, b"slow x")]
    assert carrier.poll() == []


@pytest.mark.parametrize("code", sorted(FAILED))
def test_an_error_of_flower_keeps_its_site_and_its_code(code: int):
    grid = Grid({1: named("north", lambda data: Error(code, "because\x1b[2J")), 2: named("south")})
    carrier = transport(grid, "north", "south")
    carrier.gather()
    carrier.push("north", 4, b"x")
    carrier.push("south", 0, b"y")
    by_name = {name: (seq, answer) for name, seq, answer in entries(carrier, 2)}
    seq, error = by_name["north"]
    assert by_name["south"] == (0, b"south y")
    assert isinstance(error, SiteError)
    assert (seq, error.site, error.code, error.reason) == (4, "north", code, "because\x1b[2J")
    assert FAILED[code] in str(error)
    assert "\x1b" not in str(error)


@pytest.mark.parametrize("code", sorted(LOST))
def test_a_lost_message_is_pushed_again_and_given_up_in_the_end(code: int):
    left = [2]

    def step(data: bytes) -> Answer:
        left[0] -= 1
        return Error(code, "gone") if left[0] >= 0 else sealed("data", data)

    grid = Grid({1: named("north", step)})
    carrier = transport(grid, "north")
    carrier.gather()
    carrier.push("north", 0, b"x")
    assert entries(carrier, 1) == [("north", 0, b"x")]
    left[0] = 1000
    carrier.push("north", 1, b"y")
    ((name, seq, error),) = entries(carrier, 1)
    assert (name, seq) == ("north", 1)
    assert isinstance(error, SiteError)
    assert error.code == code
    steps = [sent for sent in grid.sent if sent.kind == STEP and sent.group == "1"]
    assert len(steps) == 6
    assert {sent.content["bonafed"]["data"] for sent in steps} == {b"y"}


def test_a_site_that_comes_back_with_another_node_gets_the_message_that_waits():
    grid = Grid({1: named("north", lambda data: None), 2: named("south")})
    carrier = transport(grid, "north", "south")
    carrier.gather()
    carrier.push("north", 0, b"x")
    grid.die(1)
    grid.at.append((300.0, lambda: grid.nodes.update({99: named("north")})))
    assert carrier.poll() == [("north", 0, b"north x")]
    assert grid.now > 300
    assert [sent.node for sent in grid.sent if sent.kind == STEP] == [1, 99]
    carrier.push("north", 1, b"y")  # and no message goes to the node that is gone
    assert carrier.poll() == [("north", 1, b"north y")]
    assert grid.sent[-1].node == 99


def test_a_site_that_never_comes_back_fails_and_its_late_answer_is_dropped():
    grid = Grid({1: named("north"), 2: named("south")})
    carrier = transport(grid, "north", "south", lost=100)
    carrier.gather()
    grid.die(1)
    carrier.push("north", 0, b"x")
    ((name, seq, error),) = entries(carrier, 1)
    assert (name, seq) == ("north", 0)
    assert isinstance(error, SiteError)
    assert error.code == 5
    assert "did not connect within 100 s" in str(error)
    grid.nodes[1] = named("north")
    assert carrier.poll(timeout=50.0) == []
    carrier.push("north", 0, b"x")  # the loop sends the same message again
    assert carrier.poll() == [("north", 0, b"north x")]


def test_an_answer_that_is_later_than_its_failure_is_dropped():
    grid = Grid({1: named("north")})
    grid.delay = lambda sent: 200.0 if sent.group == "0" else 1.0
    carrier = transport(grid, "north", answer=100)
    carrier.gather()
    carrier.push("north", 0, b"x")
    ((_, _, error),) = carrier.poll()
    assert isinstance(error, SiteError)
    assert error.code is None
    assert "did not answer within 100 s" in str(error)
    carrier.push("north", 1, b"y")
    grid.sleep(300.0)
    assert entries(carrier, 1) == [("north", 1, b"north y")]
    assert carrier.poll(timeout=10.0) == []


def test_answers_that_come_while_nodes_are_asked_for_their_names_are_kept():
    grid = Grid({1: named("north"), 2: named("south")})
    carrier = transport(grid, "north", "south")
    carrier.gather()
    grid.delay = lambda sent: 90.0 if sent.node == 2 else 3.0
    grid.die(1, noticed=80.0)
    carrier.push("north", 0, b"x")
    carrier.push("south", 0, b"y")  # is there when the new node of north answers hello
    grid.at.append((85.0, lambda: grid.nodes.update({3: named("north")})))
    assert sorted(entries(carrier, 2)) == [("north", 0, b"north x"), ("south", 0, b"south y")]


def test_a_killed_node_that_is_still_listed_is_no_second_site_of_its_name():
    grid = Grid({1: named("north"), 2: named("south")})
    carrier = transport(grid, "north", "south")
    carrier.gather()
    grid.die(1, noticed=200.0)
    grid.nodes[3] = named("north")
    grid.die(2, noticed=10.0)
    grid.nodes[4] = named("south")
    carrier.push("south", 0, b"y")  # its loss is noticed first, and all new nodes are asked
    assert entries(carrier, 1) == [("south", 0, b"south y")]
    carrier.push("north", 0, b"x")
    assert entries(carrier, 1) == [("north", 0, b"north x")]
    assert grid.now > 200


def test_two_nodes_of_one_name_are_an_error_at_the_start():
    grid = Grid({1: named("north"), 2: named("south"), 3: named("north")})
    with pytest.raises(FlowerError, match=r"nodes 1, 3 all call themselves 'north'.*end all but"):
        transport(grid, "north", "south").gather()


def test_two_nodes_of_one_name_fail_the_message_of_that_site_until_one_has_ended():
    grid = Grid({1: named("north"), 2: named("south")})
    carrier = transport(grid, "north", "south")
    carrier.gather()
    grid.die(1, noticed=10.0)
    grid.nodes |= {3: named("north"), 4: named("north")}
    for name in carrier.ids():
        carrier.push(name, 0, b"x")
    by_name = {name: answer for name, _, answer in entries(carrier, 2)}
    assert by_name["south"] == b"south x"
    assert isinstance(by_name["north"], SiteError)
    assert "3, 4 all call themselves 'north'" in str(by_name["north"])
    del grid.nodes[3]
    carrier.push("north", 0, b"x")
    assert entries(carrier, 1) == [("north", 0, b"north x")]
    assert grid.sent[-1].node == 4


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (named("east"), "calls itself 'east'; the sites of this run are north. End that SuperNode"),
        (lambda sent: Error(1, "no module"), "the app could not be loaded.*no module"),
        (lambda sent: sealed("refused", "no name"), "does not say which site it is: no name"),
        (lambda sent: sealed("name", "x" * 5000), "5,000 bytes; allowed"),
        (lambda sent: {"other": {"name": "north"}}, "called 'other'; needed: 'bonafed'"),
    ],
)
def test_a_node_that_is_no_site_is_an_error_at_the_start(node: Node, text: str):
    with pytest.raises(FlowerError, match=text):
        transport(Grid({1: named("north"), 2: node}), "north").gather()


def test_a_node_that_is_no_site_disturbs_no_run_that_has_begun(caplog: pytest.LogCaptureFixture):
    grid = Grid({1: named("north")})
    carrier = transport(grid, "north")
    carrier.gather()
    grid.nodes[2] = named("east")
    grid.die(1, noticed=5.0)
    grid.nodes[3] = named("north")
    carrier.push("north", 0, b"x")
    assert entries(carrier, 1) == [("north", 0, b"north x")]
    assert "calls itself 'east'" in caplog.text
    assert {sent.node for sent in grid.sent if sent.kind == STEP} == {1, 3}


def test_sites_that_do_not_connect_are_named():
    with pytest.raises(FlowerError, match="of 3 sites south, west did not connect within 30 s"):
        transport(Grid({1: named("north")}), *NAMES, gather=30).gather()


@pytest.mark.parametrize(
    ("sites", "text"), [((), "none given"), (("a", "b", "a"), "a given twice")]
)
def test_the_names_of_sites_are_checked(sites: tuple[str, ...], text: str):
    with pytest.raises(FlowerError, match=text):
        transport(Grid(), *sites)
    with pytest.raises(ValueError, match="there is no site 'c'; the sites are a"):
        transport(Grid(), "a").push("c", 0, b"")


def test_a_message_that_the_superlink_does_not_take_is_an_error():
    grid = Grid({1: named("north")})
    carrier = transport(grid, "north")
    carrier.gather()
    grid.push_messages = lambda messages, /: []  # what Flower returns for one that is too large
    carrier.push("north", 0, b"x" * 1234)
    ((_, _, error),) = carrier.poll()
    assert isinstance(error, SiteError)
    assert "refused a message of 1,234 bytes" in str(error)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"bonafed": {}},
        {"bonafed": {"data": "text"}},
        {"bonafed": {"data": b"x", "more": 1}},
        {"bonafed": {"data": b"x"}, "more": {"data": b"x"}},
        {"bonafed": [b"x"]},
        {"other": {"data": b"x"}},
        {"bonafed": {"name": "north"}},
        {"bonafed": {"refused": b"bytes"}},
        None,
    ],
)
def test_an_answer_of_another_form_is_the_error_of_its_site(content: Any):
    grid = Grid({1: named("north", lambda data: content)})
    if content is None:
        with pytest.raises(MalformedError):
            answer_in(content)
        return
    carrier = transport(grid, "north")
    carrier.gather()
    carrier.push("north", 0, b"x")
    ((_, _, error),) = carrier.poll()
    assert isinstance(error, SiteError)
    assert (error.site, error.code) == ("north", None)


def test_close_forgets_what_is_on_its_way():
    grid = Grid({1: named("north")})
    carrier = transport(grid, "north")
    carrier.gather()
    carrier.push("north", 0, b"x")
    carrier.close()
    assert carrier.poll(timeout=10.0) == []


# --------------------------------------------------------------------------------- a site's handler


class Echo:
    """A party that keeps what it was asked."""

    asked: list[tuple[Path, str, str, bytes]]

    def __init__(self, folder: Path, name: str) -> None:
        self.place = folder, name

    def answer(self, sender: str, data: bytes) -> bytes:
        type(self).asked.append((*self.place, sender, data))
        if data == b"fail":
            raise RuntimeError("row 17 of patients.csv")
        return data[::-1]

    def close(self) -> None:
        type(self).asked.append((*self.place, "closed", b""))


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> type[Echo]:
    monkeypatch.setattr(Echo, "asked", [], raising=False)
    return Echo


def step(message: object, folder: Path, software: str = "", **config: object) -> Mapping[str, Any]:
    place = {"client-id": "north", "site": str(folder)} | config
    return flower_app.take_step(message, place, "Flower run 7", software, Echo)


def test_the_party_of_the_nodes_own_folder_answers(tmp_path: Path, echo: type[Echo]):
    assert step(sealed("data", b"abc"), tmp_path) == {"bonafed": {"data": b"cba"}}
    assert echo.asked == [
        (tmp_path, "north", "Flower run 7", b"abc"),
        (tmp_path, "north", "closed", b""),
    ]


def test_an_error_of_the_party_is_a_refusal_that_keeps_its_text_at_the_site(
    tmp_path: Path, echo: type[Echo], caplog: pytest.LogCaptureFixture
):
    reply = step(sealed("data", b"fail"), tmp_path)
    with pytest.raises(RefusedError, match=r"could not answer \(RuntimeError\)") as refused:
        answer_in(reply)
    assert "patients" not in str(refused.value)
    assert "row 17 of patients.csv" in caplog.text
    assert echo.asked[-1][2] == "closed"
    assert Lock(tmp_path / flower_app.LOCK).take()


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.lists(st.text()),
)
MESSAGES = st.one_of(
    VALUES,
    st.dictionaries(st.text(), VALUES, max_size=3),
    st.dictionaries(
        st.one_of(st.just("bonafed"), st.text()),
        st.dictionaries(st.sampled_from(["data", "hello", "refused", "name", "x"]), VALUES),
        max_size=2,
    ),
)


@settings(max_examples=200, deadline=None)
@given(MESSAGES)
def test_any_message_is_answered_and_only_bytes_reach_the_party(
    tmp_path_factory: pytest.TempPathFactory, message: Any
):
    Echo.asked = []
    folder = tmp_path_factory.getbasetemp()
    reply = step(message, folder)
    sound = (
        isinstance(message, dict)
        and [*message] == ["bonafed"]
        and isinstance(message["bonafed"], dict)
        and [*message["bonafed"]] == ["data"]
        and type(message["bonafed"]["data"]) is bytes
    )
    assert bool(Echo.asked) == sound
    assert [*reply] == ["bonafed"]
    assert [*reply["bonafed"]] == (["data"] if sound else ["refused"])
    greeted = flower_app.greet(message, {"client-id": "north", "site": str(folder)})
    assert [*greeted["bonafed"]] in (["name"], ["refused"])


@settings(max_examples=100, deadline=None)
@given(flips=st.lists(st.tuples(st.integers(0, 55), st.integers(1, 255)), min_size=1, max_size=4))
def test_bytes_that_were_changed_on_the_way_reach_the_party_as_they_are_and_end_in_an_answer(
    tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]]
):
    folder = tmp_path_factory.mktemp("flipped")
    (home,) = flower_stand_in.make_sites(folder, ["north"]).values()
    data = bytearray(flower_stand_in.HEAD.pack(0, 0) + bytes(40))
    for place, value in flips:
        data[place] ^= value
    config = {"client-id": "north", "site": str(home)}
    reply = flower_app.take_step(
        sealed("data", bytes(data)), config, "x", "", flower_stand_in.open_party
    )
    changed = any(data[:8])  # the number of the message
    assert [*reply["bonafed"]] == (["refused"] if changed else ["data"])


def test_a_message_that_is_too_large_is_refused(
    tmp_path: Path, echo: type[Echo], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("bonafed.engines.flower.LARGEST", 100)
    assert "data" in step(sealed("data", bytes(100)), tmp_path)["bonafed"]
    with pytest.raises(RefusedError, match="101 bytes; allowed are 100"):
        answer_in(step(sealed("data", bytes(101)), tmp_path))
    assert sum(sender != "closed" for *_, sender, _ in echo.asked) == 1


def test_the_folder_comes_from_the_node_or_its_environment(tmp_path: Path):
    here, other = tmp_path / "here", tmp_path / "other"
    for folder in (here, other):
        folder.mkdir()
    config = {"client-id": "north"}
    variable = {flower_app.SITE_VARIABLE: str(other)}
    assert flower_app.place(config | {"site": str(here)}, variable) == (here, "north")
    assert flower_app.place(config, variable) == (other, "north")
    for wrong, text in [
        ({"site": str(here)}, "has no name of a site"),
        ({"client-id": 3, "site": str(here)}, "its client-id is 3"),
        (config, "has no folder of a site"),
        (config | {"site": str(tmp_path / "none")}, "has no folder of a site"),
    ]:
        with pytest.raises(RefusedError, match=text):
            flower_app.place(wrong, {})


def test_in_a_simulation_the_place_is_by_the_partition(tmp_path: Path):
    places = json.dumps([["north", str(tmp_path / "n")], ["south", str(tmp_path / "s")]])
    variable = {flower_app.SIMULATED: places}
    config = {"partition-id": 1, "num-partitions": 2}
    assert flower_app.place(config, variable) == (tmp_path / "s", "south")
    with pytest.raises(RefusedError, match="has no name of a site"):
        flower_app.place(config, {})


def test_another_bonafed_is_refused(tmp_path: Path, echo: type[Echo]):
    assert "data" in step(sealed("data", b"x"), tmp_path, package_digest())["bonafed"]
    with pytest.raises(RefusedError, match="install the wheel of the approval sheet"):
        answer_in(step(sealed("data", b"x"), tmp_path, "0" * 64))
    config = {"client-id": "north", "site": str(tmp_path)}
    assert "refused" in flower_app.greet(sealed("hello", 1), config, "0" * 64)["bonafed"]


def test_one_message_at_a_time_even_where_an_earlier_process_was_left_over(
    tmp_path: Path, echo: type[Echo], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(flower_app, "PATIENCE", 0.2)
    left_over = Lock(tmp_path / flower_app.LOCK)
    assert left_over.take()
    with pytest.raises(RefusedError, match="the site could not answer"):
        answer_in(step(sealed("data", b"x"), tmp_path))
    assert echo.asked == []
    left_over.free()
    assert answer_in(step(sealed("data", b"x"), tmp_path)) == b"x"


# ----------------------------------------------------------------------------------------- a server


def bundle(folder: Path, **changes: Any):
    return export_app(folder, JOB, NAMES, **({"apps": "flower_stand_in"} | changes))


class CutError(Exception):
    """The server process ends here."""


def finished(folder: Path, cuts: tuple[int, ...] = (), restarts: tuple[int, ...] = ()) -> bytes:
    """The end of a run whose server is cut short after some messages, and whose nodes are started
    again after others.
    """
    sites = flower_stand_in.make_sites(folder / "sites", [*NAMES])
    app = bundle(folder / "export").app
    homes = {name: k for k, name in enumerate(sites)}
    grid = Grid({k: site(name, sites[name]) for name, k in homes.items()})
    left, again, steps = [*cuts], [*restarts], [0]

    def message(*parts: Any) -> Sent:
        sent = Sent(*parts)
        steps[0] += sent.kind == STEP
        if again and steps[0] >= again[0]:
            again.pop(0)
            name = NAMES[steps[0] % 3]
            grid.die(homes[name])
            homes[name] += 10
            grid.nodes[homes[name]] = site(name, sites[name])
        if left and steps[0] >= left[0]:
            left.pop(0)
            raise CutError
        return sent

    variable = {flower_app.SERVER_VARIABLE: str(folder / "server")}
    while True:
        try:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(time, "sleep", grid.sleep)
                patched.setattr("bonafed.engines.flower.FlowerTransport", timed(grid))
                flower_app.run_job(
                    grid, app / "job.json", package_digest(), flower_stand_in.serve,
                    message=message, environment=variable,
                )  # fmt: skip
        except CutError:
            continue
        assert not left
        assert not again
        return (job_folder(folder / "server", JOB) / "done").read_bytes()


def timed(grid: Grid):
    """The class of the transport in the time of a grid."""

    def make(*given: Any, **more: Any) -> FlowerTransport:
        return FlowerTransport(*given, **more, clock=grid.clock, sleep=grid.sleep)

    return make


@pytest.mark.parametrize(
    ("cuts", "restarts"), [((4,), ()), ((1, 5, 9, 17), ()), ((), (5, 11)), ((6, 14), (3, 10, 16))]
)
def test_a_job_that_was_cut_short_ends_with_the_same_bits(
    tmp_path: Path, cuts: tuple[int, ...], restarts: tuple[int, ...]
):
    whole = finished(tmp_path / "whole")
    assert len(whole) == 8 * int(JOB["size"])
    assert finished(tmp_path / "cut", cuts, restarts) == whole


def test_the_server_needs_its_folder_its_software_and_no_other_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    job = bundle(tmp_path / "export").app / "job.json"
    with pytest.raises(FlowerError, match="set BONAFED_SERVER"):
        flower_app.run_job(Grid(), job, "", flower_stand_in.serve, environment={})
    with pytest.raises(RefusedError, match="install the wheel"):
        flower_app.run_job(Grid(), job, "0" * 64, flower_stand_in.serve)
    folder = job_folder(tmp_path, JOB)
    folder.mkdir()
    other = Lock(folder / flower_app.LOCK)
    assert other.take()
    monkeypatch.setattr(flower_app, "PATIENCE", 0.1)
    variable = {flower_app.SERVER_VARIABLE: str(tmp_path)}
    with pytest.raises(TimeoutError, match="another process of the server of this job"):
        flower_app.run_job(Grid(), job, "", flower_stand_in.serve, environment=variable)
    other.free()


def test_why_a_run_failed_is_written_down_unless_only_the_superlink_was_lost(tmp_path: Path):
    job = bundle(tmp_path / "export").app / "job.json"
    variable = {flower_app.SERVER_VARIABLE: str(tmp_path)}
    lost = type("ConnectError", (Exception,), {"__module__": "httpx"})

    def fails(error: Exception) -> str:
        def serve(carrier: FlowerTransport, folder: Path, job: Mapping[str, str]) -> None:
            raise error

        grid = Grid({k: named(name) for k, name in enumerate(NAMES)}, delay=lambda sent: 0.0)
        with pytest.raises(type(error)):
            flower_app.run_job(grid, job, "", serve, message=Sent, environment=variable)
        note = job_folder(tmp_path, JOB) / ERROR
        return note.read_text() if note.exists() else ""

    assert fails(ValueError("no site.toml")) == "ValueError: no site.toml"
    assert fails(lost("refused")) == ""


# ----------------------------------------------------------------------------------- the app bundle


def test_a_bundle_is_the_same_wherever_and_whenever_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    one = bundle(tmp_path / "one")
    mask = os.umask(0o077)
    try:
        monkeypatch.setattr(time, "time", lambda: 2e9)
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        monkeypatch.chdir(tmp_path)
        other = export_app(
            Path("far") / "away", dict(reversed(JOB.items())), NAMES, apps="flower_stand_in"
        )
    finally:
        os.umask(mask)
    assert one.file.read_bytes() == other.file.read_bytes()
    assert one.sheet.read_bytes() == other.sheet.read_bytes()
    assert one.sha256 == hashlib.sha256(one.file.read_bytes()).hexdigest()
    assert one.sha256[:8] in one.file.name
    assert bundle(tmp_path / "one") == one  # again, over the same files
    changed = export_app(tmp_path / "two", JOB | {"rounds": "7"}, NAMES, apps="flower_stand_in")
    assert changed.sha256 != one.sha256
    with pytest.raises(FlowerError, match="holds other files"):
        export_app(tmp_path / "one", JOB | {"rounds": "7"}, NAMES)


def test_a_bundle_holds_a_job_and_two_stubs_that_only_assign_an_app(tmp_path: Path):
    made = export_app(tmp_path, JOB, NAMES)
    with zipfile.ZipFile(made.file) as archive:
        inside = {name: archive.read(name) for name in archive.namelist()}
        dates = {entry.date_time for entry in archive.infolist()}
    listing = inside.pop(".info/CONTENT").decode().splitlines()
    assert len(dates) == 1
    assert inside == {path.name: path.read_bytes() for path in made.app.iterdir()}
    assert {line.split(",")[0]: line.split(",")[1] for line in listing} == {
        name: hashlib.sha256(data).hexdigest() for name, data in inside.items()
    }
    for name in ("bonafed_site.py", "bonafed_server.py"):
        docstring, *imports, assigned = ast.parse(inside[name]).body
        assert isinstance(docstring, ast.Expr)
        assert all(isinstance(line, ast.ImportFrom) for line in imports)
        assert {line.module for line in imports if isinstance(line, ast.ImportFrom)} <= {
            "pathlib",
            "bonafed.sites.flower_app",
        }
        assert isinstance(assigned, ast.Assign)
    assert json.loads(inside["job.json"])["job"] == JOB


@pytest.mark.parametrize("name", ["", "../up", "a/b", "-x", "a" * 64, "a\nb"])
def test_the_name_of_an_experiment_is_no_way_out_of_its_folder(tmp_path: Path, name: str):
    with pytest.raises(ValueError, match="the name of the experiment is"):
        export_app(tmp_path, JOB | {"experiment": name}, NAMES)
    assert not [*tmp_path.iterdir()]


def test_the_approval_sheet_is_one_page_with_every_hash(tmp_path: Path):
    wheel = tmp_path / "bonafed.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in PACKAGE.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, f"bonafed/{path.relative_to(PACKAGE).as_posix()}")
        archive.writestr("bonafed-0.1.0.dist-info/METADATA", "")
    made = bundle(tmp_path / "export", wheel=wheel, disclosed=["one mean of 5 numbers a round"])
    sheet = made.sheet.read_text(encoding="utf-8")
    needed = [made.sha256, package_digest(), hashlib.sha256(wheel.read_bytes()).hexdigest()]
    needed += [hashlib.sha256(path.read_bytes()).hexdigest() for path in made.app.iterdir()]
    needed += ["one mean of 5 numbers a round", *NAMES, made.file.name]
    assert [text for text in needed if text not in sheet] == []
    assert len(sheet.splitlines()) <= 50
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("bonafed/more.py", "")
    with pytest.raises(FlowerError, match="another bonafed"):
        bundle(tmp_path / "other", wheel=wheel)


@pytest.mark.parametrize(
    ("name", "text"),
    [("north", '"north"'), ('the "old"', "'the \"old\"'"), ("Zürich 3", '"Zürich 3"')],
)
def test_a_name_is_quoted_for_flower(name: str, text: str):
    assert _quoted(name) == text


@pytest.mark.parametrize("name", ["a\nb", "'\"", "back\\slash\"'"])
def test_a_name_that_flower_cannot_read_is_refused(name: str):
    with pytest.raises(FlowerError, match="cannot be given the name"):
        _quoted(name)


# ---------------------------------------------------------------------------------------- the guard


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_what_a_killed_process_has_left_in_a_workspace_ends(tmp_path: Path):
    def left(workspace: Path) -> subprocess.Popen[bytes]:
        environment = {**os.environ, TAG: str(workspace.resolve())}
        command = [sys.executable, "-c", "print(flush=True); input()"]
        process = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, env=environment)
        assert process.stdout is not None
        process.stdout.readline()  # it has begun
        return process

    with left(tmp_path / "here") as here, left(tmp_path / "here too") as other:
        Deployment({}, tmp_path / "here").stop()
        assert here.wait(900) == -signal.SIGKILL
        assert other.poll() is None, "a process of another workspace lives on"
        other.kill()


def test_only_bundles_of_the_list_are_approved(tmp_path: Path):
    made, listed = bundle(tmp_path / "export"), tmp_path / "approved.txt"
    packed = made.file.read_bytes()
    listed.write_text("# none so far\n")
    with pytest.raises(NotApprovedError, match=f"{made.sha256} is not approved"):
        check_approved(packed, listed)
    listed.write_text(f"# of the ethics board\n\n  {made.sha256.upper()}  # run one\n")
    check_approved(packed, listed)
    for wrong in (packed + b"x", packed[:-1], b""):
        with pytest.raises(NotApprovedError):
            check_approved(wrong, listed)
    listed.unlink()
    with pytest.raises(FileNotFoundError):
        check_approved(packed, listed)


def test_a_guarded_supernode_finds_the_guard_before_the_program_of_flower(tmp_path: Path):
    (tmp_path / "bin").mkdir()
    theirs = tmp_path / "bin" / PROGRAM
    theirs.write_text("#!/bin/sh\n")
    theirs.chmod(0o755)
    before = {"PATH": str(tmp_path / "bin"), "OTHER": "1"}
    after = guarded(tmp_path / "guard", tmp_path / "approved.txt", before)
    found = shutil.which(PROGRAM, path=after["PATH"])
    assert found is not None
    assert Path(found).parent == tmp_path / "guard"
    _, line, *_, call = Path(found).read_text().splitlines()
    assert str(tmp_path / "approved.txt") in call
    module, name = line.removeprefix("from ").split(" import ")  # of what is installed
    assert getattr(importlib.import_module(module), name) is guard_main
    assert {**after, "PATH": before["PATH"]} == before


# -------------------------------------------------------------------------------------- with Flower

needs_flower = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("flwr", "ray")),
    reason="pip install '.[flower]'",
)


@needs_flower
def test_flower_makes_the_same_bundle(tmp_path: Path):
    from flwr.cli.build import build_fab_from_disk

    made = bundle(tmp_path)
    assert build_fab_from_disk(made.app) == made.file.read_bytes()


@needs_flower
def test_the_guard_stands_before_what_installs_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from flwr.supernode.runtime import run_clientapp as flower

    made, listed = bundle(tmp_path / "export"), tmp_path / "approved.txt"
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(flower, "install_from_fab", flower.install_from_fab)  # put back at the end
    stand_before(listed)
    listed.write_text("")
    with pytest.raises(NotApprovedError):
        flower.install_from_fab(made.file.read_bytes(), skip_prompt=True)
    assert not (tmp_path / "home").exists()
    listed.write_text(made.sha256)
    installed = flower.install_from_fab(made.file.read_bytes(), skip_prompt=True)
    assert {path.name for path in installed.iterdir()} == {path.name for path in made.app.iterdir()}


@needs_flower
def test_a_simulation_of_flower_gives_the_bits_of_the_grid_in_memory(tmp_path: Path):
    sites = flower_stand_in.make_sites(tmp_path / "sites", [*NAMES])
    paths = [str(Path(flower_stand_in.__file__).parent), os.environ.get("PYTHONPATH", "")]
    folder = simulate(
        JOB,
        sites,
        tmp_path / "workspace",
        timeout=900,
        variables={"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        apps="flower_stand_in",
    )
    assert (folder / "done").read_bytes() == finished(tmp_path / "whole")


def test_opened_names_what_it_needs():
    with pytest.raises(MalformedError, match="called 'name'; needed: 'data'"):
        opened(sealed("name", "x"), "data", bytes)
