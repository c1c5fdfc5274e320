//! Until when addresses that were released are given to no other Service, by the clock of the
//! wall: what is recorded for the next process. Pure: the time comes in.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use landfall_addressing::Addressing;
use landfall_model::ServiceKey;
use landfall_model::rows::CoolingAddress;
use landfall_model::view::PoolView;

/// One moment, by two clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// What times in this process are counted from.
    pub(crate) instant: Instant,
    /// What the next process understands.
    pub(crate) wall: Timestamp,
}

/// The end of each time that is shown, by both clocks: it is not worked out again, because the two
/// do not run alike, and each difference would be a write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    shown: BTreeMap<IpAddr, (Instant, Timestamp)>,
}

// === impl Ends ===

impl Ends {
    /// Takes what an earlier process recorded in its pools.
    pub(crate) fn restore(&mut self, all: &mut Addressing, now: Now) {
        let recorded: Vec<CoolingAddress> = all.recorded_cooling().cloned().collect();
        for recorded in recorded {
            let left = recorded.until.duration_since(now.wall);
            let Some(end) = positive(left).and_then(|left| now.instant.checked_add(left)) else {
                continue;
            };
            let (namespace, name) = recorded.service.split_once('/').unwrap_or_default();
            let service = ServiceKey::new(namespace, name);
            if all.restore_cooling(recorded.address, service, end) {
                self.shown.insert(recorded.address, (end, recorded.until));
            }
        }
    }

    /// Adds what no Service gets yet to the pools that it is of.
    pub(crate) fn show(&mut self, all: &Addressing, views: &mut [PoolView], now: Now) {
        let cooling: Vec<(IpAddr, Instant, &ServiceKey)> = all.cooling().collect();
        let is_current = |address: &IpAddr, end: Instant| {
            cooling.iter().any(|it| (it.0, it.1) == (*address, end))
        };
        self.shown
            .retain(|address, (end, _)| is_current(address, *end));
        for (address, end, service) in cooling {
            let left = end.saturating_duration_since(now.instant);
            let by_wall = || {
                let left = SignedDuration::try_from(left).ok()?;
                let until = now.wall.checked_add(left).ok()?;
                // To the second, as times of Kubernetes are, and not too early.
                Timestamp::from_second(until.as_second() + 1).ok()
            };
            let until = match self.shown.get(&address) {
                Some((_, until)) => Some(*until),
                None => by_wall(),
            };
            let view = views
                .iter_mut()
                .find(|it| all.pool_of(address) == Some(it.name.as_str()));
            if let (Some(until), Some(view)) = (until, view) {
                self.shown.insert(address, (end, until));
                view.cooling.push(CoolingAddress {
                    address,
                    until,
                    service: service.to_string(),
                });
            }
        }
    }
}

fn positive(time: SignedDuration) -> Option<Duration> {
    Duration::try_from(time).ok().filter(|time| !time.is_zero())
}
