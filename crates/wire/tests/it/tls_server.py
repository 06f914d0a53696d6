"""An HTTPS server on the loopback interface, for tests: prints its port, and stops at the end of
standard input. `/bytes/N` is a response of N bytes. With the argument `client PORT PATH REQUESTS`,
sends requests over one connection instead."""
import http.client
import http.server
import ssl
import sys
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        size = int(self.path.split("?")[0].rsplit("/", 1)[1])
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(b"x" * size)

    def log_message(self, *arguments):
        pass


def serve(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


def request(port, path, requests):
    context = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
    for _ in range(requests):
        connection.request("GET", path)
        connection.getresponse().read()
    connection.close()


if sys.argv[1] == "client":
    request(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
else:
    serve(sys.argv[1])
