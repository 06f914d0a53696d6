//! Columns of a time grid, and an iterator that reads them in portions.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use model::Gap;

/// Value of a time column.
#[derive(Clone, Debug)]
pub struct TimeColumn<T> {
    /// Start, in nanoseconds since the Unix epoch.
    pub start: i64,
    /// End.
    pub end: i64,
    /// Value.
    pub value: T,
    /// Known gaps in it.
    pub gaps: Vec<Gap>,
}

/// Reads columns of a grid in portions.
pub trait ColumnFetch {
    /// Value of a column.
    type Value;
    /// Error of a read.
    type Error;

    /// Number of columns.
    fn column_count(&self) -> u64;

    /// Reads columns from one on, which is below the number of columns: at least that one.
    fn fetch(&mut self, first: u64) -> Result<Vec<TimeColumn<Self::Value>>, Self::Error>;
}

/// Iterator over columns that are read in portions; it ends after an error.
pub struct FetchedColumns<F: ColumnFetch> {
    fetch: F,
    next: u64,
    ready: std::vec::IntoIter<TimeColumn<F::Value>>,
}

impl<F: ColumnFetch> FetchedColumns<F> {
    /// Iterator over all columns.
    pub fn new(fetch: F) -> FetchedColumns<F> {
        FetchedColumns { fetch, next: 0, ready: Vec::new().into_iter() }
    }
}

impl<F: ColumnFetch> Iterator for FetchedColumns<F> {
    type Item = Result<TimeColumn<F::Value>, F::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(column) = self.ready.next() {
            return Some(Ok(column));
        }
        let all = self.fetch.column_count();
        if self.next >= all {
            return None;
        }
        match self.fetch.fetch(self.next) {
            Ok(columns) => {
                self.next = self.next.saturating_add(columns.len() as u64);
                self.ready = columns.into_iter();
                self.ready.next().map(Ok)
            }
            Err(error) => {
                self.next = all;
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten columns in portions of four; the read of the one at `fails_at` fails.
    struct Numbers {
        fails_at: u64,
        portions: Vec<u64>,
    }

    impl ColumnFetch for Numbers {
        type Value = u64;
        type Error = u64;

        fn column_count(&self) -> u64 {
            10
        }

        fn fetch(&mut self, first: u64) -> Result<Vec<TimeColumn<u64>>, u64> {
            self.portions.push(first);
            let end = (first + 4).min(10);
            if (first..end).contains(&self.fails_at) {
                return Err(first);
            }
            let column = |value: u64| {
                let start = value as i64;
                TimeColumn { start, end: start + 1, value, gaps: Vec::new() }
            };
            Ok((first..end).map(column).collect())
        }
    }

    #[test]
    fn columns_are_read_in_portions_and_end_after_an_error() {
        let mut all = FetchedColumns::new(Numbers { fails_at: 99, portions: Vec::new() });
        let values: Vec<u64> = all.by_ref().map(|column| column.unwrap().value).collect();
        assert_eq!(values, (0..10).collect::<Vec<_>>());
        assert_eq!(all.fetch.portions, [0, 4, 8]);
        assert!(all.next().is_none());
        let failing = FetchedColumns::new(Numbers { fails_at: 5, portions: Vec::new() });
        let results: Vec<Result<u64, u64>> =
            failing.map(|column| column.map(|column| column.value)).collect();
        assert_eq!(results, [Ok(0), Ok(1), Ok(2), Ok(3), Err(4)]);
    }
}
