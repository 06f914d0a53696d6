//! Tables of subcommands: those of the program, and of a subcommand.

/// Subcommands: a row has the variant of the command line, its options, and the function that runs
/// it. Adding a subcommand takes a file, declared in `main.rs`, and a row here.
macro_rules! subcommands {
    ($command:ident: $($(#[$attribute:meta])* $variant:ident($options:ty) => $run:path,)+) => {
        #[derive(clap::Subcommand)]
        enum $command {
            $($(#[$attribute])* $variant($options),)+
        }

        impl $command {
            fn run(&self) -> anyhow::Result<std::process::ExitCode> {
                match self {
                    $($command::$variant(options) => $run(options),)+
                }
            }
        }
    };
}
pub(crate) use subcommands;
