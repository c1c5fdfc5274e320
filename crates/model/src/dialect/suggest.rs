//! "Did you mean": the known word nearest to a mistyped one.

/// The candidate that takes the fewest slips of the finger to become `word`, if it takes few.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (word.chars().count() / 3).clamp(1, 4);
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(slips, _)| *slips <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, remove, replace or swap with their neighbour (optimal string alignment).
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    // A word this long is no typo; and the work below grows with the square of the length.
    if left.len().abs_diff(right.len()) > 4 {
        return usize::MAX;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (row, &letter) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, &other) in right.iter().enumerate() {
            let replaced = above[column] + usize::from(letter != other);
            let mut best = replaced.min(above[column + 1] + 1).min(current[column] + 1);
            let swapped = row > 0
                && column > 0
                && left[row - 1] == other
                && right[column - 1] == letter
                && letter != other;
            if swapped {
                best = best.min(before[column - 1] + 1);
            }
            current.push(best);
        }
        before = std::mem::replace(&mut above, current);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_finds_its_word() {
        let words = ["drain", "mode", "monitor", "monitor-path", "source-ranges"];
        let nearest = |word| closest(word, words);
        assert_eq!(nearest("source-rangs"), Some("source-ranges"));
        assert_eq!(nearest("monitor-apth"), Some("monitor-path"));
        assert_eq!(nearest("drian"), Some("drain"));
        assert_eq!(nearest("moniter"), Some("monitor"));
        assert_eq!(nearest("weights-of-members"), None);
        assert_eq!(nearest(""), None);
    }

    #[test]
    fn swapping_neighbours_is_one_slip() {
        assert_eq!(distance("drian", "drain"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("same", "same"), 0);
    }
}
