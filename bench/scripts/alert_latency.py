#!/usr/bin/env python3
"""Time from a sample to the notification: topdeck beside Prometheus with Alertmanager.

    bench/scripts/alert_latency.py --prometheus PROGRAM --alertmanager PROGRAM
                                   [--samples N] [--interval S] BINARY

In one run, both systems get the same remote-write requests: each has one sample of a new series,
whose alert then fires. Requests are sent at random times, so that every phase of the evaluation
interval occurs. A webhook receiver on loopback notes when the request with the alert of a series
has arrived. The time begins before the remote-write request is sent.

Three times are measured: of the same Prometheus rule file at the same interval in topdeck and in
Prometheus, and of an own rule of topdeck, which is evaluated on arrival. Alerts are not grouped,
and no group waits. Only Python's standard library is required.
"""

import argparse
import http.client
import http.server
import json
import os
import random
import statistics
import struct
import subprocess
import tempfile
import threading
import time
import urllib.request

from protobuf import HEADERS, field, label, literal, varint
from server import START_TIMEOUT_S, WITHOUT_SOURCES, free_port, server_url

# Longest wait for the alerts of the last samples.
LAST_WAIT_S = 30
TOPDECK = """data_dir = "{dir}/data"
[http]
listen = ["127.0.0.1:0"]
[alerts]
rule_files = ["rules.yaml", "own.toml"]
[[contact]]
name = "hook"
kind = "webhook"
url = "{receiver}"
[route]
receiver = "hook"
group_by = ["..."]
group_wait = "0s"
group_interval = "1s"
"""
RULES = """groups:
- name: g
  interval: {interval}s
  rules:
  - alert: Deep
    expr: depth > 5
"""
OWN_RULES = """[[rule]]
name = "DeepOwn"
select = "depth"
window = "1min"
[[rule.criteria]]
severity = 1
above = 5
"""
PROMETHEUS = """rule_files: [{dir}/rules.yaml]
alerting:
  alertmanagers:
  - static_configs:
    - targets: ["127.0.0.1:{port}"]
"""
ALERTMANAGER = """route:
  receiver: hook
  group_by: ["..."]
  group_wait: 0s
  group_interval: 1s
receivers:
- name: hook
  webhook_configs:
  - url: {receiver}
    send_resolved: false
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prometheus", required=True, type=os.path.abspath)
    parser.add_argument("--alertmanager", required=True, type=os.path.abspath)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--interval", type=int, default=1)
    parser.add_argument("binary", type=os.path.abspath)
    options = parser.parse_args()
    receiver = Receiver()
    with tempfile.TemporaryDirectory() as dir:
        running = []
        try:
            targets = start_all(options, dir, receiver.url, running)
            sent = send_samples(options, targets)
            report(options, sent, receiver)
        finally:
            for process in running:
                process.terminate()
                process.wait()


class Receiver:
    """Notes when the first request with an alert of a host arrives."""

    def __init__(self):
        self.arrivals = {}
        arrivals = self.arrivals

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                now_s = time.perf_counter()
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()
                for alert in json.loads(body)["alerts"]:
                    labels = alert["labels"]
                    # A rule of Prometheus has the same name in both systems.
                    source = self.path if labels["alertname"] == "Deep" else "/own"
                    arrivals.setdefault((source, labels["host"]), now_s)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()


def start_all(options, dir, receiver, running):
    """Starts the three programs; returns the ports of the remote-write receivers."""
    prometheus, alertmanager = free_port(), free_port()
    settings = TOPDECK.format(dir=dir, receiver=f"{receiver}/topdeck")
    write(f"{dir}/topdeck.toml", settings + WITHOUT_SOURCES)
    write(f"{dir}/rules.yaml", RULES.format(interval=options.interval))
    write(f"{dir}/own.toml", OWN_RULES)
    write(f"{dir}/prometheus.yml", PROMETHEUS.format(dir=dir, port=alertmanager))
    write(f"{dir}/alertmanager.yml", ALERTMANAGER.format(receiver=f"{receiver}/prometheus"))

    def start(log, *command):
        with open(f"{dir}/{log}", "w") as file:
            running.append(subprocess.Popen(command, stdout=file, stderr=file, cwd=dir))

    start("log", options.binary, "serve", "--config", f"{dir}/topdeck.toml")
    start(
        "alertmanager.log",
        options.alertmanager,
        "--config.file=alertmanager.yml",
        "--storage.path=alertmanager",
        "--cluster.listen-address=",
        f"--web.listen-address=127.0.0.1:{alertmanager}",
    )
    start(
        "prometheus.log",
        options.prometheus,
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=prometheus",
        "--web.enable-remote-write-receiver",
        f"--web.listen-address=127.0.0.1:{prometheus}",
    )
    wait_ready(alertmanager, dir, "alertmanager.log")
    wait_ready(prometheus, dir, "prometheus.log")
    topdeck = int(server_url(f"{dir}/log").rsplit(":", 1)[1])
    return {"/topdeck": topdeck, "/prometheus": prometheus}


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def wait_ready(port, dir, log):
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)
    with open(f"{dir}/{log}") as lines:
        raise TimeoutError(f"{log}: {lines.read()}")


def send_samples(options, targets):
    """Sends one sample of each series to both; returns when, by path and host."""
    connections = {path: http.client.HTTPConnection("127.0.0.1", port) for path, port in
                   targets.items()}
    sent = {}
    for number in range(options.samples):
        # The phase within the interval differs from sample to sample.
        time.sleep(options.interval * random.uniform(1, 2) / 2)
        host = f"h{number}"
        body = remote_write(host, 10.0, time.time_ns() // 1_000_000)

        def post(path):
            sent[path, host] = time.perf_counter()
            connection = connections[path]
            connection.request("POST", "/api/v1/write", body, HEADERS)
            response = connection.getresponse()
            text = response.read()
            if response.status >= 300:
                raise RuntimeError(f"{path}: {response.status} {text}")

        threads = [threading.Thread(target=post, args=(path,)) for path in targets]
        random.shuffle(threads)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return sent


def remote_write(host, value, time_ms):
    """Request of remote write 1.0 with one sample."""
    labels = label("__name__", "depth") + label("host", host)
    sample = b"\x09" + struct.pack("<d", value) + b"\x10" + varint(time_ms)
    return literal(field(1, labels + field(2, sample)))


def report(options, sent, receiver):
    sources = ["/topdeck", "/own", "/prometheus"]
    hosts = [f"h{number}" for number in range(options.samples)]
    wanted = [(source, host) for source in sources for host in hosts]
    deadline_s = time.monotonic() + LAST_WAIT_S
    while time.monotonic() < deadline_s:
        if all(pair in receiver.arrivals for pair in wanted):
            break
        time.sleep(0.1)
    names = {
        "/topdeck": "topdeck, rule file of Prometheus",
        "/own": "topdeck, own rule",
        "/prometheus": "Prometheus and Alertmanager",
    }
    load = os.getloadavg()[0]
    print(f"{options.samples} samples, interval {options.interval} s, load average {load:.1f}")
    for source in sources:
        written = "/prometheus" if source == "/prometheus" else "/topdeck"
        found = [host for host in hosts if (source, host) in receiver.arrivals]
        times = sorted(receiver.arrivals[source, host] - sent[written, host] for host in found)
        if not times:
            print(f"{names[source]}: no alert arrived")
            continue
        p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
        print(
            f"{names[source]}: p50 {statistics.median(times):.3f} s, p99 {p99:.3f} s, "
            f"max {times[-1]:.3f} s, {len(hosts) - len(found)} missing"
        )


if __name__ == "__main__":
    main()
