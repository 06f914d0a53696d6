//! What is held against every protocol: noise.

use super::*;
use crate::schedule::Random;
use crate::session::Ended;

/// Feeds sessions that have one request under way, whose ticket is 7, with noise: from the alphabet, and of all bytes. Nothing may panic,
/// and nothing may end that was not under way.
pub(super) fn noise(alphabet: &[u8], mut make: impl FnMut() -> Box<dyn Session>) {
    let mut random = Random::new(9);
    for round in 0..4_000 {
        let (mut session, mut out, mut ended) = (make(), Vec::new(), Vec::<Ended>::new());
        for _ in 0..random.next() % 20 {
            let length = random.next() % 40;
            let mut byte = || match (random.next(), round % 4) {
                (one, 0) => one as u8,
                (one, _) => alphabet[one as usize % alphabet.len()],
            };
            let bytes: Vec<u8> = (0..length).map(|_| byte()).collect();
            if session.receive(&bytes, &mut out, &mut ended).is_err() {
                break;
            }
        }
        session.close(&mut ended);
        assert!(ended.len() <= 1 && ended.iter().all(|one| one.ticket == 7), "{ended:?}");
    }
}
