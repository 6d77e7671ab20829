"""Runs over Flower, for sites that have a Flower federation: ``pip install '.[flower]'``.

`FlowerTransport` carries messages, `export_app` writes the app that a SuperLink is given, and
`guarded` lets a SuperNode run approved apps only. `Deployment` and `simulate` start Flower's
processes on one machine.
"""

from bonafed.engines.flower.bundle import Bundle, export_app, job_folder
from bonafed.engines.flower.deployment import Deployment, simulate
from bonafed.engines.flower.guard import guarded
from bonafed.engines.flower.transport import FlowerError, FlowerTransport, Limits, SiteError

__all__ = [
    "Bundle",
    "Deployment",
    "FlowerError",
    "FlowerTransport",
    "Limits",
    "SiteError",
    "export_app",
    "guarded",
    "job_folder",
    "simulate",
]
