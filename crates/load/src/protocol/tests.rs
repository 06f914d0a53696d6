//! What is held against every protocol: noise.

use super::*;
use crate::codec::Ended;
use crate::request::Rendered;
use crate::schedule::Random;

/// Feeds sessions that have one request under way, whose ticket is 7, with noise: from the alphabet, and of all bytes. Nothing may panic,
/// and nothing may end that was not under way.
pub(super) fn noise(alphabet: &[u8], mut make: impl FnMut() -> Box<dyn Codec>) {
    let mut random = Random::new(9);
    for round in 0..4_000 {
        let (mut codec, mut out, mut ended) = (make(), Vec::new(), Vec::<Ended>::new());
        for _ in 0..random.next() % 20 {
            let length = random.next() % 40;
            let mut byte = || match (random.next(), round % 4) {
                (one, 0) => one as u8,
                (one, _) => alphabet[one as usize % alphabet.len()],
            };
            let bytes: Vec<u8> = (0..length).map(|_| byte()).collect();
            if codec.receive(&bytes, &mut out, &mut ended).is_err() {
                break;
            }
        }
        codec.close(&mut ended);
        assert!(ended.len() <= 1 && ended.iter().all(|one| one.ticket == 7), "{ended:?}");
    }
}

/// A codec that has one request under way.
fn asked(protocol: &Protocol, body: &[u8]) -> Box<dyn Codec> {
    let mut codec = protocol.codec();
    let (method, path) = ("GET".to_owned(), "/".to_owned());
    let request = Rendered { method, path, body: body.to_vec(), ..Rendered::default() };
    codec.send(&request, 7, &mut Vec::new());
    codec
}

#[test]
fn noise_ends_no_request_of_an_echo_twice() {
    noise(b"ab", || asked(&Protocol::Echo, b"abba"));
}

#[test]
fn noise_ends_no_request_of_http_twice() {
    let protocol = Protocol::Http1 { authority: "a".to_owned() };
    let alphabet = b"HTTP/1.1 200 100 204\r\nContent-Length: Transfer-Encoding: chunked";
    noise(alphabet, || asked(&protocol, b""));
    // After a head that is right, so that bodies and chunks are reached.
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
