//! Panics in a job's task: the task is restarted, and the lost attempt is a gap.

use intake::Supervisor;

use crate::fixture::{PullFixture, TestTarget, text_response};
use crate::scrapes::{scrape, settings_with};

#[test]
fn panicking_job_continues_and_skips_the_attempt() {
    let server = TestTarget::new(|_| text_response("up 1\n"));
    let mut world = PullFixture::supervised(Supervisor::with_injected_panics(&[("pull", 1)]));
    world.start(&settings_with(scrape(server.url())));
    world.wait("scrape", "success", 2);
    world.stop();
    assert_eq!(world.intake.supervisor().restarts("pull"), 1);
    // On a slow machine, attempts are skipped while the panic is printed.
    let (missed, gaps) = (world.count("scrape", "j", "skipped"), world.stored().1);
    let lost: u64 = gaps.iter().filter_map(|gap| gap.lost).sum();
    assert!(missed >= 1 && lost == missed, "{missed} missed, {gaps:?}");
}

#[test]
fn panicking_attempt_is_skipped_and_the_next_runs() {
    let server = TestTarget::new(|_| text_response("up 1\n"));
    let mut world =
        PullFixture::supervised(Supervisor::with_injected_panics(&[("pull attempt", 1)]));
    world.start(&settings_with(scrape(server.url())));
    world.wait("scrape", "success", 2);
    world.stop();
    assert_eq!(world.intake.supervisor().panics("pull attempt"), 1);
    assert!(world.count("scrape", "j", "skipped") >= 1);
}
