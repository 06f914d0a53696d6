//! Description of the machine that generated a run.

/// Versions and CPUs.
#[derive(Clone, Debug)]
pub struct MachineInfo {
    /// Version of topdeck.
    pub version: String,
    pub(crate) kernel: String,
    pub(crate) cpu_model: String,
    /// CPUs available to this process.
    pub cpus: usize,
}

impl MachineInfo {
    /// This machine.
    pub fn local() -> MachineInfo {
        let read = |path: &str| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.trim().to_owned()
        };
        let cpu_model = read("/proc/cpuinfo").lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == "model name").then(|| value.trim().to_owned())
        });
        let kernel =
            [read("/proc/sys/kernel/ostype"), read("/proc/sys/kernel/osrelease")].join(" ");
        MachineInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: if kernel == " " { "unknown kernel".to_owned() } else { kernel },
            cpu_model: cpu_model.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// One line for reports.
    pub fn text(&self) -> String {
        let MachineInfo { version, kernel, cpu_model, cpus } = self;
        let unit = if *cpus == 1 { "CPU" } else { "CPUs" };
        format!("topdeck {version}, {kernel}, {cpus} {unit} ({cpu_model})")
    }
}
