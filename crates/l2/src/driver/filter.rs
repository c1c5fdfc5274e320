//! Programs that the kernel runs on each frame, so that only frames which may matter wake the task.

use landfall_sys::packet::Instruction;

/// Which frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// ARP requests and replies.
    Arp,
    /// Neighbour Solicitations and Advertisements.
    Ndp,
}

/// With more interfaces than this all are let through, and the state machine drops the others:
/// a jump can't be longer.
const MOST_INTERFACES: usize = 200;

/// Loads a word, a half word or a byte of the frame or of what the kernel knows about it.
const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const RETURN: u16 = 0x06;

/// Where what the kernel knows about a frame begins (`SKF_AD_OFF`).
const ABOUT: u32 = 0xffff_f000;
const PACKET_TYPE: u32 = ABOUT + 4;
const INTERFACE: u32 = ABOUT + 8;

/// The last of "to this host", "to all" and "to a group"; what follows are frames to other hosts,
/// or of a VLAN that is not there, and frames that this host sends.
const TO_GROUP: u32 = 2;

/// Bytes of a frame: more than any ARP or NDP message that is understood.
const WHOLE: u32 = 2_048;

/// Returns the program for frames that come through some interfaces.
pub fn program<'i>(
    protocol: Protocol,
    interfaces: impl ExactSizeIterator<Item = &'i u32>,
) -> Vec<Instruction> {
    let mut program = vec![
        load(LOAD_WORD, PACKET_TYPE),
        jump(JUMP_GREATER, TO_GROUP, 0, 1),
        returns(0),
    ];
    let count = interfaces.len();
    if count <= MOST_INTERFACES {
        program.push(load(LOAD_WORD, INTERFACE));
        // A match skips the other comparisons and the return behind them.
        for (place, index) in interfaces.enumerate() {
            let others = (count - place) as u8;
            program.push(jump(JUMP_EQUAL, *index, others, 0));
        }
        program.push(returns(0));
    }
    match protocol {
        Protocol::Arp => program.extend([
            load(LOAD_HALF, 20),
            jump(JUMP_EQUAL, 1, 1, 0),
            jump(JUMP_EQUAL, 2, 0, 1),
        ]),
        Protocol::Ndp => program.extend([
            load(LOAD_BYTE, 20),
            jump(JUMP_EQUAL, 58, 0, 4),
            load(LOAD_BYTE, 54),
            jump(JUMP_EQUAL, 135, 1, 0),
            jump(JUMP_EQUAL, 136, 0, 1),
        ]),
    }
    program.extend([returns(WHOLE), returns(0)]);
    program
}

const fn load(code: u16, operand: u32) -> Instruction {
    Instruction {
        code,
        if_true: 0,
        if_false: 0,
        operand,
    }
}

const fn returns(bytes: u32) -> Instruction {
    load(RETURN, bytes)
}

const fn jump(code: u16, operand: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction {
        code,
        if_true,
        if_false,
        operand,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel does, on a frame of a type from an interface.
    fn passes(program: &[Instruction], frame: &[u8], packet_type: u32, interface: u32) -> bool {
        let (mut at, mut word) = (0, 0_u32);
        loop {
            let it = program[at];
            at += 1;
            let byte = |place: u32| frame.get(place as usize).copied().map(u32::from);
            match (it.code, it.operand) {
                (LOAD_WORD, PACKET_TYPE) => word = packet_type,
                (LOAD_WORD, INTERFACE) => word = interface,
                (LOAD_BYTE | LOAD_HALF, place) => {
                    let (Some(first), Some(next)) = (byte(place), byte(place + 1)) else {
                        return false;
                    };
                    word = if it.code == LOAD_BYTE {
                        first
                    } else {
                        first << 8 | next
                    };
                }
                (JUMP_EQUAL | JUMP_GREATER, operand) => {
                    let is_so = match it.code {
                        JUMP_EQUAL => word == operand,
                        _ => word > operand,
                    };
                    at += usize::from(if is_so { it.if_true } else { it.if_false });
                }
                (RETURN, bytes) => return bytes > 0,
                other => panic!("{other:?}"),
            }
        }
    }

    /// A frame of 80 bytes with some of them set.
    fn frame(set: &[(usize, u8)]) -> Vec<u8> {
        let mut frame = vec![0; 80];
        for (place, value) in set {
            frame[*place] = *value;
        }
        frame
    }

    #[test]
    fn requests_and_replies_from_the_interfaces_pass() {
        let program = program(Protocol::Arp, [3, 5, 9].iter());
        for (operation, passed) in [(0, false), (1, true), (2, true), (3, false)] {
            let frame = frame(&[(21, operation)]);
            for (interface, is_ours) in [(2, false), (3, true), (5, true), (9, true), (10, false)] {
                let expected = passed && is_ours;
                assert_eq!(
                    passes(&program, &frame, 1, interface),
                    expected,
                    "{interface}"
                );
            }
        }
        assert!(!passes(&program, &[0; 20], 1, 3));
    }

    #[test]
    fn frames_to_other_hosts_and_own_frames_do_not_pass() {
        let program = program(Protocol::Arp, [3].iter());
        let frame = frame(&[(21, 1)]);
        let passed = [0, 1, 2, 3, 4].map(|kind| passes(&program, &frame, kind, 3));
        assert_eq!(passed, [true, true, true, false, false]);
    }

    #[test]
    fn of_ipv6_only_neighbour_messages_pass() {
        let program = program(Protocol::Ndp, [3].iter());
        for (next, kind, passed) in [
            (58, 135, true),
            (58, 136, true),
            (58, 134, false),
            (58, 128, false),
            (6, 135, false),
        ] {
            let frame = frame(&[(20, next), (54, kind)]);
            assert_eq!(passes(&program, &frame, 2, 3), passed, "{next} {kind}");
        }
    }

    #[test]
    fn without_an_interface_nothing_passes_and_with_very_many_everything_does() {
        let frame = frame(&[(21, 1)]);
        assert!(!passes(&program(Protocol::Arp, [].iter()), &frame, 1, 3));
        let many: Vec<u32> = (100..300).collect();
        let most = program(Protocol::Arp, many.iter());
        assert!(passes(&most, &frame, 1, 100) && passes(&most, &frame, 1, 299));
        assert!(!passes(&most, &frame, 1, 300));
        let more: Vec<u32> = (100..301).collect();
        assert!(passes(&program(Protocol::Arp, more.iter()), &frame, 1, 7));
    }
}
