//! Limits of open files (RLIMIT_NOFILE).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::Error;

/// Soft and hard limit, and what a run needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileLimits {
    /// Files that the run may need: its connections and a reserve.
    pub required: u64,
    /// Soft limit, raised if needed; `None` if unlimited.
    pub soft_limit: Option<u64>,
    /// Hard limit; `None` if unlimited.
    pub hard_limit: Option<u64>,
}

impl FileLimits {
    /// Raises the soft limit if this many files need it.
    pub(crate) fn raise(required: usize) -> Result<FileLimits, Error> {
        let set = |limit| setrlimit(Resource::Nofile, limit).map_err(std::io::Error::from);
        FileLimits::raise_from(getrlimit(Resource::Nofile), required, set)
    }

    fn raise_from(
        limit: Rlimit,
        required: usize,
        set: impl FnOnce(Rlimit) -> std::io::Result<()>,
    ) -> Result<FileLimits, Error> {
        let files = required as u64;
        let limits =
            |soft_limit| FileLimits { required: files, soft_limit, hard_limit: limit.maximum };
        if limit.current.is_none_or(|current| current >= files) {
            return Ok(limits(limit.current));
        }
        if let Some(allowed) = limit.maximum.filter(|&allowed| allowed < files) {
            return Err(Error::TooFewFiles { required, allowed });
        }
        set(Rlimit { current: Some(files), maximum: limit.maximum })
            .map_err(|cause| Error::FileLimit { required, cause })?;
        Ok(limits(Some(files)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    /// Limits that 100 files have from a soft and a hard limit, if the system permits a change.
    #[track_caller]
    fn check(
        soft: Option<u64>,
        hard: Option<u64>,
        is_permitted: bool,
        expected: Result<u64, &str>,
    ) {
        let set = |limit: Rlimit| match is_permitted {
            true if limit.current == Some(100) && limit.maximum == hard => Ok(()),
            _ => Err(ErrorKind::PermissionDenied.into()),
        };
        let limit = Rlimit { current: soft, maximum: hard };
        let found = FileLimits::raise_from(limit, 100, set).map_err(|error| error.to_string());
        let limits = |soft| FileLimits { required: 100, soft_limit: Some(soft), hard_limit: hard };
        assert_eq!(found, expected.map(limits).map_err(str::to_owned));
    }

    #[test]
    fn the_soft_limit_is_raised_if_it_is_too_low() {
        check(Some(100), Some(100), false, Ok(100));
        check(Some(64), Some(100), true, Ok(100));
        check(Some(64), None, true, Ok(100));
        let too_few = "100 open files are needed for the connections or processes, but the limit \
                       is 99; reduce --max-connections, or raise the limit with ulimit -n";
        check(Some(64), Some(99), true, Err(too_few));
    }

    #[test]
    fn a_limit_that_the_system_does_not_raise_is_reported_with_its_cause() {
        let denied = "cannot raise the limit of open files to 100: permission denied; reduce \
                      --max-connections, or raise the limit with ulimit -n";
        check(Some(64), None, false, Err(denied));
        check(Some(64), Some(200), false, Err(denied));
    }
}
