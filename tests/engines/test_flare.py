"""Runs over NVIDIA FLARE: laws of the transport and the supervisor without FLARE, one run with it.

The tests at the end need nvflare, which the extra ``flare`` installs; one starts its simulator.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bonafed
from bonafed.engines import flare as place_module
from bonafed.engines.flare import (
    ALLOWED,
    CONTROLLER,
    EXECUTOR,
    SERVER,
    SITE,
    FlareTransport,
    JobAbortedError,
    NotFinishedError,
    SiteError,
    Supervisor,
    allow,
    export_job,
    filters,
    read_job,
    require_flare,
    warning_about,
    working_folder,
    write_setting,
    written,
)
from bonafed.sites.trial.flare import Poc, simulate

NAMES = ("carl", "anna", "berta", "dora")
Answer = Callable[[bytes], bytes]


@dataclass
class FakeSite:
    """A site that is called as FLARE's proxies are, and counts the calls that run at once."""

    name: str
    reply: Answer = lambda data: data
    limits: list[float] = field(default_factory=list)
    running: int = 0
    most: int = 0

    def __call__(self, *, timeout: float) -> FakeSite:
        self.limits.append(timeout)
        return self

    def answer(self, data: bytes) -> bytes:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return self.reply(data)
        finally:
            self.running -= 1


class RemoteError(Exception):
    """Has the fields of FLARE's ``CollabCallError``."""

    def __init__(self, text: str, cause_type: str) -> None:
        super().__init__(text)
        self.cause_type = cause_type


def sites(reply: Answer = lambda data: data, names: Sequence[str] = NAMES) -> list[FakeSite]:
    return [FakeSite(name, reply) for name in names]


# ----------------------------------------------------------------------------------- the transport


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.booleans()), max_size=60))
def test_every_message_has_one_answer_or_failure_in_its_order(
    asked: list[tuple[str, bool]],
) -> None:
    def reply(data: bytes) -> bytes:
        time.sleep(0.001 * (len(data) % 3))  # so that sites answer in changing orders
        if data.endswith(b"!"):
            raise RemoteError("no", "ValueError")
        return data[::-1]

    transport = FlareTransport(sites(reply))
    sent: Counter[str] = Counter()
    wanted, got = {}, []
    for name, fails in asked:
        seq = sent[name]
        message = f"{name} {seq}{'!' if fails else ''}".encode()
        transport.push(name, seq, message)
        sent[name] += 1
        wanted[name, seq] = None if fails else message[::-1]
        if seq % 3 == 2:
            got += transport.poll(0.0)
    while len(got) < len(asked):
        got += transport.poll()
    assert transport.poll() == []
    answers = {(name, seq): answer for name, seq, answer in got}
    assert len(answers) == len(got)
    for name in NAMES:
        assert [seq for one, seq, _ in got if one == name] == list(range(sent[name]))
    for key, answer in answers.items():
        assert isinstance(answer, SiteError) if wanted[key] is None else answer == wanted[key]
    transport.close()


def test_a_slow_site_holds_up_nobody_and_has_one_call_at_a_time() -> None:
    gate = threading.Event()
    there = sites()
    slow = next(site for site in there if site.name == "dora")
    slow.reply = lambda data: data if gate.wait(900) else b""
    transport = FlareTransport(there, timeout=7.5)
    assert transport.ids() == ("anna", "berta", "carl", "dora")
    transport.push("dora", 0, b"0")
    transport.push("dora", 1, b"1")
    for k in range(100):  # rounds of the others meanwhile
        for name in ("anna", "carl"):
            transport.push(name, k, b"%d" % k)
        got: list[tuple[str, int, bytes | Exception]] = []
        while len(got) < 2:
            got += transport.poll()
        assert sorted(got) == [("anna", k, b"%d" % k), ("carl", k, b"%d" % k)]
    assert transport.poll(0.01) == []
    gate.set()
    got = transport.poll()
    while len(got) < 2:
        got += transport.poll()
    assert got == [("dora", 0, b"0"), ("dora", 1, b"1")]
    assert slow.most == 1
    assert set(slow.limits) == {7.5}
    transport.close()


