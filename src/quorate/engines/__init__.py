"""Engines run algorithms over federations; no engine knows an algorithm, no algorithm knows an engine."""

from quorate.engines.checkpoint import CheckpointError
from quorate.engines.inprocess import ClientError, InProcess, Run

__all__ = ["CheckpointError", "ClientError", "InProcess", "Run"]
