"""The page on three real machines: what one machine can run of it is run, in its order."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from met import met
from sites.test_three_hospitals import PAGE as HOSPITALS
from sites.test_three_hospitals import pytestmark as pytestmark
from sites.test_three_hospitals import shell as shell

import bonafed as bf
from bonafed.engines.flare import ALLOWED, working_folder
from bonafed.sites.audit import AuditLog

PAGE = Path(__file__).parents[2] / "docs" / "real-machines.md"
FILES = PAGE.parents[1] / "examples" / "alliance"
TEXT = PAGE.read_text(encoding="utf-8")
KITS = Path("kits", "alliance")
NORTH = Path("hospitals", "north")
RESTORED = Path("restored", "north")


def blocks(text: str, *languages: str) -> list[tuple[str, str]]:
    """The blocks of a page in some languages, in their order."""
    found = re.findall(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [(language, block) for language, block in found if language in languages]


def certificate(kit: str, number: int = 0, name: str = "client.crt"):
    from cryptography import x509

    file = KITS / f"prod_{number:02}" / kit / "startup" / name
    return x509.load_pem_x509_certificate(file.read_bytes())


def days(one) -> float:
    return (one.not_valid_after_utc - one.not_valid_before_utc) / timedelta(days=1)


@pytest.fixture
def hospitals(shell, tmp_path):
    """The hospitals of the first page; of one of them a log and a ledger; two versions; FLARE's
    command.
    """
    for _, block in blocks(HOSPITALS.read_text(encoding="utf-8"), "python")[:1]:
        exec(block, {})
    shell(blocks(HOSPITALS.read_text(encoding="utf-8"), "sh")[0][1])
    log = AuditLog.open(NORTH / "audit.jsonl", "north")
    log.write("in", "server", "Evaluate", seq=0, size=9)
    log.write("out", "server", "Evaluated", seq=0, size=9)
    (NORTH / "state").mkdir(mode=0o700)
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (200, 2)), rng.integers(0, 2, 200)
    budget = bf.Budget(epsilon=1.0, delta=1e-6, book=NORTH / "state" / "ledger.json")
    fed = bf.Federation.from_arrays(X, y, np.repeat(["north", "east"], 100))
    bf.solve(bf.Problem(bf.Logistic(), privacy=budget), fed, max_rounds=2)
    for version in ("0.1", "0.2"):
        place = Path("opt", f"bonafed-{version}", "bin")
        place.mkdir(parents=True)
        shutil.copy(tmp_path / "bin" / "bonafed", place)
    flare = tmp_path / "bin" / "nvflare"
    flare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nvflare.cli "$@"\n')
    flare.chmod(0o755)
    return shell


@met(
    "F",
    "three hospitals on three machines",
    "one table of engines; nothing on ports, certificates, services, backups or versions",
    "a page, of which all that one machine can run is run by this test",
)
@met(
    "F",
    "certificates after 360 days",
    "nothing said that FLARE's kits end, or that provisioning again keeps old certificates",
    "their expiry is read from the kit, and one site's is renewed while the others stay valid",
    relative_of="three hospitals on three machines",
)
@met(
    "F",
    "a site's folder on another machine",
    "nothing said what to back up",
    "backup and restore with ledger, log and keys, checked before the site answers",
    relative_of="three hospitals on three machines",
)
@met(
    "F",
    "another version of bonafed at a site, and back",
    "nothing said how",
    "a link turns; ledger, log and keys stay as they are",
    relative_of="three hospitals on three machines",
)
def test_every_command_of_the_page_that_one_machine_can_run(hospitals) -> None:
    kept = {f.relative_to(NORTH): f.read_bytes() for f in NORTH.rglob("*") if f.is_file()}
    assert {"site.key", "site.toml", "audit.jsonl", "ledger.json"} <= {f.name for f in kept}
    printed = ""
    shutil.copy(FILES / "project.yml", ".")
    for language, block in blocks(TEXT, "python", "sh"):
        if language == "python":
            exec(block, {})
        else:
            printed += hospitals(block)

    # ports, as the table says
    kit = KITS / "prod_00" / "north"
    client = json.loads((kit / "startup" / "fed_client.json").read_text())
    assert client["servers"][0]["service"]["target"] == "server.example.org:8002"
    assert client["client"]["connection_security"] == "mtls"
    server = json.loads((KITS / "prod_00/server.example.org/startup/fed_server.json").read_text())
    assert server["servers"][0]["admin_port"] == 8002

    # what the site owner sets up once
    local = kit / "local"
    resources = json.loads((local / "resources.json").read_text())
    assert resources["class_allow_list"] == [*ALLOWED]
    assert resources["allow_log_streaming"] is False
    roles = json.loads((local / "authorization.json").read_text())["permissions"]
    assert {"project_admin", "lead"} <= {*roles}
    assert {may["byoc"] for may in roles.values()} == {"none"}
    assert roles["lead"]["submit_job"] == roles["project_admin"]["submit_job"] == "any"
    assert working_folder("site", "north", local, {}) == NORTH.absolute()

    # certificates
    assert days(certificate("north")) == days(certificate("lead@example.org")) == 360
    assert days(certificate("north", name="rootCA.pem")) == 1800
    assert printed.count("notAfter=") == 5
    assert "Certificate will not expire" in printed
    assert certificate("north", 1).serial_number != certificate("north").serial_number
    assert certificate("east", 1) == certificate("east")
    assert certificate("north", 1, "rootCA.pem") == certificate("north", 0, "rootCA.pem")
    known = json.loads((KITS / "state" / "cert.json").read_text())
    assert all(known[name]["pri_key"] for name in ("north", "east", "south"))
    assert KITS.parent.stat().st_mode & 0o077 == 0

    # backup and restore, upgrade and roll-back
    for folder in (NORTH, RESTORED):
        assert {f: (folder / f).read_bytes() for f in kept} == kept
        assert len(bf.Book(folder / "state" / "ledger.json").runs()) == 1
    whole = "3 lines, and none was changed, removed, inserted or moved"
    assert printed.count(whole) == 3
    assert printed.count("the rows keep the policy of the site") == 2
    assert Path("opt", "bonafed").readlink() == Path("bonafed-0.1")


def unit() -> configparser.ConfigParser:
    text = (FILES / "bonafed-site.service").read_text()
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(re.sub("^(Environment)=(BONAFED|NVFLARE)", r"\1_\2=\2", text, flags=re.M))
    return parser


def test_service_and_container_start_the_same_site_alike() -> None:
    service, image = unit()["Service"], (FILES / "Dockerfile").read_text()
    command = json.loads(re.findall("^CMD (.*)$", image, re.M)[0])
    assert service["ExecStart"].split() == command
    said = " ".join(value for key, value in service.items() if key.startswith("Environment_"))
    assert said.split() == " ".join(re.findall("^ENV (.*)$", image, re.M)).split()
    assert service["ReadWritePaths"].split() == re.findall("^VOLUME (.*)$", image, re.M)[0].split()
    assert "USER bonafed" in image
    # as a trial on one machine starts a site
    trial = (PAGE.parents[1] / "src/bonafed/sites/trial/flare.py").read_text()
    assert '"sub_start.sh"), "--once"]' in trial


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    file = Path(shutil.copy(FILES / "bonafed-site.service", tmp_path))
    done = subprocess.run(
        ["systemd-analyze", "verify", file], capture_output=True, text=True, check=False
    )
    told = [line for line in done.stderr.splitlines() if file.name in line]
    assert not told
    broken = file.with_name("broken.service")
    broken.write_text(file.read_text().replace("ExecStart=/bin/bash", "ExecStart=/no/bash"))
    done = subprocess.run(
        ["systemd-analyze", "verify", broken], capture_output=True, text=True, check=False
    )
    assert "/no/bash" in done.stderr
