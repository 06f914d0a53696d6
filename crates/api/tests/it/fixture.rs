//! Fixture: a server on loopback with an in-memory store.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{Context, IngestFormatRow, ListenSettings, Server, ServerError, Settings};
use disk::Disk;
use intake::{Intake, Supervisor, WriteTarget};
use model::{Sample, SampleValue, Selector};
use net::tls::ServerTls;
use sim::SimDisk;
use store::Store;
use tokio::runtime::Runtime;

use crate::client::{RawResponse, TIMEOUT, connect, exchange, request};

/// What clients sent: the server's own metrics are appended from time to time.
pub(crate) const RECEIVED: &str = r#"{__name__!~"topdeck_.*|process_.*"}"#;

pub(crate) struct ServerFixture {
    pub(crate) runtime: Runtime,
    pub(crate) server: Option<Server>,
    pub(crate) intake: Arc<Intake>,
    pub(crate) store: Arc<Store>,
    pub(crate) address: SocketAddr,
}

/// A route of a role.
static OFFERED: role::RouteSpec = role::RouteSpec {
    name: "offered",
    path: "/v1/offered",
    about: "Seven.",
    parameters: &[],
    format: role::RouteFormat::Json,
};

/// Routes of a role that change something: they answer with what they get.
static OFFERED_WRITES: [role::WriteRouteSpec; 2] = [
    offered_write(role::WriteMethod::Post, "/api/v2/offered", &[]),
    offered_write(
        role::WriteMethod::Delete,
        "/v1/offered/{id}",
        &[role::Parameter::text("id", "an id")],
    ),
];

const fn offered_write(
    method: role::WriteMethod,
    path: &'static str,
    parameters: &'static [role::Parameter],
) -> role::WriteRouteSpec {
    let (about, response) = ("Echo.", "the request");
    let scope = role::WriteScope::Alerts;
    role::WriteRouteSpec { method, path, scope, about, parameters, body: Some("any"), response }
}

fn echo(request: &role::WriteRequest) -> Result<api::json::Json, role::RouteError> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match &*request.body {
        b"bad" => Err(role::RouteError::BadRequest("it is bad".to_owned())),
        b"none" => Ok(api::json::Json::Null),
        body => {
            let (id, token) = (request.query.get("id"), request.token_name.as_deref());
            let said = [id.unwrap_or("-"), token.unwrap_or("-"), &text(body)].join(" ");
            Ok(api::json::Json::Text(said))
        }
    }
}

/// Any loopback port.
pub(crate) fn local_settings(tls: Option<ServerTls>) -> Settings {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    Settings { listen: vec![ListenSettings { address, tls }], ..Settings::default() }
}

impl ServerFixture {
    pub(crate) fn new() -> ServerFixture {
        ServerFixture::with(local_settings(None))
    }

    pub(crate) fn with(settings: Settings) -> ServerFixture {
        ServerFixture::start(settings).unwrap()
    }

    pub(crate) fn start(settings: Settings) -> Result<ServerFixture, ServerError> {
        ServerFixture::with_intake(settings, intake::Settings::default())
    }

    /// With a supervisor.
    pub(crate) fn supervised(settings: Settings, supervisor: Supervisor) -> ServerFixture {
        let (intake_settings, limits) =
            (intake::Settings::default(), store::CardinalityLimits::default());
        ServerFixture::build(settings, intake_settings, limits, supervisor).unwrap()
    }

    /// With intake settings.
    pub(crate) fn with_intake(
        settings: Settings,
        intake_settings: intake::Settings,
    ) -> Result<ServerFixture, ServerError> {
        ServerFixture::build(
            settings,
            intake_settings,
            store::CardinalityLimits::default(),
            Supervisor::default(),
        )
    }

    /// With store limits.
    pub(crate) fn with_store_limits(
        settings: Settings,
        intake_settings: intake::Settings,
        limits: store::CardinalityLimits,
    ) -> Result<ServerFixture, ServerError> {
        ServerFixture::build(settings, intake_settings, limits, Supervisor::default())
    }

