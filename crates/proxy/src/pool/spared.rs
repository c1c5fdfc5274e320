//! Rules about what members are spared: how much less one gets that begins, when one that fails is
//! left out and for how long, and how many tries at other members there may be. Pure.

use std::time::Duration;

/// All of a member's weight.
pub(super) const WHOLE: u16 = 256;

/// A member that begins gets this part of its weight at least: a tenth.
const LEAST: u16 = 26;

/// How long a member is left out, times how often this happened in a row; and at most.
const LEFT_OUT: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(300);

/// So many tries at other members are always allowed.
const MIN_RETRIES: u32 = 10;

/// Returns the part of its weight that a member gets so long after it began.
pub(super) fn share(elapsed: Duration, window: Duration) -> u16 {
    if elapsed >= window {
        return WHOLE;
    }
    let part = elapsed.as_millis() * u128::from(WHOLE) / window.as_millis().max(1);
    (part as u16).clamp(LEAST, WHOLE)
}

/// Returns whether one more member may be left out of those that serve.
pub(super) fn may_leave_out(left_out: usize, serving: usize) -> bool {
    (left_out + 1) * 2 <= serving
}

/// Returns for how long, the `time`th time in a row.
pub(super) fn how_long(time: u32) -> Duration {
    LEFT_OUT.saturating_mul(time.max(1)).min(LONGEST)
}

/// Returns whether the last time is so long ago that it does not count.
pub(super) fn is_over(since: Duration) -> bool {
    since > LONGEST
}

/// Returns how many tries at other members there may be at once, while members have `open`.
pub(super) fn retries(percent: u8, open: u64) -> u32 {
    match percent {
        0 => 0,
        1..100 => {
            let part = open.saturating_mul(u64::from(percent)) / 100;
            u32::try_from(part).unwrap_or(u32::MAX).max(MIN_RETRIES)
        }
        _ => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_member_begins_with_a_tenth_and_ends_with_all() {
        let window = Duration::from_secs(10);
        let after = |seconds| share(Duration::from_secs(seconds), window);
        assert_eq!(
            [0, 1, 5, 9, 10, 11].map(after),
            [26, 26, 128, 230, 256, 256]
        );
        assert_eq!(share(Duration::ZERO, Duration::ZERO), WHOLE);
    }

    #[test]
    fn a_member_that_fails_again_is_left_out_for_longer() {
        let seconds = [0, 1, 2, 9, 10, 11, u32::MAX].map(|time| how_long(time).as_secs());
        assert_eq!(seconds, [30, 30, 60, 270, 300, 300, 300]);
    }

    proptest! {
        #[test]
        fn never_more_than_half_and_never_the_last_are_left_out(
            left_out in 0usize..100, serving in 0usize..100,
        ) {
            if may_leave_out(left_out, serving) {
                prop_assert!(left_out + 1 < serving && (left_out + 1) * 2 <= serving);
            }
        }

        #[test]
        fn a_share_grows_and_never_is_nothing(
            window in 0u64..4_000_000, before in 0u64..5_000_000, more in 0u64..5_000_000,
        ) {
            let of = |elapsed| {
                share(Duration::from_millis(elapsed), Duration::from_millis(window))
            };
            prop_assert!((LEAST..=WHOLE).contains(&of(before)));
            prop_assert!(of(before) <= of(before + more));
        }

        #[test]
        fn tries_are_a_part_of_what_is_open(percent in 1u8..100, open in 0u64..1 << 32) {
            let allowed = u64::from(retries(percent, open));
            prop_assert!(allowed <= 10 || allowed * 100 <= open * u64::from(percent));
        }
    }
}
