"""Smallest integers of the buckets of shared-memory histograms, with exact arithmetic.

Bucket b > 0 is (2^((b-1)/32), 2^(b/32)]; bucket 0 holds 1. Writes the first and the last integer of
each bucket that has one, up to 2^53 (above, the bucket is that of the nearest double), to
testdata/shm/bucket-edges.txt.
"""

import pathlib
import sys


def root_32(square: int) -> int:
    """Greatest integer whose 32nd power is at most this."""
    low, high = 0, 1 << (square.bit_length() // 32 + 1)
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**32 <= square else (low, middle)
    return low


def upper_edges() -> list[int]:
    """Last integer of each bucket up to 2^53."""
    return [root_32(1 << bucket) for bucket in range(53 * 32 + 1)]


def numbers() -> list[int]:
    edges = upper_edges()
    near = {edge + step for edge in edges for step in (0, 1)}
    return sorted(number for number in near if number <= 1 << 53)


FILE = pathlib.Path(__file__).resolve().parents[2] / "testdata/shm/bucket-edges.txt"

if __name__ == "__main__":
    text = "".join(f"{number}\n" for number in numbers())
    if sys.argv[1:] == ["--write"]:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        sys.exit(f"{FILE} differs from the exact edges; run {sys.argv[0]} --write")
