"""The faults that benchmarks/planted_faults.py plants are still in the source to be planted."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import bonafed

HOME = Path(__file__).resolve().parent.parent


def test_each_fault_can_be_planted_and_names_tests_that_there_are():
    spec = spec_from_file_location("planted_faults", HOME / "benchmarks" / "planted_faults.py")
    assert spec is not None
    assert spec.loader is not None
    faults = module_from_spec(spec)
    sys.modules[spec.name] = faults
    spec.loader.exec_module(faults)
    source = Path(bonafed.__file__).parent
    assert len(faults.FAULTS) >= 40
    assert len({fault.kind for fault in faults.FAULTS}) == len(faults.FAULTS)
    for fault in faults.FAULTS:
        text = (source / fault.file).read_text(encoding="utf-8")
        assert faults.with_fault(fault, text) != text
        assert all((HOME / "tests" / name).is_file() for name in fault.tests.split())
