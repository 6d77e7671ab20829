"""Runs over Flower, for sites that have a Flower federation: ``pip install '.[flower]'``.

`FlowerTransport` carries messages, `export_app` writes the app that a SuperLink is given, and
`guarded` lets a SuperNode run approved apps only.
"""

from bonafed.engines.flower.bundle import Bundle, export_app, job_folder
from bonafed.engines.flower.guard import guarded
from bonafed.engines.flower.transport import FlowerError, FlowerTransport, Limits, SiteError

__all__ = [
    "Bundle",
    "FlowerError",
    "FlowerTransport",
    "Limits",
    "SiteError",
    "export_app",
    "guarded",
    "job_folder",
]
