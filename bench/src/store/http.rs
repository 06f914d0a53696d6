//! Minimal HTTP/1.1 client for a local benchmark: one persistent connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Longer than any valid response takes, so that a hanging server ends the run.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A connection to a server on this machine.
pub(crate) struct BenchConnection {
    stream: BufReader<TcpStream>,
    port: u16,
}

/// A response.
pub(crate) struct BenchResponse {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl BenchResponse {
    /// The body of a successful response.
    pub(crate) fn into_body(self) -> Result<Vec<u8>> {
        match self.status {
            200..=299 => Ok(self.body),
            status => bail!("status {status}: {}", self.text()),
        }
    }

    /// The start of the body, on one line.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body[..self.body.len().min(200)]).replace('\n', " ")
    }
}

impl BenchConnection {
    pub(crate) fn open(port: u16) -> Result<BenchConnection> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("connecting")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(BenchConnection { stream: BufReader::with_capacity(1 << 16, stream), port })
    }

    pub(crate) fn get(&mut self, path: &str) -> Result<BenchResponse> {
        self.request("GET", path, "", &[])
    }

    /// `headers` are complete lines.
    pub(crate) fn post(&mut self, path: &str, headers: &str, body: &[u8]) -> Result<BenchResponse> {
        self.request("POST", path, headers, body)
    }

    fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> Result<BenchResponse> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n{headers}Content-Length: {}\r\n\r\n",
            self.port,
            body.len()
        );
        self.stream.get_mut().write_all(head.as_bytes())?;
        self.stream.get_mut().write_all(body)?;
        self.read_response().with_context(|| format!("{method} {path}"))
    }

    fn read_response(&mut self) -> Result<BenchResponse> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.with_context(|| format!("no HTTP: {first:?}"))?;
        let (mut length, mut chunked) = (0, false);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(text) = line.strip_prefix("content-length:") {
                length = text.trim().parse()?;
            }
            chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
        }
        let mut body = Vec::new();
        if !chunked {
            body.resize(length, 0);
            self.stream.read_exact(&mut body)?;
            return Ok(BenchResponse { status, body });
        }
        loop {
            let line = self.line()?;
            let size = usize::from_str_radix(line.split(';').next().unwrap_or("").trim(), 16)?;
            let start = body.len();
            body.resize(start + size, 0);
            self.stream.read_exact(&mut body[start..])?;
            self.line()?;
            if size == 0 {
                return Ok(BenchResponse { status, body });
            }
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            bail!("the server closed the connection");
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

/// Percent-encodes a query for a URL.
pub(crate) fn percent_encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let escape = |byte: u8| match plain(byte) {
        true => (byte as char).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn answers_of_known_length_and_in_chunks_are_read() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 4096];
            let _ = stream.read(&mut asked).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc").unwrap();
            let _ = stream.read(&mut asked).unwrap();
            stream
                .write_all(
                    b"HTTP/1.1 400 Bad\r\nTransfer-Encoding: \
                             chunked\r\n\r\n2\r\nde\r\n1\r\nf\r\n0\r\n\r\n",
                )
                .unwrap();
        });
        let mut connection = BenchConnection::open(port).unwrap();
        assert_eq!(connection.get("/").unwrap().into_body().unwrap(), b"abc");
        let bad = connection.get("/").unwrap();
        assert_eq!((bad.status, &bad.body[..]), (400, &b"def"[..]));
        server.join().unwrap();
    }

    #[test]
    fn queries_are_escaped() {
        assert_eq!(percent_encode("sum(a{b=\"c\"}[1m])"), "sum%28a%7Bb%3D%22c%22%7D%5B1m%5D%29");
    }
}
