//! Wall clock.

use std::time::SystemTime;

#[test]
fn wall_clock_matches_the_system() {
    for _ in 0..1_000 {
        let before = unix_ns();
        let wall = clock::wall();
        let after = unix_ns();
        // If the clock was set meanwhile, the generation has increased.
        assert!(wall.generation >= 1);
        assert!(wall.generation > 1 || (before - 2_000..=after + 2_000).contains(&wall.unix_ns));
    }
}

fn unix_ns() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as i64
}
