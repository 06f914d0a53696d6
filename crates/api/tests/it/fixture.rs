//! A server on this host with a store in memory.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{Context, Listen, Server, ServerError, Settings};
use disk::{Disk, SimDisk};
use intake::{Home, Intake, Supervisor};
use model::{Sample, Selector, Value};
use net::tls::ServerTls;
use store::Store;
use tokio::runtime::Runtime;

use crate::client::{Answer, PATIENCE, ask, connect, request};

pub(crate) struct Fixture {
    pub(crate) runtime: Runtime,
    pub(crate) server: Option<Server>,
    pub(crate) intake: Arc<Intake>,
    pub(crate) store: Arc<Store>,
    pub(crate) address: SocketAddr,
}

/// A route that a role offers.
static OFFERED: role::RouteSpec =
    role::RouteSpec { name: "offered", path: "/v1/offered", about: "Seven.", parameters: &[] };

/// Any port of this host.
pub(crate) fn local(tls: Option<ServerTls>) -> Settings {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    Settings { listen: vec![Listen { address, tls }], ..Settings::default() }
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        Fixture::with(local(None))
    }

    pub(crate) fn with(settings: Settings) -> Fixture {
        Fixture::start(settings).unwrap()
    }

    pub(crate) fn start(settings: Settings) -> Result<Fixture, ServerError> {
        Fixture::on(settings, intake::Settings::default())
    }

    /// With what runs threads and tasks again.
    pub(crate) fn supervised(settings: Settings, supervisor: Supervisor) -> Fixture {
        let (way, limits) = (intake::Settings::default(), store::Limits::default());
        Fixture::build(settings, way, limits, supervisor).unwrap()
    }

    /// With a way in of that kind.
    pub(crate) fn on(settings: Settings, way: intake::Settings) -> Result<Fixture, ServerError> {
        Fixture::build(settings, way, store::Limits::default(), Supervisor::default())
    }

    /// With a store of such limits.
    pub(crate) fn limited(
        settings: Settings,
        way: intake::Settings,
        limits: store::Limits,
    ) -> Result<Fixture, ServerError> {
        Fixture::build(settings, way, limits, Supervisor::default())
    }

    fn build(
        settings: Settings,
        way: intake::Settings,
        limits: store::Limits,
        supervisor: Supervisor,
    ) -> Result<Fixture, ServerError> {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        let dir = Path::new("/store");
        Store::create(&disk, dir, &journal::Settings::default()).unwrap();
        let journal = journal::Options { alone: true, supervisor, ..journal::Options::default() };
        let options =
            store::Options { background: false, journal, limits, ..store::Options::default() };
        let store = Arc::new(Store::open(disk, dir, &options).unwrap());
        let home = Home::Store(Arc::clone(&store));
        let intake = Arc::new(Intake::new(home, way).unwrap());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        // Nothing is made there but on request.
        let snapshots = std::env::temp_dir().join(format!("topdeck-{:x}", journal::random_id()));
        let desk = api::DeskSettings { snapshots: Some(snapshots), ..Default::default() };
        let offered = role::Route::new(&OFFERED, |_| Ok(api::json::integer(7)));
        let context = Context::new(Arc::clone(&intake), desk).with_routes(vec![offered]);
        let server = runtime.block_on(Server::start(settings, context))?;
        let address = server.addresses()[0];
        Ok(Fixture { runtime, server: Some(server), intake, store, address })
    }

    /// One request on a connection of its own.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        ask(&mut connect(self.address), &request(method, path, headers, body))
    }

    pub(crate) fn post(&self, path: &str, headers: &str, body: impl AsRef<[u8]>) -> Answer {
        self.ask("POST", path, headers, body.as_ref())
    }

    /// Whether all was answered.
    pub(crate) fn stop(&mut self) -> bool {
        let server = self.server.take().expect("it runs");
        self.runtime.block_on(server.stop(PATIENCE))
    }

    /// All rows of the series that a selector picks.
    pub(crate) fn rows(&self, selector: &str) -> Vec<(String, Sample)> {
        self.store.catch_up().unwrap();
        let view = self.store.view().unwrap();
        let mut rows = Vec::new();
        for found in view.select(&Selector::parse(selector).unwrap()) {
            let name = found.series.to_string();
            let mut each = |sample| rows.push((name.clone(), sample));
            view.samples(&found, i64::MIN..i64::MAX, &mut each).unwrap();
        }
        rows
    }

    /// Single measurements of those: the counts of histograms, one for anything else.
    pub(crate) fn count(&self, selector: &str) -> u64 {
        let count = |value: &Value| match value {
            Value::Histogram(histogram) => histogram.count(),
            Value::Number(_) | Value::Text(_) => 1,
        };
        self.rows(selector).iter().map(|row| count(&row.1.value)).sum()
    }

    /// Bytes of answers that are not read yet.
    pub(crate) fn answers_bytes(&self) -> usize {
        let all = self.intake.meter().now();
        let found = all.iter().find(|measured| measured.name == "topdeck_http_answers_bytes");
        match found.map(|measured| &measured.value) {
            Some(intake::Now::Gauge(bytes)) => *bytes as usize,
            other => panic!("{other:?}"),
        }
    }

    /// What was refused at a bound.
    pub(crate) fn refused(&self, why: &str) -> u64 {
        self.intake.meter().counter("topdeck_http_refused_total", "", &[("why", why)]).get()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.stop();
        }
        self.intake.stop();
    }
}

/// A folder of its own, gone when dropped.
pub(crate) struct Dir(pub(crate) PathBuf);

impl Dir {
    pub(crate) fn new() -> Dir {
        let name = format!("topdeck-api-{:x}", journal::random_id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Dir(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
