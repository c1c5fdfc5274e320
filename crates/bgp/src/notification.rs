//! NOTIFICATION messages: why a session ends, in numbers and in words.

use std::fmt;

/// The content of a NOTIFICATION.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The error code.
    pub code: u8,
    /// The subcode of that code.
    pub subcode: u8,
    /// More about it; its form depends on the codes.
    pub data: Box<[u8]>,
}

/// Error codes (IANA: BGP Error (Notification) Codes).
pub(crate) mod code {
    pub const HEADER: u8 = 1;
    pub const OPEN: u8 = 2;
    pub const UPDATE: u8 = 3;
    pub const HOLD_TIMER: u8 = 4;
    pub const STATE_MACHINE: u8 = 5;
    pub const CEASE: u8 = 6;
    pub const ROUTE_REFRESH: u8 = 7;
    pub const SEND_HOLD_TIMER: u8 = 8;
}

/// Subcodes of Cease (RFC 4486, RFC 8538, RFC 9384).
pub(crate) mod cease {
    pub const ADMINISTRATIVE_SHUTDOWN: u8 = 2;
    pub const PEER_DECONFIGURED: u8 = 3;
    pub const ADMINISTRATIVE_RESET: u8 = 4;
    pub const CONNECTION_REJECTED: u8 = 5;
    pub const CONFIGURATION_CHANGE: u8 = 6;
    pub const COLLISION: u8 = 7;
    pub const BFD_DOWN: u8 = 10;
}

/// Subcodes of errors in OPEN messages.
pub(crate) mod open {
    pub const UNSPECIFIC: u8 = 0;
    pub const VERSION: u8 = 1;
    pub const BAD_PEER_AS: u8 = 2;
    pub const BAD_IDENTIFIER: u8 = 3;
    pub const OPTIONAL_PARAMETER: u8 = 4;
    pub const HOLD_TIME: u8 = 6;
    pub const CAPABILITY: u8 = 7;
}

/// Subcodes of errors in UPDATE messages.
pub(crate) mod update {
    pub const ATTRIBUTE_LIST: u8 = 1;
    pub const WELL_KNOWN: u8 = 2;
    pub const OPTIONAL_ATTRIBUTE: u8 = 9;
    pub const NETWORK: u8 = 10;
}

/// Subcodes of errors in the header of a message.
pub(crate) mod header {
    pub const NOT_SYNCHRONIZED: u8 = 1;
    pub const LENGTH: u8 = 2;
    pub const TYPE: u8 = 3;
}

/// The most bytes of a shutdown communication (RFC 9003).
const LONGEST_COMMUNICATION: usize = 255;

// === impl Notification ===

impl Notification {
    pub(crate) fn new(code: u8, subcode: u8, data: impl Into<Box<[u8]>>) -> Self {
        Self {
            code,
            subcode,
            data: data.into(),
        }
    }

    /// A Cease; with a text for operators where its subcode has room for one (RFC 9003).
    pub(crate) fn cease(subcode: u8, text: &str) -> Self {
        if !takes_text(subcode) || text.is_empty() {
            return Self::new(code::CEASE, subcode, []);
        }
        let mut end = text.len().min(LONGEST_COMMUNICATION);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut data = vec![end as u8];
        data.extend_from_slice(text.get(..end).unwrap_or_default().as_bytes());
        Self::new(code::CEASE, subcode, data)
    }

    /// Returns the text for operators that came with it, without control characters.
    pub fn communication(&self) -> Option<String> {
        if self.code != code::CEASE || !takes_text(self.subcode) {
            return None;
        }
        let (&length, rest) = self.data.split_first()?;
        let text = rest.get(..usize::from(length))?;
        let text = std::str::from_utf8(text).ok()?;
        let shown: String = text.chars().filter(|it| !it.is_control()).collect();
        (!shown.is_empty()).then_some(shown)
    }

    /// Returns the names of code and subcode.
    fn names(&self) -> (&'static str, &'static str) {
        let (name, subcodes): (_, &[&str]) = match self.code {
            code::HEADER => ("Message Header Error", HEADER_NAMES),
            code::OPEN => ("OPEN Message Error", OPEN_NAMES),
            code::UPDATE => ("UPDATE Message Error", UPDATE_NAMES),
            code::HOLD_TIMER => ("Hold Timer Expired", &[]),
            code::STATE_MACHINE => ("Finite State Machine Error", STATE_MACHINE_NAMES),
            code::CEASE => ("Cease", CEASE_NAMES),
            code::ROUTE_REFRESH => ("ROUTE-REFRESH Message Error", ROUTE_REFRESH_NAMES),
            code::SEND_HOLD_TIMER => ("Send Hold Timer Expired", &[]),
            _ => ("", &[]),
        };
        let subcode = subcodes.get(usize::from(self.subcode));
        (name, subcode.copied().unwrap_or_default())
    }
}

