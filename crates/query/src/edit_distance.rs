//! Edit distance, for the nearest known name of a misspelt one.

/// Number of bytes to insert, delete or substitute, if it is at most `max`.
pub fn edit_distance(from: &str, to: &str, max: usize) -> Option<usize> {
    if from.len().abs_diff(to.len()) > max {
        return None;
    }
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.bytes().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().filter(|&distance| distance <= max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted_up_to_the_maximum() {
        let check = |from, to, expected| assert_eq!(edit_distance(from, to, 2), expected);
        check("rate", "rate", Some(0));
        check("rtae", "rate", Some(2));
        check("rat", "rate", Some(1));
        check("irate", "rate", Some(1));
        check("", "ab", Some(2));
        check("", "abc", None);
        check("sum", "max", None);
    }
}
