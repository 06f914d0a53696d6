//! Decryption of recorded TLS sessions with the secrets that an end has written to a key log
//! (`SSLKEYLOGFILE`): TLS 1.3, and 1.2 with AES-GCM or ChaCha20-Poly1305.
//!
//! A session is decrypted from its first byte up to the first that is missing or cannot be
//! decrypted; the reason is counted, and the rest is encrypted bytes. A record becomes readable
//! with its last byte; its first byte of plaintext has the time of its first byte. Sources: RFC
//! 8446, RFC 5246, RFC 5288, RFC 7905, RFC 9850.

use std::sync::Arc;

use protocol::observer::{
    ConnectionObserver, FlowDirection, ObservedRequest, ObserverState, OperationSink, PacketTime,
};
use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;

use crate::key_log::{
    DecryptionFailure, HANDSHAKE_SECRETS, KeyLog, MASTER_SECRET, TRAFFIC_SECRETS,
};

/// Bytes of the longest record: 16 KiB, and what encryption adds.
const RECORD_BYTES_MAX: usize = (16 << 10) + 2_048;
/// Bytes of handshake messages that are not complete; those with certificates are the longest.
const HANDSHAKE_BYTES_MAX: usize = 128 << 10;
const CHANGE_CIPHER_SPEC: u8 = 20;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
/// First bytes of a connection of PostgreSQL that asks for TLS; the server answers with one byte.
const POSTGRES_REQUEST: &[u8] = b"\0\0\0\x08\x04\xd2\x16\x2f";
/// Random of a ServerHello that asks for another ClientHello.
const RETRY_RANDOM: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// Algorithms of a cipher suite.
#[derive(Clone, Copy)]
struct CipherSuite {
    aead: &'static aead::Algorithm,
    hash: hmac::Algorithm,
}

impl CipherSuite {
    fn new(number: u16) -> Option<CipherSuite> {
        let (aead, hash) = match number {
            0x1301 | 0xc02b | 0xc02f | 0x009c | 0x009e => (&aead::AES_128_GCM, hmac::HMAC_SHA256),
            0x1302 | 0xc02c | 0xc030 | 0x009d | 0x009f => (&aead::AES_256_GCM, hmac::HMAC_SHA384),
            0x1303 | 0xcca8..=0xccaa => (&aead::CHACHA20_POLY1305, hmac::HMAC_SHA256),
            _ => return None,
        };
        Some(CipherSuite { aead, hash })
    }

    /// HKDF-Expand-Label of TLS 1.3, of at most the size of the hash.
    fn expand(self, secret: &[u8], label: &str, bytes: usize) -> Vec<u8> {
        let mut info = (bytes as u16).to_be_bytes().to_vec();
        info.push(6 + label.len() as u8);
        info.extend(b"tls13 ");
        info.extend(label.as_bytes());
        info.extend([0, 1]);
        let output = hmac::sign(&hmac::Key::new(self.hash, secret), &info);
        output.as_ref()[..bytes.min(output.as_ref().len())].to_vec()
    }

    /// The pseudorandom function of TLS 1.2.
    fn pseudorandom(self, secret: &[u8], seed: &[u8], bytes: usize) -> Vec<u8> {
        let key = hmac::Key::new(self.hash, secret);
        let (mut output, mut a) = (Vec::new(), seed.to_vec());
        while output.len() < bytes {
            a = hmac::sign(&key, &a).as_ref().to_vec();
            output.extend(hmac::sign(&key, &[&a, seed].concat()).as_ref());
        }
        output
    }
}

/// Key of the records of one direction.
struct RecordKey {
    suite: CipherSuite,
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
    /// From which the key was made, in TLS 1.3; `None` in 1.2.
    secret: Option<Vec<u8>>,
}

impl RecordKey {
    fn new(
        suite: CipherSuite,
        key: &[u8],
        iv: &[u8],
        secret: Option<Vec<u8>>,
    ) -> Option<RecordKey> {
        let mut padded = [0; 12];
        padded.get_mut(..iv.len())?.copy_from_slice(iv);
        let key = LessSafeKey::new(UnboundKey::new(suite.aead, key).ok()?);
        Some(RecordKey { suite, key, iv: padded, sequence: 0, secret })
    }

