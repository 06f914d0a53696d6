//! Panics in the task of a site: it is run again, and the site has every batch once.

use forward::Forward;
use intake::Supervisor;

use crate::agent::{Folder, caught_up, create, end, put, settings, supervised};
use crate::site::{Fault, Site};

async fn check(point: &str, repeated: u64) {
    let folder = Folder::new();
    create(&folder.0, &journal::Settings::default());
    let supervisor = Supervisor::throwing(&[(point, 2)]);
    let intake = supervised(&folder.0, journal::wall_clock(), supervisor.clone());
    let site = Site::start(|| Fault::None).await;
    (0..3).for_each(|_| put(&intake, 10));
    let settings = settings(&folder.0, &[("a", &site.url)]);
    let forward = Forward::start(settings, std::sync::Arc::clone(&intake)).unwrap();
    let status = caught_up(&forward, 3).await;
    assert_eq!((status.records, status.missing), (3, 0));
    assert_eq!(supervisor.restarts("site a"), 2);
    {
        let state = site.state();
        assert_eq!((state.count, state.order.len(), state.repeated), (30, 3, repeated));
    }
    let audit = intake.audit().unwrap();
    assert!(audit.producers.iter().all(|account| account.is_explained()), "{audit:?}");
    end(forward, intake).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_before_a_parcel_is_sent_repeats_nothing() {
    check("site a", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_behind_an_answer_repeats_what_the_site_knows() {
    check("site a answered", 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_on_which_packing_panics_is_set_aside_and_all_others_come() {
    let folder = Folder::new();
    create(&folder.0, &journal::Settings::default());
    let supervisor = Supervisor::throwing(&[("site a record 1", u32::MAX)]);
    let intake = supervised(&folder.0, journal::wall_clock(), supervisor.clone());
    let site = Site::start(|| Fault::None).await;
    (0..3).for_each(|_| put(&intake, 10));
    let settings = settings(&folder.0, &[("a", &site.url)]);
    let kept = settings.aside.join("a/00000000000000000002.batch");
    let forward = Forward::start(settings, std::sync::Arc::clone(&intake)).unwrap();
    let status = caught_up(&forward, 3).await;
    assert_eq!((status.records, status.set_aside), (2, 1));
    assert!(kept.is_file());
    {
        let state = site.state();
        assert_eq!((state.count, state.gaps.len()), (20, 1));
        let reason = &state.gaps[0].reason;
        assert!(reason.contains("work on it panicked: thrown at site a record 1"), "{reason}");
    }
    assert_eq!(supervisor.quarantined()[0].name, "record 1 on its way to site a");
    assert_eq!(supervisor.restarts("site a"), 0, "the task goes on");
    end(forward, intake).await;
}
