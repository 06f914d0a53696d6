//! Limits of open files (RLIMIT_NOFILE).

use crate::error::Error;

/// Soft and hard limit, and what a run needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileLimits {
    /// Files that the run may need: its connections and a reserve.
    pub needed: u64,
    /// Soft limit, raised if needed; `None` if unlimited.
    pub soft_limit: Option<u64>,
    /// Hard limit; `None` if unlimited.
    pub hard_limit: Option<u64>,
}

impl FileLimits {
    /// Raises the soft limit if this many files need it.
    pub(crate) fn raise(required: usize) -> Result<FileLimits, Error> {
        use rustix::process::{Resource, getrlimit, setrlimit};
        let mut limit = getrlimit(Resource::Nofile);
        let wanted_files = required as u64;
        let hard_limit = limit.maximum;
        if limit.current.is_none_or(|current| current >= wanted_files) {
            return Ok(FileLimits { needed: wanted_files, soft_limit: limit.current, hard_limit });
        }
        let allowed = limit.maximum.unwrap_or(u64::MAX);
        limit.current = Some(wanted_files.min(allowed));
        let raised = setrlimit(Resource::Nofile, limit);
        if allowed < wanted_files || raised.is_err() {
            return Err(Error::TooFewFiles { required, allowed });
        }
        Ok(FileLimits { needed: wanted_files, soft_limit: Some(wanted_files), hard_limit })
    }
}
