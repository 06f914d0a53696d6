//! A remote without a store: records what it receives and injects faults.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use model::{Batch, BatchSeries, FORWARD_REQUEST_BYTES_MAX, ForwardRequest, Gap, SampleValue};
use net::forward_protocol::{KEY_HEADER, SIGNATURE_HEADER};
use net::signature::{PublicKey, from_hex, verify_signature};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::agent::SeededRng;

/// Fault injected into a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseFault {
    /// No fault.
    None,
    /// Closes the connection after reading the request.
    DropBeforeRead,
    /// Accepts all batches, then closes the connection.
    DropAfterRead,
    /// Responds 500.
    Error,
    /// Accepts half of the batches and responds 429.
    Busy,
    /// Accepts all batches and never responds.
    Hang,
    /// Accepts all batches and responds twice.
    Duplicate,
    /// Reads a corrupted request.
    Corrupt,
    /// Responds 401.
    Unauthorized,
    /// Another program that responds 200 to everything.
    NotTopdeck,
}

pub(crate) const FAULTS: [ResponseFault; 10] = [
    ResponseFault::None,
    ResponseFault::DropBeforeRead,
    ResponseFault::DropAfterRead,
    ResponseFault::Error,
    ResponseFault::Busy,
    ResponseFault::Hang,
    ResponseFault::Duplicate,
    ResponseFault::Corrupt,
    ResponseFault::Unauthorized,
    ResponseFault::NotTopdeck,
];

/// State of the remote, which survives all faults.
#[derive(Debug, Default)]
pub(crate) struct TestRemoteState {
    /// How often each sequence was accepted.
    pub(crate) accepted: BTreeMap<u64, u32>,
    /// In order of acceptance.
    pub(crate) order: Vec<u64>,
    /// Total count of all histograms.
    pub(crate) count: u64,
    pub(crate) samples: u64,
    pub(crate) gaps: Vec<Gap>,
    pub(crate) duplicates: u64,
    pub(crate) requests: u64,
    pub(crate) heads: Vec<String>,
    /// Key of each valid request.
    pub(crate) keys: Vec<PublicKey>,
    /// Sequence that is rejected unless it is a gap.
    pub(crate) rejects: Option<u64>,
    /// Whether it is of a release that reads only batches of version 1.
    pub(crate) reads_no_exemplars: bool,
    last: u64,
}

#[derive(Clone)]
pub(crate) struct TestRemote {
    pub(crate) url: String,
    state: Arc<Mutex<TestRemoteState>>,
    reached: watch::Sender<u64>,
    requests: watch::Sender<u64>,
    next_fault: Arc<Mutex<dyn FnMut() -> ResponseFault + Send>>,
}

impl TestRemote {
    pub(crate) async fn start(next: impl FnMut() -> ResponseFault + Send + 'static) -> TestRemote {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let remote = TestRemote {
            url: format!("http://{}", listener.local_addr().unwrap()),
            state: Arc::default(),
            reached: watch::channel(0).0,
            requests: watch::channel(0).0,
            next_fault: Arc::new(Mutex::new(next)),
        };
        let serving = remote.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let remote = serving.clone();
                // Dropping the connection ends its service.
                tokio::spawn(async move { drop(remote.serve(stream).await) });
            }
        });
        remote
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, TestRemoteState> {
        self.state.lock().unwrap()
    }

    /// Waits until everything below a position has arrived.
    pub(crate) async fn wait_for_position(&self, position: u64) {
        let mut reached = self.reached.subscribe();
        let waiting = reached.wait_for(|&reached| reached >= position);
        tokio::time::timeout(Duration::from_secs(60), waiting)
            .await
            .expect("the condition was not met")
            .unwrap();
    }

    /// Waits for a number of requests.
    pub(crate) async fn wait_for_requests(&self, times: u64) {
        let mut requests = self.requests.subscribe();
        let waiting = requests.wait_for(|&requests| requests >= times);
        tokio::time::timeout(Duration::from_secs(60), waiting)
            .await
            .expect("no further request")
            .unwrap();
    }

    async fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut buffer = Vec::new();
        loop {
            let Some((head, body)) = request(&mut stream, &mut buffer).await? else {
                return Ok(());
            };
            let fault = (self.next_fault.lock().unwrap())();
            let answer = self.respond(head, body, fault);
            self.requests.send_modify(|requests| *requests += 1);
            match fault {
                ResponseFault::DropBeforeRead | ResponseFault::DropAfterRead => return Ok(()),
                ResponseFault::Hang => std::future::pending().await,
                ResponseFault::Duplicate => stream.write_all(answer.repeat(2).as_bytes()).await?,
                _ => stream.write_all(answer.as_bytes()).await?,
            }
        }
    }

    fn respond(&self, head: String, mut body: Vec<u8>, fault: ResponseFault) -> String {
        let mut state = self.state();
        state.requests += 1;
        state.heads.push(head);
        match fault {
            ResponseFault::DropBeforeRead => return String::new(),
            ResponseFault::Error => return respond(500, None, None),
            ResponseFault::Unauthorized => return respond(401, None, None),
            ResponseFault::NotTopdeck => return respond(200, None, None),
            ResponseFault::Corrupt => {
                let middle = body.len() / 2;
                body[middle] ^= 4;
            }
            _ => {}
        }
        let mut bytes = Vec::new();
        let unpacked = zstd::stream::read::Decoder::new(&body[..]).and_then(|decoder| {
            decoder.take(FORWARD_REQUEST_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)
        });
        assert!(bytes.len() <= FORWARD_REQUEST_BYTES_MAX, "a request of {} bytes", bytes.len());
        let forward_request = match (unpacked, ForwardRequest::decode(&bytes)) {
            (Ok(_), Ok(forward_request)) => {
                let key = signed_with(state.heads.last().expect("a head"), &bytes);
                state.keys.push(key);
                forward_request
            }
            _ => return respond(400, None, None),
        };
        let upto = if fault == ResponseFault::Busy {
            forward_request.entries.len() / 2
        } else {
            forward_request.entries.len()
        };
        let (mut accepted, mut refused) = (None, None);
        for &(sequence, batch) in &forward_request.entries[..upto] {
            if !state.accept(sequence, batch) {
                refused = Some(sequence);
                break;
            }
            accepted = Some(sequence);
        }
        self.reached.send_replace(state.last);
        let status = if refused.is_some() {
            400
        } else if fault == ResponseFault::Busy {
            429
        } else {
            200
        };
        let answer = respond(status, accepted, refused);
        match state.reads_no_exemplars && refused.is_some() {
            true => answer.replace("content-length: 4", "content-length: 69").replace(
                "so!",
                "version at byte 1 is 2, expected 1, the version this program reads. ",
            ),
            false => answer,
        }
    }
}

