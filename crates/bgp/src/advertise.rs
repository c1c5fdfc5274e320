//! What one router has been sent, and the messages that make it what is desired.
//!
//! Messages are made one by one, when there is room to send: changes that come meanwhile change
//! what is still to be sent, so a slow router costs no memory.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;

use crate::peer::Families;
use crate::route::{Attributes, Routes};
use crate::shared::Change;
use crate::status::{Obstacle, Unsent};
use crate::wire::update::{self, Announcement, NextHop, Style};

/// Addresses of this side that can be next hops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextHops {
    /// The IPv4 address of the connection, or of its interface.
    pub ipv4: Option<Ipv4Addr>,
    /// The global IPv6 address of the connection, or of its interface.
    pub ipv6: Option<Ipv6Addr>,
    /// The link-local address of the interface, if the router is on the same link and reached by
    /// IPv6.
    pub link_local: Option<Ipv6Addr>,
}

/// What a session agreed on, as far as routes go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub style: Style,
    pub families: Families,
    pub next_hops: NextHops,
    /// Whether prefixes of IPv4 may have next hops of IPv6.
    pub extended_next_hop: bool,
    /// Whether the connection is one of IPv6.
    pub over_ipv6: bool,
}

/// The routes of one session.
#[derive(Debug)]
pub(crate) struct Advertiser {
    terms: Terms,
    wanted: Arc<Routes>,
    drained: bool,
    sent: BTreeMap<IpNet, Sent>,
    /// To be withdrawn, by family.
    withdraw: BTreeSet<IpNet>,
    /// To be announced.
    announce: BTreeMap<Group, BTreeSet<IpNet>>,
    /// Families whose End-of-RIB marker is still to be sent.
    end_of_rib: Families,
    /// Families that the router asked for again since it was sent something last.
    asked: Families,
    /// What cannot be sent.
    unsent: BTreeMap<IpNet, Obstacle>,
}

/// Prefixes that share their messages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    ipv4: bool,
    next_hop: NextHop,
    attributes: Arc<Attributes>,
}

#[derive(Debug)]
struct Sent {
    group: Group,
    /// Whether the router asked for it again.
    again: bool,
}

// === impl Advertiser ===

impl Advertiser {
    /// A session that was just established.
    pub fn new(terms: Terms, wanted: Arc<Routes>, drained: bool) -> Self {
        let mut new = Self {
            terms,
            wanted,
            drained,
            sent: BTreeMap::new(),
            withdraw: BTreeSet::new(),
            announce: BTreeMap::new(),
            end_of_rib: terms.families,
            asked: Families::default(),
            unsent: BTreeMap::new(),
        };
        new.plan();
        new
    }

    /// Changes what is desired.
    pub fn set(&mut self, wanted: Arc<Routes>, drained: bool) {
        let before = std::mem::replace(&mut self.wanted, wanted);
        if std::mem::replace(&mut self.drained, drained) != drained {
            self.plan();
            return;
        }
        let mut groups = Groups::new(self.terms, drained);
        let wanted = Arc::clone(&self.wanted);
        for Change { key, before, now } in wanted.changes(&before) {
            if let Some(Ok(group)) = before.map(|it| groups.of(key, it)) {
                self.forget(key, group);
            }
            self.withdraw.remove(key);
            self.unsent.remove(key);
            self.plan_one(*key, now.map(|it| groups.of(key, it)));
        }
    }

    /// Takes which addresses can be next hops from now on.
    pub fn set_next_hops(&mut self, next_hops: NextHops) {
        if std::mem::replace(&mut self.terms.next_hops, next_hops) != next_hops {
            self.plan();
        }
    }

    /// Sends all of a family again (RFC 2918). A router may ask thousands of times in what is read
    /// at once, so nothing is worked out where all that it was sent is planned again already.
    pub fn repeat(&mut self, ipv4: bool) {
        let asked = if ipv4 {
            &mut self.asked.ipv4
        } else {
            &mut self.asked.ipv6
        };
        if std::mem::replace(asked, true) {
            return;
        }
        for (_, sent) in self.sent.iter_mut().filter(|(_, it)| it.group.ipv4 == ipv4) {
            sent.again = true;
        }
        self.plan();
    }