    /// A key of TLS 1.3.
    fn of_secret(suite: CipherSuite, secret: Vec<u8>) -> Option<RecordKey> {
        let key = suite.expand(&secret, "key", suite.aead.key_len());
        let iv = suite.expand(&secret, "iv", 12);
        RecordKey::new(suite, &key, &iv, Some(secret))
    }

    /// Decrypts a record. Returns its type and its plaintext.
    fn open<'a>(&mut self, header: [u8; 5], body: &'a mut [u8]) -> Option<(u8, &'a [u8])> {
        let is_new = self.secret.is_some();
        let has_nonce = !is_new && *self.suite.aead != aead::CHACHA20_POLY1305;
        let mut nonce = self.iv;
        let body = match has_nonce {
            true => {
                let (explicit, rest) = body.split_at_mut_checked(8)?;
                nonce[4..].copy_from_slice(explicit);
                rest
            }
            false => {
                let sequence = self.sequence.to_be_bytes();
                nonce[4..].iter_mut().zip(sequence).for_each(|(byte, of)| *byte ^= of);
                body
            }
        };
        let mut additional = self.sequence.to_be_bytes().to_vec();
        if is_new {
            additional.clear();
        }
        additional.extend(header);
        if !is_new {
            let size = body.len().checked_sub(self.suite.aead.tag_len())?;
            additional[11..].copy_from_slice(&(size as u16).to_be_bytes());
        }
        self.sequence += 1;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let plaintext = self.key.open_in_place(nonce, Aad::from(&additional), body).ok()?;
        if !is_new {
            return Some((header[0], plaintext));
        }
        let end = plaintext.iter().rposition(|byte| *byte != 0)?;
        Some((plaintext[end], &plaintext[..end]))
    }
}

/// Records of one direction.
#[derive(Default)]
struct RecordStream {
    /// A record that is not complete, and the time of its first byte.
    buffer: Vec<u8>,
    start: PacketTime,
    /// Handshake messages that are not complete.
    handshake: Vec<u8>,
    /// Whether records are encrypted.
    is_protected: bool,
    key: Option<RecordKey>,
}

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DecryptionStage {
    /// Its first bytes, of the client.
    Start,
    /// PostgreSQL was asked for TLS.
    Asked,
    Plain,
    Tls,
    Failed,
}

/// Observer of a connection that may be encrypted.
pub(crate) struct TlsDecryptor {
    keys: Arc<KeyLog>,
    inner: Box<dyn ConnectionObserver>,
    stage: DecryptionStage,
    /// Bytes that are not read yet, and their time.
    first: (Vec<u8>, PacketTime),
    client_random: [u8; 32],
    streams: [RecordStream; 2],
    has_plaintext: bool,
    /// Of a connection that TLS does not start: why it is not decrypted.
    plain_failure: Option<DecryptionFailure>,
}

impl TlsDecryptor {
    pub(crate) fn new(
        keys: Arc<KeyLog>,
        inner: Box<dyn ConnectionObserver>,
        is_from_start: bool,
    ) -> TlsDecryptor {
        let (stage, failure) = match is_from_start {
            true => (DecryptionStage::Start, DecryptionFailure::StartTls),
            false => (DecryptionStage::Plain, DecryptionFailure::Midstream),
        };
        TlsDecryptor {
            keys,
            inner,
            stage,
            first: (Vec::new(), 0),
            client_random: [0; 32],
            streams: Default::default(),
            has_plaintext: false,
            plain_failure: Some(failure),
        }
    }

    /// The first bytes of a connection decide whether it starts with TLS.
    fn read_start(
        &mut self,
        direction: FlowDirection,
        time: PacketTime,
        bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) {
        if direction == FlowDirection::ToServer {
            if self.first.0.is_empty() {
                self.first.1 = time;
            }
            self.first.0.extend(bytes);
            let first = &self.first.0;
            if first.first() == Some(&HANDSHAKE) {
                let (first, time) = (std::mem::take(&mut self.first.0), self.first.1);
                self.stage = DecryptionStage::Tls;
                return self.read_records(direction, time, &first, sink);
            }
            if first == POSTGRES_REQUEST {
                self.stage = DecryptionStage::Asked;
                return;
            }
            if !POSTGRES_REQUEST.starts_with(first) {
                self.read_plain(direction, time, &[], sink);
            }
            return;
        }
        match bytes.split_first() {
            Some((b'S', rest)) if self.stage == DecryptionStage::Asked => {
                self.first.0.clear();
                self.stage = DecryptionStage::Tls;
                self.read_records(direction, time, rest, sink);
            }
            _ => self.read_plain(direction, time, bytes, sink),
        }
    }

