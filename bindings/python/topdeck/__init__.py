"""Metrics in shared memory.

    import topdeck

    answered = topdeck.Counter("answered_total")
    took = topdeck.Histogram("answer_duration", unit="ns", role=topdeck.Role.TIMING)

    with took.start():
        answer()
    answered.add()

No configuration and no error handling is required: a metric that could not be registered records
nothing, and its attribute `error` has the reason. `TOPDECK_SHM` in the environment sets another
directory, or disables recording with `off`.
"""

import enum
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from ._native import (
    Counter,
    FloatGauge,
    Gauge,
    Heartbeat,
    Histogram,
    InFlight,
    Metric,
    Operation,
    Text,
    Timer,
    UpDownCounter,
    now,
    path,
    tag,
)

__version__ = "0.1.0"
__all__ = [
    "Counter",
    "FloatGauge",
    "Gauge",
    "Heartbeat",
    "Histogram",
    "InFlight",
    "Metric",
    "Operation",
    "Role",
    "Text",
    "Timer",
    "UpDownCounter",
    "now",
    "path",
    "tag",
    "timed",
]


class Role(enum.IntEnum):
    """Meaning of a metric; most are relative to another metric, the argument `related`."""

    OTHER = 0
    TIMING = 1
    #: Of a resource.
    CAPACITY = 2
    #: Part of a capacity.
    USAGE = 3
    #: Of a cache, whose size is related.
    HIT = 4
    MISS = 5
    SIZE = 6
    #: Waiting for a capacity.
    QUEUE = 7
    #: Of the related operation.
    ERROR = 8
    #: Made by the related operation.
    SUBCALLS = 9


_Function = TypeVar("_Function", bound=Callable[..., Any])


def timed(histogram: Histogram) -> Callable[[_Function], _Function]:
    """Decorator that records the duration of each call, also if it raises.

    Of a coroutine function it is the time until the coroutine has ended. Generators are not
    measured: their body runs after the call.
    """
    start = histogram.start

    def decorate(function: _Function) -> _Function:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                with start():
                    return await function(*args, **kwargs)

        else:

            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with start():
                    return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]

    return decorate
