"""Engines run algorithms over federations; no engine knows an algorithm, no algorithm knows an
engine.
"""

from bonafed.engines.checkpoint import CheckpointError
from bonafed.engines.engine import ClientError, Engine, Run
from bonafed.engines.inprocess import InProcess, Replay, VirtualClock

__all__ = ["CheckpointError", "ClientError", "Engine", "InProcess", "Replay", "Run", "VirtualClock"]
