//! Test results of a part: counts, reasons of skipped tests, failures with the commands that repeat
//! them, and durations.

/// Test results of a part.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TestReport {
    pub(crate) passed: u64,
    pub(crate) failed: Vec<TestFailure>,
    pub(crate) skipped: Vec<SkippedTest>,
    /// Those of `passed` that ran in an earlier run on the same files.
    pub(crate) unchanged: u64,
    /// Durations of the tests that ran. Seconds.
    pub(crate) tests: Vec<Timing>,
    /// Durations of the test programs that ran. Seconds.
    pub(crate) programs: Vec<Timing>,
}

/// A failed test.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TestFailure {
    pub(crate) name: String,
    /// Command line that runs the test again.
    pub(crate) repeat: String,
    /// Output of the test.
    pub(crate) output: String,
}

/// A test that cannot run on this machine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SkippedTest {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// A name with a duration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Timing {
    pub(crate) name: String,
    pub(crate) seconds: f64,
}

impl TestReport {
    /// A report of something that failed as a whole.
    pub(crate) fn from_failure(name: &str, repeat: &str, output: String) -> TestReport {
        let (name, repeat) = (name.to_owned(), repeat.to_owned());
        TestReport { failed: vec![TestFailure { name, repeat, output }], ..TestReport::default() }
    }

    /// Number of passed, failed and skipped tests.
    pub(crate) fn count(&self) -> u64 {
        self.passed + self.failed.len() as u64 + self.skipped.len() as u64
    }

    /// Adds the results of `other`.
    pub(crate) fn add(&mut self, other: TestReport) {
        self.passed += other.passed;
        self.unchanged += other.unchanged;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
        self.tests.extend(other.tests);
        self.programs.extend(other.programs);
    }

    /// Adds a finished test. A passed test that printed a line `skipped: REASON` counts as skipped.
    pub(crate) fn add_test(&mut self, name: &str, end: TestEnd, seconds: f64, output: &str) {
        self.tests.push(Timing { name: name.to_owned(), seconds });
        match (end, skip_reason(output)) {
            (TestEnd::Passed, None) => self.passed += 1,
            (TestEnd::Passed, Some(reason)) => {
                self.skipped.push(SkippedTest { name: name.to_owned(), reason: reason.to_owned() });
            }
            (TestEnd::Failed { repeat }, _) => {
                let output = output.to_owned();
                self.failed.push(TestFailure { name: name.to_owned(), repeat, output });
            }
        }
    }
}

/// Outcome of a test.
pub(crate) enum TestEnd {
    Passed,
    /// `repeat`: command line that runs the test again.
    Failed {
        repeat: String,
    },
}

/// The reason in the first line `skipped: REASON` of a test's output.
fn skip_reason(output: &str) -> Option<&str> {
    output.lines().find_map(|line| line.trim().strip_prefix("skipped: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_test_is_not_a_pass() {
        let mut report = TestReport::default();
        report.add_test("a", TestEnd::Passed, 0.5, "fine\n");
        report.add_test("b", TestEnd::Passed, 0.0, "looking\nskipped: no BPF here\n");
        let failed = TestEnd::Failed { repeat: "cargo test c".to_owned() };
        report.add_test("c", failed, 0.0, "skipped: not a reason to fail\n");
        assert_eq!((report.passed, report.failed.len(), report.count()), (1, 1, 3));
        assert_eq!(report.skipped[0].reason, "no BPF here");
        assert_eq!(report.failed[0].repeat, "cargo test c");
    }
}
