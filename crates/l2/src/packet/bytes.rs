//! Bytes that are read from the front, and may end anywhere.

/// What is left of a message.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'b>(&'b [u8]);

// === impl Bytes ===

impl<'b> Bytes<'b> {
    /// All bytes of a message.
    pub const fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// Takes the next `N` bytes; `None` if there are fewer.
    pub fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    /// Takes the next byte.
    pub fn u8(&mut self) -> Option<u8> {
        let [byte] = self.take()?;
        Some(byte)
    }

    /// Takes a number in network byte order.
    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    /// Takes the next `count` bytes as a message of its own.
    pub fn split(&mut self, count: usize) -> Option<Self> {
        let (first, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(Self(first))
    }

    /// Everything that is left.
    pub const fn rest(self) -> &'b [u8] {
        self.0
    }
}
