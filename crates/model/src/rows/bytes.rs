//! Values in as few bytes as they need: what packed rows are made of.
//!
//! Written and read in this process only, so the form may change with any version.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use jiff::Timestamp;

/// Bytes being written.
#[derive(Debug)]
pub(super) struct Writer(Vec<u8>);

/// Bytes being read. Every method answers `None` where the bytes are not what a writer left.
#[derive(Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

/// What most rows need at most.
const ROOM: usize = 1024;

/// The most values of a list that get room before they are read.
const MOST_AT_ONCE: usize = 1024;

/// Nanoseconds.
const SECOND: u32 = 1_000_000_000;

// === impl Writer ===

impl Writer {
    /// Begins with nothing, and with room for most rows.
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(ROOM))
    }

    pub(super) fn finish(self) -> Box<[u8]> {
        self.0.into_boxed_slice()
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Seven bits per byte, the lowest first; all bytes but the last have the highest bit.
    pub(super) fn number(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    pub(super) fn count(&mut self, count: usize) {
        self.number(count as u64);
    }

    /// Small numbers of either sign are short.
    pub(super) fn signed(&mut self, number: i64) {
        self.number((number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned());
    }

    pub(super) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.bytes(text.as_bytes());
    }

    pub(super) fn port(&mut self, port: Option<NonZeroU16>) {
        self.number(port.map_or(0, NonZeroU16::get).into());
    }

    pub(super) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.byte(value.is_some().into());
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(super) fn list<T>(&mut self, list: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.count(list.len());
        for value in list {
            write(self, value);
        }
    }

    pub(super) fn map(&mut self, map: &BTreeMap<String, String>) {
        self.count(map.len());
        for (key, value) in map {
            self.text(key);
            self.text(value);
        }
    }

    pub(super) fn time(&mut self, time: Timestamp) {
        self.signed(time.as_second());
        self.signed(time.subsec_nanosecond().into());
    }

    pub(super) fn duration(&mut self, duration: Duration) {
        self.number(duration.as_secs());
        self.number(duration.subsec_nanos().into());
    }

    /// UIDs and versions: texts that are nearly always one kind of number.
    pub(super) fn id(&mut self, text: &str) {
        if let Some(uuid) = uuid_of(text) {
            self.byte(UUID);
            self.bytes(&uuid.to_be_bytes());
        } else if let Some(number) = text.parse().ok().filter(|n: &u64| n.to_string() == text) {
            self.byte(NUMBER);
            self.number(number);
        } else {
            self.byte(TEXT);
            self.text(text);
        }
    }
}

const TEXT: u8 = 0;
const NUMBER: u8 = 1;
const UUID: u8 = 2;

/// The number of characters of a UUID.
const UUID_LENGTH: usize = 36;

/// Where the dashes of a UUID are.
const DASHES: [usize; 4] = [8, 13, 18, 23];

/// The number that a UUID is which is written as usual: by small letters.
fn uuid_of(text: &str) -> Option<u128> {
    if text.len() != UUID_LENGTH {
        return None;
    }
    let mut uuid = 0;
    for (position, byte) in text.bytes().enumerate() {
        let digit = match byte {
            b'-' if DASHES.contains(&position) => continue,
            _ if DASHES.contains(&position) => return None,
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        uuid = (uuid << 4) | u128::from(digit);
    }
    Some(uuid)
}

fn text_of(uuid: u128) -> String {
    let mut text = String::with_capacity(UUID_LENGTH);
    for byte in uuid.to_be_bytes() {
        for digit in [byte >> 4, byte & 0xf] {
            if DASHES.contains(&text.len()) {
                text.push('-');
            }
            text.push(char::from(if digit < 10 {
                b'0' + digit
            } else {
                b'a' - 10 + digit
            }));
        }
    }
    text
}

// === impl Reader ===

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns everything that is left.
    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn count(&mut self) -> Option<usize> {
        self.number()?.try_into().ok()
    }

    pub(super) fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        let count = self.count()?;
        std::str::from_utf8(self.bytes(count)?).ok()
    }

    pub(super) fn skip_text(&mut self) -> Option<()> {
        let count = self.count()?;
        self.bytes(count).map(drop)
    }

    pub(super) fn string(&mut self) -> Option<String> {
        self.text().map(ToOwned::to_owned)
    }

    /// A port, of which there may be none.
    #[expect(clippy::option_option, reason = "unreadable, or read to be none")]
    pub(super) fn port(&mut self) -> Option<Option<NonZeroU16>> {
        Some(NonZeroU16::new(self.number()?.try_into().ok()?))
    }

    /// A value that may be absent.
    #[expect(clippy::option_option, reason = "unreadable, or read to be none")]
    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<Option<T>> {
        match self.byte()? {
            0 => Some(None),
            _ => read(self).map(Some),
        }
    }

    pub(super) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let count = self.count()?;
        // Each takes a byte at least. Collected, one value would get the room of four.
        let mut list = Vec::with_capacity(count.min(self.0.len()).min(MOST_AT_ONCE));
        for _ in 0..count {
            list.push(read(self)?);
        }
        Some(list)
    }

    pub(super) fn map(&mut self) -> Option<BTreeMap<String, String>> {
        let count = self.count()?;
        (0..count)
            .map(|_| Some((self.string()?, self.string()?)))
            .collect()
    }

    pub(super) fn time(&mut self) -> Option<Timestamp> {
        let second = self.signed()?;
        let nanosecond = self.signed()?.try_into().ok()?;
        Timestamp::new(second, nanosecond).ok()
    }

    pub(super) fn duration(&mut self) -> Option<Duration> {
        let seconds = self.number()?;
        let nanoseconds = self.number()?.try_into().ok()?;
        // More of them would be carried over to seconds, which may overflow.
        (nanoseconds < SECOND).then(|| Duration::new(seconds, nanoseconds))
    }

    pub(super) fn id(&mut self) -> Option<String> {
        match self.byte()? {
            UUID => self.array().map(u128::from_be_bytes).map(text_of),
            NUMBER => self.number().map(|number| number.to_string()),
            _ => self.string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_as_they_were_written() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut writer = Writer::new();
            writer.number(number);
            let bytes = writer.finish();
            assert_eq!(Reader::new(&bytes).number(), Some(number));
        }
        for number in [0, -1, 1, 63, -64, i64::MIN, i64::MAX] {
            let mut writer = Writer::new();
            writer.signed(number);
            let bytes = writer.finish();
            assert_eq!(Reader::new(&bytes).signed(), Some(number));
        }
    }

    #[test]
    fn ids_read_back_as_they_were_written_and_usual_ones_are_short() {
        let long = 20;
        for (text, most) in [
            ("0b5d0f4c-8a3e-4d0c-9f1e-6a7b8c9d0e1f", 17),
            ("00000000-0000-0000-0000-000000000000", 17),
            ("0B5D0F4C-8A3E-4D0C-9F1E-6A7B8C9D0E1F", 40),
            ("0b5d0f4c8a3e4d0c9f1e6a7b8c9d0e1f", 40),
            ("184467", 4),
            ("007", long),
            ("+7", long),
            ("", long),
            ("uid-web", long),
        ] {
            let mut writer = Writer::new();
            writer.id(text);
            let bytes = writer.finish();
            assert!(bytes.len() <= most, "{text}: {}", bytes.len());
            assert_eq!(Reader::new(&bytes).id().as_deref(), Some(text));
        }
    }

    #[test]
    fn a_list_has_no_more_room_than_its_values_need() {
        let mut writer = Writer::new();
        writer.list(&[7_u8], |to, byte| to.byte(*byte));
        let bytes = writer.finish();
        let list = Reader::new(&bytes).list(Reader::byte).unwrap();
        assert_eq!((list.capacity(), list.as_slice()), (1, [7].as_slice()));
        // A count that the bytes do not bear out.
        assert_eq!(
            Reader::new(&[0xff, 0xff, 0xff, 0x7f]).list(Reader::byte),
            None
        );
    }

    #[test]
    fn bytes_that_end_too_soon_are_nothing() {
        let mut writer = Writer::new();
        writer.text("a text");
        let bytes = writer.finish();
        for end in 0..bytes.len() {
            assert_eq!(Reader::new(&bytes[..end]).text(), None);
        }
        assert_eq!(Reader::new(&[0xff; 11]).number(), None);
    }

    #[test]
    fn seconds_that_nanoseconds_would_carry_over_are_no_duration() {
        let mut writer = Writer::new();
        writer.number(u64::MAX);
        writer.number(u64::from(SECOND));
        assert_eq!(Reader::new(&writer.finish()).duration(), None);
        let mut writer = Writer::new();
        writer.duration(Duration::MAX);
        assert_eq!(
            Reader::new(&writer.finish()).duration(),
            Some(Duration::MAX)
        );
    }
}