def test_threads_do_not_grow_with_the_rounds_and_end_at_the_close() -> None:
    before = set(threading.enumerate())
    transport = FlareTransport(sites())
    for k in range(500):
        for name in NAMES:
            transport.push(name, k, b"x")
        left = len(NAMES)
        while left:
            left -= len(transport.poll())
        assert len(set(threading.enumerate()) - before) == len(NAMES)
    transport.close()
    for thread in set(threading.enumerate()) - before:  # each was told to end
        thread.join(900)
    assert not set(threading.enumerate()) - before


def test_failures_name_the_site_the_cause_and_a_short_printable_text() -> None:
    def reply(data: bytes) -> bytes:
        if data == b"remote":
            raise RemoteError("first\x1b[2J line\n" + "x" * 5000, "KeyError")
        if data == b"local":
            raise OSError("no line")
        return "text"  # pyright: ignore[reportReturnType]

    transport = FlareTransport(sites(reply, ["anna"]))
    for k, message in enumerate((b"remote", b"local", b"wrong")):
        transport.push("anna", k, message)
    got: list[tuple[str, int, bytes | Exception]] = []
    while len(got) < 3:
        got += transport.poll()
    failures = [answer for _, _, answer in got if isinstance(answer, SiteError)]
    assert [one.cause for one in failures] == ["KeyError", "OSError", "TypeError"]
    assert all(one.site == "anna" and len(one.text) <= 1000 for one in failures)
    assert failures[0].text.isprintable()
    assert str(failures[1]) == "site anna did not answer (OSError): no line"
    transport.close()


def test_a_job_that_flare_aborts_ends_the_run() -> None:
    aborted = threading.Event()

    def reply(data: bytes) -> bytes:
        aborted.set()
        raise RemoteError("aborted", "RunAborted")

    transport = FlareTransport(sites(reply), aborted=aborted.is_set)
    transport.push("anna", 0, b"")
    with pytest.raises(JobAbortedError):
        transport.poll()
    with pytest.raises(JobAbortedError):
        transport.push("anna", 1, b"")
    transport.close()


def test_an_abort_ends_the_wait_for_a_site_that_says_nothing() -> None:
    gate, looks = threading.Event(), iter([False, False, True])
    transport = FlareTransport(
        sites(lambda data: data if gate.wait(900) else b""), aborted=lambda: next(looks, True)
    )
    transport.push("anna", 0, b"")
    with pytest.raises(JobAbortedError):
        transport.poll()
    gate.set()
    transport.close()


def test_two_sites_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        FlareTransport(sites(names=["anna", "anna"]))


# -------------------------------------------------------------------------------- the job's folder


JOB = {"experiment": "trial-1", "config": 'a = {b = 1}\n[c]\nd = "é\\"\n'}
FILES = {
    "meta.json",
    *(f"app/config/{n}" for n in ("config_fed_server.json", "config_fed_client.json")),
    "app/config/bonafed_job.toml",
}


