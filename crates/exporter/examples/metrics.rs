//! A program that uses the `metrics` crate: one line makes its metrics visible on the host.
//! `cargo run -p topdeck-exporter --example metrics`

use metrics::{Unit, counter, describe_histogram, histogram};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    exporter::metrics::install()?;
    println!("{}", exporter::status()?.display());

    describe_histogram!("request_duration", Unit::Seconds, "How long a request took.");
    // A cached handle costs a few nanoseconds per record; each macro call looks up its series.
    let took = histogram!("request_duration", "route" => "/cart");
    for n in 0..1_000 {
        let start = std::time::Instant::now();
        std::thread::sleep(std::time::Duration::from_millis(n % 50));
        took.record(start.elapsed());
        counter!("requests_total", "route" => "/cart").increment(1);
    }
    Ok(())
}
