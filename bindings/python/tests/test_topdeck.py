"""Tests of the package: errors, decorators, middlewares. `TOPDECK_BIN` reads what was recorded."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import unittest
import wsgiref.util

import topdeck
import topdeck.asgi
import topdeck.logs
import topdeck.wsgi


def metrics(name):
    """Metrics with this name, by their labels, as read by topdeck."""
    command = [os.environ["TOPDECK_BIN"], "cat", "--json", topdeck.path()]
    read = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    found = [metric for metric in read["metrics"] if metric["name"] == name]
    return {tuple(metric["labels"].values()): metric for metric in found}


class Errors(unittest.TestCase):
    def test_wrong_arguments_raise(self):
        histogram = topdeck.Histogram("errors_took")
        for value, error in [(-1, OverflowError), (1 << 64, OverflowError), (1.5, TypeError)]:
            with self.assertRaises(error):
                histogram.record(value)
        with self.assertRaises(TypeError):
            topdeck.Counter("errors_total", labels={"a": 1})
        with self.assertRaises(ValueError):
            topdeck.Counter("errors\0total")
        with self.assertRaises(TypeError):
            topdeck.Counter("errors_total", related="x")
        with self.assertRaises(ValueError):
            topdeck.InFlight("errors", tags="abcde")
        with self.assertRaises(TypeError):
            topdeck.Timer()
        with self.assertRaises(TypeError):
            topdeck.Heartbeat("errors_alive", evry_ns=1)

    def test_objects_are_freed(self):
        histogram = topdeck.Histogram("errors_took")
        before = sys.getrefcount(topdeck.Timer), sys.getrefcount(histogram)
        for _ in range(1000):
            histogram.start().cancel()
            topdeck.Counter("")
        after = sys.getrefcount(topdeck.Timer), sys.getrefcount(histogram)
        self.assertEqual(before, after)


class Recording(unittest.TestCase):
    def test_decorator_keeps_results_and_errors(self):
        took = topdeck.Histogram("decorated_took", unit="ns")

        @topdeck.timed(took)
        def divide(a, b=1):
            return a / b

        @topdeck.timed(took)
        async def wait():
            await asyncio.sleep(0)
            return 3

        self.assertEqual((divide(6, b=2), divide.__name__, asyncio.run(wait())), (3, "divide", 3))
        with self.assertRaises(ZeroDivisionError):
            divide(1, 0)
        self.assertEqual(metrics("decorated_took")[()]["count"], 3)

    def test_timer_records_once(self):
        took = topdeck.Histogram("timer_took", unit="ns")
        timer = took.start()
        self.assertGreaterEqual(timer.stop(), 0)
        timer.stop()
        with took.start() as cancelled:
            cancelled.cancel()
        self.assertEqual(metrics("timer_took")[()]["count"], 1)

    def test_wsgi_requests(self):
        def application(environ, start_response):
            if environ["PATH_INFO"] == "/raises":
                raise KeyError("a bug")
            start_response("404 Not Found", [])
            yield b"no such page"

        def direct(environ, start_response):
            raise KeyError("a bug")

        def request(application, path):
            environ = {"PATH_INFO": path, "REQUEST_METHOD": "GET"}
            wsgiref.util.setup_testing_defaults(environ)
            body = application(environ, lambda status, headers: None)
            try:
                return b"".join(body)
            finally:
                body.close()
                body.close()

        application = topdeck.wsgi.Middleware(application, route=lambda environ: "wsgi")
        self.assertEqual(request(application, "/nothing"), b"no such page")
        for raising in [application, topdeck.wsgi.Middleware(direct, lambda environ: "wsgi")]:
            with self.assertRaises(KeyError):
                request(raising, "/raises")
        found = metrics("http_server_request_duration")
        self.assertEqual(found[("GET", "wsgi", "4xx")]["count"], 1)
        self.assertEqual(found[("GET", "wsgi", "error")]["count"], 2)
        self.assertEqual(metrics("http_server_requests_in_flight")[()]["count"], 0)

    def test_asgi_requests(self):
        async def application(scope, receive, send):
            if scope["type"] == "http":
                await send({"type": "http.response.start", "status": 201, "headers": []})
                await send({"type": "http.response.body", "body": b""})

        sent = []

        async def send(message):
            sent.append(message["type"])

        wrapped = topdeck.asgi.Middleware(application, route=lambda scope: "asgi")
        asyncio.run(wrapped({"type": "http", "method": "BREW"}, None, send))
        asyncio.run(wrapped({"type": "lifespan"}, None, send))
        self.assertEqual(sent, ["http.response.start", "http.response.body"])
        found = metrics("http_server_request_duration")
        self.assertEqual(found[("other", "asgi", "2xx")]["count"], 1)

    def test_log_records(self):
        records = []
        inner = logging.Handler(logging.INFO)
        inner.emit = records.append
        logger = logging.Logger("test")
        logger.addHandler(topdeck.logs.TimedHandler(inner))
        logger.warning("one")
        logger.debug("filtered")
        self.assertEqual(len(records), 1)
        self.assertEqual(metrics("log_write_duration")[("WARNING",)]["count"], 1)


if __name__ == "__main__":
    unittest.main()