def read(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_two_exports_are_equal_and_hold_no_code(tmp_path: Path) -> None:
    one = export_job(tmp_path / "one", "run", JOB, 3)
    other = export_job(tmp_path / "other", "run", dict(reversed(JOB.items())), 3)
    assert read(one) == read(other)
    assert set(read(one)) == FILES
    assert read_job(one / "app" / "config") == JOB
    again = export_job(tmp_path / "one", "run", JOB, 3)
    assert read(again) == read(other)


def test_a_job_names_only_the_classes_that_a_site_permits(tmp_path: Path) -> None:
    texts = read(export_job(tmp_path, "run", JOB, 2, sites=["anna", "berta"]))
    named = {
        value
        for name, text in texts.items()
        if name.endswith(".json")
        for value in paths_of(json.loads(text))
    }
    assert named == set(ALLOWED) == {CONTROLLER, EXECUTOR, SERVER, SITE}
    meta = json.loads(texts["meta.json"])
    assert meta["deploy_map"] == {"app": ["server", "anna", "berta"]}
    assert meta["mandatory_clients"] == ["anna", "berta"]
    source = Path(bonafed.__file__).parent / "sites" / "flare_app.py"
    classes = {n.name for n in ast.parse(source.read_text()).body if isinstance(n, ast.ClassDef)}
    for path in (SERVER, SITE):
        assert path.startswith("bonafed.sites.flare_app.")
        assert path.rsplit(".", 1)[1] in classes


def paths_of(value: object) -> set[str]:
    """The values of all entries ``path``."""
    if isinstance(value, dict):
        here = {value["path"]} if "path" in value else set()
        return here.union(*(paths_of(part) for part in value.values()))
    return set().union(*(paths_of(part) for part in value)) if isinstance(value, list) else set()


def test_more_sites_than_flares_threads_are_all_asked_at_once(tmp_path: Path) -> None:
    many = [f"site-{k}" for k in range(250)]
    text = read(export_job(tmp_path, "run", JOB, 250, sites=many))[
        "app/config/config_fed_server.json"
    ]
    assert json.loads(text)["workflows"][0]["args"]["max_outbound_call_threads"] == 250


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=30), max_size=4))
def test_every_text_of_a_job_arrives(tmp_path_factory: pytest.TempPathFactory, job) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / "bonafed_job.toml").write_bytes(written(job).encode())
    assert read_job(folder) == job


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", "-a", "é", "a" * 64, "a\n"])
def test_names_that_are_no_names_of_folders_are_refused(tmp_path: Path, name: str) -> None:
    for job, folder, others in (
        ({**JOB, "experiment": name}, "run", ["anna"]),
        (JOB, name, ["anna"]),
        (JOB, "run", [name]),
    ):
        with pytest.raises(ValueError, match="letters, digits"):
            export_job(tmp_path / "out", folder, job, 1, sites=others)
    assert not (tmp_path / "out").exists()


def test_files_of_another_job_are_not_mixed_in(tmp_path: Path) -> None:
    export_job(tmp_path, "run", JOB, 3)
    code = tmp_path / "run" / "app" / "custom" / "code.py"
    code.parent.mkdir()
    code.write_text("")
    with pytest.raises(FileExistsError, match=r"custom/code\.py"):
        export_job(tmp_path, "run", JOB, 3)


def test_a_site_permits_our_classes_beside_others_or_alone(tmp_path: Path) -> None:
    default = {"format_version": 2, "class_allow_list": ["one.Class"], "components": [{"id": "x"}]}
    (tmp_path / "resources.json.default").write_text(json.dumps(default))
    for _ in range(2):
        resources = json.loads(allow(tmp_path).read_text())
        assert resources["class_allow_list"] == ["one.Class", *ALLOWED]
        assert resources["components"] == default["components"]
        assert resources["allow_log_streaming"] is False
    assert json.loads(allow(tmp_path, only=True).read_text())["class_allow_list"] == list(ALLOWED)
    assert json.loads((tmp_path / "resources.json.default").read_text()) == default


# -------------------------------------------------------------------------- what stands at a site


def test_the_folder_is_the_sites_choice(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="BONAFED_SITE"):
        working_folder("site", "anna", tmp_path, {})
    write_setting(tmp_path, "site", tmp_path / "data")
    write_setting(tmp_path, "server", tmp_path / "runs")
    assert working_folder("site", "anna", tmp_path, {}) == tmp_path / "data"
    assert working_folder("server", "server", tmp_path, {}) == tmp_path / "runs"
    environment = {"BONAFED_SITE": "/elsewhere", "BONAFED_SERVER": ""}
    assert working_folder("site", "anna", tmp_path, environment) == Path("/elsewhere")
    assert working_folder("server", "server", tmp_path, environment) == tmp_path / "runs"


def test_sites_of_the_simulator_share_a_file(tmp_path: Path) -> None:
    write_setting(tmp_path, "site", {"anna": tmp_path / "a", "berta": tmp_path / "b"})
    assert working_folder("site", "berta", tmp_path, {}) == tmp_path / "b"
    with pytest.raises(ValueError, match="carl"):
        working_folder("site", "carl", tmp_path, {})


