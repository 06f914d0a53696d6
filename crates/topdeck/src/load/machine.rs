//! The machine that a run was made on: numbers without it say little.

/// What can be said of it.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// Of topdeck.
    pub(crate) version: String,
    pub(crate) kernel: String,
    pub(crate) processor: String,
    /// That this process may use.
    pub(crate) processors: usize,
}

impl Machine {
    pub(crate) fn this() -> Machine {
        let read = |path: &str| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.trim().to_owned()
        };
        let processor = read("/proc/cpuinfo").lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == "model name").then(|| value.trim().to_owned())
        });
        let kernel =
            [read("/proc/sys/kernel/ostype"), read("/proc/sys/kernel/osrelease")].join(" ");
        Machine {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: if kernel == " " { "unknown kernel".to_owned() } else { kernel },
            processor: processor.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// In a line.
    pub(crate) fn words(&self) -> String {
        let Machine { version, kernel, processor, processors } = self;
        let many = if *processors == 1 { "processor" } else { "processors" };
        format!("topdeck {version}, {kernel}, {processors} {many} ({processor})")
    }
}
