//! The division of scarce descriptors and ports. Pure: counts in, a decision out.
//!
//! Each Service has a minimum that no other can take. The rest is common: a Service may hold so
//! many times what is still free of it. One Service alone gets nearly all, several that want more
//! than there is get equal parts, and something is always left for the next one. The same rule
//! binds each source address, more tightly, so that one client does not use up its Service's part.

/// A Service may hold this many times what is free of the common part.
const SERVICE: u64 = 16;

/// All Services of a namespace may together hold this many times what is free of the common part,
/// so that many Services do not get all. More than one Service alone, so that it leaves something
/// to those beside it.
const NAMESPACE: u64 = 64;

/// Sockets of listeners stay, so that what has many does not give way to what comes later: all
/// Services of a namespace may have this many times what is free of the common part. One Service
/// may have as much as is free, unless there is no other namespace.
const NAMESPACE_SOCKETS: u64 = 8;

/// What another namespace needs for its first connection.
const FIRST: u64 = 2;

/// A source address may hold this many times what is free of the common part.
const SOURCE: u64 = 8;

/// A part of this size of the whole is divided into minimums.
const MINIMUMS: u64 = 4;

/// No minimum is more than this part of the whole,
const MINIMUM: u64 = 32;

/// or than this, where that is more.
const SMALL_MINIMUM: u64 = 32;

/// The resource is scarce when less than this part of the common part is free.
const SCARCE: u64 = 16;

/// Of the descriptors that connections do not need, this part of all is for the process itself,
const RESERVE: u64 = 8;

/// at most so many,
const MAX_RESERVE: u64 = 1024;

/// and so many in any case: runtimes, log, Lease, watches, state.
const LEAST_RESERVE: u64 = 96;

/// Pipes and spare sockets may take this part of all descriptors.
const PIPES: u64 = 16;

/// Checks of members that run at the same time may take this part of all descriptors.
const CHECKS: u64 = 16;

/// Sockets of listeners may take all but this part of what is left for traffic.
const NOT_LISTENERS: u64 = 4;

/// How many descriptors each use may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// All that the process may open.
    pub files: u32,
    /// Kept for the process itself, monitors and the admin endpoint included.
    pub reserve: u32,
    /// Pipes and spare sockets, over all workers.
    pub pipes: u32,
    /// Checks at the same time; part of the reserve.
    pub checks: u32,
    /// For listeners and connections.
    pub traffic: u32,
    /// Listeners may have at most so many of these.
    pub listeners: u32,
}

/// What is known when something is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How much there is.
    pub limit: u32,
    /// How much is in use.
    pub used: u32,
    /// How much of that is of the common part.
    pub common: u32,
    /// How many Services there are.
    pub services: u32,
    /// In how many namespaces they are.
    pub namespaces: u32,
    /// How many of them are in this Service's namespace.
    pub siblings: u32,
    /// What this Service has of its minimum.
    pub own_minimum: u32,
    /// What this Service has of the common part.
    pub own_common: u32,
    /// What all Services of its namespace have of their minimums.
    pub namespace_minimum: u32,
    /// What all Services of its namespace have of the common part.
    pub namespace: u32,
    /// What this source address has, at most.
    pub source: u32,
}

/// What is to be done with a new connection or flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Accepted, as part of the Service's minimum.
    Minimum,
    /// Accepted, from the common part.
    Common,
    /// Refused.
    Refused(Excess),
}

/// The holder that has too much already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// The Service.
    Service,
    /// The source address.
    Source,
    /// All sources together.
    All,
}

// === impl Division ===

impl Division {
    /// Divides the descriptors that the process may have.
    pub fn of(files: u64) -> Self {
        let files = u32::try_from(files).unwrap_or(u32::MAX);
        let all = u64::from(files);
        // With very few, traffic gets at least a quarter.
        let reserve = (LEAST_RESERVE + (all / RESERVE).min(MAX_RESERVE)).min(all / 4 * 3);
        let pipes = (all / PIPES).min(all - reserve);
        let traffic = all - reserve - pipes;
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            files,
            reserve: small(reserve),
            pipes: small(pipes),
            checks: small((all / CHECKS).clamp(1, 512)),
            traffic: small(traffic),
            listeners: small(traffic - traffic / NOT_LISTENERS),
        }
    }
}

