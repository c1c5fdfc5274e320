//! What single sources have of a listener and do to it, and whether that is too much. A source is
//! an IPv4 address or an IPv6 /64: of IPv6, a client has at least that.
//!
//! Bounded: of connections at once there is a row per source that has some, so never more than the
//! process has descriptors; of rates there are [`MOST_RATES`] rows, which count as memory of the
//! Service, and the source that was seen least recently is forgotten first. One that keeps coming
//! is not. One table per listener, which workers share, so that limits hold for the whole process;
//! only listeners with limits touch it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use landfall_model::protection::{Rate, SourceLimits};

use crate::budget::Account;
use crate::client_table::ClientTable;
use crate::rate::{source_of, spend};

/// Sources of which a listener knows how often they came: about 2 MiB.
const MOST_RATES: usize = 16_384;

/// The sources of one listener.
#[derive(Debug)]
pub(crate) struct Clients {
    born: Instant,
    table: Mutex<Table>,
}

/// Counts a connection of a source as open until dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    clients: Arc<Clients>,
    source: IpAddr,
}

/// What a source has too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooMuch {
    /// Connections at once.
    Connections,
    /// New connections.
    Rate,
}

#[derive(Debug)]
struct Table {
    open: HashMap<IpAddr, u32>,
    rates: ClientTable<Spent>,
}

/// What was spent of the two rates: when each is whole again, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    connections: u64,
    requests: u64,
}

// === impl Clients ===

impl Clients {
    pub(crate) fn new(account: Arc<Account>) -> Arc<Self> {
        Arc::new(Self {
            born: Instant::now(),
            table: Mutex::new(Table {
                open: HashMap::new(),
                rates: ClientTable::new(MOST_RATES, account),
            }),
        })
    }

    /// Lets a connection in, or says what is too much. What was open before there was a limit does
    /// not count.
    pub(crate) fn enter(
        self: &Arc<Self>,
        limits: &SourceLimits,
        client: IpAddr,
        now: Instant,
    ) -> Result<Option<Box<Hold>>, TooMuch> {
        if limits.connections.is_none() && limits.connection_rate.is_none() {
            return Ok(None);
        }
        let source = source_of(client);
        let mut table = self.table();
        let open = table.open.get(&source).copied().unwrap_or(0);
        if limits.connections.is_some_and(|limit| open >= limit) {
            return Err(TooMuch::Connections);
        }
        if let Some(rate) = limits.connection_rate {
            let now = self.nanos(now);
            let mut spent = table.spent(source);
            spent.connections = spend(rate, spent.connections, now).map_err(|_| TooMuch::Rate)?;
            table.note(source, spent);
        }
        if limits.connections.is_none() {
            return Ok(None);
        }
        table.open.insert(source, open + 1);
        Ok(Some(Box::new(Hold {
            clients: self.clone(),
            source,
        })))
    }

    /// Lets a request in, or says how long to wait.
    pub(crate) fn request(&self, rate: Rate, client: IpAddr, now: Instant) -> Result<(), Duration> {
        let now = self.nanos(now);
        let mut table = self.table();
        let source = source_of(client);
        let mut spent = table.spent(source);
        spent.requests = spend(rate, spent.requests, now).map_err(Duration::from_nanos)?;
        table.note(source, spent);
        Ok(())
    }

    fn nanos(&self, now: Instant) -> u64 {
        let age = now.saturating_duration_since(self.born);
        u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Each operation leaves the table valid at every step.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut table = self.clients.table();
        if let Some(open) = table.open.get_mut(&self.source) {
            *open = open.saturating_sub(1);
            if *open == 0 {
                table.open.remove(&self.source);
            }
        }
    }
}

// === impl Table ===

impl Table {
    fn spent(&mut self, source: IpAddr) -> Spent {
        self.rates.touch(source).copied().unwrap_or_default()
    }

