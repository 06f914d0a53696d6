//! Kernel drops of a UDP socket: last column of /proc/net/udp. Option SO_RXQ_OVFL reports the same
//! number with each datagram; this module reads it once per interval.

use std::fs;
use std::io;
use std::net::UdpSocket;

#[derive(Debug)]
pub(crate) struct SocketDrops {
    inode: u64,
    table: &'static str,
    last: u32,
}

impl SocketDrops {
    pub(crate) fn for_socket(socket: &UdpSocket) -> io::Result<SocketDrops> {
        let is_v6 = socket.local_addr()?.is_ipv6();
        let table = if is_v6 { "/proc/thread-self/net/udp6" } else { "/proc/thread-self/net/udp" };
        let mut drops = SocketDrops { inode: rustix::fs::fstat(socket)?.st_ino, table, last: 0 };
        drops.last = drops.read()?;
        Ok(drops)
    }

    fn read(&self) -> io::Result<u32> {
        let text = fs::read_to_string(self.table)?;
        parse_drops(&text, self.inode).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("{} does not list the socket", self.table),
            )
        })
    }

    /// Datagrams dropped since the last call.
    pub(crate) fn take_new(&mut self) -> io::Result<u64> {
        let now = self.read()?;
        let more = now.wrapping_sub(self.last);
        self.last = now;
        Ok(more.into())
    }
}

/// `sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode ref
/// pointer drops`
fn parse_drops(table: &str, inode: u64) -> Option<u32> {
    let mut lines = table.lines().skip(1).map(|line| line.split_ascii_whitespace());
    lines.find_map(|mut fields| {
        let is_it = fields.nth(9)?.parse() == Ok(inode);
        fields.nth(2).filter(|_| is_it)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_column_is_parsed() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when \
                     retrnsmt   \
                     uid  timeout inode ref pointer drops\n211: 0100007F:1FBD 00000000:0000 07 \
                     00000000:00000000 00:00000000 00000000     0        0 4711 2 \
                     0000000000000000 17\n212: 0100007F:1FBE 00000000:0000 07 00000000:00000000 \
                     00:00000000 00000000     0        0 4712 2 0000000000000000 4294967295\n";
        assert_eq!(parse_drops(table, 4711), Some(17));
        assert_eq!(parse_drops(table, 4712), Some(u32::MAX));
        assert_eq!(parse_drops(table, 17), None);
        assert_eq!(parse_drops("", 0), None);
    }

    #[test]
    fn kernel_reports_drops() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(SocketDrops::for_socket(&socket).unwrap().take_new().unwrap(), 0);
    }

    #[test]
    fn kernel_reports_drops_for_ipv6() {
        let Ok(socket) = UdpSocket::bind("[::1]:0") else {
            println!("skipped: there is no IPv6 here");
            return;
        };
        assert_eq!(SocketDrops::for_socket(&socket).unwrap().take_new().unwrap(), 0);
    }
}
