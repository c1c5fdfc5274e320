//! What a node makes of what others say.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Instant;

use super::watch::Watch;
use super::{MEMBERS, Machine, Member};
use crate::member::{Record, Status};
use crate::packet::{Kind, Packet, SessionId};
use crate::ring::Place;

/// Members that wait for everything that is known.
const CONTACTS: usize = 64;

/// Packets that notify a member that it was held for dead: some may be lost.
const NOTICES: u8 = 4;

/// What a record is for what is held of the node.
enum Verdict {
    /// Nothing new.
    Known,
    /// It replaces what is held.
    Take(Status),
    /// It is held against the node, which is asked.
    Suspicion,
}

// === impl Machine ===

impl Machine {
    /// Takes a packet that is new and was written for this life.
    pub(super) fn accept(&mut self, now: Instant, session: SessionId, packet: Packet) {
        let name = Arc::clone(&packet.sender.name);
        let said = packet.sender.incarnation;
        let says_dead = |it: &Record| it.name == self.own.name && it.status == Status::Dead;
        if packet.records.iter().any(says_dead)
            && let Some(sender) = self.members.get_mut(&name)
        {
            sender.held_us_dead = true;
        }
        self.merge(now, packet.sender);
        let Some(sender) = self.members.get_mut(&name) else {
            return;
        };
        sender.session = Some(session);
        // One that does not know that it is held for dead may be cut off: what it says of others
        // counts again when it has refuted that.
        if sender.is_present() {
            for record in packet.records {
                self.merge(now, record);
            }
        } else {
            let mut records = packet.records.iter();
            if let Some(record) = records.find(|it| it.name == self.own.name) {
                self.merge_own(record);
            }
        }
        match packet.kind {
            Kind::Session => {
                self.take_answer(&name, packet.number);
                self.send(Kind::Ping, &name, 0);
            }
            Kind::Ping => self.send(Kind::Ack, &name, packet.number),
            Kind::Ack => self.take_answer(&name, packet.number),
            Kind::News => {}
        }
        self.remind(&name, said);
    }

    /// A node whose clock went back in a new life says less than it said before: it must say more.
    fn remind(&mut self, name: &Arc<str>, said: u64) {
        let held = self.members.get(name);
        if let Some(held) = held.filter(|it| it.record.incarnation > said) {
            let record = held.record.clone();
            self.send_record(name, record);
        }
    }

    pub(super) fn merge(&mut self, now: Instant, record: Record) {
        if record.name == self.own.name {
            return self.merge_own(&record);
        }
        let Some(held) = self.members.get_mut(&record.name) else {
            return self.add(now, record);
        };
        let name = Arc::clone(&record.name);
        match verdict(&held.record, &record) {
            Verdict::Known => {}
            Verdict::Suspicion => {
                held.record.incarnation = record.incarnation;
                self.send_record(&name, record);
                // Those that watched it do not any more, and none of them may be this node.
                let watch = self.watches.entry(name);
                watch.or_insert_with(|| Watch::once(now, self.settings.timeout));
            }
            Verdict::Take(status) => {
                let (was, was_dead) = (held.is_present(), held.record.status == Status::Dead);
                let changes = record.metadata != held.record.metadata
                    || record.address != held.record.address
                    || record.incarnation != held.record.incarnation;
                let before = std::mem::replace(&mut held.record, Record { status, ..record });
                held.since = now;
                let is = held.is_present();
                // What it announced last may be what hosts know, also if this node never missed it.
                let has_left = status == Status::Left;
                let is_met = has_left && std::mem::take(&mut held.held_us_dead);
                if is && was_dead {
                    // It may have refuted the suspicion alone, and not know that it was too late.
                    held.buried = Some((before, NOTICES));
                    self.send(Kind::Ping, &name, 0);
                }
                if is_met || was_dead && (is || has_left) {
                    self.note_reunion();
                }
                self.add_news(&name);
                if is != was {
                    self.set_ring(now);
                } else if is && changes {
                    self.revision += 1;
                }
                if status == Status::Suspect {
                    self.send(Kind::Ping, &name, 0);
                } else if is && !was {
                    self.add_contact(name);
                }
            }
        }
    }

    /// A node that was not known. What others hold against it is none of what makes it a member.
    fn add(&mut self, now: Instant, record: Record) {
        if record.status == Status::Dead || self.members.len() >= MEMBERS {
            return;
        }
        let status = match record.status {
            Status::Suspect => Status::Dead,
            other => other,
        };
        let name = Arc::clone(&record.name);
        let member = Member {
            place: Place::of(&name),
            record: Record { status, ..record },
            session: None,
            since: now,
            held_us_dead: false,
            buried: None,
        };
        self.members.insert(Arc::clone(&name), member);
        self.add_news(&name);
        if status.is_present() {
            self.reunions += 1;
            self.set_ring(now);
            self.add_contact(name);
        }
    }

    pub(super) fn note_reunion(&mut self) {
        self.reunions += 1;
        self.revision += 1;
    }

    fn add_contact(&mut self, name: Arc<str>) {
        if self.contacts.len() < CONTACTS && !self.contacts.contains(&name) {
            self.contacts.push_back(name);
        }
    }

    /// What others hold of this node, which knows better.
    fn merge_own(&mut self, record: &Record) {
        // Once for each: another one may go on saying so, and receive nothing that is said to it.
        if record.status == Status::Dead && self.buried < Some(record.incarnation) {
            self.buried = Some(record.incarnation);
            self.note_reunion();
        }
        let is_refuted = match record.incarnation.cmp(&self.own.incarnation) {
            Ordering::Less => false,
            Ordering::Equal => {
                record.status != Status::Alive
                    || record.metadata != self.own.metadata
                    || record.address != self.own.address
            }
            Ordering::Greater => true,
        };
        if !is_refuted || self.own.status == Status::Left {
            return;
        }
        self.own.incarnation = record.incarnation + 1;
        self.counts.refuted += 1;
        self.send_to_all(Kind::News, true);
    }
}

/// Checks a record of a node. Death is never taken over for one that is present: this node finds it
/// out by itself.
fn verdict(held: &Record, record: &Record) -> Verdict {
    use Status::{Alive, Dead, Left, Suspect};
    match record.incarnation.cmp(&held.incarnation) {
        Ordering::Less => Verdict::Known,
        Ordering::Equal => match (held.status, record.status) {
            (Alive, Suspect) => Verdict::Take(Suspect),
            (Alive, Dead) => Verdict::Suspicion,
            (Alive | Suspect | Dead, Left) => Verdict::Take(Left),
            _ => Verdict::Known,
        },
        Ordering::Greater => match (held.status, record.status) {
            (_, Alive) => Verdict::Take(Alive),
            (_, Left) => Verdict::Take(Left),
            (Alive | Suspect, Suspect) => Verdict::Take(Suspect),
            (Alive | Suspect, Dead) => Verdict::Suspicion,
            (Dead | Left, Suspect | Dead) => Verdict::Take(Dead),
        },
    }
}
