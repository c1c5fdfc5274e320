//! Until when addresses that were released are given to no other Service, by the clock of the
//! wall: what is recorded for the next process. Pure: the time comes in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use landfall_addressing::Addressing;
use landfall_model::ServiceKey;
use landfall_model::rows::{AddressRange, Cooling, CoolingAddress};
use landfall_model::view::PoolView;

/// Of so many addresses of a record at most it is looked up whether a Service has them.
const LOST: usize = 65_536;

/// Times on record may be so much later than they are meant to be.
const ROUNDING: Duration = Duration::from_secs(2);

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
    /// Whether all claims on record are known.
    knows_claims: bool,
    /// The pools of which it was looked up what was released without a record.
    begun: BTreeSet<String>,
}

// === impl Ends ===

impl Ends {
    /// Notes that all claims on record are known, and takes what an earlier process recorded.
    pub(crate) fn begin(&mut self, all: &mut Addressing, now: Now) {
        self.knows_claims = true;
        self.restore(all, now);
    }

    /// Forgets all, as another process may have led meanwhile.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Takes what an earlier process recorded in its pools.
    pub(crate) fn restore(&mut self, all: &mut Addressing, now: Now) {
        let recorded = all.recorded_cooling();
        let recorded: Vec<(String, Cooling)> = recorded
            .map(|(pool, it)| (pool.to_owned(), it.clone()))
            .collect();
        for (pool, Cooling { released, held }) in recorded {
            for recorded in released {
                self.restore_released(all, &recorded, now);
            }
            // What is released from now on is known, and what was recorded before is old.
            if self.knows_claims && self.begun.insert(pool) {
                for address in held.iter().flat_map(addresses).take(LOST) {
                    restore_lost(all, address, now);
                }
            }
        }
    }

    fn restore_released(&mut self, all: &mut Addressing, recorded: &CoolingAddress, now: Now) {
        let Some(mut left) = positive(recorded.until.duration_since(now.wall)) else {
            return;
        };
        // The clock of the process that recorded it may have been wrong, and the cool-down of the
        // pool may be shorter since.
        let longest = all.cool_down_of(recorded.address).unwrap_or_default();
        let is_as_recorded = left <= longest + ROUNDING;
        if !is_as_recorded {
            left = longest;
        }
        let Some(end) = now.instant.checked_add(left) else {
            return;
        };
        let (namespace, name) = recorded.service.split_once('/').unwrap_or_default();
        let service = ServiceKey::new(namespace, name);
        if all.restore_cooling(recorded.address, service, end) && is_as_recorded {
            self.shown.insert(recorded.address, (end, recorded.until));
        }
    }

    /// Adds to the pools that they are of the addresses that no Service gets yet, and those that
    /// Services have.
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
                let known = Some(service).filter(|it| !it.name().is_empty());
                view.cooling.push(CoolingAddress {
                    address,
                    until,
                    service: known.map(ToString::to_string).unwrap_or_default(),
                });
            }
        }
        for address in all.held_to_cool() {
            let pool = all.pool_of(address);
            if let Some(view) = views.iter_mut().find(|it| pool == Some(it.name.as_str())) {
                extend(&mut view.held, address);
            }
        }
    }
}

/// Keeps an address that a Service had, unless one has it, or it is known when it was released. It
/// may have been just now.
fn restore_lost(all: &mut Addressing, address: IpAddr, now: Now) {
    let time = all.cool_down_of(address);
    if let Some(end) = time.and_then(|time| now.instant.checked_add(time)) {
        all.restore_cooling(address, ServiceKey::new("", ""), end);
    }
}

/// Adds an address that is above all before.
fn extend(ranges: &mut Vec<AddressRange>, address: IpAddr) {
    match ranges.last_mut() {
        Some(range) if next(range.last) == Some(address) => range.last = address,
        _ => ranges.push(AddressRange {
            first: address,
            last: address,
        }),
    }
}

fn addresses(range: &AddressRange) -> impl Iterator<Item = IpAddr> + use<> {
    let last = range.last;
    let from = (range.first <= last).then_some(range.first);
    std::iter::successors(from, move |it| next(*it).filter(|next| *next <= last))
}

/// Returns the address after one, of the same family.
fn next(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(it) => it
            .to_bits()
            .checked_add(1)
            .map(|bits| Ipv4Addr::from_bits(bits).into()),
        IpAddr::V6(it) => it
            .to_bits()
            .checked_add(1)
            .map(|bits| Ipv6Addr::from_bits(bits).into()),
    }
}

fn positive(time: SignedDuration) -> Option<Duration> {
    Duration::try_from(time).ok().filter(|time| !time.is_zero())
}