    fn read_plain(
        &mut self,
        direction: FlowDirection,
        time: PacketTime,
        bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) {
        self.stage = DecryptionStage::Plain;
        let (first, first_time) = (std::mem::take(&mut self.first.0), self.first.1);
        if !first.is_empty() {
            self.inner.read(FlowDirection::ToServer, first_time, &first, sink);
        }
        if !bytes.is_empty() {
            self.inner.read(direction, time, bytes, sink);
        }
        if self.inner.state() == ObserverState::Encrypted
            && let Some(failure) = self.plain_failure.take()
        {
            self.keys.count_failure(failure);
        }
    }

    fn read_records(
        &mut self,
        direction: FlowDirection,
        time: PacketTime,
        mut bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) {
        let index = usize::from(direction == FlowDirection::ToClient);
        while !bytes.is_empty() && self.stage == DecryptionStage::Tls {
            let stream = &mut self.streams[index];
            if stream.buffer.is_empty() {
                stream.start = time;
            }
            let size = match stream.buffer.first_chunk() {
                Some([_, _, _, high, low]) => 5 + usize::from(u16::from_be_bytes([*high, *low])),
                None => 5,
            };
            if size > 5 + RECORD_BYTES_MAX {
                return self.fail(DecryptionFailure::Damaged, sink);
            }
            let taken = bytes.len().min(size - stream.buffer.len());
            let (part, rest) = bytes.split_at(taken);
            stream.buffer.extend(part);
            bytes = rest;
            let header = stream.buffer.first_chunk::<5>().copied();
            let Some(header) = header.filter(|_| size > 5 && stream.buffer.len() == size) else {
                // An empty record.
                if stream.buffer.ends_with(&[0, 0]) && stream.buffer.len() == 5 {
                    stream.buffer.clear();
                }
                continue;
            };
            let mut body = stream.buffer.split_off(5);
            stream.buffer.clear();
            let start = stream.start;
            if let Err(failure) = self.record(index, header, &mut body, (start, time), sink) {
                self.fail(failure, sink);
            }
        }
    }

