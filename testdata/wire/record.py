#!/usr/bin/env python3
"""Records testdata/wire/PROTOCOL.pcap: a short session with a real server on loopback.

    record.py redis PORT        redis-server, empty
    record.py http PORT         nginx, whose root has the file index.html
    record.py mysql PORT        mariadbd --skip-grant-tables, empty
    record.py cassandra PORT    Cassandra
    record.py kafka PORT        Kafka

Packets have the times of the kernel, in nanoseconds. Requires CAP_NET_RAW.
"""

import pathlib
import socket
import struct
import sys
import threading

# Constants of Linux that Python does not name.
ETH_P_ALL = 3
PACKET_OUTGOING = 4
SO_TIMESTAMPNS = 35

# Time without a byte after which a response is complete. Seconds.
SILENCE = 0.1


class Capture(threading.Thread):
    """Packets of a port, until the connection has ended."""

    def __init__(self, port):
        super().__init__()
        self.port = port
        self.packets = []
        self.is_over = False
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.bind(("lo", ETH_P_ALL))
        self.socket.settimeout(SILENCE)
        self.start()

    def run(self):
        while not self.is_over:
            try:
                data, control, _, address = self.socket.recvmsg(1 << 17, 256)
            except TimeoutError:
                continue
            # Each packet of the loopback interface is seen as sent and as received.
            if address[2] == PACKET_OUTGOING or data[12:14] != b"\x08\x00" or data[23] != 6:
                continue
            header = 14 + (data[14] & 0x0F) * 4
            if self.port in struct.unpack_from(">HH", data, header):
                seconds, nanoseconds = struct.unpack("qq", control[0][2])
                self.packets.append((seconds, nanoseconds, data))

    def write(self, path):
        self.is_over = True
        self.join()
        with open(path, "wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 1))
            for seconds, nanoseconds, data in self.packets:
                file.write(struct.pack("<IIII", seconds, nanoseconds, len(data), len(data)) + data)
        print(f"{path}: {len(self.packets)} packets")


class Client:
    """A connection that sends bytes and waits for all of the response."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(SILENCE)

    def read(self):
        response = b""
        while not response:
            try:
                while chunk := self.socket.recv(1 << 16):
                    response += chunk
                return response
            except TimeoutError:
                pass
        return response

    def ask(self, *requests):
        self.socket.sendall(b"".join(requests))
        return self.read()


def redis(client):
    def command(*words):
        words = [word.encode() for word in words]
        body = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        return b"*%d\r\n%s" % (len(words), body)

    client.ask(command("SET", "user:1", "ann"))
    client.ask(command("GET", "user:1"))
    client.ask(*[command("INCR", "visits")] * 5)
    client.ask(command("LPUSH", "user:1", "x"))
    client.ask(command("MULTI"), command("INCR", "visits"), command("GET", "user:1"))
    client.ask(command("EXEC"))
    client.ask(command("BLPOP", "queue", "0.05"))
    client.ask(command("HELLO", "3"))
    client.ask(command("HSET", "cart:1", "tea", "2", "rye", "1"))
    client.ask(command("HGETALL", "cart:1"))
    client.ask(b"PING\r\n")


def http(client):
    def request(method, path, *fields):
        lines = [f"{method} {path} HTTP/1.1", "Host: shop.example", *fields, "", ""]
        return "\r\n".join(lines).encode()

    client.ask(request("GET", "/index.html"))
    client.ask(request("HEAD", "/index.html"))
    client.ask(*[request("GET", f"/users/{user}/orders") for user in (17, 18, 19)])
    client.ask(request("GET", "/index.html", "Range: bytes=0-2"))
    client.ask(request("POST", "/index.html", "Content-Length: 3") + b"abc")
    client.ask(request("GET", "/index.html?page=2", "Connection: close"))


def mysql(client):
    def packet(sequence, body):
        return struct.pack("<I", len(body))[:3] + bytes([sequence]) + body

    def query(text):
        return packet(0, b"\x03" + text.encode())

    client.read()
    capabilities = 0x1 | 0x200 | 0x2000 | 0x8000 | 0x1_0000 | 0x2_0000 | 0x8_0000
    login = struct.pack("<IIB23x", capabilities, 1 << 24, 33) + b"root\0\0mysql_native_password\0"
    client.ask(packet(1, login))
    client.ask(query("create database shop"))
    client.ask(query("create table shop.orders(id int primary key, item varchar(20))"))
    client.ask(query("insert into shop.orders values (1, 'tea'), (2, 'rye')"))
    client.ask(query("select * from shop.orders where id = 2"))
    client.ask(query("select 1; select 'a', 'b'; select 2.5"))
    client.ask(query("select * from shop.carts where id = 3"))
    prepared = client.ask(packet(0, b"\x16select item from shop.orders where id = ?"))
    for key in (1, 2):
        parameters = b"\0\1\x08\0" + struct.pack("<q", key)
        client.ask(packet(0, b"\x17" + prepared[5:9] + struct.pack("<BI", 0, 1) + parameters))
    client.socket.sendall(packet(0, b"\x19" + prepared[5:9]))
    client.ask(packet(0, b"\x0e"))
    client.socket.sendall(packet(0, b"\x01"))


def cassandra(client):
    def frame(stream, opcode, body):
        return struct.pack(">BBhBI", 4, 0, stream, opcode, len(body)) + body

    def long_string(text):
        return struct.pack(">I", len(text)) + text.encode()

    def query(stream, text):
        return frame(stream, 7, long_string(text) + struct.pack(">HB", 1, 0))

    client.ask(frame(0, 5, b""))
    client.ask(frame(0, 1, struct.pack(">HH", 1, 11) + b"CQL_VERSION" + b"\0\x053.0.0"))
    client.ask(query(1, "select release_version from system.local where key = 'local'"))
    client.ask(query(1, "select * from shop.carts where id = 3"))
    keys = ["data_center", "rack", "cql_version"]
    client.ask(*[query(2 + at, f"select {key} from system.local") for at, key in enumerate(keys)])
    prepared = client.ask(frame(5, 9, long_string("select rack from system.local where key = ?")))
    (length,) = struct.unpack_from(">H", prepared, 13)
    value = struct.pack(">HBHI", 1, 1, 1, 5) + b"local"
    for stream in (6, 7):
        client.ask(frame(stream, 10, prepared[13 : 15 + length] + value))


def kafka(client):
    def string(text):
        return struct.pack(">h", len(text)) + text.encode()

    def request(api, version, number, body):
        head = struct.pack(">hhi", api, version, number) + string("shop")
        return struct.pack(">I", len(head + body)) + head + body

    client.ask(request(18, 0, 1, b""))
    topics = struct.pack(">i", 1) + string("orders")
    client.ask(request(3, 4, 2, topics + b"\1"))
    client.ask(*[request(3, 4, number, topics + b"\0") for number in (3, 4, 5)])
    # ListOffsets 2: the latest offset of a partition.
    offsets = struct.pack(">iBi", -1, 0, 1) + string("orders") + struct.pack(">iiq", 1, 0, -1)
    client.ask(request(2, 2, 6, offsets))
    # Fetch 4: waits 200 ms for records, of which there are none.
    fetch = struct.pack(">iiiiBi", -1, 200, 1, 1 << 20, 0, 1) + string("orders")
    client.ask(request(1, 4, 7, fetch + struct.pack(">iiqi", 1, 0, 0, 1 << 20)))
    missing = struct.pack(">i", 1) + string("carts")
    client.ask(request(3, 4, 8, missing + b"\0"))


SESSIONS = {"redis": redis, "http": http, "mysql": mysql, "cassandra": cassandra, "kafka": kafka}


def main():
    protocol, port = sys.argv[1], int(sys.argv[2])
    capture = Capture(port)
    client = Client(port)
    SESSIONS[protocol](client)
    client.socket.close()
    # The last packets of the connection.
    threading.Event().wait(SILENCE)
    capture.write(pathlib.Path(__file__).parent / f"{protocol}.pcap")


if __name__ == "__main__":
    main()
