"""Engines run algorithms over federations; no engine knows an algorithm, no algorithm knows an
engine.
"""

from quorate.engines.checkpoint import CheckpointError
from quorate.engines.engine import ClientError, Engine, Run
from quorate.engines.inprocess import InProcess
from quorate.engines.replay import Replay
from quorate.engines.virtual_clock import VirtualClock

__all__ = ["CheckpointError", "ClientError", "Engine", "InProcess", "Replay", "Run", "VirtualClock"]
