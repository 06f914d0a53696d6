//! Fuzzer of `make test`, compiled with its tests: changes seeds at random and checks the results.
//! An input on which the check allocates in a new way is kept and changed further. This replaces
//! the code coverage that the fuzzer of `make soak` measures, whose compilation takes minutes.
//!
//! Each input is written to a file before its check, which may abort the process.
#![forbid(unsafe_code)]

mod input_change;
mod input_pool;
mod random_draws;

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use allocation_counter::AllocationInfo;
use rustix::time::{ClockId, clock_gettime};
use topdeck_fuzz::FuzzCheck;

use self::input_change::InputChanger;
use self::input_pool::InputPool;
use self::random_draws::RandomDraws;

const USAGE: &str =
    "usage: TOPDECK_FUZZ_TARGET=TARGET seed_fuzzer BYTES_MAX FILE [SEEDS SECONDS DRAWS]

Checks the input in FILE once; or writes inputs to FILE and checks them for SECONDS of CPU time,
made from the files of the directory SEEDS, as the number DRAWS decides. A check that holds more
than BYTES_MAX of memory at once fails. The target `list` prints all targets. After a failure, FILE
contains the failed input, preceded by its length in 8 bytes.";

/// One input must not take more CPU time.
const INPUT_CPU_MAX: Duration = Duration::from_secs(10);
/// One input must not take longer, whatever else runs on the machine.
const INPUT_DURATION_MAX: Duration = Duration::from_secs(300);

/// Number of inputs whose check has started.
static INPUTS: AtomicU64 = AtomicU64::new(0);

fn main() -> ExitCode {
    let check = topdeck_fuzz::selected_check();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = match arguments[..] {
        [bytes_max, file] => bytes_max.parse().ok().map(|bytes_max| {
            fs::read(file).map(|input| {
                LimitedCheck { check, bytes_max }.run(&input);
            })
        }),
        [bytes_max, file, seeds, seconds, draws] => {
            let numbers = bytes_max.parse().ok().zip(seconds.parse().ok()).zip(draws.parse().ok());
            numbers.map(|((bytes_max, seconds), draws)| {
                let check = LimitedCheck { check, bytes_max };
                let duration = Duration::from_secs(seconds);
                fuzz(&check, Path::new(file), Path::new(seeds), duration, RandomDraws::new(draws))
            })
        }
        _ => None,
    };
    match ended {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("cannot read seeds or write inputs: {error}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// A check whose memory is limited.
struct LimitedCheck {
    check: FuzzCheck,
    bytes_max: u64,
}

impl LimitedCheck {
    /// Panics if the check fails or holds too much memory.
    fn run(&self, input: &[u8]) -> AllocationInfo {
        let used = allocation_counter::measure(|| (self.check)(input));
        let (bytes, bytes_max) = (used.bytes_max, self.bytes_max);
        assert!(bytes <= bytes_max, "the check holds {bytes} bytes at once, more than {bytes_max}");
        used
    }
}

fn fuzz(
    check: &LimitedCheck,
    file: &Path,
    seeds: &Path,
    cpu_limit: Duration,
    mut draws: RandomDraws,
) -> std::io::Result<()> {
    let file = File::create(file)?;
    let mut pool = InputPool::read(seeds)?;
    watch();
    let run = |input: &[u8]| {
        let recorded = [&(input.len() as u64).to_le_bytes()[..], input].concat();
        file.write_all_at(&recorded, 0)?;
        INPUTS.fetch_add(1, Ordering::Relaxed);
        Ok::<AllocationInfo, std::io::Error>(check.run(input))
    };
    // Seeds may be many where `make soak` has run, so most of the time is left for changed ones.
    for seed in pool.shuffled_seeds(&mut draws) {
        let used = run(&seed)?;
        pool.is_new(&used);
        if cpu_time() > cpu_limit / 4 {
            break;
        }
    }
    let changer = InputChanger::new(pool.length_max());
    while cpu_time() < cpu_limit {
        let input = changer.change(&pool, &mut draws);
        let used = run(&input)?;
        if pool.is_new(&used) {
            pool.keep(input);
        }
    }
    println!("{} inputs, {} kept", INPUTS.load(Ordering::Relaxed), pool.kept_count());
    Ok(())
}

/// CPU time of this process. Limits by it do not depend on what else runs on the machine.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Starts a thread that aborts the process if a check takes too long.
fn watch() {
    thread::spawn(|| {
        let (mut seen, mut cpu_before, mut since) = (0, cpu_time(), Instant::now());
        loop {
            thread::sleep(Duration::from_secs(1));
            let inputs = INPUTS.load(Ordering::Relaxed);
            if inputs != seen {
                (seen, cpu_before, since) = (inputs, cpu_time(), Instant::now());
            }
            let cpu = cpu_time().saturating_sub(cpu_before);
            if cpu > INPUT_CPU_MAX || since.elapsed() > INPUT_DURATION_MAX {
                let seconds = cpu.as_secs();
                eprintln!("the check of one input does not end, after {seconds} s of CPU time");
                std::process::abort();
            }
        }
    });
}