def test_filters_that_are_not_in_force_are_reported(tmp_path: Path) -> None:
    assert warning_about(filters(tmp_path, tmp_path)) == ""
    scope = {"name": "private", "task_result_filters": [{"name": "SVTPrivacy", "args": {}}]}
    (tmp_path / "privacy.json").write_text(json.dumps({"scopes": [scope, {"name": "public"}]}))
    entry = {"tasks": ["*"], "filters": [{"path": "nvflare.x.ExcludeVars"}]}
    job = {"task_data_filters": [entry], "task_result_filters": []}
    (tmp_path / "config_fed_client.json").write_text(json.dumps(job))
    named = filters(tmp_path, tmp_path)
    assert len(named) == 2
    text = warning_about(named)
    for part in ("NOT in force", "SVTPrivacy", "private", "ExcludeVars", "site.toml"):
        assert part in text


@pytest.mark.parametrize(("there", "fine"), [("2.9.0", True), ("2.9.7", True), ("2.10.0", False)])
def test_other_versions_of_flare_are_refused(
    there: str, fine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place_module, "version", lambda name: there)
    if fine:
        require_flare()
        return
    with pytest.raises(ImportError, match=r"pip install '\.\[flare\]'"):
        require_flare()


def test_without_flare_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise place_module.PackageNotFoundError(name)

    monkeypatch.setattr(place_module, "version", missing)
    with pytest.raises(ImportError, match=r"not installed.*pip install '\.\[flare\]'"):
        simulate(JOB, {}, Path("nowhere"))


# ---------------------------------------------------------------------------------- the supervisor


class NoConnection(ConnectionError):  # noqa: N818 (the name is FLARE's)
    """Has the name of FLARE's error."""


class AuthorizationError(Exception):
    """Has the name of FLARE's error."""


@dataclass
class FakeServer:
    """A FLARE server by a script: what each look finds; done is set by the last entry."""

    script: list[object]
    done: bool = False
    start: float = 1.0
    submitted: list[str | None] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    sessions: int = 0
    lose_next_answer: bool = False
    rounds: str | None = None  # lines about the rounds of a job that has begun

    def connect(self) -> FakeServer:
        self.sessions += 1
        return self

    def close(self) -> None:
        self.sessions -= 1

    def get_system_info(self) -> SimpleNamespace:
        if self.script and isinstance(self.script[0], Exception):
            raise self.script.pop(0)  # pyright: ignore[reportGeneralTypeIssues]
        if self.script and self.script[0] == "restart":
            self.script.pop(0)
            self.start += 1
        return SimpleNamespace(server_info=SimpleNamespace(start_time=self.start))

    def submit_job(self, job_definition_path: str, submit_token: str | None = None) -> str:
        folder = Path(job_definition_path)
        assert read(folder) == {"meta.json": b"{}"}
        (folder / "signature").write_text("FLARE's")
        self.submitted.append(submit_token)
        if self.lose_next_answer:
            self.lose_next_answer = False
            raise NoConnection("lost")
        return f"job-{len(self.submitted)}"

    def abort_job(self, job_id: str) -> None:
        self.aborted.append(job_id)

    def get_job_status(self, job_id: str) -> str:
        status = str(self.script.pop(0)) if self.script else "FINISHED:COMPLETED"
        self.done = self.done or not self.script
        return status

    def do_app_command(self, job_id: str, topic: str, cmd_data: dict[str, int]) -> dict[str, str]:
        if self.rounds is None:
            raise RuntimeError("the job has not begun")
        end = self.rounds.find("\n", cmd_data["from"]) + 1  # a line each time
        return {"lines": self.rounds[cmd_data["from"] : end]}

    def download_job_result(self, job_id: str, destination: str | None = None) -> str:
        place = Path(destination or "", job_id, "workspace", "app")
        place.mkdir(parents=True)
        if job_id == "job-2":
            (place.parent / "bonafed_done").write_text("the record")
        return str(place.parents[1])


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "meta.json").write_text("{}")
    return folder


@pytest.fixture
def supervise(job_folder: Path) -> Callable[..., tuple[int, list[str]]]:
    def run(server: FakeServer, most: int = 5, patience: float = 100.0) -> tuple[int, list[str]]:
        texts: list[str] = []
        supervisor = Supervisor(
            job_folder,
            server.connect,
            lambda: server.done,
            pause=0.0,
            most=most,
            patience=patience,
            progress=texts.append,
        )
        try:
            return supervisor.run(), texts
        finally:
            assert server.sessions == 0, "a session was left open"

    return run