fn takes_text(subcode: u8) -> bool {
    matches!(
        subcode,
        cease::ADMINISTRATIVE_SHUTDOWN | cease::ADMINISTRATIVE_RESET
    )
}

impl fmt::Display for Notification {
    /// `Cease/Administrative Shutdown (6/2): "text"`, with the data in hexadecimal where it is not
    /// a text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.names() {
            ("", _) => f.write_str("unknown error")?,
            (name, "") => f.write_str(name)?,
            (name, subcode) => write!(f, "{name}/{subcode}")?,
        }
        write!(f, " ({}/{})", self.code, self.subcode)?;
        if let Some(text) = self.communication() {
            return write!(f, ": {text:?}");
        }
        if !self.data.is_empty() {
            f.write_str(", data ")?;
        }
        for byte in self.data.iter().take(SHOWN) {
            write!(f, "{byte:02x}")?;
        }
        if self.data.len() > SHOWN {
            f.write_str("…")?;
        }
        Ok(())
    }
}

/// Bytes of data that are shown.
const SHOWN: usize = 32;

const HEADER_NAMES: &[&str] = &[
    "",
    "Connection Not Synchronized",
    "Bad Message Length",
    "Bad Message Type",
];
const OPEN_NAMES: &[&str] = &[
    "",
    "Unsupported Version Number",
    "Bad Peer AS",
    "Bad BGP Identifier",
    "Unsupported Optional Parameter",
    "Authentication Failure",
    "Unacceptable Hold Time",
    "Unsupported Capability",
    "",
    "",
    "",
    "Role Mismatch",
];
const UPDATE_NAMES: &[&str] = &[
    "",
    "Malformed Attribute List",
    "Unrecognized Well-known Attribute",
    "Missing Well-known Attribute",
    "Attribute Flags Error",
    "Attribute Length Error",
    "Invalid ORIGIN Attribute",
    "",
    "Invalid NEXT_HOP Attribute",
    "Optional Attribute Error",
    "Invalid Network Field",
    "Malformed AS_PATH",
];
const STATE_MACHINE_NAMES: &[&str] = &[
    "",
    "Unexpected Message in OpenSent",
    "Unexpected Message in OpenConfirm",
    "Unexpected Message in Established",
];
const CEASE_NAMES: &[&str] = &[
    "",
    "Maximum Number of Prefixes Reached",
    "Administrative Shutdown",
    "Peer De-configured",
    "Administrative Reset",
    "Connection Rejected",
    "Other Configuration Change",
    "Connection Collision Resolution",
    "Out of Resources",
    "Hard Reset",
    "BFD Down",
];
const ROUTE_REFRESH_NAMES: &[&str] = &["", "Invalid Message Length"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_is_written_in_numbers_and_words() {
        let text = |code, subcode, data: &[u8]| Notification::new(code, subcode, data).to_string();
        assert_eq!(text(2, 2, &[]), "OPEN Message Error/Bad Peer AS (2/2)");
        assert_eq!(
            text(1, 2, &[0, 5]),
            "Message Header Error/Bad Message Length (1/2), data 0005"
        );
        assert_eq!(text(4, 0, &[]), "Hold Timer Expired (4/0)");
        assert_eq!(text(6, 99, &[]), "Cease (6/99)");
        assert_eq!(text(77, 1, &[]), "unknown error (77/1)");
        assert!(text(3, 1, &[0xab; 40]).ends_with("abab…"));
    }

    #[test]
    fn the_text_of_a_shutdown_is_cut_between_characters_and_shown_without_controls() {
        let shutdown = cease::ADMINISTRATIVE_SHUTDOWN;
        let sent = Notification::cease(shutdown, &"é".repeat(200));
        assert_eq!(sent.data.len(), 255);
        assert_eq!(sent.communication().unwrap(), "é".repeat(127));
        let sent = Notification::cease(shutdown, "node\n\u{1b}[31m drained");
        assert_eq!(
            sent.to_string(),
            "Cease/Administrative Shutdown (6/2): \"node[31m drained\""
        );
    }

    #[test]
    fn a_text_that_is_broken_is_not_shown_as_one() {
        let broken = |data: &[u8]| Notification::new(6, 2, data).communication();
        assert_eq!(broken(&[]), None);
        assert_eq!(broken(&[9, b'a']), None);
        assert_eq!(broken(&[1, 0xff]), None);
        assert_eq!(Notification::new(6, 3, [1, b'a']).communication(), None);
        assert!(
            Notification::cease(cease::COLLISION, "text")
                .data
                .is_empty()
        );
    }
}
