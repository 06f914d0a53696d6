//! Assignment of stored series to processes: a process holds a *generation* of its program, or its
//! final values are added to a sum.
//!
//! A generation is a small number, held by one process at a time and free again after its exit, so
//! the number of a program's series depends on how many processes run at once and not on how many
//! were started. The table is durable before rows that depend on it are appended; what it contains
//! is also all that a restarted collector needs to continue.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use journal::BatchIdentity;
use shm::ProcessIdentity;

/// Device and inode of a metrics file.
pub(crate) type FileId = (u64, u64);

/// Name and format of a program, its labels. The format of topdeck's own files is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ProgramName {
    pub(crate) process: String,
    pub(crate) format: String,
}

/// Which series a process is stored under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum SeriesShare {
    /// Its own while it runs: a number from 1 on.
    Generation(u32),
    /// The sum of processes that exited soon after their start.
    Short,
    /// The sum of processes above the limit of generations.
    Other,
}

impl SeriesShare {
    /// Value of the label `generation`.
    pub(crate) fn label(self) -> String {
        match self {
            SeriesShare::Generation(number) => number.to_string(),
            SeriesShare::Short => "short".to_owned(),
            SeriesShare::Other => "other".to_owned(),
        }
    }

    pub(crate) fn parse(text: &str) -> Option<SeriesShare> {
        match text {
            "short" => Some(SeriesShare::Short),
            "other" => Some(SeriesShare::Other),
            number => number.parse().ok().map(SeriesShare::Generation),
        }
    }
}

/// What is stored of a process, from the assignment until its file is gone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AssignedProcess {
    pub(crate) identity: ProcessIdentity,
    pub(crate) program: ProgramName,
    pub(crate) share: SeriesShare,
    /// Start of its counters.
    pub(crate) start: i64,
    /// Whether its final values are durable.
    pub(crate) is_done: bool,
}

/// Assignments, and the batch of sums.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GenerationTable {
    pub(crate) processes: BTreeMap<FileId, AssignedProcess>,
    /// End of the last row of each share that is not held.
    pub(crate) ends: BTreeMap<(ProgramName, SeriesShare), i64>,
    /// Epoch of the batches of sums; 0 before the first.
    pub(crate) epoch: u64,
    /// Sequence of the last batch of sums.
    pub(crate) sequence: u64,
    /// Processes whose values are in the batch after `sequence`, and the end of its rows, if its
    /// outcome is unknown.
    pub(crate) pending: Option<(BTreeSet<FileId>, i64)>,
}

impl GenerationTable {
    /// Assigns the lowest free generation up to `limit`, and returns it with the start of the
    /// process' counters there: not before the end of the previous holder. `None` at the limit.
    pub(crate) fn assign_generation(
        &mut self,
        file: FileId,
        identity: ProcessIdentity,
        program: &ProgramName,
        start: i64,
        limit: u32,
    ) -> Option<(SeriesShare, i64)> {
        let holders = self.processes.values().filter(|one| one.program == *program && !one.is_done);
        let held: HashSet<SeriesShare> = holders.map(|one| one.share).collect();
        let mut shares = (1..=limit).map(SeriesShare::Generation);
        let share = shares.find(|share| !held.contains(share))?;
        let start = start.max(self.end(program, share).unwrap_or(i64::MIN));
        self.insert(file, identity, program, share, start);
        Some((share, start))
    }

    /// Assigns an exited process to a sum.
    pub(crate) fn assign_sum(
        &mut self,
        file: FileId,
        identity: ProcessIdentity,
        program: &ProgramName,
        share: SeriesShare,
        start: i64,
    ) {
        self.insert(file, identity, program, share, start);
    }

    fn insert(
        &mut self,
        file: FileId,
        identity: ProcessIdentity,
        program: &ProgramName,
        share: SeriesShare,
        start: i64,
    ) {
        let program = program.clone();
        let assigned = AssignedProcess { identity, program, share, start, is_done: false };
        self.processes.insert(file, assigned);
    }

    /// End of the last row of a share that is not held.
    pub(crate) fn end(&self, program: &ProgramName, share: SeriesShare) -> Option<i64> {
        self.ends.get(&(program.clone(), share)).copied()
    }

    /// Frees the generation of a process whose last row, at `end`, is durable.
    pub(crate) fn release(&mut self, file: FileId, end: i64) {
        let Some(process) = self.processes.get_mut(&file).filter(|one| !one.is_done) else {
            return;
        };
        process.is_done = true;
        let last = self.ends.entry((process.program.clone(), process.share)).or_insert(end);
        *last = end.max(*last);
    }

