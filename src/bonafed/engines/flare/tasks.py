"""The same messages as FLARE's tasks, on which a site's filters and privacy scopes act.

Calls of the Collab API pass by the filters of a site; tasks do not. A message is a separate task
for one site, and FLARE applies the filters to the task at the server and at the site and to the
result in both places. A site asks for its next task again and again, which takes longer than a
call.

The bytes stand in a data exchange object of kind ``APP_DEFINED``. A filter for model weights leaves
it alone, because it acts on other kinds; one for every kind sees the bytes. A filter that changes
them makes the message invalid, and it is refused.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from bonafed.engines.flare.job import TASK
from bonafed.engines.flare.transport import Answers, SiteError

if TYPE_CHECKING:
    from nvflare.apis.controller_spec import (  # pyright: ignore[reportMissingImports]
        ClientTask,
        Task,
    )
    from nvflare.apis.fl_context import FLContext  # pyright: ignore[reportMissingImports]
    from nvflare.apis.impl.controller import Controller  # pyright: ignore[reportMissingImports]
    from nvflare.apis.shareable import Shareable  # pyright: ignore[reportMissingImports]

MESSAGE = "message"  # the entry of the data exchange object


class FilteredError(ValueError):
    """What came is not a message: a filter took it out, or the sender is another program."""


class TaskTransport(Answers):
    """Carries bytes between the server and the sites as FLARE's tasks.

    Parameters
    ----------
    controller
        The controller of the job, which hands tasks out.
    context
        FLARE's context of the controller.
    names
        The names of the sites.
    timeout
        Seconds that a site has for an answer, rounded up: FLARE counts whole seconds.
    aborted
        Whether FLARE ends the job.
    """

    def __init__(
        self,
        controller: Controller,
        context: FLContext,
        names: Iterable[str],
        *,
        timeout: float,
        aborted: Callable[[], bool],
    ) -> None:
        super().__init__(names, aborted)
        self._controller, self._context = controller, context
        self._timeout = math.ceil(timeout)

    def _send(self, client: str, seq: int, message: bytes) -> None:
        from nvflare.apis.controller_spec import Task  # pyright: ignore[reportMissingImports]

        once = threading.Lock()  # FLARE reports an answer and then the end of its task

        def report(answer: bytes | Exception) -> None:
            if once.acquire(blocking=False):
                self._answers.put((client, seq, answer))

        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:
            report(_answer(client, client_task.result))

        def ended(task: Task, fl_ctx: FLContext) -> None:
            status = str(getattr(task.completion_status, "value", task.completion_status))
            kind = "TimeoutError" if status == "timeout" else "RuntimeError"
            report(SiteError(client, kind, f"the task ended without an answer: {status}"))

        task = Task(
            name=TASK,
            data=packed(message),
            timeout=self._timeout,
            result_received_cb=received,
            task_done_cb=ended,
        )
        self._controller.send(task, self._context, targets=[client])


def packed(message: bytes) -> Shareable:
    """Bytes as FLARE carries them in a task."""
    from nvflare.apis.dxo import DXO, DataKind  # pyright: ignore[reportMissingImports]

    return DXO(DataKind.APP_DEFINED, data={MESSAGE: message}).to_shareable()


def unpacked(shareable: Shareable) -> bytes:
    """The bytes of a task or of its result."""
    from nvflare.apis.dxo import from_shareable  # pyright: ignore[reportMissingImports]

    try:
        message = from_shareable(shareable).data[MESSAGE]
    except (KeyError, TypeError, ValueError) as error:
        raise FilteredError("no message came; a filter may have taken it out") from error
    if not isinstance(message, bytes):
        raise FilteredError(f"the message is not bytes but {type(message)}; a filter changed it")
    return message


def _answer(client: str, result: Shareable | None) -> bytes | Exception:
    if result is None:
        return SiteError(client, "FilteredError", "no result came; a filter may have taken it out")
    code = str(result.get_return_code())
    if code != "OK":
        return SiteError(client, code, "the site could not answer, or a filter refused it")
    try:
        return unpacked(result)
    except FilteredError as error:
        return SiteError(client, type(error).__name__, str(error))
