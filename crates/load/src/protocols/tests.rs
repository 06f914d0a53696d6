//! Noise, against every protocol.

use super::*;
use crate::codec::{Codec, Completion};
use crate::load_protocol::LoadProtocol;
use crate::rendered_request::RenderedRequest;
use crate::schedule::SplitMix64;

/// Feeds codecs that have request 7 in flight with noise, from the alphabet and from all bytes.
/// Nothing may panic, and only that request may complete.
pub(super) fn noise(alphabet: &[u8], mut make: impl FnMut() -> Box<dyn Codec>) {
    let mut random = SplitMix64::new(9);
    for round in 0..4_000 {
        let (mut codec, mut out, mut completions) = (make(), Vec::new(), Vec::<Completion>::new());
        for _ in 0..random.next() % 20 {
            let length = random.next() % 40;
            let mut byte = || match (random.next(), round % 4) {
                (one, 0) => one as u8,
                (one, _) => alphabet[one as usize % alphabet.len()],
            };
            let bytes: Vec<u8> = (0..length).map(|_| byte()).collect();
            if codec.receive(&bytes, &mut out, &mut completions).is_err() {
                break;
            }
        }
        codec.close(&mut completions);
        assert!(
            completions.len() <= 1 && completions.iter().all(|one| one.request_id == 7),
            "{completions:?}"
        );
    }
}

/// A codec with one request in flight.
fn asked(protocol: &dyn LoadProtocol, body: &[u8]) -> Box<dyn Codec> {
    let mut codec = protocol.codec();
    let (method, path) = ("GET".to_owned(), "/".to_owned());
    let request =
        RenderedRequest { method, path, body: body.to_vec(), ..RenderedRequest::default() };
    codec.send(&request, 7, &mut Vec::new());
    codec
}

#[test]
fn echo_survives_noise() {
    noise(b"ab", || asked(&EchoProtocol, b"abba"));
}

#[test]
fn http1_survives_noise() {
    let protocol = Http1Protocol { authority: "a".to_owned() };
    let alphabet = b"HTTP/1.1 200 100 204\r\nContent-Length: Transfer-Encoding: chunked";
    noise(alphabet, || asked(&protocol, b""));
    // After a valid head, so that bodies and chunks are reached.
    let heads: [&[u8]; 3] = [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ];
    for head in heads {
        noise(b"0123f;\r\n\r\n", || {
            let mut codec = asked(&protocol, b"");
            codec.receive(head, &mut Vec::new(), &mut Vec::new()).unwrap();
            codec
        });
    }
}
