//! BFD control packets (RFC 5880, section 4) as values. Reading is strict: what the rules of
//! section 6.8.6 discard without knowing a session is an error here.

pub mod authentication;
pub mod echo;

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use self::authentication::{SECTION, Section};

/// The only version.
const VERSION: u8 = 1;

/// Bytes of a packet without authentication.
pub const HEADER: usize = 24;

/// Bytes of the longest packet that is written.
pub const LONGEST: usize = HEADER + SECTION;

const POLL: u8 = 0x20;
const FINAL: u8 = 0x10;
const CONTROL_PLANE_INDEPENDENT: u8 = 0x08;
const AUTHENTICATED: u8 = 0x04;
const DEMAND: u8 = 0x02;
const MULTIPOINT: u8 = 0x01;

/// The state of a session (section 6.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Held down by an administrator.
    AdminDown,
    /// No connection, or a new one.
    #[default]
    Down,
    /// The other side can be received, but does not receive yet.
    Init,
    /// Both receive each other.
    Up,
}

/// Why a session left the state Up last (section 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Diagnostic {
    /// It did not.
    #[default]
    None,
    /// No packet came for the detection time.
    DetectionTimeExpired,
    /// No echo came back.
    EchoFailed,
    /// The other side sent that it is down.
    NeighborDown,
    /// The forwarding plane was reset.
    ForwardingPlaneReset,
    /// The path is known to be down.
    PathDown,
    /// A path that this one consists of is known to be down.
    ConcatenatedPathDown,
    /// An administrator.
    AdministrativelyDown,
    /// As `ConcatenatedPathDown`, for the way back.
    ReverseConcatenatedPathDown,
    /// A number without a meaning so far, 9 to 31.
    Other(u8),
}

/// A control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Why the session of the sender left Up.
    pub diagnostic: Diagnostic,
    /// The state of the sender's session.
    pub state: State,
    /// The sender waits for an answer with `is_final`.
    pub is_poll: bool,
    /// The packet answers one with `is_poll`.
    pub is_final: bool,
    /// The sender's BFD survives the loss of its control plane.
    pub is_control_plane_independent: bool,
    /// The sender needs no periodic packets while both sides are Up.
    pub is_demand: bool,
    /// The number of intervals without a packet after which the sender's packets are missed.
    pub detect_multiplier: u8,
    /// The sender's name for the session.
    pub my_discriminator: NonZeroU32,
    /// The receiver's name for the session, as far as the sender knows it.
    pub your_discriminator: Option<NonZeroU32>,
    /// The interval at which the sender would like to send, in microseconds.
    pub desired_min_tx: Micros,
    /// The shortest interval between packets that the sender accepts; 0: it wants none.
    pub required_min_rx: Micros,
    /// The shortest interval between echoes that the sender returns; 0: it returns none.
    pub required_min_echo_rx: Micros,
    /// The authentication section.
    pub authentication: Option<Section>,
}

/// A time as packets carry it: whole microseconds, at most 71 minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u32);

/// Why bytes are no control packet that may be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Fewer bytes than a packet has, or than it says that it has.
    #[error("the packet is too short")]
    Short,
    /// A length that no packet can have.
    #[error("the packet states a length that it cannot have")]
    Length,
    /// Another version.
    #[error("version {0} is not supported")]
    Version(u8),
    /// A multiplier of 0.
    #[error("the detect multiplier is 0")]
    Multiplier,
    /// The bit for multipoint sessions is set.
    #[error("the packet is of a multipoint session")]
    Multipoint,
    /// No discriminator of the sender.
    #[error("the discriminator of the sender is 0")]
    Discriminator,
    /// No session can be named by such a packet.
    #[error("the discriminator of the receiver is 0, which state {0} excludes")]
    Unaddressed(State),
    /// Poll and Final at once.
    #[error("the packet is both Poll and Final")]
    PollAndFinal,
    /// The authentication section is not as its type has to be.
    #[error("the authentication section is malformed")]
    Authentication,
}

// === impl Control ===

