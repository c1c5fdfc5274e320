//! What a node sends, and to which others.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use super::{Datagram, Machine};
use crate::member::{Record, Status};
use crate::packet::{Kind, LONGEST, Packet, SessionId};

/// Nodes that send a hello to a dead one in each round, on average.
const GREETERS: f64 = 8.0;

/// Rounds in which a node that never answered is greeted as a dead one.
const GREETED: u32 = 150;

/// Nodes that send it a hello in each round after that, on average. When a speaker starts there, it
/// sends hellos itself.
const SELDOM: f64 = 0.2;

/// Answers to datagrams that may be repeated, in each round of greetings.
pub(super) const SESSIONS: u32 = 500;

// === impl Machine ===

impl Machine {
    /// Sends a packet with the news there is room for.
    pub(super) fn send(&mut self, kind: Kind, name: &Arc<str>, number: u64) {
        let Some((to, session, held)) = self.target(name) else {
            return;
        };
        let mut packet = self.packet(kind, session, number);
        // What is held against it, so that it can refute that.
        packet.records.extend(held);
        let mut length = packet.length();
        let buried = self.take_buried(name, LONGEST.saturating_sub(length));
        length += buried.as_ref().map_or(0, Record::length);
        packet.records.extend(buried);
        let mut names: Vec<(u32, Arc<str>)> = Vec::new();
        let news = self.news.iter().filter(|(about, _)| *about != name);
        names.extend(news.map(|(about, left)| (*left, Arc::clone(about))));
        names.sort_unstable_by(|one, other| other.cmp(one));
        for (left, about) in names {
            let Some(member) = self.members.get(&about) else {
                self.news.remove(&about);
                continue;
            };
            if length + member.record.length() > LONGEST {
                continue;
            }
            length += member.record.length();
            packet.records.push(member.record.clone());
            match left {
                0 | 1 => self.news.remove(&about),
                _ => self.news.insert(about, left - 1),
            };
        }
        self.put(to, &packet);
    }

    /// Takes the record by which a member learns that it was held for dead, if a packet is yet to
    /// notify it and has room for that.
    fn take_buried(&mut self, name: &Arc<str>, room: usize) -> Option<Record> {
        let member = self.members.get_mut(name)?;
        let (record, left) = member.buried.take_if(|(it, _)| it.length() <= room)?;
        if left > 1 {
            member.buried = Some((record.clone(), left - 1));
        }
        Some(record)
    }

    fn target(&self, name: &Arc<str>) -> Option<(SocketAddr, SessionId, Option<Record>)> {
        if let Some(member) = self.members.get(name) {
            let held = (member.record.status != Status::Alive).then(|| member.record.clone());
            let session = member.session.unwrap_or_default();
            return Some((member.record.address, session, held));
        }
        let address = self.seeds.get(name)?;
        Some((*address, SessionId::default(), None))
    }

    fn packet(&self, kind: Kind, to: SessionId, number: u64) -> Packet {
        Packet {
            kind,
            to,
            number,
            sender: self.own.clone(),
            records: Vec::new(),
        }
    }

    fn put(&mut self, to: SocketAddr, packet: &Packet) {
        if let Some(bytes) = self.sealer.seal(&packet.encode()) {
            self.counts.sent += 1;
            self.out.push(Datagram { to, bytes });
        }
    }

    /// Sends a member what is held against it.
    pub(super) fn send_record(&mut self, name: &Arc<str>, record: Record) {
        if let Some((to, session, _)) = self.target(name) {
            let mut packet = self.packet(Kind::Ping, session, 0);
            packet.records.push(record);
            self.put(to, &packet);
        }
    }

    /// Answers one that does not know the session of this node. What it sent may be repeated, so it
    /// changes nothing, and there are not many answers.
    pub(super) fn send_session(&mut self, to: SocketAddr, session: SessionId, number: u64) {
        if self.sessions_left > 0 {
            self.sessions_left -= 1;
            let packet = self.packet(Kind::Session, session, number);
            self.put(to, &packet);
        } else {
            self.counts.replayed += 1;
        }
    }

