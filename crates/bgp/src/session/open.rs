//! Messages that a router sends, and what follows from each in every state (RFC 4271, 8.2.2).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Session;
use super::connection::Side;
use super::link::{Established, Link, Phase};
use crate::advertise::{Advertiser, Terms};
use crate::error::SessionError;
use crate::notification::{Notification, cease, code, open};
use crate::peer::Peer;
use crate::status::Agreed;
use crate::wire::open::{Offer, Open};
use crate::wire::received::{Context, Received};
use crate::wire::update::Style;
use crate::wire::{self, Message, Refresh};

/// Returns what this side offers to a router.
pub(super) fn offer(peer: &Peer, restarted: bool) -> Offer {
    Offer {
        asn: peer.asn,
        hold: u16::try_from(peer.timers.hold.as_secs()).unwrap_or(u16::MAX),
        id: peer.router_id,
        families: peer.families,
        graceful_restart: peer.graceful_restart.map(|time| (time, restarted)),
    }
}

/// Returns the timers that both sides ask for: the shorter hold time; zero: none.
fn timers(peer: &Peer, hold: u16) -> (Duration, Duration) {
    let own = u64::from(offer(peer, false).hold);
    let hold = Duration::from_secs(own.min(hold.into()));
    let keepalive = peer.timers.keepalive.filter(|time| !time.is_zero());
    let third = hold / 3;
    (hold, keepalive.map_or(third, |time| time.min(third)))
}

// === impl Session ===

impl Session {
    /// Reads one message, if there is a whole one. Returns whether there may be more.
    pub(super) fn read_one(&mut self, place: usize, now: Instant) -> bool {
        let Some(link) = self.links.get_mut(place) else {
            return false;
        };
        let message = match link.next_message() {
            Ok(Some(message)) => message,
            Ok(None) => return false,
            Err(why) => return self.refuse(place, &why, now),
        };
        let context = match &link.phase {
            Phase::Established(established) => established.context,
            // Not used: no UPDATE is accepted.
            Phase::OpenSent | Phase::OpenConfirm(_) => Context {
                internal: false,
                four_octet_as: true,
            },
        };
        match wire::read(&message, context) {
            Ok(message) => self.handle(place, message, now),
            Err(why) => self.refuse(place, &why, now),
        }
    }

    /// Ends a connection on which something invalid was received.
    fn refuse(&mut self, place: usize, why: &Notification, now: Instant) -> bool {
        let error = SessionError::Invalid(why.clone());
        self.drop_link(place, Some(why), Some(error), now);
        false
    }

    fn handle(&mut self, place: usize, message: Message, now: Instant) -> bool {
        let Some(link) = self.links.get_mut(place) else {
            return false;
        };
        match &message {
            Message::Open(_) => self.counts.opens_received += 1,
            Message::Update(_) => self.counts.updates_received += 1,
            Message::Notification(_) => self.counts.notifications_received += 1,
            Message::Keepalive => self.counts.keepalives_received += 1,
            Message::Refresh(_) => self.counts.refreshes_received += 1,
        }
        let unexpected = |subcode| Notification::new(code::STATE_MACHINE, subcode, []);
        match (&mut link.phase, message) {
            (_, Message::Notification(why)) => {
                self.drop_link(place, None, Some(SessionError::Received(why)), now);
                false
            }
            (Phase::OpenSent, Message::Open(open)) => self.opened(place, &open, now),
            (Phase::OpenSent, _) => self.refuse(place, &unexpected(1), now),
            (Phase::OpenConfirm(_), Message::Keepalive) => self.establish(place, now),
            (Phase::OpenConfirm(_), _) => self.refuse(place, &unexpected(2), now),
            (Phase::Established(_), Message::Open(_)) => self.refuse(place, &unexpected(3), now),
            (Phase::Established(established), message) => {
                match message {
                    Message::Update(received) => {
                        established.prefixes_received += received.announced;
                        self.counts.updates_malformed += u64::from(is_malformed(&received));
                    }
                    Message::Refresh(Refresh::Ipv4) => established.advertiser.repeat(true),
                    Message::Refresh(Refresh::Ipv6) => established.advertiser.repeat(false),
                    _ => {}
                }
                link.restart_hold(now);
                true
            }
        }
    }

    /// Checks an OPEN, and which connection stays if there are two.
    fn opened(&mut self, place: usize, open: &Open, now: Instant) -> bool {
        let agreed = match self.agree(place, open) {
            Ok(agreed) => agreed,
            Err((why, error)) => {
                self.drop_link(place, Some(&why), Some(error), now);
                return false;
            }
        };
        let Some(link) = self.links.get(place) else {
            return false;
        };
        let (id, side) = (link.id, link.side);
        if !self.survives(place, open, side, now) {
            return false;
        }
        let place = self.place(id);
        if let Some(link) = place.and_then(|place| self.links.get_mut(place)) {
            link.confirm(agreed, now);
        }
        true
    }