def test_a_job_is_submitted_until_the_record_is_there(supervise: Any) -> None:
    script = ["RUNNING", "FINISHED:ABNORMAL", "RUNNING", "FINISHED:COMPLETED", "RUNNING"]
    server = FakeServer([*script])
    count, texts = supervise(server)
    assert count == 3
    assert len(set(server.submitted)) == 3
    assert texts[-1] == "the run has ended"
    assert sum("FINISHED:ABNORMAL" in text for text in texts) == 1


def test_the_record_of_a_server_elsewhere_is_downloaded(tmp_path: Path, job_folder: Path) -> None:
    server, here = FakeServer(["FINISHED:ABNORMAL", "RUNNING"]), tmp_path / "here"
    done = (here / "done").exists
    Supervisor(job_folder, server.connect, done, 0.0, progress=lambda _: None, fetch=here).run()
    assert (here / "done").read_text() == "the record"
    assert len(server.submitted) == 2


def test_the_rounds_of_a_server_elsewhere_are_followed(tmp_path: Path, job_folder: Path) -> None:
    server, here = FakeServer(["SUBMITTED", *["RUNNING"] * 4, "FINISHED:COMPLETED"]), tmp_path / "h"
    seen: list[str] = []

    def done() -> bool:
        file = here / "progress.jsonl"
        seen.append(file.read_text() if file.exists() else "")
        server.rounds = "one\ntwo\n" if len(seen) > 3 else None
        return server.done

    Supervisor(job_folder, server.connect, done, 0.0, progress=lambda _: None, fetch=here).run()
    assert seen[-1] == "one\ntwo\n"
    assert "one\n" in seen, "each line is copied when it is there"


def test_a_server_tells_the_lines_about_rounds_that_are_whole(tmp_path: Path) -> None:
    pytest.importorskip("nvflare")
    from bonafed.sites import flare_app

    told: dict[str, Any] = {}
    engine = SimpleNamespace(register_app_command=lambda topic, f: told.update({topic: f}))
    local, config = tmp_path / "local", tmp_path / "app" / "config"
    folder = export_job(tmp_path, "run", {"experiment": "trial"}, 1)
    config.parent.mkdir()
    (folder / "app" / "config").rename(config)
    local.mkdir()
    write_setting(local, "server", tmp_path / "runs")
    workspace = SimpleNamespace(
        get_app_config_dir=lambda job: str(config), get_site_config_dir=lambda: str(local)
    )
    flare_app.tell_rounds(engine, workspace, "job")
    ask = partial(told["bonafed.rounds"], "bonafed.rounds", context=None)
    assert ask({"from": 0}) == {"lines": ""}, "the run has not begun"
    file = tmp_path / "runs" / "trial" / "progress.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("one\ntwo\nthr")
    assert ask({"from": 0}) == {"lines": "one\ntwo\n"}
    assert ask({"from": 4}) == {"lines": "two\n"}
    for odd in (None, {}, {"from": -1}, {"from": "0"}, {"from": True}, {"from": 99}):
        assert ask(odd) == {"lines": ""}


def test_a_record_that_is_there_needs_no_job(supervise: Any) -> None:
    server = FakeServer([], done=True)
    assert supervise(server)[0] == 0
    assert server.submitted == []


def test_a_server_that_was_restarted_has_forgotten_the_job(supervise: Any) -> None:
    server = FakeServer(["RUNNING", NoConnection("x"), NoConnection("x"), "restart", "RUNNING"])
    count, texts = supervise(server)
    assert count == 2
    assert server.aborted == ["job-1"]
    assert sum("does not answer" in text for text in texts) == 1


def test_a_lost_connection_alone_submits_nothing(supervise: Any) -> None:
    server = FakeServer(["RUNNING", NoConnection("x"), RuntimeError("y"), "RUNNING", "RUNNING"])
    assert supervise(server)[0] == 1


def test_a_submission_whose_answer_was_lost_is_repeated_with_its_token(supervise: Any) -> None:
    server = FakeServer(["RUNNING"], lose_next_answer=True)
    assert supervise(server)[0] == 1
    first, second = server.submitted
    assert first == second


def test_the_number_of_submissions_has_a_cap(supervise: Any) -> None:
    server = FakeServer(["FINISHED:ABNORMAL"] * 50)
    with pytest.raises(NotFinishedError, match="submitted 3 times"):
        supervise(server, most=3)
    assert len(server.submitted) == 3


