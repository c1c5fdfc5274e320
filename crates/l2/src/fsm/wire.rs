//! Which frames are sent from an interface: questions, answers and announcements.

use std::net::IpAddr;

use crate::interfaces::Interface;
use crate::mac::MacAddress;
use crate::packet::arp::{Arp, Operation};
use crate::packet::ndp::{ALL_NODES, Advertisement, Solicitation};
use crate::packet::{Frame, Message};

/// Returns the address that a frame asks for, if it is a question to others.
pub fn asked_for(frame: &Frame) -> Option<IpAddr> {
    match frame.message {
        Message::Arp(arp) => {
            let is_question = arp.operation == Operation::Request && arp.sender != arp.target;
            is_question.then_some(arp.target.into())
        }
        Message::Solicitation(asked) => {
            (asked.source != asked.target).then_some(asked.target.into())
        }
        Message::Advertisement(_) => None,
    }
}

/// Answers a question that came through an interface, for the address that it asks for. `None` if
/// it was not sent to this interface.
pub fn answer(frame: &Frame, through: &Interface) -> Option<Vec<u8>> {
    let to_all = match frame.message {
        Message::Arp(_) => MacAddress::BROADCAST,
        Message::Solicitation(asked) => MacAddress::of_group(asked.destination),
        Message::Advertisement(_) => return None,
    };
    if frame.destination != through.mac && frame.destination != to_all {
        return None;
    }
    match frame.message {
        Message::Arp(arp) if through.has_arp => Some(arp.answer(through.mac).frame(arp.sender_mac)),
        Message::Solicitation(asked) => {
            let answer = asked.answer(through.mac);
            let to = if answer.solicited {
                asked.mac.unwrap_or(frame.source)
            } else {
                MacAddress::of_group(answer.destination)
            };
            Some(answer.frame(to, through.mac))
        }
        Message::Arp(_) | Message::Advertisement(_) => None,
    }
}

/// Asks whether another host has an address.
pub fn probe(address: IpAddr, through: &Interface) -> impl Iterator<Item = Vec<u8>> + use<> {
    let frame = match address {
        IpAddr::V4(address) => Arp::probe(through.mac, address).frame(MacAddress::BROADCAST),
        IpAddr::V6(address) => {
            let probe = Solicitation::probe(address);
            probe.frame(MacAddress::of_group(probe.destination), through.mac)
        }
    };
    std::iter::once(frame)
}

/// Makes an address known to all stations.
pub fn announcement(address: IpAddr, through: &Interface) -> impl Iterator<Item = Vec<u8>> + use<> {
    let frames = match address {
        IpAddr::V4(address) => {
            let gratuitous = |operation| {
                let arp = Arp::gratuitous(operation, through.mac, address);
                Some(arp.frame(MacAddress::BROADCAST))
            };
            [gratuitous(Operation::Request), gratuitous(Operation::Reply)]
        }
        IpAddr::V6(address) => {
            let unsolicited = through.link_local.map(|from| {
                let said = Advertisement::unsolicited(from, address, through.mac);
                said.frame(MacAddress::of_group(ALL_NODES), through.mac)
            });
            [unsolicited, None]
        }
    };
    frames.into_iter().flatten()
}
