//! HTTP relay to a server of this host that answers some requests itself, or not at all.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::environment::wait_until;
use crate::serve::client::request;

/// What happens to a request.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum RelayAction {
    Forward,
    /// The server does not get it; the text is the status line after the version, and headers.
    Respond(&'static str),
    /// The server does not get it, and the connection is closed.
    Cut,
    /// The server gets it, and its response is lost.
    LoseResponse,
    /// Nothing, until the relay is released; then the connection is closed.
    Hold,
}

/// Relay; requests beyond the script are forwarded.
pub(crate) struct ScriptedRelay {
    pub(crate) port: u16,
    state: Arc<RelayState>,
}

struct RelayState {
    server: u16,
    script: Mutex<VecDeque<RelayAction>>,
    held: AtomicUsize,
    released: AtomicUsize,
    /// Of responses that were passed on.
    statuses: Mutex<Vec<u16>>,
}

impl ScriptedRelay {
    pub(crate) fn new(server: u16, script: &[RelayAction]) -> ScriptedRelay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let state = Arc::new(RelayState {
            server,
            script: Mutex::new(script.iter().copied().collect()),
            held: AtomicUsize::new(0),
            released: AtomicUsize::new(0),
            statuses: Mutex::new(Vec::new()),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                // Errors end the connection, as a cut does.
                thread::spawn(move || drop(shared.serve(client)));
            }
        });
        ScriptedRelay { port, state }
    }

    #[track_caller]
    pub(crate) fn wait_held(&self) {
        wait_until("a request is held", || self.state.held.load(Ordering::SeqCst) == 1);
    }

    pub(crate) fn release(&self) {
        self.state.released.store(1, Ordering::SeqCst);
    }

    /// Statuses of the server's responses.
    pub(crate) fn statuses(&self) -> Vec<u16> {
        self.state.statuses.lock().expect("no thread panics with it").clone()
    }

    /// Number of actions that no request had yet.
    pub(crate) fn unused_actions(&self) -> usize {
        self.state.script.lock().expect("no thread panics with it").len()
    }
}

impl RelayState {
    fn serve(&self, client: TcpStream) -> io::Result<()> {
        let mut input = BufReader::new(client.try_clone()?);
        loop {
            let (mut first, mut headers) = (String::new(), Vec::new());
            if input.read_line(&mut first)? == 0 {
                return Ok(());
            }
            loop {
                let mut line = String::new();
                input.read_line(&mut line)?;
                match line.trim_end().split_once(": ") {
                    Some((name, value)) => headers.push((name.to_lowercase(), value.to_owned())),
                    None => break,
                }
            }
            let of = |name: &str| headers.iter().find(|header| header.0 == name);
            let length =
                of("content-length").map_or(0, |(_, length)| length.parse().expect("a number"));
            let mut body = vec![0; length];
            input.read_exact(&mut body)?;
            let mut words = first.split(' ');
            let (method, path) =
                (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let content_type = of("content-type").map_or("", |header| &header.1);
            let forward =
                || request(self.server, method, path, &[("content-type", content_type)], &body);
            // What a command asks before it begins is no part of a script.
            if path == "/v1/status" {
                let response = forward()?;
                let bytes = response.body.len();
                let head =
                    format!("HTTP/1.1 {} -\r\ncontent-length: {bytes}\r\n\r\n", response.status);
                (&client).write_all(&[head.as_bytes(), &response.body].concat())?;
                continue;
            }
            let action = self.script.lock().expect("no thread panics with it").pop_front();
            let (status, body) = match action.unwrap_or(RelayAction::Forward) {
                RelayAction::Forward => {
                    let response = forward()?;
                    let mut statuses = self.statuses.lock().expect("no thread panics with it");
                    statuses.push(response.status);
                    (response.status.to_string() + " -", response.body)
                }
                RelayAction::Respond(head) => {
                    (head.to_owned(), b"{\"error\":\"scripted\"}".to_vec())
                }
                RelayAction::Cut => return Ok(()),
                RelayAction::LoseResponse => return forward().map(drop),
                RelayAction::Hold => {
                    self.held.store(1, Ordering::SeqCst);
                    wait_until("it is released", || self.released.load(Ordering::SeqCst) == 1);
                    return Ok(());
                }
            };
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
            (&client).write_all(&[head.as_bytes(), &body].concat())?;
        }
    }
}
