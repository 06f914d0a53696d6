"""WSGI middleware: records the duration of requests, and those in flight.

    application = topdeck.wsgi.Middleware(application)

A request ends when its body was sent, or when the server closes it.
"""

from . import now
from ._http import Requests


class Middleware:
    """`route` returns the route of an environment; WSGI knows none. By default it is empty: do not
    return the path, each distinct label is a series."""

    def __init__(self, application, route=lambda environ: ""):
        self._application, self._route, self._requests = application, route, Requests()

    def __call__(self, environ, start_response):
        method, start_ns = environ.get("REQUEST_METHOD", ""), now()
        operation = self._requests.begin(method)
        status = None

        def start(line, headers, exc_info=None):
            nonlocal status
            status = int(line[:3])
            if exc_info is None:
                return start_response(line, headers)
            return start_response(line, headers, exc_info)

        def end():
            operation.end()
            self._requests.record(method, self._route(environ), status, now() - start_ns)

        try:
            body = self._application(environ, start)
        except BaseException:
            end()
            raise
        return _Body(body, end)


class _Body:
    """The body of an answer, which calls `end` once."""

    def __init__(self, body, end):
        self._body, self._parts, self._end = body, iter(body), end

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._parts)

    def close(self):
        """PEP 3333: the server calls this in all cases."""
        end, self._end = self._end, None
        try:
            if hasattr(self._body, "close"):
                self._body.close()
        finally:
            if end:
                end()
