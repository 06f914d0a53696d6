#!/usr/bin/env python3
"""Records testdata/wire/tls.pcap and tls.keys: sessions with TLS on loopback, and their secrets.

    record_tls.py PORT          HTTP on PORT, the protocol of PostgreSQL on PORT + 1

HTTP is served by Python, and requested by `openssl s_client`, which writes the key log: one session
per cipher suite, and one of CBC that cannot be decrypted. Both ends of PostgreSQL's protocol are
scripted here, with TLS after SSLRequest. Requires CAP_NET_RAW and openssl 3.
"""

import http.server
import os
import pathlib
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

from record import Capture

SUITES = [
    ["-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256", "-groups", "P-256"],
    ["-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384", "-groups", "P-521:P-256"],
    ["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256", "-groups", "P-256"],
    ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"],
    ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"],
    ["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"],
    ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA"],
]
SIZES = [10, 300]
# A response of several records, once per version.
LARGE = 17_000


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        size = int(self.path.rsplit("/", 1)[1])
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(b"x" * size)

    def log_message(self, *arguments):
        pass


def request(port, suite, sizes, keys):
    command = ["openssl", "s_client", "-quiet", "-no_ign_eof", "-keylogfile", keys, *suite]
    command += ["-connect", f"127.0.0.1:{port}"]
    client = subprocess.Popen(
        command,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )
    for size in sizes:
        client.stdin.write(f"GET /bytes/{size} HTTP/1.1\r\nHost: shop\r\n\r\n".encode())
        client.stdin.flush()
        answer = b""
        while b"\r\n\r\n" not in answer or len(answer.split(b"\r\n\r\n", 1)[1]) < size:
            answer += client.stdout.read1(65_536)
    client.stdin.close()
    client.wait()


def read_exactly(stream, size):
    data = b""
    while len(data) < size:
        data += stream.recv(size - len(data))
    return data


def serve_postgres(listener, context):
    plain, _ = listener.accept()
    assert read_exactly(plain, 8) == struct.pack(">II", 8, 80_877_103)
    plain.sendall(b"S")
    stream = context.wrap_socket(plain, server_side=True)
    (size,) = struct.unpack(">I", read_exactly(stream, 4))
    read_exactly(stream, size - 4)
    stream.sendall(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I")
    for _ in range(2):
        kind, size = struct.unpack(">cI", read_exactly(stream, 5))
        read_exactly(stream, size - 4)
        stream.sendall(b"C\0\0\0\x0dSELECT 0\0Z\0\0\0\x05I")
    read_exactly(stream, 5)
    stream.close()


def query_postgres(port, keys):
    plain = socket.create_connection(("127.0.0.1", port))
    plain.sendall(struct.pack(">II", 8, 80_877_103))
    assert plain.recv(1) == b"S"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.keylog_filename = keys
    stream = context.wrap_socket(plain)
    parameters = b"user\0me\0\0"
    stream.sendall(struct.pack(">II", 8 + len(parameters), 196_608) + parameters)
    stream.recv(100)
    for text in [b"select 1\0", b"select 2\0"]:
        stream.sendall(b"Q" + struct.pack(">I", 4 + len(text)) + text)
        stream.recv(100)
    stream.sendall(b"X\0\0\0\x04")
    stream.close()


def main():
    port = int(sys.argv[1])
    directory = tempfile.mkdtemp()
    certificate, key, keys = [os.path.join(directory, name) for name in ("c.pem", "k.pem", "keys")]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-keyout", key, "-out", certificate, "-days", "1", "-subj", "/CN=shop"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_ciphers("ALL:@SECLEVEL=0")
    # Another ClientHello is asked for if the client does not offer this group first.
    context.set_ecdh_curve("prime256v1")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    postgres = socket.create_server(("127.0.0.1", port + 1))
    threading.Thread(target=serve_postgres, args=(postgres, context), daemon=True).start()
    captures = [Capture(port), Capture(port + 1)]
    time.sleep(0.2)
    for at, suite in enumerate(SUITES):
        request(port, suite, SIZES + [LARGE] * (at in (0, 3)), keys)
    query_postgres(port + 1, keys)
    time.sleep(0.3)
    captures[0].packets += captures[1].packets
    captures[1].is_over = True
    path = pathlib.Path(__file__).parent / "tls.pcap"
    captures[0].write(path)
    labels = ("CLIENT_RANDOM", "CLIENT_HANDSHAKE", "CLIENT_TRAFFIC", "SERVER_")
    lines = [line for line in open(keys) if line.startswith(labels)]
    path.with_suffix(".keys").write_text("".join(lines))


main()
