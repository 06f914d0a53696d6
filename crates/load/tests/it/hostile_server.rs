//! Servers that misbehave.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use socket2::Socket;

pub(crate) const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Shutdown signal of a server.
#[derive(Default)]
pub(crate) struct ServerState {
    has_come: Mutex<bool>,
    comes: Condvar,
}

impl ServerState {
    pub(crate) fn has_come(&self) -> bool {
        self.wait_for(Duration::ZERO)
    }

    pub(crate) fn wait(&self) {
        self.wait_for(Duration::MAX);
    }

    /// Waits for it; returns whether it came.
    pub(crate) fn wait_for(&self, length: Duration) -> bool {
        let guard = self.has_come.lock().unwrap();
        if length == Duration::MAX {
            return *self.comes.wait_while(guard, |has_come| !*has_come).unwrap();
        }
        *self.comes.wait_timeout_while(guard, length, |has_come| !*has_come).unwrap().0
    }

    pub(crate) fn come(&self) {
        *self.has_come.lock().unwrap() = true;
        self.comes.notify_all();
    }
}

/// A server with the same behaviour on each connection, in a thread for each.
pub(crate) struct HostileServer {
    pub(crate) address: SocketAddr,
    end: Arc<ServerState>,
}

impl HostileServer {
    pub(crate) fn start(
        each: impl Fn(TcpStream, &ServerState) + Send + Sync + 'static,
    ) -> HostileServer {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        HostileServer::on(listener, each)
    }

    pub(crate) fn on(
        listener: TcpListener,
        each: impl Fn(TcpStream, &ServerState) + Send + Sync + 'static,
    ) -> HostileServer {
        let (address, end) = (listener.local_addr().unwrap(), Arc::new(ServerState::default()));
        let (ends, each) = (end.clone(), Arc::new(each));
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                if ends.has_come() {
                    return;
                }
                let (ends, each) = (ends.clone(), each.clone());
                thread::spawn(move || each(socket, &ends));
            }
        });
        HostileServer { address, end }
    }
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        self.end.come();
        // Wakes up accept.
        let _ = TcpStream::connect(self.address);
    }
}

/// Holds a connection without using it.
pub(crate) fn hold(_socket: &TcpStream, end: &ServerState) {
    end.wait();
}

/// Reads until the head of a request is complete. Returns whether it is.
pub(crate) fn read_head(socket: &mut TcpStream) -> bool {
    let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match socket.read(&mut buffer) {
            Ok(length) if length > 0 => head.extend_from_slice(&buffer[..length]),
            _ => return false,
        }
    }
    true
}

/// Closes a connection with a reset.
pub(crate) fn reset(socket: TcpStream) {
    let socket = Socket::from(socket);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
}
