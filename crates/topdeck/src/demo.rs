//! `topdeck demo`: a server in a temporary directory, with a made-up shop.
//!
//! The crate `demo` has the data of the shop. The directory is removed at the end.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use client::{ProgressLine, print_message, print_stdout, private_dir};
use demo::{HistoryProgress, ShopWriter};
use intake::Intake;
use net::forward_protocol::PORT;
use role::NodeMode;
use tokio::runtime;

use crate::node::{Node, ROLES};
use crate::serve::{ServiceEvent, Signals};
use crate::settings::Settings;

/// Start a server with a made-up shop, to look around
///
/// The server runs in a temporary directory, which is removed at the end, and listens on loopback
/// only. It has a week of requests of five services in two regions, an incident three hours ago
/// with its alerts, the statements of a database, two load tests, counters, gauges, texts,
/// annotations, a dashboard, alert rules, two SLOs, a scrape and a check; new data arrive every ten
/// seconds. Stop it with ctrl-C.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Port on 127.0.0.1; 0 selects a free one [default: 7717, or a free one if it is in use]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
}

const AFTER: &str = "\
Examples:
  topdeck demo
  topdeck query 'sum by (service) (histogram_count_above(800ms, exact_increase(request_duration[1h])))'
  topdeck breakdown 'request_duration{service=\"payment\"}' --above 800ms --from -4h

Exit status:
  0  stopped by a signal
  1  it could not start, or failed
  2  usage error";

/// Directory that is removed when the demonstration ends, however it ends.
struct DemoDir(PathBuf);

impl Drop for DemoDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            print_message(format_args!("cannot remove {}: {error}", self.0.display()));
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let name = format!("topdeck-demo-{:016x}", journal::random_id() as u64);
    let directory = DemoDir(std::env::temp_dir().join(name));
    private_dir(&directory.0)?;
    let port = listen_port(options.port)?;
    let settings = Settings::parse(&demo::settings_text(port), &directory.0, ROLES)
        .map_err(|problems| anyhow!("BUG: invalid settings of the demonstration: {problems}"))?;
    demo::write_files(&directory.0)?;
    print_message("creating a server with a made-up shop: a week of requests, an incident, alerts");
    heap::configure_allocator();
    let runtime = runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    runtime.block_on(run_until_stopped(settings, &directory.0))?;
    Ok(ExitCode::SUCCESS)
}

async fn run_until_stopped(settings: Settings, directory: &Path) -> Result<()> {
    let mut signals = Signals::new()?;
    // Appending may wait for the disk.
    let write = |intake: &Arc<Intake>| {
        let mut shown = ShownProgress::default();
        let writer = ShopWriter::new(Arc::clone(intake));
        tokio::task::block_in_place(|| writer.write_history(directory, &mut |at| shown.show(at)))
    };
    let (node, (writer, mut written_end)) =
        Node::start_with_history(NodeMode::Serve, settings, directory, write).await?;
    print_stdout(welcome_text(&node.url(), directory, &writer).as_bytes())?;
    let mut tick = tokio::time::interval(ShopWriter::INTERVAL);
    loop {
        tokio::select! {
            event = signals.next() => match event {
                ServiceEvent::Stop => break,
                ServiceEvent::Reload => {}
            },
            _ = tick.tick() => {
                tokio::task::block_in_place(|| writer.write_until_now(&mut written_end))?;
            }
        }
    }
    drop(writer);
    print_message("stopping");
    node.stop().await
}

/// Progress of the history: a line that is overwritten on a terminal, else a line for each part.
#[derive(Default)]
struct ShownProgress {
    line: ProgressLine,
    what: Option<&'static str>,
}

impl ShownProgress {
    fn show(&mut self, HistoryProgress { what, share }: HistoryProgress) {
        if self.what.replace(what) != Some(what) {
            self.line.clear();
            print_message(format_args!("made-up shop: writing {what}"));
        }
        self.line.show(|elapsed| {
            format!("{:3.0} % after {:.1} s", share * 100.0, elapsed.as_secs_f64())
        });
    }
}

/// The default port if it is free, so that commands find the server without an address.
fn listen_port(port: Option<u16>) -> Result<u16> {
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let listener = match port {
        Some(port) => bind(port).map_err(|error| {
            let remedy = match error.kind() {
                std::io::ErrorKind::AddrInUse => "; omit --port for a free one",
                _ => "",
            };
            anyhow!("cannot listen on 127.0.0.1:{port}: {error}{remedy}")
        })?,
        None => bind(PORT).or_else(|_| bind(0)).context("cannot listen on 127.0.0.1")?,
    };
    Ok(listener.local_addr()?.port())
}

fn welcome_text(url: &str, directory: &Path, shop: &ShopWriter) -> String {
    let incident = shop.incident();
    let time = render::time::precise_time_text;
    let server = match url.ends_with(&format!(":{PORT}")) {
        true => String::new(),
        false => format!(" --server {url}"),
    };
    format!(
        "\
topdeck demo: {url}
A made-up shop in {}; ctrl-C ends it and removes the directory.

What to look at first:
  {url}/
      the overview: which service was slow today, how many requests, when, and what next
  {url}/#/explore?from=-6h&selector=request_duration{{service=%22payment%22}}&threshold=800ms&v=2
      payments of the last six hours: a second band of slow ones, from {} to {}.
      Press Who?, or drag a rectangle around it: version 3.8.0 on host pay-2 in region eu.
  {url}/#/explore?from=-7d&selector=request_duration&v=2
      a week of all requests, without averages: days, nights, and the modes of each service.
  {url}/#/dashboards?dashboard=shop&from=-6h&v=2
      a dashboard of the shop, with the incident
  {url}/#/alerts?from=-6h&v=2
      what fired during the incident, and when it ended; click PaymentsSlow
  {url}/#/slos
      what the incident cost of the error budget of a week
  {url}/#/wire?from=-6h&v=2
      statements of a database as seen on the network, with the incident
  {url}/#/load?from=-6h&v=2
      load tests of both versions of payment, side by side
  {url}/#/host
      what this host does
  topdeck breakdown 'request_duration{{service=\"payment\"}}' --above 800ms --from {} --to {}{server}
      the same by command line
",
        directory.display(),
        time(incident.start),
        time(incident.end),
        time(incident.start).replace(' ', "T"),
        time(incident.end).replace(' ', "T"),
    )
}
