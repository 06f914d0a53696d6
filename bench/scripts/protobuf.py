"""Encoders of protobuf fields, and of remote write 1."""

import struct

HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def zigzag(number):
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def label(name, value):
    return field(1, field(1, name.encode()) + field(2, value.encode()))


def literal(body):
    """Snappy without copies."""
    out = bytearray(varint(len(body)))
    for start in range(0, len(body), 65536):
        piece = body[start:start + 65536]
        out.append(61 << 2)
        out += struct.pack("<H", len(piece) - 1)
        out += piece
    return bytes(out)
