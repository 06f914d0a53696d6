//! A client of HTTP/1.1 that sends pipelines. It reads responses with a Content-Length.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Context as _, Result, bail, ensure};

use super::server_process::ADDRESS;

pub(super) struct HttpSession(BufReader<TcpStream>);

/// A request without a body.
pub(super) fn request(method: &str, path: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: {ADDRESS}\r\n\r\n")
}

impl HttpSession {
    pub(super) fn connect(port: u16) -> Result<HttpSession> {
        let stream = TcpStream::connect((ADDRESS, port)).context("cannot connect to the server")?;
        stream.set_nodelay(true)?;
        Ok(HttpSession(BufReader::new(stream)))
    }

    pub(super) fn send(&mut self, requests: &str) -> Result<()> {
        self.0.get_mut().write_all(requests.as_bytes()).context("cannot write to the server")
    }

    /// Status of the next response. That to HEAD has no body.
    pub(super) fn read_response(&mut self, is_head: bool) -> Result<u16> {
        let status = self.read_line()?;
        let Some(code) = status.split(' ').nth(1).and_then(|code| code.parse().ok()) else {
            bail!("the server sent {status:?}");
        };
        let mut length = None;
        loop {
            let line = self.read_line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = Some(value.trim().parse::<u64>().context("an invalid Content-Length")?);
            }
        }
        let length = length.context("a response without a Content-Length")?;
        if !is_head {
            let copied = std::io::copy(&mut (&mut self.0).take(length), &mut std::io::sink())?;
            ensure!(copied == length, "the server sent {copied} of {length} bytes");
        }
        Ok(code)
    }

    fn read_line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line).context("cannot read from the server")?;
        ensure!(line.ends_with('\n'), "the server closed the connection");
        Ok(line.trim_end().to_owned())
    }
}