    /// Sends a packet to all members; `also_dead`: and to those that are dead.
    pub(super) fn send_to_all(&mut self, kind: Kind, also_dead: bool) {
        let is_one = |status: Status| status.is_present() || also_dead && status == Status::Dead;
        let members = self.members.values();
        let members = members.filter(|it| is_one(it.record.status));
        let names: Vec<Arc<str>> = members.map(|it| Arc::clone(&it.record.name)).collect();
        for name in names {
            self.send(kind, &name, 0);
        }
    }

    /// Says to all at once what is known of a member, and repeats it later.
    pub(super) fn send_about(&mut self, name: &Arc<str>) {
        let Some(member) = self.members.get(name) else {
            return;
        };
        let record = member.record.clone();
        self.add_news(name);
        let others = self.members.values().filter(|it| it.is_present());
        let others = others.filter(|it| it.record.name != *name);
        let others: Vec<_> = others
            .map(|it| (it.record.address, it.session.unwrap_or_default()))
            .collect();
        for (to, session) in others {
            let mut packet = self.packet(Kind::News, session, 0);
            packet.records.push(record.clone());
            self.put(to, &packet);
        }
        self.send(Kind::Ping, name, 0);
    }

    /// Appends what is known of a member to the next packets.
    pub(super) fn add_news(&mut self, name: &Arc<str>) {
        let times = 4 + 4 * self.members.len().max(1).ilog2();
        self.news.insert(Arc::clone(name), times);
    }

    /// Sends a hello to nodes that are dead or have never answered: some of the members do, so that
    /// there are as many greetings in a large cluster as in a small one. Where no speaker seems to
    /// run, there are few.
    pub(super) fn send_hello(&mut self) {
        self.sessions_left = SESSIONS;
        let present = self.members.values().filter(|it| it.is_present()).count();
        let all = (present + 1) as f64;
        let dead = self.members.values();
        let dead = dead.filter(|it| it.record.status == Status::Dead);
        let mut names: Vec<Arc<str>> = dead.map(|it| Arc::clone(&it.record.name)).collect();
        names.retain(|_| self.random.f64() < GREETERS / all);
        let (seeds, members) = (&self.seeds, &self.members);
        let is_silent = |name: &Arc<str>| seeds.contains_key(name) && !members.contains_key(name);
        self.silent.retain(|name, _| is_silent(name));
        for name in seeds.keys().filter(|name| is_silent(name)) {
            let rounds = self.silent.entry(Arc::clone(name)).or_default();
            *rounds = rounds.saturating_add(1);
            let greeters = if *rounds > GREETED { SELDOM } else { GREETERS };
            if self.random.f64() < greeters / all {
                names.push(Arc::clone(name));
            }
        }
        for name in names {
            self.send(Kind::Ping, &name, 0);
        }
    }

    /// Sends everything that is known to a member at random, and forgets what is old.
    pub(super) fn exchange(&mut self, now: Instant) {
        let forget = self.settings.forget;
        let seeds = &self.seeds;
        self.members.retain(|name, it| {
            // One that died may be cut off for long, and is not to be greeted as one that never
            // answered.
            let may_return = it.record.status == Status::Dead && seeds.contains_key(name);
            it.is_present() || may_return || it.since + forget > now
        });
        let members = self.members.values().filter(|it| it.is_present());
        let names: Vec<Arc<str>> = members.map(|it| Arc::clone(&it.record.name)).collect();
        if let Some(name) = self.random.choice(names) {
            self.send_everything(&name);
        }
    }

    pub(super) fn send_everything(&mut self, name: &Arc<str>) {
        let Some((to, session, _)) = self.target(name) else {
            return;
        };
        let mut packet = self.packet(Kind::News, session, 0);
        let records: Vec<Record> = self.members.values().map(|it| it.record.clone()).collect();
        for record in records {
            if packet.length() + record.length() > LONGEST {
                self.put(to, &packet);
                packet.records.clear();
            }
            packet.records.push(record);
        }
        self.put(to, &packet);
    }
}
