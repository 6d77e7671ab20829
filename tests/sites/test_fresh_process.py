"""A site's process may begin in the middle of a run: it knows all that it is asked and has kept."""

import subprocess
import sys
from functools import partial

import pytest
from sites.folders import NAMES, folder_of, roles

import quorate as qr
from quorate.engines.network import Network
from quorate.engines.transport import LocalTransport
from quorate.sites.party import open_party
from quorate.sites.session import agree
from quorate.solution.configure import configure

ANSWER = """
import sys
from pathlib import Path
from quorate.sites.party import open_party

party = open_party(Path(sys.argv[1]), sys.argv[2])
sys.stdout.buffer.write(party.answer("server", sys.stdin.buffer.read()))
party.close()
"""


@pytest.mark.parametrize(
    "algorithm", [qr.AFL(), qr.ADLPMM(), qr.FedAvg(), qr.AsyncDRO()], ids=lambda a: type(a).__name__
)
def test_a_new_process_answers_the_last_message_with_the_same_bytes(algorithm, tmp_path):
    sites = {name: folder_of(tmp_path, name) for name in NAMES}
    parties = {name: open_party(folder, name) for name, folder in sites.items()}
    seen = {}

    def call(name, data):
        seen[name] = data, parties[name].answer("server", data)
        return seen[name][1]

    carrier = LocalTransport({name: partial(call, name) for name in NAMES})
    text = roles().text()
    problem = qr.Problem(qr.Logistic(), regulariser=qr.L2(1e-2))
    agreement = agree(carrier, "trial", problem, roles=text)
    concrete, data = agreement.problem.at(agreement.metadata)
    method = configure(algorithm, concrete, data)
    Network(agreement.session).run(method, data, max_rounds=3)
    for party in parties.values():
        party.close()
    question, answer = seen["north"]
    command = [sys.executable, "-c", ANSWER, str(sites["north"]), "north"]
    again = subprocess.run(command, input=question, capture_output=True, check=True)
    assert again.stdout == answer