impl Control {
    /// Reads the payload of a datagram.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let header: &[u8; HEADER] = bytes.first_chunk().ok_or(Malformed::Short)?;
        let [first, flags, detect_multiplier, length, words @ ..] = header;
        let version = first >> 5;
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        let is_authenticated = flags & AUTHENTICATED != 0;
        let shortest = HEADER + if is_authenticated { 2 } else { 0 };
        let packet = bytes.get(..usize::from(*length)).ok_or(Malformed::Short)?;
        if packet.len() < shortest {
            return Err(Malformed::Length);
        }
        if *detect_multiplier == 0 {
            return Err(Malformed::Multiplier);
        }
        if flags & MULTIPOINT != 0 {
            return Err(Malformed::Multipoint);
        }
        if flags & (POLL | FINAL) == POLL | FINAL {
            return Err(Malformed::PollAndFinal);
        }
        let mut numbers = words.as_chunks().0.iter().map(|it| u32::from_be_bytes(*it));
        let mut number = || numbers.next().unwrap_or_default();
        let my_discriminator = NonZeroU32::new(number()).ok_or(Malformed::Discriminator)?;
        let your_discriminator = NonZeroU32::new(number());
        let state = State::of(flags >> 6);
        if your_discriminator.is_none() && !matches!(state, State::Down | State::AdminDown) {
            return Err(Malformed::Unaddressed(state));
        }
        let (desired, required, echo) = (number(), number(), number());
        let rest = packet.get(HEADER..).unwrap_or_default();
        let authentication = is_authenticated
            .then(|| Section::parse(rest).ok_or(Malformed::Authentication))
            .transpose()?;
        Ok(Self {
            diagnostic: Diagnostic::of(first & 0x1f),
            state,
            is_poll: flags & POLL != 0,
            is_final: flags & FINAL != 0,
            is_control_plane_independent: flags & CONTROL_PLANE_INDEPENDENT != 0,
            is_demand: flags & DEMAND != 0,
            detect_multiplier: *detect_multiplier,
            my_discriminator,
            your_discriminator,
            desired_min_tx: Micros(desired),
            required_min_rx: Micros(required),
            required_min_echo_rx: Micros(echo),
            authentication,
        })
    }

    /// Returns the bytes of the packet. A section goes with the digest that it has.
    pub fn bytes(&self) -> Vec<u8> {
        let mut flags = self.state.number() << 6;
        let bits = [
            (self.is_poll, POLL),
            (self.is_final, FINAL),
            (self.is_control_plane_independent, CONTROL_PLANE_INDEPENDENT),
            (self.authentication.is_some(), AUTHENTICATED),
            (self.is_demand, DEMAND),
        ];
        for (_, bit) in bits.iter().filter(|(is_set, _)| *is_set) {
            flags |= bit;
        }
        let section = self.authentication.as_ref().map(Section::bytes);
        let length = HEADER + section.as_ref().map_or(0, Vec::len);
        let mut bytes = Vec::with_capacity(length);
        bytes.extend([
            VERSION << 5 | self.diagnostic.number(),
            flags,
            self.detect_multiplier,
            length as u8,
        ]);
        let words = [
            self.my_discriminator.get(),
            self.your_discriminator.map_or(0, NonZeroU32::get),
            self.desired_min_tx.0,
            self.required_min_rx.0,
            self.required_min_echo_rx.0,
        ];
        bytes.extend(words.into_iter().flat_map(u32::to_be_bytes));
        bytes.extend(section.into_iter().flatten());
        bytes
    }
}

// === impl State ===

impl State {
    /// All states.
    pub const ALL: [Self; 4] = [Self::AdminDown, Self::Down, Self::Init, Self::Up];

    fn of(number: u8) -> Self {
        match number & 3 {
            0 => Self::AdminDown,
            1 => Self::Down,
            2 => Self::Init,
            _ => Self::Up,
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::AdminDown => 0,
            Self::Down => 1,
            Self::Init => 2,
            Self::Up => 3,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AdminDown => "AdminDown",
            Self::Down => "Down",
            Self::Init => "Init",
            Self::Up => "Up",
        })
    }
}

// === impl Diagnostic ===

impl Diagnostic {
    fn of(number: u8) -> Self {
        match number & 0x1f {
            0 => Self::None,
            1 => Self::DetectionTimeExpired,
            2 => Self::EchoFailed,
            3 => Self::NeighborDown,
            4 => Self::ForwardingPlaneReset,
            5 => Self::PathDown,
            6 => Self::ConcatenatedPathDown,
            7 => Self::AdministrativelyDown,
            8 => Self::ReverseConcatenatedPathDown,
            other => Self::Other(other),
        }
    }

    /// Returns the number that packets carry.
    pub fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::DetectionTimeExpired => 1,
            Self::EchoFailed => 2,
            Self::NeighborDown => 3,
            Self::ForwardingPlaneReset => 4,
            Self::PathDown => 5,
            Self::ConcatenatedPathDown => 6,
            Self::AdministrativelyDown => 7,
            Self::ReverseConcatenatedPathDown => 8,
            Self::Other(number) => number & 0x1f,
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "no diagnostic",
            Self::DetectionTimeExpired => "control detection time expired",
            Self::EchoFailed => "echo function failed",
            Self::NeighborDown => "neighbor signaled session down",
            Self::ForwardingPlaneReset => "forwarding plane reset",
            Self::PathDown => "path down",
            Self::ConcatenatedPathDown => "concatenated path down",
            Self::AdministrativelyDown => "administratively down",
            Self::ReverseConcatenatedPathDown => "reverse concatenated path down",
            Self::Other(number) => return write!(f, "diagnostic {number}"),
        })
    }
}

// === impl Micros ===

impl Micros {
    /// Returns the time as it is measured.
    pub fn duration(self) -> Duration {
        Duration::from_micros(self.0.into())
    }
}

impl From<Duration> for Micros {
    /// Longer times become the longest that packets can carry.
    fn from(duration: Duration) -> Self {
        Self(u32::try_from(duration.as_micros()).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests;