    /// Returns whether there is a message to send.
    pub fn is_pending(&self) -> bool {
        !self.withdraw.is_empty()
            || !self.announce.is_empty()
            || self.end_of_rib != Families::default()
    }

    /// Returns how many prefixes the router has.
    pub fn sent(&self) -> usize {
        self.sent.len()
    }

    /// Returns what cannot be sent.
    pub fn unsent(&self) -> Option<Unsent> {
        let (_, why) = self.unsent.first_key_value()?;
        let count = self.unsent.len();
        Some(Unsent { count, why: *why })
    }

    /// Returns the next message, and takes it as sent.
    pub fn next(&mut self) -> Option<Vec<u8>> {
        self.asked = Families::default();
        self.next_withdrawal()
            .or_else(|| self.next_announcement())
            .or_else(|| self.next_end_of_rib())
    }

    fn next_withdrawal(&mut self) -> Option<Vec<u8>> {
        // Prefixes of IPv4 come first.
        let ipv4 = is_ipv4(self.withdraw.first()?);
        let family = self.withdraw.iter().take_while(|it| is_ipv4(it) == ipv4);
        let count = update::fit_to_withdraw(family);
        let taken = take(&mut self.withdraw, count);
        for prefix in &taken {
            self.sent.remove(prefix);
        }
        Some(update::withdraw(&taken, ipv4))
    }

    fn next_announcement(&mut self) -> Option<Vec<u8>> {
        let mut entry = self.announce.first_entry()?;
        let group = entry.key().clone();
        let announcement = group.announcement(self.terms.style);
        // There is room for one at least: `plan` leaves the others out.
        let count = announcement.fit(entry.get()).max(1);
        let taken = take(entry.get_mut(), count);
        if entry.get().is_empty() {
            entry.remove();
        }
        let message = announcement.write(&taken);
        for prefix in taken {
            let sent = Sent {
                group: group.clone(),
                again: false,
            };
            self.sent.insert(prefix, sent);
        }
        Some(message)
    }

    fn next_end_of_rib(&mut self) -> Option<Vec<u8>> {
        let ipv4 = if std::mem::take(&mut self.end_of_rib.ipv4) {
            true
        } else if std::mem::take(&mut self.end_of_rib.ipv6) {
            false
        } else {
            return None;
        };
        Some(update::withdraw(&[], ipv4))
    }

    /// Works out the difference between what is sent and what is desired.
    fn plan(&mut self) {
        let absent = self.sent.keys().filter(|it| !self.wanted.contains_key(it));
        self.withdraw = absent.copied().collect();
        self.announce.clear();
        self.unsent.clear();
        let mut groups = Groups::new(self.terms, self.drained);
        let wanted = Arc::clone(&self.wanted);
        for (prefix, attributes) in wanted.entries() {
            self.plan_one(*prefix, Some(groups.of(prefix, attributes)));
        }
    }

    /// Works out the difference for a prefix of which nothing is planned. `group`: with which
    /// others it is desired, or why it can't be sent; `None`: it is not desired.
    fn plan_one(&mut self, prefix: IpNet, group: Option<Result<&Group, Obstacle>>) {
        let sent = self.sent.get(&prefix);
        let group = match group {
            Some(Ok(group)) => group,
            not => {
                if sent.is_some() {
                    self.withdraw.insert(prefix);
                }
                if let Some(Err(why)) = not {
                    self.unsent.insert(prefix, why);
                }
                return;
            }
        };
        if sent.is_some_and(|sent| !sent.again && sent.group == *group) {
            return;
        }
        match self.announce.get_mut(group) {
            Some(prefixes) => drop(prefixes.insert(prefix)),
            None => drop(self.announce.insert(group.clone(), [prefix].into())),
        }
    }

    /// Takes a prefix out of those that are to be announced.
    fn forget(&mut self, prefix: &IpNet, group: &Group) {
        if let Some(prefixes) = self.announce.get_mut(group) {
            prefixes.remove(prefix);
            if prefixes.is_empty() {
                self.announce.remove(group);
            }
        }
    }
}

