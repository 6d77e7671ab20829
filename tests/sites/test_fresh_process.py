"""A site's process may begin in the middle of a run: it knows all that it is asked and has kept."""

import subprocess
import sys
from functools import partial

from sites.folders import NAMES, WIDE, folder_of, roles

import bonafed as bf
from bonafed.engines.network import Network
from bonafed.engines.wire import LocalTransport
from bonafed.sites.party import open_party
from bonafed.sites.session import agree
from bonafed.solution.plan import configure

ANSWER = """
import os, sys
from pathlib import Path
from bonafed.sites.party import open_party

for folder in map(Path, sys.argv[2:]):
    if child := os.fork():  # so that none knows what another one has imported
        assert os.waitpid(child, 0)[1] == 0, folder
        continue
    party = open_party(folder, sys.argv[1])
    (folder / "answer").write_bytes(party.answer("server", (folder / "question").read_bytes()))
    party.close()
    sys.exit()
"""


def asked_last(algorithm, tmp_path):
    """A site's folder with the last message of a short run in it, and the answer to that."""
    sites = {name: folder_of(tmp_path, name, WIDE) for name in NAMES}
    parties = {name: open_party(folder, name) for name, folder in sites.items()}
    seen = {}

    def call(name, data):
        seen[name] = data, parties[name].answer("server", data)
        return seen[name][1]

    carrier = LocalTransport({name: partial(call, name) for name in NAMES})
    text = roles().text()
    problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(1e-2))
    agreement = agree(carrier, "trial", problem, roles=text)
    concrete, data = agreement.problem.at(agreement.metadata)
    method = configure(algorithm, concrete, data)
    Network(agreement.session).run(method, data, max_rounds=3)
    for party in parties.values():
        party.close()
    question, answer = seen["north"]
    (sites["north"] / "question").write_bytes(question)
    return sites["north"], answer


def test_a_new_process_answers_the_last_message_with_the_same_bytes(tmp_path):
    algorithms = bf.AFL(), bf.ADLPMM(), bf.FedAvg(), bf.AsyncDRO()
    known = [asked_last(each, tmp_path / type(each).__name__) for each in algorithms]
    folders = [str(folder) for folder, _ in known]
    subprocess.run([sys.executable, "-c", ANSWER, "north", *folders], check=True)
    for folder, answer in known:
        assert (folder / "answer").read_bytes() == answer, folder
