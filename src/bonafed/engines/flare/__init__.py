"""Runs over NVIDIA FLARE: the messages, the job's folder, and watching over it."""

from bonafed.engines.flare.job import ALLOWED, ALLOWED_TASKS, PERMISSION, allow, export_job
from bonafed.engines.flare.place import filters, warning_about, working_folder, write_setting
from bonafed.engines.flare.supervisor import NotFinishedError, Supervisor, connect
from bonafed.engines.flare.tasks import TaskTransport
from bonafed.engines.flare.transport import FlareTransport, JobAbortedError, SiteError

__all__ = [
    "ALLOWED",
    "ALLOWED_TASKS",
    "PERMISSION",
    "FlareTransport",
    "JobAbortedError",
    "NotFinishedError",
    "SiteError",
    "Supervisor",
    "TaskTransport",
    "allow",
    "connect",
    "export_job",
    "filters",
    "warning_about",
    "working_folder",
    "write_setting",
]
