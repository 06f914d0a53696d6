//! A minimal HTTP/1.1 client without a library.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Read timeout: only a hanging server exceeds it.
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit of a response to an attack; a longer one is a defect.
const RESPONSE_BYTES_MAX: u64 = 256 << 20;

/// A response.
#[derive(Debug)]
pub(super) struct AttackResponse {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

impl AttackResponse {
    /// The start of the body, for messages.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body[..self.body.len().min(300)]).into_owned()
    }

    pub(super) fn json(&self) -> io::Result<serde_json::Value> {
        serde_json::from_slice(&self.body).map_err(|_| io::Error::other(self.text()))
    }
}

/// A persistent connection.
pub(super) struct KeepAliveConnection {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
}

impl KeepAliveConnection {
    pub(super) fn open(address: SocketAddr) -> io::Result<KeepAliveConnection> {
        Ok(KeepAliveConnection { stream: BufReader::new(connect(address)?), address })
    }

    /// Sends a request and returns its response.
    pub(super) fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<AttackResponse> {
        let mut request = request_head(self.address, method, path, headers);
        request.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        let mut request = request.into_bytes();
        request.extend_from_slice(body);
        // The server may respond before it has read the whole request, and stop reading.
        let written = self.stream.get_mut().write_all(&request);
        let answer = self.read_response();
        if answer.is_err() {
            written?;
        }
        answer
    }

    fn read_response(&mut self) -> io::Result<AttackResponse> {
        let status = self.line()?;
        let status = status.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
        let status = status.ok_or_else(|| io::Error::other("not an HTTP response"))?;
        let (mut length, mut is_chunked) = (None, false);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            match line.split_once(':') {
                Some(("content-length", value)) => length = value.trim().parse::<u64>().ok(),
                Some(("transfer-encoding", value)) => is_chunked = value.contains("chunked"),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = Vec::new();
        let reader = &mut self.stream;
        match length {
            _ if status == 204 || status == 304 => {}
            _ if is_chunked => loop {
                let size = self.line()?;
                let size = u64::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
                if body.len() as u64 + size > RESPONSE_BYTES_MAX {
                    return Err(io::Error::other("response size limit exceeded"));
                }
                (&mut self.stream).take(size).read_to_end(&mut body)?;
                self.line()?;
                if size == 0 {
                    break;
                }
            },
            Some(length) => {
                let length = length.min(RESPONSE_BYTES_MAX);
                if (reader.take(length).read_to_end(&mut body)? as u64) < length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            None => drop(reader.take(RESPONSE_BYTES_MAX).read_to_end(&mut body)?),
        }
        Ok(AttackResponse { status, body })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        (&mut self.stream).take(1 << 16).read_until(b'\n', &mut line)?;
        match line.last() {
            Some(b'\n') => Ok(String::from_utf8_lossy(&line).trim_end().to_owned()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// A plain connection with a timeout of [`SILENCE_TIMEOUT`].
pub(super) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, SILENCE_TIMEOUT)?;
    stream.set_read_timeout(Some(SILENCE_TIMEOUT))?;
    stream.set_write_timeout(Some(SILENCE_TIMEOUT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The head of a request without the final empty line.
pub(super) fn request_head(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n");
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    head
}

/// Percent-encodes a query parameter.
pub(super) fn percent_encode(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(one).collect()
}