def test_patience_with_a_server_ends(supervise: Any) -> None:
    with pytest.raises(NotFinishedError, match="has not answered"):
        supervise(FakeServer([NoConnection("x")] * 50), patience=0.0)


def test_an_error_that_would_come_again_ends_the_run(supervise: Any) -> None:
    with pytest.raises(AuthorizationError):
        supervise(FakeServer([AuthorizationError("no")] * 3))


# ------------------------------------------------------------------------------------- with FLARE


flare = pytest.mark.skipif(
    importlib.util.find_spec("nvflare") is None, reason="needs pip install '.[flare]'"
)


@dataclass
class FakeController:
    """Hands tasks to a site that is a function of the task, as FLARE's controller does."""

    site: Callable[[Any], str]  # what becomes of the task, after the site reported its results

    def send(self, task: Any, fl_ctx: object, targets: list[str]) -> None:
        status = self.site(task)
        task.completion_status = status
        task.task_done_cb(task, fl_ctx)


@flare
def test_every_task_has_one_answer_or_failure() -> None:
    from nvflare.apis.dxo import DXO, DataKind
    from nvflare.apis.shareable import make_reply

    from bonafed.engines.flare import TaskTransport, packed, unpacked

    def site(task: Any) -> str:
        message = unpacked(task.data)
        results = {
            b"fine": packed(b"answer"),
            b"emptied": DXO(DataKind.APP_DEFINED, data={}).to_shareable(),
            b"altered": DXO(DataKind.APP_DEFINED, data={"message": [1.0]}).to_shareable(),
            b"refused": make_reply("TASK_RESULT_FILTER_ERROR"),
        }
        if message in results:
            task.result_received_cb(SimpleNamespace(result=results[message]), None)
            return "ok"
        return message.decode()

    controller: Any = FakeController(site)
    transport = TaskTransport(controller, None, NAMES, timeout=1.5, aborted=lambda: False)
    asked = ["fine", "emptied", "altered", "refused", "timeout", "client_dead"]
    for seq, message in enumerate(asked):
        transport.push("anna", seq, message.encode())
    got = transport.poll()
    assert transport.poll() == []
    assert [seq for _, seq, _ in got] == list(range(len(asked)))
    assert got[0] == ("anna", 0, b"answer")
    causes = [answer.cause for _, _, answer in got[1:] if isinstance(answer, SiteError)]
    refused = "TASK_RESULT_FILTER_ERROR"
    assert causes == ["FilteredError"] * 2 + [refused, "TimeoutError", "RuntimeError"]