    /// Removes processes without a file, and frees their generations. Ends are needed only while a
    /// process may have started before them: while a file of the program exists.
    pub(crate) fn retain_files(
        &mut self,
        is_there: impl Fn(&FileId) -> bool,
        programs: &HashSet<&ProgramName>,
        now: i64,
    ) {
        let gone: Vec<FileId> =
            self.processes.keys().filter(|file| !is_there(file)).copied().collect();
        for file in gone {
            // Values that nobody has read are lost with the file.
            self.release(file, now.saturating_sub(1));
            self.processes.remove(&file);
        }
        let named: HashSet<&ProgramName> = self
            .processes
            .values()
            .map(|one| &one.program)
            .chain(programs.iter().copied())
            .collect();
        self.ends.retain(|(program, _), _| named.contains(program));
    }

    /// Begins a batch of sums with the values of these processes: the outcome is unknown until
    /// [`GenerationTable::settle`]. The table must be saved before the batch is appended.
    pub(crate) fn begin_batch(&mut self, files: BTreeSet<FileId>, end: i64) {
        if self.epoch == 0 {
            self.epoch = (journal::random_id() as u64).max(1);
        }
        self.pending = Some((files, end));
    }

    /// Identity of the batch whose outcome is unknown.
    pub(crate) fn pending_identity(&self, producer: u64) -> Option<BatchIdentity> {
        let sequence = self.sequence.saturating_add(1);
        self.pending.as_ref().map(|_| BatchIdentity { producer, epoch: self.epoch, sequence })
    }

    /// Ends the pending batch. If it was accepted, its processes are done.
    pub(crate) fn settle(&mut self, is_accepted: bool) {
        let Some((files, end)) = self.pending.take() else { return };
        if is_accepted {
            self.sequence = self.sequence.saturating_add(1);
            files.into_iter().for_each(|file| self.release(file, end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(pid: u32) -> ProcessIdentity {
        ProcessIdentity { pid, ..ProcessIdentity::default() }
    }

    fn program(name: &str) -> ProgramName {
        ProgramName { process: name.to_owned(), format: String::new() }
    }

    fn assign(table: &mut GenerationTable, at: u64, limit: u32) -> Option<(String, i64)> {
        let shop = program("shop");
        let found = table.assign_generation((1, at), identity(at as u32), &shop, at as i64, limit);
        found.map(|(share, start)| (share.label(), start))
    }

    /// A user saw 75,173 series after 45 minutes on a host whose programs restart often.
    #[test]
    fn program_that_restarts_a_thousand_times_has_one_generation() {
        let mut table = GenerationTable::default();
        for at in 0..1_000 {
            let (share, start) = assign(&mut table, at, 64).unwrap();
            assert_eq!(share, "1");
            // The previous process was seen dead after this one had started.
            assert_eq!(start, if at == 0 { 0 } else { at as i64 + 4 });
            table.release((1, at), at as i64 + 5);
            table.retain_files(|_| false, &HashSet::from([&program("shop")]), 0);
        }
        assert_eq!((table.processes.len(), table.ends.len()), (0, 1));
        table.retain_files(|_| false, &HashSet::new(), 0);
        assert!(table.ends.is_empty());
    }

    #[test]
    fn processes_that_run_at_once_have_generations_up_to_the_limit() {
        let mut table = GenerationTable::default();
        let shares = (0..4).map(|at| assign(&mut table, at, 3).map(|(share, _)| share));
        let shares: Vec<Option<String>> = shares.collect();
        assert_eq!(
            shares,
            ["1", "2", "3"]
                .map(|share| Some(share.to_owned()))
                .into_iter()
                .chain([None])
                .collect::<Vec<_>>()
        );
        let other = table.assign_generation((2, 0), identity(9), &program("cart"), 7, 3);
        assert_eq!(other, Some((SeriesShare::Generation(1), 7)));
        table.release((1, 1), 50);
        assert_eq!(assign(&mut table, 4, 3), Some(("2".to_owned(), 50)));
    }

    #[test]
    fn batch_of_sums_counts_once_whether_accepted_or_not() {
        let mut table = GenerationTable::default();
        let file = (1, 1);
        table.assign_sum(file, identity(1), &program("shop"), SeriesShare::Short, 5);
        table.begin_batch(BTreeSet::from([file]), 9);
        let first = table.pending_identity(3).unwrap();
        table.settle(false);
        assert!(!table.processes[&file].is_done);
        table.begin_batch(BTreeSet::from([file]), 10);
        assert_eq!(table.pending_identity(3), Some(first), "a rejected sequence is used again");
        table.settle(true);
        assert!(table.processes[&file].is_done);
        assert_eq!(table.end(&program("shop"), SeriesShare::Short), Some(10));
        table.begin_batch(BTreeSet::new(), 11);
        assert_eq!(table.pending_identity(3).unwrap().sequence, first.sequence + 1);
    }
}
