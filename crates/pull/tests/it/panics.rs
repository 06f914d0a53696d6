//! Panics in the task of a job: it is run again, and the attempt that was lost is a gap.

use intake::Supervisor;

use crate::scrapes::{only, scrape};
use crate::world::{Server, World, text};

#[test]
fn a_job_that_panics_goes_on_and_the_attempt_is_missed() {
    let server = Server::new(|_| text("up 1\n"));
    let mut world = World::supervised(Supervisor::throwing(&[("pull", 1)]));
    world.start(&only(scrape(server.url())));
    world.wait("scrape", "well", 2);
    world.stop();
    assert_eq!(world.intake.supervisor().restarts("pull"), 1);
    // On a slow machine some are missed while the panic is being printed.
    let (missed, gaps) = (world.count("scrape", "j", "missed"), world.stored().1);
    let lost: u64 = gaps.iter().filter_map(|gap| gap.lost).sum();
    assert!(missed >= 1 && lost == missed, "{missed} missed, {gaps:?}");
}

#[test]
fn an_attempt_that_panics_is_missed_and_the_next_is_made() {
    let server = Server::new(|_| text("up 1\n"));
    let mut world = World::supervised(Supervisor::throwing(&[("pull attempt", 1)]));
    world.start(&only(scrape(server.url())));
    world.wait("scrape", "well", 2);
    world.stop();
    assert_eq!(world.intake.supervisor().restarts("pull attempt"), 1);
    assert!(world.count("scrape", "j", "missed") >= 1);
}