    /// With additional ingest formats.
    pub(crate) fn with_formats(formats: &[IngestFormatRow]) -> ServerFixture {
        let (intake_settings, limits) =
            (intake::Settings::default(), store::CardinalityLimits::default());
        let parts = (intake_settings, limits, Supervisor::default());
        ServerFixture::build_with_formats(local_settings(None), parts, formats).unwrap()
    }

    fn build(
        settings: Settings,
        intake_settings: intake::Settings,
        limits: store::CardinalityLimits,
        supervisor: Supervisor,
    ) -> Result<ServerFixture, ServerError> {
        ServerFixture::build_with_formats(settings, (intake_settings, limits, supervisor), &[])
    }

    fn build_with_formats(
        settings: Settings,
        (intake_settings, limits, supervisor): (
            intake::Settings,
            store::CardinalityLimits,
            Supervisor,
        ),
        formats: &[IngestFormatRow],
    ) -> Result<ServerFixture, ServerError> {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        let dir = Path::new("/store");
        Store::create(&disk, dir, &journal::Settings::default()).unwrap();
        let journal =
            journal::Options { is_exclusive: true, supervisor, ..journal::Options::default() };
        let options = store::Options {
            has_background_thread: false,
            journal,
            limits,
            ..store::Options::default()
        };
        let store = Arc::new(Store::open(disk, dir, &options).unwrap());
        let target = WriteTarget::Store(Arc::clone(&store));
        let intake = Arc::new(Intake::new(target, intake_settings).unwrap());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        // The directory is created on the first snapshot.
        let snapshots = std::env::temp_dir().join(format!("topdeck-{:x}", journal::random_id()));
        let query_settings =
            api::QueryServiceSettings { snapshots_dir: Some(snapshots), ..Default::default() };
        let offered = role::Route::new(&OFFERED, |_| Ok(api::json::integer(7)));
        let context = Context::new(Arc::clone(&intake), query_settings).with_routes(vec![offered]);
        let writes = OFFERED_WRITES.iter().map(|spec| role::WriteRoute::new(spec, echo));
        let context = context.with_write_routes(writes.collect()).with_formats(formats);
        let server = runtime.block_on(Server::start(settings, context))?;
        let address = server.addresses()[0];
        Ok(ServerFixture { runtime, server: Some(server), intake, store, address })
    }

    /// One request on a new connection.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> RawResponse {
        exchange(&mut connect(self.address), &request(method, path, headers, body))
    }

    pub(crate) fn post(&self, path: &str, headers: &str, body: impl AsRef<[u8]>) -> RawResponse {
        self.request("POST", path, headers, body.as_ref())
    }

    /// Returns whether all requests were answered.
    pub(crate) fn stop(&mut self) -> bool {
        let server = self.server.take().expect("it runs");
        self.runtime.block_on(server.stop(TIMEOUT))
    }

    /// All points of the selected series.
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

    /// Number of measurements in them: the counts of histograms, one for other kinds.
    pub(crate) fn count(&self, selector: &str) -> u64 {
        let count = |value: &SampleValue| match value {
            SampleValue::Histogram(histogram) => histogram.count(),
            SampleValue::Number(_) | SampleValue::Text(_) => 1,
        };
        self.rows(selector).iter().map(|row| count(&row.1.value)).sum()
    }

    /// Bytes of unread responses.
    pub(crate) fn buffered_response_bytes(&self) -> usize {
        let all = self.intake.meter().snapshot();
        let found =
            all.iter().find(|measured| measured.name == "topdeck_http_response_buffer_bytes");
        match found.map(|measured| &measured.value) {
            Some(intake::SnapshotValue::Gauge(bytes)) => *bytes as usize,
            other => panic!("{other:?}"),
        }
    }

    /// Number of rejections with a reason.
    pub(crate) fn rejected(&self, reason: &str) -> u64 {
        self.intake.meter().counter("topdeck_http_rejected_total", "", &[("reason", reason)]).get()
    }
}

impl Drop for ServerFixture {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.stop();
        }
        self.intake.stop();
    }
}

/// A directory that is removed on drop.
pub(crate) struct TestDir(pub(crate) PathBuf);

impl TestDir {
    pub(crate) fn new() -> TestDir {
        let name = format!("topdeck-api-{:x}", journal::random_id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        TestDir(path)
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
