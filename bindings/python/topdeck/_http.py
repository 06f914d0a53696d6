"""What the WSGI and ASGI middlewares have in common: metrics of HTTP requests."""

import itertools

from . import Histogram, InFlight, Role, tag

DURATION = "http_server_request_duration"
IN_FLIGHT = "http_server_requests_in_flight"
METHODS = frozenset(
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"]
)


class Requests:
    """Records requests by method, route and class of status."""

    def __init__(self):
        self._in_flight = InFlight(
            IN_FLIGHT, help="Requests that are being answered.", tags=["method"]
        )
        self._tags = {method: tag(method) for method in [*METHODS, "other"]}
        self._durations = {}
        self._numbers = itertools.count(1)

    def begin(self, method):
        """Operation in flight."""
        word = self._tags.get(method) or self._tags["other"]
        return self._in_flight.begin(next(self._numbers), word)

    def record(self, method, route, status, took_ns):
        """`status` is a number, or None if the application raised before it answered."""
        method = method if method in METHODS else "other"
        key = (method, route, "error" if status is None else f"{status // 100}xx")
        histogram = self._durations.get(key)
        if histogram is None:
            histogram = self._durations[key] = Histogram(
                DURATION,
                unit="ns",
                help="Time to answer a request.",
                labels=dict(zip(("method", "route", "status"), key)),
                role=Role.TIMING,
            )
        histogram.record(took_ns)
