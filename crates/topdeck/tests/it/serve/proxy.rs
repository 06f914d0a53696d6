//! TCP proxy between a client and a server that can be disconnected.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Forwards bytes while it is connected.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    is_disconnected: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// Proxy to a port of this host.
    pub(crate) fn new(port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let own = listener.local_addr().expect("it has an address").port();
        let (is_cut, open) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let link =
            Proxy { port: own, is_disconnected: Arc::clone(&is_cut), open: Arc::clone(&open) };
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if !is_cut.load(Ordering::SeqCst) {
                    // On failure the connection is closed, as by a disconnect.
                    let _ = forward(client, port, &open);
                }
            }
        });
        link
    }

    /// Data in transit is lost, and new connections fail.
    pub(crate) fn disconnect(&self) {
        self.is_disconnected.store(true, Ordering::SeqCst);
        for stream in self.open.lock().expect("no thread panics with it").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn reconnect(&self) {
        self.is_disconnected.store(false, Ordering::SeqCst);
    }
}

fn forward(client: TcpStream, port: u16, open: &Mutex<Vec<TcpStream>>) -> io::Result<()> {
    let server = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    let mut held = open.lock().expect("no thread panics with it");
    held.push(client.try_clone()?);
    held.push(server.try_clone()?);
    drop(held);
    let (there, back) = ((client.try_clone()?, server.try_clone()?), (server, client));
    for (mut from, mut to) in [there, back] {
        thread::spawn(move || {
            let mut buffer = [0; 16 << 10];
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                if to.write_all(&buffer[..n]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}
