"""Conformance of writers of metrics in shared memory: one suite for all languages.

usage: suite.py [--only PART] [--records N] TOPDECK COMMAND...
       suite.py --check: whether /dev/shm has the space that the suite needs

COMMAND is a program that records what each test below expects: it is run as `COMMAND PART`, with
TOPDECK_SHM set to an empty directory. A program that prints `unsupported` skips the part. TOPDECK
is the binary that reads what was written. Buckets are read by this script itself, and compared with
exact arithmetic.
"""

import argparse
import bisect
import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

import edges

TIMEOUT_S = 60
# Offsets of docs/formats/shm.md.
REGISTRY, STRINGS, LANES, STRIDE = 12_288, 1_060_864, 5_308_416, 64 << 20
BUCKETS = 2_049


class Skipped(Exception):
    """The program does not support the part."""


class MetricsFile:
    """Words of a file, and its histograms."""

    def __init__(self, path):
        self.file = open(path, "rb")

    def words(self, offset, count):
        data = os.pread(self.file.fileno(), count * 8, offset)
        return struct.unpack(f"={count}Q", data)

    def string(self, at):
        (length,) = self.words(STRINGS + at * 8, 1)
        return os.pread(self.file.fileno(), length, STRINGS + at * 8 + 8).decode()

    def cells(self, name):
        (count,) = self.words(144, 1)
        for number in range(count):
            entry = self.words(REGISTRY + number * 64, 8)
            if self.string(entry[1]) == name:
                return entry[5] & 0xFFFFFFFF, entry[5] >> 32
        raise AssertionError(f"{name} is not registered")

    def buckets(self, name):
        """Counts of the buckets in all lanes, and the number of zeros."""
        small, large = self.cells(name)
        (lanes,) = self.words(200, 1)
        counts, zeros = [0] * BUCKETS, 0
        for lane in range(lanes):
            offset = LANES + lane * STRIDE
            zeros += self.words(offset + small + 8, 1)[0]
            found = self.words(offset + large, BUCKETS)
            counts = [a + b for a, b in zip(counts, found)]
        return counts, zeros

    def state(self):
        return self.words(112, 1)[0]