// === impl Counts ===

impl Counts {
    /// Returns what no other Service can take from one.
    pub fn minimum(&self) -> u32 {
        let part = u64::from(self.limit) / MINIMUMS;
        let equal = part / u64::from(self.services.max(1));
        let of_namespace = part / u64::from(self.namespaces.max(1));
        // Equal parts, and more where a namespace has few: then others with many take nothing from
        // it.
        let each = match self.siblings {
            0 => equal,
            siblings => equal.max(of_namespace / u64::from(siblings)),
        };
        each.min(self.most_minimum()) as u32
    }

    /// What no minimum exceeds.
    fn most_minimum(&self) -> u64 {
        (u64::from(self.limit) / MINIMUM).max(SMALL_MINIMUM)
    }

    /// Returns what is free of the common part.
    pub fn free(&self) -> u32 {
        let part = u64::from(self.limit) / MINIMUMS;
        let minimums = if self.namespaces > 1 {
            // For both ways to divide. Not less where there are few Services: a namespace with all
            // of the common part could make more, and take what others have not used yet.
            2 * part
        } else {
            part.min(self.most_minimum() * u64::from(self.services.max(1)))
        };
        let common = u64::from(self.limit).saturating_sub(minimums);
        common.saturating_sub(u64::from(self.common)) as u32
    }

    /// Returns whether so much more is of the Service's minimum. What is given stays given although
    /// minimums become smaller with each Service that comes, so that Services which come one after
    /// the other could have more than there is for all: equal parts have one part, and the other
    /// has as much for each namespace, whatever others have of the first.
    fn is_minimum(&self, cost: u64) -> bool {
        let part = u64::from(self.limit) / MINIMUMS;
        let all = u64::from(self.used.saturating_sub(self.common)) + cost;
        let namespace = u64::from(self.namespace_minimum) + cost;
        let namespaces = u64::from(self.namespaces.max(1));
        let left = all <= part || (namespaces > 1 && namespace <= part / namespaces);
        left && u64::from(self.own_minimum) + cost <= u64::from(self.minimum())
    }

    /// Returns whether little is free of the common part.
    pub fn is_scarce(&self) -> bool {
        u64::from(self.free()) < u64::from(self.limit) / SCARCE
    }

    /// Decides about so many more sockets of listeners. Here `namespace` is all that it has. What
    /// is given once stays given although minimums become smaller with each Service that comes:
    /// those of Services have a part of their own, so that those of namespaces are there for the
    /// next.
    pub fn decide_sockets(&self, cost: u32) -> Decision {
        let (limit, cost) = (u64::from(self.limit), u64::from(cost));
        let used = u64::from(self.used);
        if used + cost > limit {
            return Decision::Refused(Excess::All);
        }
        let before = u64::from(self.own_minimum) + u64::from(self.own_common);
        let (own, namespace) = (before + cost, u64::from(self.namespace) + cost);
        let (part, namespaces) = (limit / MINIMUMS, u64::from(self.namespaces.max(1)));
        let minimums = used.saturating_sub(u64::from(self.common));
        // One more Service may come.
        let equal = (part / (u64::from(self.services) + 1)).min(self.most_minimum());
        // Each Service may have a listener, however many Services there are.
        if (before == 0 || own <= equal) && minimums + cost <= part {
            return Decision::Minimum;
        }
        // Namespaces that come one after the other have had larger parts than the next one gets:
        // only the first listener of a namespace may be one too many.
        let first = self.namespace == 0 || minimums + cost <= 2 * part;
        if namespaces > 1 && first && namespace <= (part / namespaces).min(self.most_minimum()) {
            return Decision::Minimum;
        }
        let kept = minimums.max(if namespaces > 1 { 2 * part } else { part });
        let free = limit.saturating_sub(kept + u64::from(self.common));
        match free.checked_sub(cost) {
            // Services of the only namespace need not be kept from each other.
            Some(left)
                if (own <= left || namespaces == 1) && namespace <= NAMESPACE_SOCKETS * left =>
            {
                Decision::Common
            }
            Some(_) | None => Decision::Refused(Excess::Service),
        }
    }

