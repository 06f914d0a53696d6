//! Whatever fails, each batch is at each site once.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use forward::Forward;
use intake::{Home, Intake};

use crate::agent::{Dice, Folder, caught_up, create, end, latencies, open, put, settings};
use crate::site::{Fault, Site, by_dice, these};

fn check_whole(site: &Site, batches: u64, count: u64) {
    let state = site.state();
    assert_eq!(state.count, count, "values at the site");
    assert_eq!(state.order, (1..=batches).collect::<Vec<_>>(), "each once, in order");
    assert!(state.taken.values().all(|&times| times == 1));
    assert!(state.gaps.is_empty(), "{:?}", state.gaps);
}

/// Faults of all kinds, a sender that is started anew in the middle, a clock that jumps.
async fn ordeal(seed: u64) {
    let mut dice = Dice(seed);
    let folder = Folder::new();
    create(&folder.0, &journal::Settings::default());
    let site = Site::start(by_dice(Dice(seed ^ 77), 25)).await;
    let settings = settings(&folder.0, &[("a", &site.url)]);
    let time = Arc::new(AtomicI64::new(1_000_000_000_000));
    let mut count = 0;
    let mut batches = 0;
    for _ in 0..3 {
        let clock = Arc::clone(&time);
        let intake = open(&folder.0, Arc::new(move || clock.load(Ordering::Relaxed)));
        let forward = Forward::start(settings.clone(), Arc::clone(&intake)).unwrap();
        for _ in 0..10 + dice.roll(10) {
            let values = 1 + dice.roll(50);
            let intake = Arc::clone(&intake);
            tokio::task::spawn_blocking(move || put(&intake, values)).await.unwrap();
            (count, batches) = (count + values, batches + 1);
            // Back as well as forth.
            time.fetch_add(dice.roll(2_000_000_000) as i64 - 1_000_000_000, Ordering::Relaxed);
        }
        // In the middle of whatever it does.
        end(forward, intake).await;
    }
    let intake = open(&folder.0, journal::wall_clock());
    let forward = Forward::start(settings, Arc::clone(&intake)).unwrap();
    site.reaches(batches).await;
    caught_up(&forward, batches).await;
    let audit = intake.audit().unwrap();
    let line = audit.producers[0].lines.last().unwrap();
    assert_eq!((&*line.hop, line.stored.values, line.difference), ("site a", count, 0), "{line:?}");
    assert_eq!(line.why, "all of the journal is there");
    end(forward, intake).await;
    check_whole(&site, batches, count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_batch_arrives_once_whatever_the_site_does() {
    let runs: Vec<_> = (0..8).map(|seed| tokio::spawn(ordeal(seed))).collect();
    for (seed, run) in runs.into_iter().enumerate() {
        assert!(run.await.is_ok(), "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_that_hangs_holds_up_no_other() {
    let folder = Folder::new();
    create(&folder.0, &journal::Settings::default());
    let hung = Site::start(|| Fault::Hang).await;
    let fine = Site::start(|| Fault::None).await;
    let mut settings = settings(&folder.0, &[("hung", &hung.url), ("fine", &fine.url)]);
    settings.answer_max = Duration::from_secs(3600);
    let intake = open(&folder.0, journal::wall_clock());
    let forward = Forward::start(settings, Arc::clone(&intake)).unwrap();
    for batch in 1..=20 {
        put(&intake, 3);
        fine.reaches(batch).await;
    }
    check_whole(&fine, 20, 60);
    hung.asked(1).await;
    let status = forward.status();
    assert_eq!((status[0].name.as_str(), status[0].position), ("hung", 0));
    assert_eq!(status[0].lag, 20);
    assert!(status[0].connected.is_some() && status[0].oldest.is_some());
    // Though it hangs.
    end(forward, intake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_let_in_says_so_and_loses_nothing() {
    let folder = Folder::new();
    create(&folder.0, &journal::Settings::default());
    let site = Site::start(these(&[Fault::Unauthorized; 3])).await;
    let mut settings = settings(&folder.0, &[("a", &site.url)]);
    let intake = open(&folder.0, journal::wall_clock());
    put(&intake, 5);
    // Patient, so that the trouble is there to be seen.
    settings.retry = (Duration::from_secs(3600), Duration::from_secs(3600));
    let forward = Forward::start(settings.clone(), Arc::clone(&intake)).unwrap();
    site.asked(1).await;
    let trouble = loop {
        match forward.status().remove(0).trouble {
            Some((_, why)) => break why,
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(trouble, "401: so!");
    // A wait of an hour does not hold up a stop.
    end(forward, intake).await;
    settings.retry = (Duration::from_millis(1), Duration::from_millis(2));
    let intake = open(&folder.0, journal::wall_clock());
    let forward = Forward::start(settings, Arc::clone(&intake)).unwrap();
    site.reaches(1).await;
    end(forward, intake).await;
    check_whole(&site, 1, 5);
    let heads = site.state().heads.clone();
    for expected in [
        "post /v1/batches http/1.1",
        "authorization: bearer secret",
        "topdeck-agent: here",
        "content-encoding: zstd",
        "content-type: application/vnd.topdeck.parcel",
    ] {
        assert!(heads[0].contains(expected), "{expected} in {}", heads[0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_with_time_sends_what_is_left() {
    let folder = Folder::new();
    create(&folder.0, &journal::Settings::default());
    let site = Site::start(|| Fault::None).await;
    let mut settings = settings(&folder.0, &[("a", &site.url)]);
    settings.grace = Duration::from_secs(60);
    let intake = open(&folder.0, journal::wall_clock());
    let forward = Forward::start(settings, Arc::clone(&intake)).unwrap();
    (0..30).for_each(|_| put(&intake, 2));
    end(forward, intake).await;
    check_whole(&site, 30, 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_site_is_named_until_its_subscriber_is_removed() {
    let folder = Folder::new();
    create(&folder.0, &journal::Settings::default());
    let site = Site::start(|| Fault::None).await;
    let both = settings(&folder.0, &[("a", &site.url), ("b", "http://127.0.0.1:1")]);
    let one = settings(&folder.0, &[("a", &site.url)]);
    let intake = open(&folder.0, journal::wall_clock());
    Forward::start(both, Arc::clone(&intake)).unwrap().stop().await;
    put(&intake, 1);
    let forward = Forward::start(one, Arc::clone(&intake)).unwrap();
    let orphans = forward.orphans().unwrap();
    let found: Vec<_> = orphans.iter().map(|it| (it.name.as_str(), it.position, it.lag)).collect();
    assert_eq!(found, [("b", 0, 1)]);
    intake.home().journal().remove_checkpoint("site b").unwrap();
    assert!(forward.orphans().unwrap().is_empty());
    end(forward, intake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_a_store_go_as_forms() {
    let folder = Folder::new();
    let disk: Arc<dyn disk::Disk> = Arc::new(disk::OsDisk);
    let place = folder.0.join("store");
    store::Store::create(&disk, &place, &journal::Settings::default()).unwrap();
    let opened = store::Store::open(disk, &place, &store::Options::default()).unwrap();
    let home = Home::Store(Arc::new(opened));
    // Only what is put is counted: topdeck's own measurements do not go into the journal.
    let own = intake::Settings { interval: Duration::MAX, ..Default::default() };
    let intake = Arc::new(Intake::new(home, own).unwrap());
    // The first has the form, the others the number; the site's `take` looks.
    (0..5).for_each(|_| put(&intake, 4));
    assert_ne!(intake.home().store().unwrap().form(&latencies().id()), None);
    let site = Site::start(|| Fault::None).await;
    let settings = settings(&folder.0, &[("a", &site.url)]);
    let forward = Forward::start(settings, Arc::clone(&intake)).unwrap();
    site.reaches(5).await;
    end(forward, intake).await;
    check_whole(&site, 5, 20);
}