/// Public key that signed a request.
fn signed_with(head: &str, forward_request: &[u8]) -> PublicKey {
    let value = |name| {
        let line = head.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.strip_prefix(": ")).expect("a header").trim()
    };
    let key = from_hex(value(KEY_HEADER)).expect("a key");
    let signature = from_hex(value(SIGNATURE_HEADER)).expect("a signature");
    assert!(verify_signature(forward_request, &key, &signature), "an unsigned request");
    key
}

impl TestRemoteState {
    fn accept(&mut self, sequence: u64, batch: &[u8]) -> bool {
        if self.reads_no_exemplars && batch[1] != 1 {
            return false;
        }
        let batch = Batch::decode(batch.to_owned()).expect("the batch is valid");
        if self.rejects == Some(sequence) && batch.samples() > 0 {
            return false;
        }
        if sequence <= self.last {
            self.duplicates += 1;
            return true;
        }
        self.last = sequence;
        *self.accepted.entry(sequence).or_default() += 1;
        self.order.push(sequence);
        let mut reader = batch.read();
        for entry in reader.by_ref() {
            let entry = entry.unwrap();
            assert!(matches!(entry.series, BatchSeries::Key(_)), "a number means nothing here");
            self.samples += 1;
            if let SampleValue::Histogram(histogram) = entry.decode().unwrap() {
                self.count += histogram.count();
            }
        }
        self.gaps.extend_from_slice(reader.gaps());
        true
    }
}

fn respond(status: u16, accepted: Option<u64>, refused: Option<u64>) -> String {
    let header = |name: &str, number: Option<u64>| {
        number.map_or(String::new(), |number| format!("{name}: {number}\r\n"))
    };
    format!(
        "HTTP/1.1 {status} it\r\n{}{}content-length: 4\r\n\r\nso!\n",
        header("topdeck-accepted", accepted),
        header("topdeck-refused", refused)
    )
}

/// Head and body of a request; `None` if the peer has closed the connection.
async fn request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let end = |buffer: &[u8]| buffer.windows(4).position(|four| four == b"\r\n\r\n");
    let head = loop {
        match end(buffer) {
            Some(at) => break at + 4,
            None if stream.read_buf(buffer).await? == 0 => return Ok(None),
            None => {}
        }
    };
    let text = String::from_utf8_lossy(&buffer[..head]).to_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.expect("a length").trim().parse().expect("a number");
    while buffer.len() < head + length {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let body = buffer[head..head + length].to_vec();
    buffer.drain(..head + length);
    Ok(Some((text, body)))
}

/// Random faults, up to a number; then none.
pub(crate) fn random_faults(
    mut dice: SeededRng,
    mut faults: u32,
) -> impl FnMut() -> ResponseFault + Send {
    move || {
        if faults == 0 || dice.below(3) == 0 {
            return ResponseFault::None;
        }
        faults -= 1;
        FAULTS[dice.below(FAULTS.len() as u64) as usize]
    }
}

/// The given faults in order; then none.
pub(crate) fn fault_sequence(
    faults: &[ResponseFault],
) -> impl FnMut() -> ResponseFault + Send + use<> {
    let mut faults = VecDeque::from(faults.to_vec());
    move || faults.pop_front().unwrap_or(ResponseFault::None)
}
