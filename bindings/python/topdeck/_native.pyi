from types import TracebackType
from typing import Iterable, Literal, Mapping, final

class Metric:
    @property
    def error(self) -> str | None:
        """Why the metric records nothing, or None."""

class _Described(Metric):
    def __init__(
        self,
        name: str,
        *,
        unit: str = "",
        help: str = "",
        labels: Mapping[str, str] | None = None,
        role: int = 0,
        related: Metric | None = None,
    ) -> None: ...

@final
class Counter(_Described):
    def add(self, n: int = 1, /) -> None:
        """Adds a number of at least 0; the sum is modulo 2^64."""

@final
class UpDownCounter(_Described):
    def add(self, n: int, /) -> None: ...

@final
class Gauge(_Described):
    def set(self, value: int, /) -> None: ...

@final
class FloatGauge(_Described):
    def set(self, value: float, /) -> None: ...

@final
class Text(_Described):
    def set(self, text: str, /) -> bool:
        """Sets the text, truncated to 240 bytes; returns whether all of it fit."""

@final
class Heartbeat(Metric):
    def __init__(
        self,
        name: str,
        *,
        every_ns: int = 0,
        unit: str = "",
        help: str = "",
        labels: Mapping[str, str] | None = None,
        role: int = 0,
        related: Metric | None = None,
    ) -> None: ...
    def beat(self) -> None: ...

@final
class Histogram(_Described):
    def record(self, value: int, /) -> None:
        """Records an integer from 0 to 2^64 - 1; times are nanoseconds."""

    def start(self) -> Timer:
        """Starts a timer, which is also a context manager."""

@final
class Timer:
    def stop(self) -> int:
        """Records the time since the start; returns nanoseconds."""

    def cancel(self) -> None: ...
    def __enter__(self) -> Timer: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> Literal[False]: ...

@final
class InFlight(Metric):
    def __init__(
        self,
        name: str,
        *,
        tags: Iterable[str] = (),
        unit: str = "",
        help: str = "",
        labels: Mapping[str, str] | None = None,
        role: int = 0,
        related: Metric | None = None,
    ) -> None: ...
    def begin(self, number: int, /, *tags: int) -> Operation:
        """Starts an operation; tags are results of `tag`, in the order of their names."""

@final
class Operation:
    def end(self) -> None: ...
    def __enter__(self) -> Operation: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> Literal[False]: ...

def tag(text: str, /) -> int:
    """Interns the value of a tag. Each distinct text takes space in the file for good."""

def path() -> str:
    """Path of the metrics file of this process; OSError with the reason if there is none."""

def now() -> int:
    """Nanoseconds of CLOCK_MONOTONIC."""
