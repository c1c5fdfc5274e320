//! What lies between the nodes, and what it does to what they send.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;
use std::time::Duration;

use landfall_l2::mac::MacAddress;
use landfall_l2::packet::arp::{Arp, Operation};
use landfall_l2::packet::ndp::{Solicitation, solicited_node};
use landfall_l2::packet::{Frame, Message};

const FOREIGN_HOST: MacAddress = MacAddress([2, 0xff, 0, 0, 0, 2]);

const CLIENT: MacAddress = MacAddress([2, 0xff, 0, 0, 0, 1]);

/// Loss that changes nothing of what must hold: one of a hundred.
const HARMLESS: f64 = 0.01;

/// The network of a moment.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// The part of everything that is lost.
    pub loss: f64,
    /// The part that arrives twice.
    pub duplicates: f64,
    /// The part that is late, and overtaken by others.
    pub late: f64,
    /// Pairs (from, to) between which no datagram arrives.
    pub cut: BTreeSet<(usize, usize)>,
    /// Between these pairs no frame arrives either.
    pub cuts_frames: bool,
    /// What was cut before, and when that ended.
    healed: Vec<(Duration, BTreeSet<(usize, usize)>)>,
    /// When much was lost for the last time.
    rough: Option<Duration>,
}

/// A host that talks to addresses and keeps what it learned of them, as kernels do: a question
/// when it knows nothing, and then what is announced.
#[derive(Debug, Default)]
pub struct Client {
    questions: BTreeMap<IpAddr, Rc<[u8]>>,
    /// The station that it sends to.
    pub neighbours: BTreeMap<IpAddr, MacAddress>,
}

// === impl Network ===

impl Network {
    /// Ends every fault.
    pub fn heal(&mut self, now: Duration) {
        let cut = std::mem::take(&mut self.cut);
        self.healed.push((now, cut));
        self.note(now);
        (self.loss, self.duplicates, self.late) = (0.0, 0.0, 0.0);
    }

    /// Notes how it was until now.
    pub fn note(&mut self, now: Duration) {
        if self.loss > HARMLESS {
            self.rough = Some(now);
        }
    }

    /// Returns whether these two may have missed what the other said within a time.
    pub fn is_disturbed(&self, one: usize, other: usize, now: Duration, within: Duration) -> bool {
        let has = |cut: &BTreeSet<_>| cut.contains(&(one, other)) || cut.contains(&(other, one));
        let healed = self.healed.iter().filter(|(at, _)| *at + within > now);
        self.is_rough(now, within) || has(&self.cut) || healed.map(|it| &it.1).any(has)
    }

    fn is_rough(&self, now: Duration, within: Duration) -> bool {
        self.loss > HARMLESS || self.rough.is_some_and(|at| at + within > now)
    }

    /// Returns whether any two may have missed something within a time.
    pub fn is_whole(&self, now: Duration, within: Duration) -> bool {
        let mut healed = self.healed.iter();
        let was_cut = healed.any(|(at, cut)| !cut.is_empty() && *at + within > now);
        self.cut.is_empty() && !was_cut && !self.is_rough(now, within)
    }
}

// === impl Client ===

impl Client {
    /// The frame that asks all stations for an address.
    pub fn question(&mut self, address: IpAddr) -> Rc<[u8]> {
        let question = self.questions.entry(address);
        Rc::clone(question.or_insert_with(|| question_for(address).into()))
    }

    /// Takes an answer to its question, if it had none.
    pub fn take_answer(&mut self, address: IpAddr, frame: &[u8]) {
        if let Some(claim) = Frame::parse(frame).and_then(|it| it.claim()) {
            assert_eq!(claim.address, address, "an answer for another address");
            self.neighbours.entry(address).or_insert(claim.mac);
        }
    }

    /// Takes a frame that is for all.
    pub fn take_frame(&mut self, frame: &[u8]) {
        let Some(frame) = Frame::parse(frame) else {
            panic!("a speaker sent what it does not understand itself: {frame:02x?}");
        };
        if let (Message::Arp(_) | Message::Advertisement(_), Some(claim)) =
            (frame.message, frame.claim())
            && !claim.is_probe
            && let Some(known) = self.neighbours.get_mut(&claim.address)
        {
            *known = claim.mac;
        }
    }
}

/// Returns what the host that has an address answers to a node that probes for it.
pub fn answer_of_foreign_host(probe: &Frame) -> Option<Vec<u8>> {
    match probe.message {
        Message::Arp(asked) => Some(asked.answer(FOREIGN_HOST).frame(asked.sender_mac)),
        Message::Solicitation(asked) => {
            let answer = asked.answer(FOREIGN_HOST);
            let group = MacAddress::of_group(answer.destination);
            Some(answer.frame(group, FOREIGN_HOST))
        }
        Message::Advertisement(_) => None,
    }
}

fn question_for(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(target) => Arp {
            operation: Operation::Request,
            sender_mac: CLIENT,
            sender: [192, 0, 2, 250].into(),
            target_mac: MacAddress([0; 6]),
            target,
        }
        .frame(MacAddress::BROADCAST),
        IpAddr::V6(target) => {
            let group = solicited_node(target);
            let asked = Solicitation {
                source: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xff01),
                destination: group,
                mac: Some(CLIENT),
                ..Solicitation::probe(target)
            };
            asked.frame(MacAddress::of_group(group), CLIENT)
        }
    }
}