/// Groups by the attributes that they come from, so that each is worked out once. Attributes are
/// known by where they are, because thousands of prefixes share theirs.
struct Groups {
    terms: Terms,
    drained: bool,
    known: BTreeMap<(bool, *const Attributes), Result<Group, Obstacle>>,
}

// === impl Groups ===

impl Groups {
    fn new(terms: Terms, drained: bool) -> Self {
        let known = BTreeMap::new();
        Self {
            terms,
            drained,
            known,
        }
    }

    fn of(&mut self, prefix: &IpNet, attributes: &Arc<Attributes>) -> Result<&Group, Obstacle> {
        if prefix.trunc() != *prefix || !update::is_unicast(prefix) {
            return Err(Obstacle::NotUnicast);
        }
        let ipv4 = is_ipv4(prefix);
        let (terms, drained) = (&self.terms, self.drained);
        let key = (ipv4, Arc::as_ptr(attributes));
        let known = self.known.entry(key);
        let group = known.or_insert_with(|| Group::new(terms, attributes, ipv4, drained));
        group.as_ref().map_err(|why| *why)
    }
}

// === impl Group ===

impl Group {
    fn new(
        terms: &Terms,
        attributes: &Arc<Attributes>,
        ipv4: bool,
        drained: bool,
    ) -> Result<Self, Obstacle> {
        let Families { ipv4: v4, ipv6: v6 } = terms.families;
        if !(if ipv4 { v4 } else { v6 }) {
            return Err(Obstacle::Family);
        }
        let next_hop = terms.next_hop(attributes.next_hop, ipv4);
        let group = Self {
            ipv4,
            next_hop: next_hop.ok_or(Obstacle::NextHop)?,
            attributes: if drained {
                Arc::new(attributes.drained())
            } else {
                Arc::clone(attributes)
            },
        };
        let longest = if ipv4 {
            IpNet::new_assert(Ipv4Addr::UNSPECIFIED.into(), 32)
        } else {
            IpNet::new_assert(Ipv6Addr::UNSPECIFIED.into(), 128)
        };
        match group.announcement(terms.style).fit([&longest]) {
            0 => Err(Obstacle::Size),
            _ => Ok(group),
        }
    }

    fn announcement(&self, style: Style) -> Announcement {
        Announcement::new(&self.attributes, self.next_hop, self.ipv4, style)
    }
}

// === impl Terms ===

impl Terms {
    /// Returns the next hop of prefixes of a family.
    fn next_hop(&self, asked: Option<IpAddr>, ipv4: bool) -> Option<NextHop> {
        match (asked, ipv4) {
            (Some(IpAddr::V4(address)), true) => Some(NextHop::Classic(address)),
            (Some(IpAddr::V4(_)), false) => None,
            (Some(IpAddr::V6(address)), ipv4) => {
                (!ipv4 || self.extended_next_hop).then_some(NextHop::Ipv6(address, None))
            }
            (None, false) => self.own_ipv6(),
            // A connection of IPv6 has no IPv4 address of its own.
            (None, true) if self.over_ipv6 && self.extended_next_hop => {
                self.own_ipv6().or_else(|| self.own_ipv4())
            }
            (None, true) => self.own_ipv4(),
        }
    }

    fn own_ipv4(&self) -> Option<NextHop> {
        self.next_hops.ipv4.map(NextHop::Classic)
    }

    fn own_ipv6(&self) -> Option<NextHop> {
        let NextHops {
            ipv6, link_local, ..
        } = self.next_hops;
        match (ipv6, link_local) {
            (Some(global), local) => Some(NextHop::Ipv6(global, local)),
            (None, Some(local)) => Some(NextHop::Ipv6(local, None)),
            (None, None) => None,
        }
    }
}

fn is_ipv4(prefix: &IpNet) -> bool {
    matches!(prefix, IpNet::V4(_))
}

/// Takes the first ones out of a set.
fn take(set: &mut BTreeSet<IpNet>, count: usize) -> Vec<IpNet> {
    std::iter::from_fn(|| set.pop_first()).take(count).collect()
}

#[cfg(test)]
mod tests;