    /// Decides about something that takes the place of what has just been given back: by the same
    /// Service, or where nothing was left by the one with most. Shares do not count, or a holder of
    /// more than its share, because others want more now, would give back and get nothing.
    pub fn decide_again(&self, cost: u32) -> Decision {
        let cost = u64::from(cost);
        if u64::from(self.used) + cost > u64::from(self.limit) {
            Decision::Refused(Excess::All)
        } else if self.is_minimum(cost) {
            Decision::Minimum
        } else {
            Decision::Common
        }
    }

    /// Decides about something that is only kept for later: never while there is little, and never
    /// of the minimum, which is there for what comes.
    pub fn decide_spare(&self, cost: u32) -> Decision {
        let free = u64::from(self.free());
        let own = u64::from(self.own_common) + u64::from(cost);
        let used = u64::from(self.used) + u64::from(cost);
        if self.is_scarce() || own > free || used > u64::from(self.limit) {
            return Decision::Refused(Excess::Service);
        }
        Decision::Common
    }

    /// Decides about something that needs `cost`.
    pub fn decide(&self, cost: u32) -> Decision {
        let limit = u64::from(self.limit);
        let cost = u64::from(cost);
        if u64::from(self.used) + cost > limit {
            return Decision::Refused(Excess::All);
        }
        if self.is_minimum(cost) {
            return Decision::Minimum;
        }
        let free = u64::from(self.free());
        if free < cost {
            return Decision::Refused(if self.own_common > 0 {
                Excess::Service
            } else {
                Excess::All
            });
        }
        // What is wanted is not free any more when it is given.
        let left = free - cost;
        if u64::from(self.own_common) + cost > SERVICE * left.max(1) {
            return Decision::Refused(Excess::Service);
        }
        let namespace = u64::from(self.namespace);
        if namespace > 0 && namespace + cost > NAMESPACE * (left / FIRST * FIRST) {
            return Decision::Refused(Excess::Service);
        }
        if u64::from(self.source) + cost > SOURCE * left.max(1) {
            return Decision::Refused(Excess::Source);
        }
        Decision::Common
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What several Services hold of one resource, without source addresses. Each has a namespace
    /// of its own, but for those that are together.
    struct Table {
        limit: u32,
        held: Vec<(u32, u32)>,
        together: std::ops::Range<usize>,
    }

    impl Table {
        fn new(limit: u32, services: usize) -> Self {
            Self {
                limit,
                held: vec![(0, 0); services],
                together: 0..0,
            }
        }

        fn counts(&self, service: usize) -> Counts {
            let (own_minimum, own_common) = self.held[service];
            let common = self.held.iter().map(|held| held.1).sum();
            let beside = if self.together.contains(&service) {
                self.together.clone()
            } else {
                service..service + 1
            };
            let beside = &self.held[beside];
            Counts {
                limit: self.limit,
                used: common + self.held.iter().map(|held| held.0).sum::<u32>(),
                common,
                services: self.held.len() as u32,
                namespaces: match self.together.len() {
                    0 => 1,
                    together => 1 + u32::from(together < self.held.len()),
                },
                siblings: if self.together.contains(&service) {
                    self.together.len() as u32
                } else {
                    (self.held.len() - self.together.len()) as u32
                },
                own_minimum,
                own_common,
                namespace_minimum: beside.iter().map(|held| held.0).sum(),
                namespace: beside.iter().map(|held| held.1).sum(),
                source: 0,
            }
        }

        fn ask(&mut self, service: usize, cost: u32) -> bool {
            let decision = self.counts(service).decide(cost);
            self.take(service, cost, decision)
        }

        fn take(&mut self, service: usize, cost: u32, decision: Decision) -> bool {
            match decision {
                Decision::Minimum => self.held[service].0 += cost,
                Decision::Common => self.held[service].1 += cost,
                Decision::Refused(_) => return false,
            }
            true
        }

        fn ask_sockets(&mut self, service: usize, cost: u32) -> bool {
            let mut counts = self.counts(service);
            let beside = if self.together.contains(&service) {
                self.together.clone()
            } else {
                service..service + 1
            };
            counts.namespace = beside.map(|service| self.of(service)).sum();
            let decision = counts.decide_sockets(cost);
            self.take(service, cost, decision)
        }

        fn of(&self, service: usize) -> u32 {
            self.held[service].0 + self.held[service].1
        }

        fn flood(&mut self, services: &[usize]) {
            while services
                .iter()
                .filter(|&&service| self.ask(service, 2))
                .count()
                > 0
            {}
        }
    }

    #[test]
    fn one_service_alone_gets_nearly_all() {
        let mut table = Table::new(17_000, 3);
        table.flood(&[0]);
        assert!(table.of(0) > 15_000, "{}", table.of(0));
    }

    #[test]
    fn services_that_want_too_much_get_equal_parts() {
        let mut table = Table::new(10_000, 4);
        table.flood(&[0, 1, 2]);
        let parts = [table.of(0), table.of(1), table.of(2)];
        let spread = parts.iter().max().unwrap() - parts.iter().min().unwrap();
        assert!(spread <= 2, "{parts:?}");
        assert!(parts.iter().sum::<u32>() > 9_000, "{parts:?}");
    }

    #[test]
    fn beside_one_that_took_all_it_could_another_is_served() {
        for limit in [100, 700, 20_000, 1_000_000] {
            let mut table = Table::new(limit, 3);
            table.flood(&[0]);
            assert!(table.ask(1, 2), "{limit}");
        }
    }

    #[test]
    fn many_services_of_one_namespace_leave_something_for_another() {
        for (limit, services) in [(350, 200), (700, 800), (7_000, 5_000)] {
            let mut table = Table::new(limit, services);
            table.together = 1..services;
            let all: Vec<usize> = (1..services).collect();
            table.flood(&all);
            let taken: u32 = (1..services).map(|service| table.of(service)).sum();
            assert!(taken > limit / 10 * 4, "{taken} of {limit}");
            // It has a minimum of its own, however many Services the other namespace has.
            for _ in 0..4 {
                assert!(table.ask(0, 2), "{limit}");
            }
        }
    }

    #[test]
    fn one_service_leaves_something_to_others_of_its_namespace() {
        for limit in [700, 3_000, 20_000] {
            let mut table = Table::new(limit, 200);
            table.together = 0..100;
            table.flood(&[0]);
            assert!(table.ask(1, 2), "{limit}");
            assert!(table.ask(1, 2), "{limit}");
        }
    }

    #[test]
    fn a_service_with_more_than_its_share_gets_back_what_it_releases() {
        let mut table = Table::new(1_000, 200);
        for _ in 0..400 {
            assert!(table.ask(0, 1));
        }
        let others: Vec<usize> = (1..200).collect();
        table.flood(&others);
        assert!(!table.ask(0, 1));
        table.held[0].1 -= 1;
        assert!(!table.ask(0, 1), "its share is less now");
        assert_eq!(table.counts(0).decide_again(1), Decision::Common);
        table.held[0].1 += 1;
        table.held[1].1 += table.counts(1).free();
        let used = table.counts(0).used;
        table.limit = used;
        let refused = Decision::Refused(Excess::All);
        assert_eq!(table.counts(0).decide_again(1), refused);
    }

    #[test]
    fn one_source_leaves_room_for_others_of_its_service() {
        let mut counts = Counts {
            limit: 700,
            services: 3,
            ..Counts::default()
        };
        loop {
            match counts.decide(2) {
                Decision::Minimum => counts.own_minimum += 2,
                Decision::Common => {
                    counts.own_common += 2;
                    counts.namespace += 2;
                    counts.common += 2;
                }
                Decision::Refused(excess) => {
                    assert_eq!(excess, Excess::Source);
                    break;
                }
            }
            counts.used += 2;
            counts.source += 2;
        }
        assert!(counts.source > 500, "{}", counts.source);
        counts.source = 0;
        assert_eq!(counts.decide(2), Decision::Common);
    }

    #[test]
    fn listeners_of_one_service_leave_as_many_for_others() {
        let mut table = Table::new(1_000, 3);
        table.together = 0..2;
        while table.ask_sockets(0, 2) {}
        assert!((230..=300).contains(&table.of(0)), "{}", table.of(0));
        while table.ask_sockets(1, 2) {}
        assert!(table.of(1) >= 120, "{}", table.of(1));
        while table.ask_sockets(2, 2) {}
        assert!(table.of(2) >= 60, "{}", table.of(2));
    }

    #[test]
    fn listeners_of_the_only_service_get_what_is_not_kept_for_another() {
        for limit in [84, 550, 20_000] {
            let mut table = Table::new(limit, 1);
            while table.ask_sockets(0, 2) {}
            assert!(table.of(0) >= limit / 3 * 2, "{} of {limit}", table.of(0));
            table.held.push((0, 0));
            assert!(table.ask_sockets(1, 2), "{limit}");
        }
    }

    #[test]
    fn listeners_of_all_services_of_the_only_namespace_get_most() {
        let mut table = Table::new(1_000, 200);
        table.together = 0..200;
        while (0..200)
            .filter(|&service| table.ask_sockets(service, 2))
            .count()
            > 0
        {}
        let all: u32 = (0..200).map(|service| table.of(service)).sum();
        assert!(all >= 850, "{all}");
    }

    #[test]
    fn listeners_of_many_services_of_a_namespace_leave_some_for_another() {
        for (limit, services) in [(300, 6), (550, 11), (550, 201), (20_000, 11)] {
            let mut table = Table::new(limit, services);
            table.together = 1..services;
            while (1..services)
                .filter(|&service| table.ask_sockets(service, 2))
                .count()
                > 0
            {}
            while table.ask_sockets(0, 2) {}
            assert!(
                table.of(0) >= limit / 20,
                "{} of {limit}, beside {services}",
                table.of(0)
            );
        }
    }

    #[test]
    fn few_descriptors_are_divided_too() {
        for files in [0, 1, 10, 64, 256, 1024, 20_000, 1 << 20, u64::MAX] {
            let division = Division::of(files);
            let sum = u64::from(division.reserve)
                + u64::from(division.pipes)
                + u64::from(division.traffic);
            assert_eq!(sum, u64::from(division.files), "{division:?}");
            assert!(division.listeners <= division.traffic, "{division:?}");
        }
        let usual = Division::of(1024);
        assert!(usual.traffic > 700 && usual.reserve > 200, "{usual:?}");
    }

    /// What Services hold, by namespace: of sockets of listeners, or of connections.
    #[derive(Debug)]
    struct Listeners {
        limit: u32,
        cost: u32,
        held: Vec<Vec<(u32, u32)>>,
    }

    impl Listeners {
        fn all(&self) -> impl Iterator<Item = &(u32, u32)> {
            self.held.iter().flatten()
        }

        fn minimums(&self) -> u32 {
            self.all().map(|held| held.0).sum()
        }

        fn common(&self) -> u32 {
            self.all().map(|held| held.1).sum()
        }

        fn part(&self) -> u32 {
            self.limit / MINIMUMS as u32
        }

        fn of(&self, namespace: usize) -> u32 {
            self.held[namespace]
                .iter()
                .map(|held| held.0 + held.1)
                .sum()
        }

        /// What a namespace gets, whatever others have.
        fn due(&self) -> u32 {
            let most = self.counts(0, 0).most_minimum() as u32;
            (self.part() / self.held.len() as u32).min(most)
        }

        fn counts(&self, namespace: usize, service: usize) -> Counts {
            let (own_minimum, own_common) = self.held[namespace][service];
            Counts {
                limit: self.limit,
                used: self.minimums() + self.common(),
                common: self.common(),
                services: self.all().count() as u32,
                namespaces: self.held.len() as u32,
                siblings: self.held[namespace].len() as u32,
                own_minimum,
                own_common,
                namespace_minimum: self.held[namespace].iter().map(|held| held.0).sum(),
                namespace: self.of(namespace),
                source: 0,
            }
        }

        /// Opens a listener.
        fn ask(&mut self, namespace: usize, service: usize) -> bool {
            let counts = self.counts(namespace, service);
            let held = &mut self.held[namespace][service];
            match counts.decide_sockets(self.cost) {
                Decision::Minimum => held.0 += self.cost,
                Decision::Common => held.1 += self.cost,
                Decision::Refused(_) => return false,
            }
            true
        }

        /// Opens a connection.
        fn connect(&mut self, namespace: usize, service: usize) -> bool {
            let counts = self.connection_counts(namespace, service);
            let held = &mut self.held[namespace][service];
            match counts.decide(self.cost) {
                Decision::Minimum => held.0 += self.cost,
                Decision::Common => held.1 += self.cost,
                Decision::Refused(_) => return false,
            }
            true
        }

        fn connection_counts(&self, namespace: usize, service: usize) -> Counts {
            Counts {
                namespace: self.held[namespace].iter().map(|held| held.1).sum(),
                ..self.counts(namespace, service)
            }
        }

        /// Closes one.
        fn close(&mut self, namespace: usize, service: usize) {
            let held = &mut self.held[namespace][service];
            if held.1 > 0 {
                held.1 -= self.cost;
            } else {
                held.0 = held.0.saturating_sub(self.cost);
            }
        }
    }

    #[test]
    fn namespaces_that_come_one_after_the_other_take_no_more_than_is_kept_for_all() {
        for (limit, cost) in [(2_000, 2), (5_000, 1), (20_000, 8)] {
            let mut listeners = Listeners {
                limit,
                cost,
                held: vec![vec![(0, 0)], vec![(0, 0)]],
            };
            for newest in 1..60 {
                while (0..=newest).any(|namespace| listeners.ask(namespace, 0)) {}
                // Of each, only the first may be one too many.
                let most = 2 * listeners.part() + cost * (newest as u32 + 1);
                assert!(listeners.minimums() <= most, "{listeners:?}");
                assert!(listeners.minimums() + listeners.common() <= limit);
                listeners.held.push(vec![(0, 0)]);
            }
            // The earliest had the most, and enough have some.
            let some = (0..60).filter(|&namespace| listeners.of(namespace) >= cost);
            assert!(some.count() >= 28, "{listeners:?}");
        }
    }

    proptest! {
        #[test]
        fn a_namespace_gets_the_listeners_that_are_due_to_it_whatever_others_did_in_any_order(
            (limit, cost) in (64u32..4_000, 1u32..9),
            sizes in prop::collection::vec(1usize..6, 2..9),
            steps in prop::collection::vec((any::<usize>(), any::<usize>(), 0u8..8), 0..800),
        ) {
            let held = sizes.iter().map(|&services| vec![(0, 0); services]).collect();
            let mut listeners = Listeners { limit, cost, held };
            for (namespace, service, step) in steps {
                let namespace = namespace % listeners.held.len();
                let service = service % listeners.held[namespace].len();
                match step {
                    0 => listeners.close(namespace, service),
                    // Another Service of it takes nothing that is due to others.
                    1 => listeners.held[namespace].push((0, 0)),
                    _ => drop(listeners.ask(namespace, service)),
                }
                prop_assert!(listeners.minimums() <= 2 * listeners.part(), "{listeners:?}");
                let common = listeners.limit - 2 * listeners.part();
                prop_assert!(listeners.common() <= common, "{listeners:?}");
            }
            for namespace in 0..listeners.held.len() {
                while listeners.of(namespace) + cost <= listeners.due() {
                    prop_assert!(listeners.ask(namespace, 0), "{namespace} of {listeners:?}");
                }
            }
        }

        #[test]
        fn a_namespace_gets_the_minimum_that_is_due_to_it_whatever_others_did_in_any_order(
            (limit, cost) in (64u32..4_000, 1u32..3),
            sizes in prop::collection::vec(1usize..6, 2..6),
            steps in prop::collection::vec(
                (any::<usize>(), any::<usize>(), 0u8..8, 1usize..200), 0..200,
            ),
        ) {
            let held = sizes.iter().map(|&services| vec![(0, 0); services]).collect();
            let mut table = Listeners { limit, cost, held };
            for (namespace, service, step, often) in steps {
                let namespace = namespace % table.held.len();
                let service = service % table.held[namespace].len();
                match step {
                    0 => (0..often).for_each(|_| table.close(namespace, service)),
                    1 | 2 => table.held[namespace].push((0, 0)),
                    _ => {
                        for _ in 0..often {
                            table.connect(namespace, service);
                        }
                    }
                }
                prop_assert!(table.minimums() <= 2 * table.part(), "{table:?}");
                prop_assert!(table.minimums() + table.common() <= limit, "{table:?}");
            }
            for namespace in 0..table.held.len() {
                let due = table.part() / table.held.len() as u32;
                for service in 0..table.held[namespace].len() {
                    let counts = table.connection_counts(namespace, service);
                    let (own, minimum) = (counts.own_minimum + cost, counts.minimum());
                    if own <= minimum && counts.namespace_minimum + cost <= due {
                        let given = table.connect(namespace, service);
                        prop_assert!(given, "{namespace}, {service} of {table:?}");
                    }
                }
            }
        }

        #[test]
        fn all_minimums_together_are_what_the_common_part_leaves(
            limit in 0u32..100_000,
            sizes in prop::collection::vec(1u32..200, 1..50),
        ) {
            let services = sizes.iter().sum();
            let namespaces = sizes.len() as u32;
            let of = |&siblings: &u32| Counts {
                limit, services, namespaces, siblings,
                ..Counts::default()
            };
            let minimums = sizes.iter().map(|size| size * of(size).minimum());
            let all = minimums.sum::<u32>() + of(&sizes[0]).free();
            prop_assert!(all <= limit, "{all} of {limit}");
        }

        #[test]
        fn whatever_others_took_a_minimum_is_there(
            limit in 64u32..100_000,
            asks in prop::collection::vec((0usize..5, 1u32..3), 0..600),
            wanted in 0usize..6,
        ) {
            let mut table = Table::new(limit, 6);
            for (service, cost) in asks {
                table.ask(service, cost);
            }
            let minimum = table.counts(wanted).minimum();
            while table.of(wanted) < minimum {
                prop_assert!(table.ask(wanted, 1), "{} of {minimum}", table.of(wanted));
            }
        }

        #[test]
        fn no_more_than_there_is_is_given(
            limit in 0u32..2_000,
            asks in prop::collection::vec((0usize..4, 1u32..8), 0..2_000),
        ) {
            let mut table = Table::new(limit, 4);
            for (service, cost) in asks {
                table.ask(service, cost);
            }
            prop_assert!(table.counts(0).used <= limit);
        }

        #[test]
        fn no_counts_overflow(
            numbers in prop::array::uniform9(any::<u32>()),
            cost in any::<u32>(),
        ) {
            let [limit, used, common, services, own_minimum, own_common, namespace, source, other] =
                numbers;
            let counts = Counts {
                limit, used, common, services, own_minimum, own_common, namespace, source,
                namespace_minimum: other, namespaces: source, siblings: namespace,
            };
            let sockets = counts.decide_sockets(cost);
            let spare = counts.decide_spare(cost);
            prop_assert_ne!(spare, Decision::Minimum);
            if counts.decide(cost) != Decision::Refused(Excess::All)
                || sockets != Decision::Refused(Excess::All)
            {
                prop_assert!(u64::from(used) + u64::from(cost) <= u64::from(limit));
            }
        }
    }
}
