//! Reports when the process runs short of descriptors, ports or memory, and when it no longer does:
//! once per change, however often something is refused.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::budget::{Budget, Pressure};
use crate::changes::Changes;

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(1);

/// After so many looks without anything refused or scarce, it is over.
const CALM: u32 = 10;

/// What was seen until now. Pure.
#[derive(Debug, Default)]
struct Watch {
    overloaded: bool,
    shortages: u64,
    calm: u32,
}

/// Reads the budget until `stop` fires. `changes` is raised when overload begins and ends.
pub(crate) async fn announce(budget: Arc<Budget>, changes: Changes, stop: CancellationToken) {
    let mut seen = Watch::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let pressure = budget.pressure();
        let Some(overloaded) = seen.look(&pressure) else {
            continue;
        };
        budget.set_overloaded(overloaded);
        let Pressure {
            used,
            limit,
            flows,
            flow_limit,
            memory,
            memory_limit,
            shortages,
            ..
        } = pressure;
        if overloaded {
            tracing::warn!(
                used,
                limit,
                flows,
                flow_limit,
                memory,
                memory_limit,
                shortages,
                "short of descriptors, ports or buffer memory: Services and clients above their \
                 share are refused"
            );
        } else {
            tracing::info!(
                used,
                limit,
                flows,
                flow_limit,
                memory,
                memory_limit,
                shortages,
                "no longer short of descriptors, ports or buffer memory"
            );
        }
        changes.raise();
    }
}

// === impl Watch ===

impl Watch {
    /// Takes a reading. Returns the new state where it is another one.
    fn look(&mut self, pressure: &Pressure) -> Option<bool> {
        let short = pressure.scarce || pressure.shortages != self.shortages;
        self.shortages = pressure.shortages;
        self.calm = if short {
            0
        } else {
            self.calm.saturating_add(1)
        };
        let overloaded = short || (self.overloaded && self.calm < CALM);
        (std::mem::replace(&mut self.overloaded, overloaded) != overloaded).then_some(overloaded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_reported_once_and_its_end_once() {
        let mut pressure = Budget::new(1024, 100).pressure();
        let mut seen = Watch::default();
        assert_eq!(seen.look(&pressure), None);
        let mut reported = Vec::new();
        for _ in 0..50 {
            pressure.shortages += 30;
            reported.extend(seen.look(&pressure));
        }
        assert_eq!(reported, [true]);
        for _ in 0..50 {
            reported.extend(seen.look(&pressure));
        }
        assert_eq!(reported, [true, false]);
    }

    #[test]
    fn pauses_of_a_flood_are_not_its_end() {
        let mut pressure = Budget::new(1024, 100).pressure();
        let mut seen = Watch::default();
        let mut reported = Vec::new();
        for round in 0..100 {
            pressure.shortages += u64::from(round % 5 == 0);
            reported.extend(seen.look(&pressure));
        }
        assert_eq!(reported, [true]);
    }
}