    fn record(
        &mut self,
        index: usize,
        header: [u8; 5],
        body: &mut [u8],
        times: (PacketTime, PacketTime),
        sink: &mut dyn OperationSink,
    ) -> Result<(), DecryptionFailure> {
        let stream = &mut self.streams[index];
        if header[0] == CHANGE_CIPHER_SPEC {
            // Of TLS 1.2: the keys were made with the ServerHello.
            if let Some(key) = stream.key.as_mut().filter(|key| key.secret.is_none()) {
                key.sequence = 0;
                stream.handshake.clear();
                stream.is_protected = true;
            }
            return Ok(());
        }
        if !stream.is_protected {
            return match header[0] {
                HANDSHAKE => self.handshake(index, body, false),
                APPLICATION_DATA => Err(DecryptionFailure::EarlyData),
                _ => Ok(()),
            };
        }
        let Some(key) = &mut stream.key else { return Err(DecryptionFailure::NoKeys) };
        if key.secret.is_some() && header[0] != APPLICATION_DATA {
            // An alert without a key.
            return Ok(());
        }
        let (kind, plaintext) = key.open(header, body).ok_or(DecryptionFailure::Damaged)?;
        match kind {
            HANDSHAKE => self.handshake(index, plaintext, true),
            APPLICATION_DATA => {
                self.plaintext(index, plaintext, times, sink);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn plaintext(
        &mut self,
        index: usize,
        plaintext: &[u8],
        (start, end): (PacketTime, PacketTime),
        sink: &mut dyn OperationSink,
    ) {
        if !std::mem::replace(&mut self.has_plaintext, true) {
            self.keys.count_session();
        }
        self.keys.count_bytes(plaintext.len() as u64);
        let direction = [FlowDirection::ToServer, FlowDirection::ToClient][index];
        let first = usize::from(start != end).min(plaintext.len());
        for (part, time) in [(&plaintext[..first], start), (&plaintext[first..], end)] {
            if !part.is_empty() {
                self.inner.read(direction, time, part, sink);
            }
        }
    }

    /// Reads the messages of a record of the handshake.
    fn handshake(
        &mut self,
        index: usize,
        bytes: &[u8],
        is_protected: bool,
    ) -> Result<(), DecryptionFailure> {
        self.streams[index].handshake.extend(bytes);
        loop {
            let buffer = &mut self.streams[index].handshake;
            if buffer.len() > HANDSHAKE_BYTES_MAX {
                return Err(DecryptionFailure::Damaged);
            }
            let Some([kind, size @ ..]) = buffer.first_chunk::<4>().copied() else { return Ok(()) };
            let end = 4 + u32::from_be_bytes([0, size[0], size[1], size[2]]) as usize;
            if buffer.len() < end {
                return Ok(());
            }
            let rest = buffer.split_off(end);
            let message = std::mem::replace(buffer, rest);
            self.message(index, kind, &message[4..], is_protected)?;
        }
    }

    fn message(
        &mut self,
        index: usize,
        kind: u8,
        message: &[u8],
        is_protected: bool,
    ) -> Result<(), DecryptionFailure> {
        const CLIENT_HELLO: u8 = 1;
        const SERVER_HELLO: u8 = 2;
        const FINISHED: u8 = 20;
        const KEY_UPDATE: u8 = 24;
        match kind {
            CLIENT_HELLO if is_protected => Err(DecryptionFailure::Renegotiation),
            CLIENT_HELLO => {
                let random = message.get(2..34).and_then(|random| random.try_into().ok());
                self.client_random = random.ok_or(DecryptionFailure::Damaged)?;
                Ok(())
            }
            SERVER_HELLO if !is_protected => {
                let hello = ServerHello::parse(message).ok_or(DecryptionFailure::Damaged)?;
                self.start_keys(&hello)
            }
            FINISHED | KEY_UPDATE if is_protected => self.next_key(index, kind == FINISHED),
            _ => Ok(()),
        }
    }

    fn start_keys(&mut self, hello: &ServerHello) -> Result<(), DecryptionFailure> {
        if hello.random == RETRY_RANDOM {
            return Ok(());
        }
        if !matches!(hello.version, 0x0303 | 0x0304) {
            return Err(DecryptionFailure::Version);
        }
        let suite = CipherSuite::new(hello.suite).ok_or(DecryptionFailure::Cipher)?;
        let keys = Arc::clone(&self.keys);
        let secret =
            |label| keys.secret(self.client_random, label).ok_or(DecryptionFailure::NoKeys);
        let made: [Option<RecordKey>; 2] = if hello.version == 0x0304 {
            let client = secret(HANDSHAKE_SECRETS)?;
            let server = secret(HANDSHAKE_SECRETS + 1)?;
            [client, server].map(|secret| RecordKey::of_secret(suite, secret.to_vec()))
        } else {
            let seed = [&b"key expansion"[..], &hello.random, &self.client_random].concat();
            let key_bytes = suite.aead.key_len();
            let iv_bytes = if *suite.aead == aead::CHACHA20_POLY1305 { 12 } else { 4 };
            let block =
                suite.pseudorandom(secret(MASTER_SECRET)?, &seed, 2 * (key_bytes + iv_bytes));
            let (of_keys, of_ivs) = block.split_at(2 * key_bytes);
            [0, 1].map(|side| {
                let key = &of_keys[side * key_bytes..][..key_bytes];
                let iv = &of_ivs[side * iv_bytes..][..iv_bytes];
                RecordKey::new(suite, key, iv, None)
            })
        };
        for (stream, key) in self.streams.iter_mut().zip(made) {
            stream.is_protected = hello.version == 0x0304;
            stream.key = Some(key.ok_or(DecryptionFailure::Damaged)?);
        }
        Ok(())
    }

    /// The next key of TLS 1.3: that of application data after the handshake, or an updated one.
    fn next_key(&mut self, index: usize, is_finished: bool) -> Result<(), DecryptionFailure> {
        let Some(key) = &self.streams[index].key else { return Ok(()) };
        let Some(secret) = &key.secret else { return Ok(()) };
        let (suite, keys) = (key.suite, &self.keys);
        let next = match is_finished {
            true => keys.secret(self.client_random, TRAFFIC_SECRETS + index).map(<[u8]>::to_vec),
            false => Some(suite.expand(secret, "traffic upd", secret.len())),
        };
        let next = next.ok_or(DecryptionFailure::NoKeys)?;
        let next = RecordKey::of_secret(suite, next).ok_or(DecryptionFailure::Damaged)?;
        self.streams[index].key = Some(next);
        Ok(())
    }

    /// Nothing follows that can be read.
    fn fail(&mut self, failure: DecryptionFailure, sink: &mut dyn OperationSink) {
        self.keys.count_failure(failure);
        self.stage = DecryptionStage::Failed;
        self.streams = Default::default();
        for direction in [FlowDirection::ToServer, FlowDirection::ToClient] {
            self.inner.skip(direction, 1, sink);
        }
        self.inner.abandon(sink);
    }
}

/// Fields of a ServerHello.
struct ServerHello {
    random: [u8; 32],
    version: u16,
    suite: u16,
}

impl ServerHello {
    fn parse(message: &[u8]) -> Option<ServerHello> {
        const SUPPORTED_VERSIONS: u16 = 43;
        let word = |at: usize| Some(u16::from_be_bytes(*message.get(at..)?.first_chunk()?));
        let random = *message.get(2..)?.first_chunk()?;
        let mut at = 35 + usize::from(*message.get(34)?);
        let suite = word(at)?;
        let mut version = word(0)?;
        // Behind the compression and the size of all extensions.
        at += 5;
        while let (Some(kind), Some(size)) = (word(at), word(at + 2)) {
            if kind == SUPPORTED_VERSIONS {
                version = word(at + 4)?;
            }
            at += 4 + usize::from(size);
        }
        Some(ServerHello { random, version, suite })
    }
}

impl ConnectionObserver for TlsDecryptor {
    fn read(
        &mut self,
        direction: FlowDirection,
        time: PacketTime,
        bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) {
        match self.stage {
            DecryptionStage::Start | DecryptionStage::Asked => {
                self.read_start(direction, time, bytes, sink);
            }
            DecryptionStage::Plain => self.read_plain(direction, time, bytes, sink),
            DecryptionStage::Tls => self.read_records(direction, time, bytes, sink),
            DecryptionStage::Failed => {}
        }
    }

    fn skip(&mut self, direction: FlowDirection, missing: u64, sink: &mut dyn OperationSink) {
        match self.stage {
            DecryptionStage::Tls => self.fail(DecryptionFailure::Gap, sink),
            DecryptionStage::Failed => {}
            _ => {
                self.read_plain(direction, 0, &[], sink);
                self.inner.skip(direction, missing, sink);
            }
        }
    }

    fn end(&mut self, sink: &mut dyn OperationSink) {
        if self.stage != DecryptionStage::Failed {
            self.inner.end(sink);
        }
    }

    fn abandon(&mut self, sink: &mut dyn OperationSink) {
        if self.stage != DecryptionStage::Failed {
            self.inner.abandon(sink);
        }
    }

    fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>)) {
        if self.stage != DecryptionStage::Failed {
            self.inner.in_flight(each);
        }
    }

    fn state(&self) -> ObserverState {
        match self.stage {
            DecryptionStage::Failed => ObserverState::Encrypted,
            _ => self.inner.state(),
        }
    }

    fn memory(&self) -> usize {
        let of = |stream: &RecordStream| stream.buffer.capacity() + stream.handshake.capacity();
        let buffers: usize = self.streams.iter().map(of).sum();
        self.inner.memory() + size_of::<TlsDecryptor>() + buffers + self.first.0.capacity()
    }
}
