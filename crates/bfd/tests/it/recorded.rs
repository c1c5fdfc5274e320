//! Sessions with FRR 8.4.4 and BIRD 2.0.12 as they went over the wire, replayed byte by byte: lines
//! of microseconds, direction and packet.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use landfall_bfd::packet::{Control, State};
use landfall_bfd::session::{Output, Session};

use crate::world::settings;

const FRR: &str = include_str!("recorded/frr.txt");
const BIRD: &str = include_str!("recorded/bird.txt");

/// A packet of a recording.
struct Recorded {
    after: Duration,
    is_ours: bool,
    bytes: Vec<u8>,
}

fn read(text: &str) -> Vec<Recorded> {
    let read = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        Recorded {
            after: Duration::from_micros(words[0].parse().unwrap()),
            is_ours: words[1] == "out",
            bytes: words[2].as_bytes().chunks(2).map(byte).collect(),
        }
    };
    text.lines().map(read).collect()
}

/// Packets without those that repeat the one before.
fn distinct(packets: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let mut packets: Vec<Vec<u8>> = packets.into_iter().collect();
    packets.dedup();
    packets
}

/// What a session sends that receives what ours received, at the same times.
fn replay(recorded: &[Recorded]) -> Vec<Vec<u8>> {
    let ours = recorded.iter().find(|it| it.is_ours).unwrap();
    let id: NonZeroU32 = Control::parse(&ours.bytes).unwrap().my_discriminator;
    let start = Instant::now();
    let mut session = Session::new(settings(50, 50, 3), id, 3, start + ours.after);
    let mut sent = Vec::new();
    let mut collect = |session: &mut Session| {
        sent.extend(
            session
                .take()
                .into_iter()
                .filter_map(|output| match output {
                    Output::Control(bytes) => Some(bytes),
                    Output::Echo(_) | Output::Change(_) => None,
                }),
        );
    };
    // Before that, ours did not exist.
    for packet in recorded.iter().filter(|it| it.after >= ours.after) {
        let now = start + packet.after;
        let due = |it: &Session| it.deadline().filter(|at| *at < now && !it.is_closed(*at));
        while let Some(at) = due(&session) {
            session.expire(at);
            collect(&mut session);
        }
        let control = Control::parse(&packet.bytes).unwrap();
        if !packet.is_ours {
            session.receive(&control, &packet.bytes, now).unwrap();
        } else if control.state == State::AdminDown {
            session.close(now);
        }
        collect(&mut session);
    }
    sent
}

#[test]
fn every_recorded_packet_is_the_same_after_reading_and_writing() {
    for recorded in [FRR, BIRD].map(read) {
        assert!(recorded.len() >= 9);
        for packet in recorded {
            let control = Control::parse(&packet.bytes).unwrap();
            assert_eq!(control.bytes(), packet.bytes);
        }
    }
}

#[test]
fn a_recorded_session_is_answered_in_the_same_way_again() {
    for recorded in [FRR, BIRD].map(read) {
        let ours = recorded.iter().filter(|it| it.is_ours);
        let before = distinct(ours.map(|it| it.bytes.clone()));
        assert_eq!(distinct(replay(&recorded)), before);
    }
}
