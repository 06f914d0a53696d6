"""ASGI middleware: records the duration of HTTP requests, and those in flight.

    application = topdeck.asgi.Middleware(application)

The route is that of Starlette and FastAPI, if the application is one of them.
"""

from . import now
from ._http import Requests


def _route(scope):
    return getattr(scope.get("route"), "path", "")


class Middleware:
    """`route` returns the route of a scope after the application has run. Do not return the path:
    each distinct label is a series."""

    def __init__(self, application, route=_route):
        self._application, self._route, self._requests = application, route, Requests()

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        start_ns, status = now(), None

        async def send_noting_status(message):
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        operation = self._requests.begin(scope["method"])
        try:
            await self._application(scope, receive, send_noting_status)
        finally:
            operation.end()
            self._requests.record(scope["method"], self._route(scope), status, now() - start_ns)