class Suite:
    def __init__(self, topdeck, command, records):
        self.topdeck, self.command, self.records, self.dir = topdeck, command, records, None

    def run(self, part, *arguments, dir_=None, **options):
        environment = dict(os.environ, TOPDECK_SHM=dir_ or str(self.dir))
        done = subprocess.run(
            [*self.command, part, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=TIMEOUT_S,
            encoding="utf-8",
            **options,
        )
        assert done.returncode == 0, f"exit status {done.returncode}: {done.stdout}{done.stderr}"
        if done.stdout.strip() == "unsupported":
            raise Skipped
        return done.stdout

    def files(self):
        return sorted(self.dir.glob("*.tdk"))

    def only_file(self):
        (path,) = self.files()
        assert path.stat().st_mode & 0o777 == 0o640, oct(path.stat().st_mode)
        return path

    def read(self, *arguments):
        done = subprocess.run(
            [self.topdeck, *map(str, arguments)], stdout=subprocess.PIPE, timeout=TIMEOUT_S,
            check=True,
        )
        return json.loads(done.stdout)

    def cat(self, path):
        return self.read("cat", path, "--json")

    # Tests: the name after `test_` is the part.

    def test_kinds(self):
        self.run("kinds")
        path = self.only_file()
        found = self.cat(path)
        assert found["process"]["state"] == "exited", found["process"]
        assert found["process"]["lost_values"] == found["process"]["rejected_series"] == 0
        assert found["process"]["program"], found["process"]
        metrics = {metric["name"]: metric for metric in found["metrics"]}
        names = [metric["name"] for metric in found["metrics"]]
        expected = ["answered_total", "balance", "pool_size", "pool_used", "load", "state", "alive"]
        assert names == [*expected, "took", "slept", "work"], names
        expect(metrics["answered_total"], kind="counter", value=42, help="Answers.", unit="",
               labels={"code": "200", "route": "home"}, role="other")
        expect(metrics["balance"], value=-3, unit="By")
        expect(metrics["pool_size"], kind="gauge", value=100, role="capacity", unit="1")
        expect(metrics["pool_used"], value=-7, role="usage", related_metric="pool_size")
        expect(metrics["load"], value=0.25)
        expect(metrics["state"], kind="text", value="a" + "ö" * 119)
        expect(metrics["alive"], kind="heartbeat", count=2, interval_ns=1_000_000_000)
        values = [0, 1, 2, 1000, 123456789, (1 << 53) + 1, *[(1 << 63) - 1] * 3]
        took = metrics["took"]
        expect(took, kind="histogram", count=9, unit="ns", role="timing")
        for name, value in [("sum", sum(values)), ("min", 0), ("max", max(values))]:
            expect(took[name], lower=float(value), estimate=float(value), upper=float(value))
        counts, zeros = MetricsFile(path).buckets("took")
        assert zeros == 1 and sum(counts) == 8 and counts[0] == 1 and counts[32] == 1
        assert counts[63 * 32] == 3, "the nearest double of 2^63 - 1 is 2^63"
        expect(metrics["slept"], count=1)
        # A timer may be off by the resolution of a clock, not by half.
        assert metrics["slept"]["min"]["estimate"] > 4_000_000, metrics["slept"]
        expect(metrics["work"], kind="in_flight", count=2, started=3, finished=1, untracked=0)
        operations = self.read("in-flight", path, "--json")["operations"]
        assert [(one["number"], one["tags"]) for one in operations] == [
            (17, {"device": "sda", "operation": "read"}), (19, {})
        ], operations

    def test_buckets(self):
        self.run("buckets", str(edges.FILE))
        counts, zeros = MetricsFile(self.only_file()).buckets("took")
        upper = edges.upper_edges()
        expected = [0] * BUCKETS
        for number in edges.numbers():
            expected[bisect.bisect_left(upper, number)] += 1
        assert zeros == 0
        wrong = [at for at in range(BUCKETS) if counts[at] != expected[at]]
        assert not wrong, f"buckets {wrong[:5]} of {len(wrong)} wrong ones"

    def check_threads(self, threads, rounds, records):
        found = self.cat(self.only_file())
        metrics = {metric["name"]: metric for metric in found["metrics"]}
        runs = threads * rounds
        expect(metrics["answered_total"], value=runs * (records + 1))
        sum_ = float(runs * records * (records - 1) // 2)
        expect(metrics["took"], count=runs * records)
        expect(metrics["took"]["sum"], lower=sum_, upper=sum_)
        expect(metrics["took"]["max"], lower=records - 1.0, upper=records - 1.0)
        expect(metrics["work"], count=0, started=runs, finished=runs, untracked=0)
        expect(found["process"], state="exited", lost_values=0)
        return found["process"]

    def test_threads(self):
        """Threads that end leave their lane to others, and no count is lost."""
        self.run("threads", str(self.records))
        self.check_threads(8, 3, self.records)
        (lanes,) = MetricsFile(self.only_file()).words(200, 1)
        assert lanes < 1 + 24, f"{lanes} lanes: no thread continued with a lane of another"

    def test_many(self):
        """More concurrent threads than lanes share lane 0."""
        self.run("many")
        self.check_threads(300, 1, 1000)

    def test_shared(self):
        """Only lane 0 fits below the limit of the file size: all threads share it. Its counters
        have space. A value without a bucket, because the file system counts as full for a second
        after each failure, is reported as lost, as is an operation without a slot."""
        limit = LANES + STRIDE

        def set_limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        self.run("threads", str(self.records), preexec_fn=set_limit)
        found = self.cat(self.only_file())
        metrics = {metric["name"]: metric for metric in found["metrics"]}
        expect(metrics["answered_total"], value=24 * (self.records + 1))
        expect(metrics["work"], count=0, started=24, finished=24)
        count, lost = metrics["took"]["count"], found["process"]["lost_values"]
        expected = 24 * self.records
        assert count <= expected <= count + lost <= expected + 48, (count, lost)

    def test_dies(self):
        """What was recorded before SIGKILL is in the file."""
        environment = dict(os.environ, TOPDECK_SHM=str(self.dir))
        with subprocess.Popen(
            [*self.command, "dies"], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        ) as process:
            try:
                assert process.stdout.readline().strip() == b"ready"
                live = self.cat(self.only_file())["process"]
                expect(live, state="running", pid=process.pid)
            finally:
                process.send_signal(signal.SIGKILL)
        path = self.only_file()
        found = self.cat(path)
        expect(found["process"], state="terminated")
        metrics = {metric["name"]: metric for metric in found["metrics"]}
        expect(metrics["answered_total"], value=1000)
        expect(metrics["took"], count=1000)
        (operation,) = self.read("in-flight", path, "--json")["operations"]
        expect(operation, number=42, tags={"device": "sda"})
        self.check_next_process_removes_files(path)

    def check_next_process_removes_files(self, path):
        """The next process keeps the file of a crash for a day: 64 files at most."""
        self.run("kinds")
        assert path.exists() and len(self.files()) == 2
        for number in range(64):
            copy = self.dir / f"{number}.tdk"
            subprocess.run(["cp", "--sparse=always", path, copy], check=True, timeout=TIMEOUT_S)
            # It ended later than the other ones.
            with open(copy, "r+b") as file:
                file.seek(120)
                (ended,) = MetricsFile(path).words(120, 1)
                file.write(struct.pack("=Q", ended + number + 1))
        self.run("kinds")
        kept = {file.name for file in self.files()}
        assert path.name not in kept and "63.tdk" in kept, sorted(kept)

    def test_limits(self):
        texts = self.run("limits").splitlines()
        assert len(texts) == 4, texts
        for text, part in zip(texts, ["empty", "duplicate label", "4,096", "another kind"]):
            assert part in text, text
        found = self.cat(self.only_file())
        many = [metric for metric in found["metrics"] if metric["name"] == "many_total"]
        assert len(many) == 1001
        (rest,) = [metric for metric in many if metric["labels"] == {"overflow": "true"}]
        expect(rest, value=100)
        expect(found["process"], rejected_series=100)

    def test_off(self):
        text = self.run("off", dir_="off")
        assert "TOPDECK_SHM" in text, text
        assert not self.files()

    def test_forks(self):
        """A forked process has a file of its own, with all metrics at zero."""
        self.run("forks")
        files = [self.cat(path) for path in self.files()]
        assert len(files) == 2, files
        values = sorted(
            (metric["value"] for file in files for metric in file["metrics"]
             if metric["name"] == "answered_total"),
        )
        assert values == [7, 2000], values
        for file in files:
            expect(file["process"], state="exited")

    def run_all(self, only):
        tests = [name[5:] for name in dir(self) if name.startswith("test_")]
        failed = 0
        for part in tests:
            if only and part != only:
                continue
            self.dir = pathlib.Path(tempfile.mkdtemp(prefix="topdeck-it-", dir="/dev/shm"))
            try:
                getattr(self, f"test_{part}")()
                print(f"ok {part}")
            except Skipped:
                print(f"unsupported {part}")
            except (AssertionError, subprocess.SubprocessError, KeyError, ValueError) as error:
                failed += 1
                print(f"FAILED {part}: {error!r}")
            finally:
                shutil.rmtree(self.dir, ignore_errors=True)
        return failed


def expect(found, **fields):
    for name, value in fields.items():
        assert found[name] == value, f"{name}: found {found[name]!r}, expected {value!r}"


# Exit status of --check without space.
NO_SPACE = 3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", metavar="PART")
    # Fast languages need more for their threads to run at the same time.
    parser.add_argument("--records", type=int, default=10_000, metavar="N")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("topdeck", nargs="?")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.check:
        sys.exit(0 if has_space() else NO_SPACE)
    suite = Suite(options.topdeck, options.command, options.records)
    sys.exit(suite.run_all(options.only) > 0)


def has_space():
    try:
        return shutil.disk_usage("/dev/shm").free >= 32 << 20
    except OSError:
        return False


if __name__ == "__main__":
    main()
