"""A small WSGI server whose requests and storage reads are recorded: app.py [PORT].

Look at it with `topdeck top`; or stop it with kill -9 and run `topdeck post-mortem`.
"""

import random
import sys
import time
from wsgiref.simple_server import make_server

import topdeck
import topdeck.wsgi

read_took = topdeck.Histogram(
    "storage_read_duration",
    unit="ns",
    help="Time of a read from storage.",
    role=topdeck.Role.TIMING,
)
version = topdeck.Text("version")


@topdeck.timed(read_took)
def read_item(name):
    # One in a hundred is slow.
    if random.randrange(100) == 0:
        time.sleep(0.02)
    return f"item {name}\n"


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [read_item(environ["PATH_INFO"]).encode()]


if __name__ == "__main__":
    version.set("1.0.0")
    try:
        print("look at it with `topdeck top`; the file is", topdeck.path())
    except OSError as error:
        print("no metrics:", error)
    port = int(sys.argv[1]) if sys.argv[1:] else 8080
    recorded = topdeck.wsgi.Middleware(application, route=lambda environ: "/")
    with make_server("127.0.0.1", port, recorded) as server:
        server.serve_forever()
