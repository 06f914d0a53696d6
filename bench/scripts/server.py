"""A server that a script starts and stops, with its costs."""

import http.client
import re
import signal
import socket
import subprocess
import time
import urllib.parse

START_TIMEOUT_S = 60
# A server of its own port that has no samples but those of the script.
LISTEN = """[http]
listen = ["127.0.0.1:0"]
"""
WITHOUT_SOURCES = """[host]
procfs = false
block_io = false
run_queue = false
processes = false
hiccup = false
shm_metrics = false
"""


class Server:
    """A running server; stopped at the end, which flushes the store."""

    def __init__(self, binary, dir, settings=""):
        with open(f"{dir}/topdeck.toml", "w") as file:
            file.write(f'data_dir = "{dir}/data"\n{LISTEN}{WITHOUT_SOURCES}{settings}')
        log = f"{dir}/log"
        with open(log, "w") as out:
            command = [*binary.split(), "serve", "--config", f"{dir}/topdeck.toml"]
            self.process = subprocess.Popen(command, stderr=out, stdout=out)
        try:
            self.url = server_url(log)
        except BaseException:
            self.stop()
            raise
        address = urllib.parse.urlsplit(self.url)
        self.connection = http.client.HTTPConnection(address.hostname, address.port, timeout=600)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()
        self.stop()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def cpu(self):
        """CPU time in seconds, of all threads."""
        return time.clock_gettime(~self.process.pid << 3 | 2)

    def resident(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        return int(fields["VmRSS"].split()[0]) * 1024

    def request(self, method, path, body=None, headers={}):
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        return response.status, response.read()

    def wait_until_idle(self, seconds=2):
        """Until so many seconds take less than 1 % of a CPU."""
        while True:
            before = self.cpu()
            time.sleep(seconds)
            if self.cpu() - before < 0.01 * seconds:
                return


def server_url(log):
    """Waits for the line of the log with the address."""
    for _ in range(START_TIMEOUT_S * 5):
        with open(log) as lines:
            found = re.search(r"HTTP and OTLP at (http://127\.0\.0\.1:\d+)", lines.read())
        if found:
            return found[1]
        time.sleep(0.2)
    raise TimeoutError("the server does not start")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
