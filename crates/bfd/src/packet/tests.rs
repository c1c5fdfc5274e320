use proptest::prelude::*;

use super::authentication::{Key, Method};
use super::*;

/// A packet as a router sends it, byte by byte.
const UP: [u8; 24] = [
    0x20, 0xc0, 3, 24, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0xc3, 0x50, 0, 1, 0x86, 0xa0, 0, 0, 0, 0,
];

fn up() -> Control {
    Control {
        diagnostic: Diagnostic::None,
        state: State::Up,
        is_poll: false,
        is_final: false,
        is_control_plane_independent: false,
        is_demand: false,
        detect_multiplier: 3,
        my_discriminator: NonZeroU32::MIN,
        your_discriminator: NonZeroU32::new(2),
        desired_min_tx: Micros(50_000),
        required_min_rx: Micros(100_000),
        required_min_echo_rx: Micros(0),
        authentication: None,
    }
}

fn changed(at: usize, value: u8) -> Result<Control, Malformed> {
    let mut bytes = UP;
    bytes[at] = value;
    Control::parse(&bytes)
}

#[test]
fn a_packet_is_the_same_both_ways() {
    assert_eq!(Control::parse(&UP), Ok(up()));
    assert_eq!(up().bytes(), UP);
}

#[test]
fn what_follows_a_packet_in_its_datagram_is_ignored() {
    let long = [&UP[..], &[1, 2, 3]].concat();
    assert_eq!(Control::parse(&long), Ok(up()));
}

#[test]
fn what_the_rfc_discards_is_malformed() {
    for length in 0..UP.len() {
        assert_eq!(Control::parse(&UP[..length]), Err(Malformed::Short));
    }
    assert_eq!(changed(0, 0), Err(Malformed::Version(0)));
    assert_eq!(changed(0, 0x40), Err(Malformed::Version(2)));
    assert_eq!(changed(3, 23), Err(Malformed::Length));
    assert_eq!(changed(3, 25), Err(Malformed::Short));
    assert_eq!(changed(2, 0), Err(Malformed::Multiplier));
    assert_eq!(changed(1, 0xc1), Err(Malformed::Multipoint));
    assert_eq!(changed(1, 0xf0), Err(Malformed::PollAndFinal));
    assert_eq!(changed(7, 0), Err(Malformed::Discriminator));
    assert_eq!(changed(1, 0xc4), Err(Malformed::Length));
    assert_eq!(changed(11, 0), Err(Malformed::Unaddressed(State::Up)));
    let mut init = UP;
    (init[1], init[11]) = (0x80, 0);
    assert_eq!(
        Control::parse(&init),
        Err(Malformed::Unaddressed(State::Init))
    );
    (init[1], init[11]) = (0x40, 0);
    assert!(Control::parse(&init).is_ok());
}

#[test]
fn a_section_of_another_method_or_length_is_malformed() {
    let key = Key::new(Method::KeyedSha1, 7, b"secret").unwrap();
    let mut sealed = Control {
        authentication: Some(key.section(5)),
        ..up()
    }
    .bytes();
    key.seal(&mut sealed);
    assert!(Control::parse(&sealed).is_ok());
    // Simple password, MD5, and none.
    for method in [0, 1, 2, 3, 6] {
        let mut other = sealed.clone();
        other[24] = method;
        assert_eq!(Control::parse(&other), Err(Malformed::Authentication));
    }
    let mut other = sealed.clone();
    other[25] = 27;
    assert_eq!(Control::parse(&other), Err(Malformed::Authentication));
    let mut other = sealed;
    other[3] = 51;
    assert_eq!(Control::parse(&other), Err(Malformed::Authentication));
}

#[test]
fn a_digest_holds_for_its_packet_and_key_only() {
    let key = Key::new(Method::MeticulousKeyedSha1, 7, b"secret").unwrap();
    let mut sealed = Control {
        authentication: Some(key.section(5)),
        ..up()
    }
    .bytes();
    key.seal(&mut sealed);
    let section = Control::parse(&sealed).unwrap().authentication.unwrap();
    assert!(key.verify(&sealed, &section));
    for at in 0..DIGEST_END {
        let mut other = sealed.clone();
        other[at] ^= 1;
        let section = Control::parse(&other).ok().and_then(|it| it.authentication);
        assert!(
            section.is_none_or(|section| !key.verify(&other, &section)),
            "{at}"
        );
    }
    for other in [
        Key::new(Method::MeticulousKeyedSha1, 7, b"Secret").unwrap(),
        Key::new(Method::MeticulousKeyedSha1, 8, b"secret").unwrap(),
        Key::new(Method::KeyedSha1, 7, b"secret").unwrap(),
    ] {
        assert!(!other.verify(&sealed, &section));
    }
}

const DIGEST_END: usize = LONGEST;

#[test]
fn a_key_has_1_to_20_bytes_and_is_not_printed() {
    let key = |secret| Key::new(Method::KeyedSha1, 1, secret);
    assert_eq!(key(&[]).unwrap_err().0, 0);
    assert_eq!(key(&[1; 21]).unwrap_err().0, 21);
    let text = format!("{:?}", key(b"very secret").unwrap());
    assert_eq!(text, "Key(KeyedSha1, id 1)");
}

prop_compose! {
    fn any_control()(
        diagnostic in 0_u8..32,
        state in 0_usize..4,
        bits in any::<[bool; 4]>(),
        detect_multiplier in 1_u8..,
        my in 1_u32..,
        your in 1_u32..,
        times in any::<[u32; 3]>(),
        section in proptest::option::of((any::<bool>(), any::<u8>(), any::<u32>())),
    ) -> Control {
        Control {
            diagnostic: Diagnostic::of(diagnostic),
            state: State::ALL[state],
            is_poll: bits[0],
            is_final: bits[1] && !bits[0],
            is_control_plane_independent: bits[2],
            is_demand: bits[3],
            detect_multiplier,
            my_discriminator: NonZeroU32::new(my).unwrap(),
            your_discriminator: NonZeroU32::new(your),
            desired_min_tx: Micros(times[0]),
            required_min_rx: Micros(times[1]),
            required_min_echo_rx: Micros(times[2]),
            authentication: section.map(|(is_meticulous, key_id, sequence)| Section {
                method: if is_meticulous {
                    Method::MeticulousKeyedSha1
                } else {
                    Method::KeyedSha1
                },
                key_id,
                sequence,
                digest: [key_id; 20],
            }),
        }
    }
}

proptest! {
    #[test]
    fn every_packet_is_the_same_both_ways(control in any_control()) {
        prop_assert_eq!(Control::parse(&control.bytes()), Ok(control));
    }

    #[test]
    fn no_bytes_make_reading_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(control) = Control::parse(&bytes) {
            let again = control.bytes();
            prop_assert_eq!(Control::parse(&again), Ok(control));
        }
    }
}
