//! How times that were measured are spread.

use std::time::Duration;

/// The median, the 99th of a hundred, and the most, as text.
pub fn distribution(mut took: Vec<Duration>) -> String {
    took.sort_unstable();
    let rank = |share: usize| took.get((took.len() * share).div_ceil(100).saturating_sub(1));
    match (rank(50), rank(99), took.last()) {
        (Some(median), Some(almost), Some(most)) => format!(
            "p50 {median:.1?}, p99 {almost:.1?}, most {most:.1?} ({} of them)",
            took.len()
        ),
        _ => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_reported_as_median_99th_percentile_and_maximum() {
        let all = (1..=200).map(Duration::from_millis).collect();
        let expected = "p50 100.0ms, p99 198.0ms, most 200.0ms (200 of them)";
        assert_eq!(distribution(all), expected);
        let one = vec![Duration::from_millis(7)];
        assert_eq!(
            distribution(one),
            "p50 7.0ms, p99 7.0ms, most 7.0ms (1 of them)"
        );
        assert_eq!(distribution(Vec::new()), "none");
    }
}
