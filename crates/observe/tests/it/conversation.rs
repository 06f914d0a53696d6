//! Packets of a connection of HTTP between a client and a server.

use wire::LinkType;

use crate::fixture::ListedPacket;

pub(crate) const PORT: u16 = 8080;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// Writes the packets of one connection, each at its own time.
pub(crate) struct HttpConnection {
    packets: Vec<ListedPacket>,
    client: [u8; 4],
    server: [u8; 4],
    client_port: u16,
    /// Next sequence numbers of client and server.
    next: [u32; 2],
}

impl HttpConnection {
    /// A connection with its handshake at this time, which takes 200 ns.
    pub(crate) fn new(client_port: u16, time: u64) -> HttpConnection {
        HttpConnection::of_client([10, 0, 0, 1], client_port, time)
    }

    /// As [`Self::new`], of the client with this address.
    pub(crate) fn of_client(client: [u8; 4], client_port: u16, time: u64) -> HttpConnection {
        HttpConnection::between(client, [10, 0, 0, 2], client_port, time)
    }

    /// As [`Self::new`], to the server with this address.
    pub(crate) fn to_server(server: [u8; 4], client_port: u16, time: u64) -> HttpConnection {
        HttpConnection::between([10, 0, 0, 1], server, client_port, time)
    }

    fn between(client: [u8; 4], server: [u8; 4], client_port: u16, time: u64) -> HttpConnection {
        let (packets, next) = (Vec::new(), [1_000, 5_000]);
        let mut connection = HttpConnection { packets, client, server, client_port, next };
        connection.packet(time, true, SYN, b"");
        connection.packet(time + 100, false, SYN | ACK, b"");
        connection.packet(time + 200, true, ACK, b"");
        connection
    }

    pub(crate) fn request(&mut self, time: u64, path: &str) {
        let text = format!("GET {path} HTTP/1.1\r\nHost: shop\r\n\r\n");
        self.packet(time, true, ACK, text.as_bytes());
    }

    pub(crate) fn response(&mut self, time: u64, status: &str) {
        let text = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok");
        self.packet(time, false, ACK, text.as_bytes());
    }

    /// A message of another protocol.
    pub(crate) fn message(&mut self, time: u64, is_to_server: bool, bytes: &[u8]) {
        self.packet(time, is_to_server, ACK, bytes);
    }

    /// A response that the capture lost.
    pub(crate) fn lost_response(&mut self) {
        self.response(0, "200 OK");
        self.packets.pop();
    }

    pub(crate) fn into_packets(self) -> Vec<ListedPacket> {
        self.packets
    }

    fn packet(&mut self, time: u64, is_to_server: bool, flags: u8, payload: &[u8]) {
        let own = usize::from(!is_to_server);
        let (client, server) = (self.client, self.server);
        let (ips, ports) = match is_to_server {
            true => ([client, server], [self.client_port, PORT]),
            false => ([server, client], [PORT, self.client_port]),
        };
        let mut bytes = vec![0x45, 0];
        bytes.extend((40 + payload.len() as u16).to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        bytes.extend(ips.concat());
        bytes.extend(ports.map(u16::to_be_bytes).concat());
        bytes.extend(self.next[own].to_be_bytes());
        bytes.extend(self.next[1 - own].to_be_bytes());
        bytes.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        bytes.extend(payload);
        self.next[own] += payload.len() as u32 + u32::from(flags & SYN != 0);
        self.packets.push(ListedPacket { time, link_type: LinkType::RawIp, bytes });
    }
}

/// Packets of several connections in the order of time.
pub(crate) fn by_time(connections: impl IntoIterator<Item = HttpConnection>) -> Vec<ListedPacket> {
    let packets = connections.into_iter().flat_map(HttpConnection::into_packets);
    let mut packets: Vec<ListedPacket> = packets.collect();
    packets.sort_by_key(|packet| packet.time);
    packets
}