    fn note(&mut self, source: IpAddr, spent: Spent) {
        match self.rates.touch(source) {
            Some(known) => *known = spent,
            None => self.rates.insert(source, spent),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn rate(count: u32, burst: u32) -> Rate {
        Rate {
            count,
            period: Duration::from_secs(1),
            burst,
        }
    }

    fn connections(limit: u32) -> SourceLimits {
        SourceLimits {
            connections: Some(limit),
            ..SourceLimits::default()
        }
    }

    #[test]
    fn a_source_has_so_many_connections_and_another_has_its_own() {
        let (clients, now) = (Clients::new(Account::unlimited()), Instant::now());
        let limits = connections(2);
        let held = [(); 2].map(|()| clients.enter(&limits, CLIENT, now).unwrap());
        let third = clients.enter(&limits, CLIENT, now);
        assert_eq!(third.unwrap_err(), TooMuch::Connections);
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        assert!(clients.enter(&limits, mapped, now).is_err());
        let other = "192.0.2.2".parse().unwrap();
        assert!(clients.enter(&limits, other, now).is_ok());
        drop(held);
        assert!(clients.enter(&limits, CLIENT, now).is_ok());
        assert_eq!(clients.table().open.len(), 0);
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_source() {
        let (clients, now) = (Clients::new(Account::unlimited()), Instant::now());
        let [one, same, other] = ["2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"];
        let enter = |address: &str| clients.enter(&connections(1), address.parse().unwrap(), now);
        let _held = enter(one).unwrap();
        assert!(enter(same).is_err());
        assert!(enter(other).is_ok());
    }

    #[test]
    fn a_burst_comes_at_once_and_then_the_rate_holds() {
        let clients = Clients::new(Account::unlimited());
        let start = clients.born;
        let limits = SourceLimits {
            connection_rate: Some(rate(10, 3)),
            ..SourceLimits::default()
        };
        let enter = |after: u64| {
            let now = start + Duration::from_millis(after);
            clients.enter(&limits, CLIENT, now).is_ok()
        };
        assert_eq!([0; 4].map(enter), [true, true, true, false]);
        assert_eq!([99, 100, 101].map(enter), [false, true, false]);
        assert_eq!([10_000; 4].map(enter), [true, true, true, false]);
    }

    #[test]
    fn a_client_that_came_too_often_learns_when_to_retry() {
        let clients = Clients::new(Account::unlimited());
        let start = clients.born;
        let ask = |now| clients.request(rate(2, 1), CLIENT, now);
        assert_eq!(ask(start), Ok(()));
        let wait = ask(start + Duration::from_millis(100)).unwrap_err();
        assert_eq!(wait, Duration::from_millis(400));
        assert_eq!(ask(start + Duration::from_millis(500)), Ok(()));
    }

    #[test]
    fn many_sources_take_bounded_room_and_one_that_keeps_coming_is_not_forgotten() {
        let clients = Clients::new(Account::unlimited());
        let now = clients.born;
        let hour = Rate {
            period: Duration::from_secs(3600),
            ..rate(1, 1)
        };
        assert!(clients.request(hour, CLIENT, now).is_ok());
        for number in 0..3 * MOST_RATES as u32 {
            let client = IpAddr::V4(std::net::Ipv4Addr::from_bits(10 << 24 | number));
            assert!(clients.request(hour, client, now).is_ok());
            if number % 1000 == 0 {
                assert!(clients.request(hour, CLIENT, now).is_err());
            }
        }
        assert_eq!(clients.table().rates.len(), MOST_RATES);
    }

    proptest! {
        #[test]
        fn never_more_than_the_burst_and_the_rate_are_let_in(
            count in 1u32..1000,
            burst in 1u32..100,
            pauses in prop::collection::vec(0u64..50_000_000, 1..400),
        ) {
            let rate = rate(count, burst);
            let each = 1_000_000_000 / u64::from(count);
            let (mut now, mut whole, mut admitted) = (0u64, 0u64, Vec::new());
            for pause in pauses {
                now += pause;
                match spend(rate, whole, now) {
                    Ok(after) => {
                        whole = after;
                        admitted.push(now);
                    }
                    Err(wait) => {
                        // Just then there is one, and not before.
                        prop_assert!(spend(rate, whole, now + wait).is_ok());
                        prop_assert!(spend(rate, whole, now + wait - 1).is_err());
                    }
                }
            }
            for (first, &start) in admitted.iter().enumerate() {
                for (last, &end) in admitted.iter().enumerate().skip(first) {
                    let most = u64::from(burst) + (end - start) / each;
                    prop_assert!((last - first + 1) as u64 <= most);
                }
            }
        }

        #[test]
        fn a_client_that_keeps_to_the_rate_is_never_refused(
            count in 1u32..1000,
            burst in 1u32..100,
            number in 1u64..500,
        ) {
            let rate = rate(count, burst);
            let each = 1_000_000_000 / u64::from(count);
            let mut whole = 0;
            for turn in 0..number {
                let spent = spend(rate, whole, turn * each);
                prop_assert!(spent.is_ok());
                whole = spent.unwrap();
            }
        }

        #[test]
        fn no_times_overflow(
            count in any::<u32>(), burst in any::<u32>(),
            period in any::<u64>(), whole in any::<u64>(), now in any::<u64>(),
        ) {
            let period = Duration::from_millis(period);
            let _ = spend(Rate { count, period, burst }, whole, now);
        }
    }
}