    fn agree(&self, place: usize, open: &Open) -> Result<Agreed, (Notification, SessionError)> {
        let refused = |subcode, data: &[u8]| Notification::new(code::OPEN, subcode, data);
        let peer = &self.peer;
        if !peer.remote_asn.accepts(peer.asn, open.asn) {
            let error = SessionError::WrongAs {
                want: peer.remote_asn,
                got: open.asn.get(),
            };
            return Err((refused(open::BAD_PEER_AS, &[]), error));
        }
        // Routers of different ASes may have the same one (RFC 6286).
        if open.asn == peer.asn && open.id == peer.router_id {
            let why = refused(open::BAD_IDENTIFIER, &open.id.octets());
            return Err((why.clone(), SessionError::Invalid(why)));
        }
        let families = peer.families.and(open.capabilities.families);
        if !families.ipv4 && !families.ipv6 {
            let mut wanted = Vec::new();
            if peer.families.ipv4 {
                wanted.extend_from_slice(&[1, 4, 0, 1, 0, 1]);
            }
            if peer.families.ipv6 {
                wanted.extend_from_slice(&[1, 4, 0, 2, 0, 1]);
            }
            let why = refused(open::CAPABILITY, &wanted);
            return Err((why, SessionError::NoFamily));
        }
        let (hold, keepalive) = timers(peer, open.hold);
        let connection = self.links.get(place).map(|link| link.connection);
        let (local, remote) = connection.map(|it| (it.local, it.remote)).unzip();
        let nowhere = (IpAddr::from([0; 4]), 0).into();
        Ok(Agreed {
            local: local.unwrap_or(nowhere),
            remote: remote.unwrap_or(nowhere),
            remote_asn: open.asn,
            remote_id: open.id,
            hold,
            keepalive,
            families,
            capabilities: open.capabilities,
            keeps_routes: open.capabilities.graceful_restart.is_some()
                && peer.graceful_restart.is_some(),
        })
    }

    /// Resolves a collision (RFC 4271, 6.8). Returns whether this connection stays.
    fn survives(&mut self, place: usize, open: &Open, side: Side, now: Instant) -> bool {
        let collision = Notification::cease(cease::COLLISION, "");
        if let Some(old) = self.established() {
            if !self.links.get(old).is_some_and(Link::gives_way) {
                self.drop_link(place, Some(&collision), None, now);
                return false;
            }
            let error = SessionError::Closed { open_sent: false };
            self.drop_link(old, None, Some(error), now);
            return true;
        }
        let is_other = |phase: &Phase| matches!(phase, Phase::OpenConfirm(_));
        let other = self.links.iter().position(|link| is_other(&link.phase));
        let Some(other) = other.filter(|&it| it != place) else {
            return true;
        };
        // The one stays that the side with the higher identifier began; of equal ones, the side
        // with the higher AS (RFC 6286, 2.3).
        let own = (self.peer.router_id, self.peer.asn);
        let stays = if own > (open.id, open.asn) {
            Side::Outgoing
        } else {
            Side::Incoming
        };
        let loser = if side == stays { other } else { place };
        self.drop_link(loser, Some(&collision), None, now);
        loser == other
    }

    /// Begins to exchange routes.
    fn establish(&mut self, place: usize, now: Instant) -> bool {
        let Some(link) = self.links.get_mut(place) else {
            return false;
        };
        let Phase::OpenConfirm(agreed) = &link.phase else {
            return false;
        };
        let agreed = Agreed::clone(agreed);
        let internal = agreed.remote_asn == self.peer.asn;
        let four_octet_as = agreed.capabilities.four_octet_as;
        let terms = Terms {
            style: Style {
                path: (!internal).then_some(self.peer.asn),
                four_octet_as,
            },
            families: agreed.families,
            next_hops: link.next_hops(),
            extended_next_hop: agreed.capabilities.extended_next_hop && self.peer.families.ipv4,
            over_ipv6: agreed.remote.is_ipv6(),
        };
        let routes = Arc::clone(&self.routes);
        let drained = self.drain.concerns(agreed.keeps_routes);
        link.phase = Phase::Established(Box::new(Established {
            agreed,
            context: Context {
                internal,
                four_octet_as,
            },
            advertiser: Advertiser::new(terms, routes, drained),
            prefixes_received: 0,
        }));
        link.restart_hold(now);
        let id = link.id;
        self.restarted = false;
        self.counts.established += 1;
        self.since = now;
        let collision = Notification::cease(cease::COLLISION, "");
        while let Some(other) = self.links.iter().position(|link| link.id != id) {
            self.drop_link(other, Some(&collision), None, now);
        }
        true
    }
}

fn is_malformed(received: &Received) -> bool {
    received.malformed.is_some()
}
