//! Servers that extensions connect to: they answer until the process ends.

use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use anyhow::{Context as _, Result};

/// An HTTP server whose responses have the header `x-shard`. Returns its address.
pub(super) fn http_server() -> Result<String> {
    serve(|stream, line| {
        // The end of a request without a body.
        if line.is_empty() {
            stream.write_all(b"HTTP/1.1 200 OK\r\nx-shard: a\r\ncontent-length: 0\r\n\r\n")?;
        }
        Ok(())
    })
}

/// A cache that has all keys. Returns its address.
pub(super) fn cache_server() -> Result<String> {
    serve(|stream, line| {
        let is_command = ["get ns:", "set ns:"].iter().any(|start| line.starts_with(start));
        stream.write_all(if is_command { b"1\n" } else { b"ERROR unknown command\n" })
    })
}

/// Calls `respond` with each line that a client sends.
fn serve(respond: fn(&mut TcpStream, &str) -> std::io::Result<()>) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on 127.0.0.1")?;
    let address = listener.local_addr()?.to_string();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut writer = stream.try_clone()?;
                for line in BufReader::new(stream).lines() {
                    respond(&mut writer, &line?)?;
                }
                std::io::Result::Ok(())
            });
        }
    });
    Ok(address)
}
