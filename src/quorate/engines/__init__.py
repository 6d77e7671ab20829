"""Engines run algorithms over federations; no engine knows an algorithm, no algorithm knows an engine."""

from quorate.engines.checkpoint import CheckpointError
from quorate.engines.inprocess import ClientError, InProcess, Run
from quorate.engines.replay import Replay
from quorate.engines.virtual_clock import VirtualClock

__all__ = ["CheckpointError", "ClientError", "InProcess", "Replay", "Run", "VirtualClock"]
