//! A program with spans: one line makes their durations and the open spans visible on the host.
//! `cargo run -p topdeck-exporter --example tracing`

use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A program with a subscriber adds `exporter::tracing::layer()` to it instead.
    exporter::tracing::install()?;
    println!("{}", exporter::status()?.display());

    for n in 0..1_000 {
        let _request = tracing::info_span!("request", n).entered();
        tracing::info_span!("database").in_scope(|| {
            std::thread::sleep(Duration::from_millis(n % 50));
        });
        if n % 100 == 99 {
            tracing::warn!("the hundredth");
        }
    }
    Ok(())
}
