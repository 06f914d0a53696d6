//! Mail server on loopback that accepts everything, and the messages that arrived at it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A running mail server; it runs until the test ends.
pub(super) struct MailServer {
    pub(super) address: SocketAddr,
    messages: Arc<Mutex<Vec<String>>>,
}

impl MailServer {
    pub(super) fn start() -> MailServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let messages: Arc<Mutex<Vec<String>>> = Arc::default();
        let received = Arc::clone(&messages);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let received = Arc::clone(&received);
                // The server may be killed within a session.
                std::thread::spawn(move || serve(stream.ok()?, &received).ok());
            }
        });
        MailServer { address, messages }
    }

    /// Messages so far, with their headers.
    pub(super) fn messages(&self) -> Vec<String> {
        self.messages.lock().expect("no thread panicked").clone()
    }
}

fn serve(stream: TcpStream, messages: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut answer = stream.try_clone()?;
    answer.write_all(b"220 ready\r\n")?;
    let mut message: Option<String> = None;
    for line in BufReader::new(stream).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        let line = line.trim_end_matches('\r');
        match &mut message {
            Some(text) if line == "." => {
                messages.lock().expect("no thread panicked").push(text.clone());
                message = None;
                answer.write_all(b"250 accepted\r\n")?;
            }
            Some(text) => text.extend([line, "\n"]),
            None if line == "DATA" => {
                message = Some(String::new());
                answer.write_all(b"354 go on\r\n")?;
            }
            None => answer.write_all(b"250 ok\r\n")?,
        }
    }
    Ok(())
}