@flare
def test_a_site_answers_one_message_at_a_time_and_opens_its_folder_once(tmp_path: Path) -> None:
    from bonafed.sites.flare_app import Owner

    write_setting(tmp_path, "site", tmp_path / "data")
    party, opened = FakeSite("anna", lambda data: time.sleep(0.002) or data), []

    class Here(Owner):
        def open(self, folder: Path, name: str) -> Any:
            opened.append((folder, name))
            answer = lambda sender, data: party.answer(sender.encode() + data)  # noqa: E731
            return SimpleNamespace(answer=answer, close=lambda: opened.append("closed"))

    here, answers = Here(), []
    threads = [
        threading.Thread(
            target=lambda k=k: answers.append(here.ask(tmp_path, "anna", "server", b"%d" % k))
        )
        for k in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    here.end()
    assert sorted(answers) == sorted(b"server%d" % k for k in range(20))
    assert party.most == 1
    assert opened == [(tmp_path / "data", "anna"), "closed"]


@flare
def test_what_a_site_cannot_open_is_not_quoted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from bonafed.sites.flare_app import Owner

    write_setting(tmp_path, "site", tmp_path / "data")
    tries, row = [], "Ms Miller, born 1950"

    class Here(Owner):
        def open(self, folder: Path, name: str) -> Any:
            tries.append(name)
            raise ValueError(row)

    here = Here()
    for _ in range(2):  # the owner may mend the folder meanwhile
        with pytest.raises(RuntimeError, match=r"^ValueError at the site$") as error:
            here.ask(tmp_path, "anna", "server", b"")
        assert error.value.__cause__ is None
        assert error.value.__suppress_context__
    assert len(tries) == 2
    assert "Miller" not in caplog.text
    assert "ValueError" in caplog.text


@flare
def test_a_project_permits_our_classes_only_and_keeps_its_jobs(tmp_path: Path) -> None:
    owners = {"anna": tmp_path / "a", "berta": tmp_path / "b"}
    for _ in range(2):  # a project that is there is used again, with its certificates
        poc = Poc(tmp_path / "work", owners)
        poc.provision()
        certificates = {
            name: (poc.kits / name / "startup" / "rootCA.pem").read_bytes() for name in poc.names
        }
        assert len(set(certificates.values())) == 1
    assert list((tmp_path / "work" / "bonafed").glob("prod_*")) == [poc.kits]
    for name in poc.names:
        resources = json.loads((poc.kits / name / "local" / "resources.json").read_text())
        assert resources["class_allow_list"] == list(ALLOWED)
        if name in owners:
            assert working_folder("site", name, poc.kits / name / "local", {}) == owners[name]
        else:
            assert working_folder("server", name, poc.kits / name / "local", {}) == poc.runs
            assert str(tmp_path / "work" / "jobs-storage") in json.dumps(resources)
    with pytest.raises(ValueError, match="carl"):
        Poc(tmp_path / "work", {**owners, "carl": tmp_path / "c"}).provision()


@flare
def test_a_workspace_with_a_space_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a b"):
        Poc(tmp_path / "a b", {})


OWNERS, ROUNDS = ("anna", "berta", "carl"), 12


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], tuple[Path, Path]]:
    """The folder of a run over calls or over tasks, and the server's folder in it. The simulator
    waits more than it works, so both runs go at once.
    """
    import flare_standin

    root, here = Path(bonafed.__file__).parents[1], Path(flare_standin.__file__).parent

    def run(folder: Path, tasks: bool) -> Path:
        kind, seen = "CountingTask" if tasks else "Counting", folder / "seen"
        owners = {name: folder / "owners" / name for name in OWNERS}
        local = folder / "work" / "flare" / "local"
        for each in (*owners.values(), seen, local):
            each.mkdir(parents=True)
        witness = {"path": "flare_standin.Witness", "args": {"folder": str(seen)}}
        scope = {"name": "private", "task_result_filters": [witness]}
        policy = {"scopes": [scope], "default_scope": "private"}
        (local / "privacy.json").write_text(json.dumps(policy))
        return simulate(
            {"experiment": "trial", "rounds": str(ROUNDS), "size": "50"},
            owners,
            folder / "work",
            time_limit=300,
            tasks=tasks,
            server=f"flare_standin.{kind}Server",
            site=f"flare_standin.{kind}Site",
        )

    folders = [tmp_path_factory.mktemp(name) for name in ("calls", "tasks")]
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(root), str(here)]))
        # for other sites than these
        patch.setenv("BONAFED_SITE", str(tmp_path_factory.getbasetemp() / "of-the-user"))
        done = list(pool.map(run, folders, (False, True)))
    return lambda tasks: (folders[tasks], done[tasks])


@flare
@pytest.mark.parametrize("tasks", [False, True], ids=["calls", "tasks"])
def test_three_processes_step_exactly_once_and_filters_see_tasks_only(
    tasks: bool, counted: Callable[[bool], tuple[Path, Path]]
) -> None:
    import flare_standin

    folder, done = counted(tasks)
    record = json.loads((done / "done").read_text())
    assert record["sites"] == sorted(OWNERS)
    assert record["digest"] == flare_standin.expected(list(OWNERS), ROUNDS, 50)
    assert all((folder / "owners" / name / "state").exists() for name in OWNERS)
    # in the simulator FLARE applies the scope's filters where the results arrive
    messages = sum(path.read_bytes().count(b".") for path in (folder / "seen").iterdir())
    output = (folder / "work" / "simulator.log").read_text()
    if tasks:
        assert messages == ROUNDS * len(OWNERS)
    else:
        assert messages == 0
        assert output.count("filters are NOT in force") >= len(OWNERS)
    assert len(output) < 30_000, "FLARE's loggers are not turned down"
