//! Where the body of an HTTP/1 message ends (RFC 9112 sections 6 and 7). Pure and strict: what two
//! parsers could read differently is refused, because a proxy that lets it pass becomes the first
//! half of a request smuggling attack.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::http::fields::allowed_in_trailers;

/// Most bytes of a body or a chunk. More are less than nothing to programs that know a sign.
pub(in crate::http) const MAX_LENGTH: u64 = u64::MAX >> 1;

/// Most bytes that chunk extensions may take in one body. No client uses them; unbounded, they are
/// a way to make a proxy work for nothing.
const MAX_EXTENSIONS: usize = 16 * 1024;

/// Most bytes that a trailer section may take.
const MAX_TRAILERS: usize = 16 * 1024;

/// Most fields in a trailer section.
const MAX_TRAILER_FIELDS: usize = 64;

/// How the length of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Framing {
    /// There is no body, whatever the head says.
    Empty,
    /// `Content-Length`.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// A response that ends with its connection.
    UntilClose,
}

/// Follows a body through the bytes of its connection.
#[derive(Debug)]
pub(in crate::http) struct Decoder {
    state: State,
    extensions: usize,
    trailers: Vec<u8>,
}

/// The next bytes, and what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) struct Piece {
    pub(in crate::http) kind: Kind,
    /// How many bytes; at least one.
    pub(in crate::http) length: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Kind {
    /// Chunk sizes and line ends.
    Frame,
    /// Content.
    Data,
    /// Part of the trailer section, kept by the decoder.
    Trailer,
}

/// A body that is not what its head promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::http) enum BadBody {
    #[error("a chunk does not begin with its size in hexadecimal digits")]
    Size,
    #[error("a line end is missing or incomplete")]
    LineEnd,
    #[error("chunk extensions take more than {MAX_EXTENSIONS} bytes")]
    Extensions,
    #[error("the trailer section is broken or takes more than {MAX_TRAILERS} bytes")]
    Trailers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Length(u64),
    UntilClose,
    /// In the digits of a chunk's size.
    Size {
        size: u64,
        digits: u8,
    },
    /// After the digits, up to the line end.
    Extension {
        size: u64,
    },
    SizeLineFeed {
        size: u64,
    },
    Chunk(u64),
    ChunkReturn,
    ChunkLineFeed,
    Trailers,
    Done,
}

// === impl Framing ===

impl Framing {
    /// Whether there is no body.
    pub(in crate::http) fn is_empty(self) -> bool {
        matches!(self, Self::Empty | Self::Length(0))
    }
}

// === impl Decoder ===

impl Decoder {
    pub(in crate::http) fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Empty | Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Size { size: 0, digits: 0 },
            Framing::UntilClose => State::UntilClose,
        };
        Self {
            state,
            extensions: 0,
            trailers: Vec::new(),
        }
    }

    /// Whether the body is complete.
    pub(in crate::http) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the end of the connection is a good end of the body.
    pub(in crate::http) fn may_end(&self) -> bool {
        matches!(self.state, State::Done | State::UntilClose)
    }

    /// Takes the next piece of what arrived, which must not be empty. Call until everything is
    /// taken or the body is done; what is left then belongs to the next message.
    pub(in crate::http) fn next(&mut self, input: &[u8]) -> Result<Piece, BadBody> {
        let available = input.len() as u64;
        match self.state {
            State::Length(left) => {
                let length = left.min(available);
                self.state = if left == length {
                    State::Done
                } else {
                    State::Length(left - length)
                };
                Ok(Piece {
                    kind: Kind::Data,
                    length: length as usize,
                })
            }
            State::UntilClose => Ok(Piece {
                kind: Kind::Data,
                length: input.len(),
            }),
            State::Chunk(left) => {
                let length = left.min(available);
                self.state = if left == length {
                    State::ChunkReturn
                } else {
                    State::Chunk(left - length)
                };
                Ok(Piece {
                    kind: Kind::Data,
                    length: length as usize,
                })
            }
            State::Trailers => self.trailers(input),
            State::Done => Ok(Piece {
                kind: Kind::Data,
                length: 0,
            }),
            State::Size { .. }
            | State::Extension { .. }
            | State::SizeLineFeed { .. }
            | State::ChunkReturn
            | State::ChunkLineFeed => self.frame(input),
        }
    }

    /// Whether anything stands in the trailer section so far.
    pub(in crate::http) fn has_trailers(&self) -> bool {
        self.trailers.len() > b"\r\n".len()
    }

    /// The trailer section as it may be passed on, with the empty line that ends it.
    pub(in crate::http) fn trailer_section(&self) -> Result<Vec<u8>, BadBody> {
        let mut section = Vec::new();
        self.each_trailer(|name, value| {
            section.extend_from_slice(name.as_bytes());
            section.extend_from_slice(b": ");
            section.extend_from_slice(value);
            section.extend_from_slice(b"\r\n");
        })?;
        section.extend_from_slice(b"\r\n");
        Ok(section)
    }

    /// The trailers as a map, without those that may not be passed on.
    pub(in crate::http) fn trailer_map(&self) -> Result<HeaderMap, BadBody> {
        let mut map = HeaderMap::new();
        self.each_trailer(|name, value| {
            let name = HeaderName::from_bytes(name.as_bytes());
            let value = HeaderValue::from_bytes(value);
            if let (Ok(name), Ok(value)) = (name, value) {
                map.append(name, value);
            }
        })?;
        Ok(map)
    }

    fn each_trailer(&self, mut take: impl FnMut(&str, &[u8])) -> Result<(), BadBody> {
        if self.trailers.is_empty() {
            return Ok(());
        }
        let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILER_FIELDS];
        match httparse::parse_headers(&self.trailers, &mut fields) {
            Ok(httparse::Status::Complete((_, fields))) => {
                for field in fields {
                    if allowed_in_trailers(field.name.as_bytes()) {
                        take(field.name, field.value);
                    }
                }
                Ok(())
            }
            Ok(httparse::Status::Partial) | Err(_) => Err(BadBody::Trailers),
        }
    }

    fn frame(&mut self, input: &[u8]) -> Result<Piece, BadBody> {
        let mut length = 0;
        for &byte in input {
            length += 1;
            self.state = match self.state {
                State::Size { size, digits } => match (char::from(byte).to_digit(16), byte) {
                    // Sixteen digits are all that fit.
                    (Some(_), _) if digits == 16 || size > MAX_LENGTH >> 4 => {
                        return Err(BadBody::Size);
                    }
                    (Some(digit), _) => State::Size {
                        size: size << 4 | u64::from(digit),
                        digits: digits + 1,
                    },
                    (None, b'\r') if digits > 0 => State::SizeLineFeed { size },
                    (None, b';') if digits > 0 => State::Extension { size },
                    (None, _) => return Err(BadBody::Size),
                },
                State::Extension { size } => {
                    self.extensions += 1;
                    match byte {
                        _ if self.extensions > MAX_EXTENSIONS => return Err(BadBody::Extensions),
                        b'\r' => State::SizeLineFeed { size },
                        b'\t' | b' '..=b'~' | 0x80.. => State::Extension { size },
                        _ => return Err(BadBody::LineEnd),
                    }
                }
                State::SizeLineFeed { size } => match (byte, size) {
                    (b'\n', 0) => State::Trailers,
                    (b'\n', _) => State::Chunk(size),
                    _ => return Err(BadBody::LineEnd),
                },
                State::ChunkReturn if byte == b'\r' => State::ChunkLineFeed,
                State::ChunkLineFeed if byte == b'\n' => State::Size { size: 0, digits: 0 },
                _ => return Err(BadBody::LineEnd),
            };
            if matches!(self.state, State::Chunk(_) | State::Trailers) {
                break;
            }
        }
        Ok(Piece {
            kind: Kind::Frame,
            length,
        })
    }

    fn trailers(&mut self, input: &[u8]) -> Result<Piece, BadBody> {
        let mut length = 0;
        for &byte in input {
            length += 1;
            if byte == b'\n' && self.trailers.last() != Some(&b'\r') {
                return Err(BadBody::LineEnd);
            }
            self.trailers.push(byte);
            if self.trailers == b"\r\n" || self.trailers.ends_with(b"\r\n\r\n") {
                self.state = State::Done;
                break;
            }
            if self.trailers.len() >= MAX_TRAILERS {
                return Err(BadBody::Trailers);
            }
        }
        Ok(Piece {
            kind: Kind::Trailer,
            length,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Content, forwarded bytes (without trailers), what was left over, and the decoder at the end.
    type Decoded = (Vec<u8>, Vec<u8>, Vec<u8>, Decoder);

    /// Feeds a body in parts of the given size.
    fn decode(framing: Framing, body: &[u8], part: usize) -> Result<Decoded, BadBody> {
        let mut decoder = Decoder::new(framing);
        let (mut content, mut raw, mut left) = (Vec::new(), Vec::new(), Vec::new());
        for mut bytes in body.chunks(part.max(1)) {
            while !bytes.is_empty() && !decoder.is_done() {
                let piece = decoder.next(bytes)?;
                assert!((1..=bytes.len()).contains(&piece.length));
                let (taken, rest) = bytes.split_at(piece.length);
                if piece.kind == Kind::Data {
                    content.extend_from_slice(taken);
                }
                if piece.kind != Kind::Trailer {
                    raw.extend_from_slice(taken);
                }
                bytes = rest;
            }
            left.extend_from_slice(bytes);
        }
        Ok((content, raw, left, decoder))
    }

    const CHUNKED: &[u8] =
        b"4;name=\"v\"\r\nWiki\r\n5\r\npedia\r\nE\r\n in\r\n\r\nchunks.\r\n0\r\n\
        Digest: x\r\nContent-Length: 3\r\nX-Forwarded-For: 1.2.3.4\r\n\r\nGET / HTTP/1.1\r\n";

    #[test]
    fn a_chunked_body_is_followed_in_parts_of_any_size() {
        for part in 1..CHUNKED.len() {
            let (content, raw, left, decoder) = decode(Framing::Chunked, CHUNKED, part).unwrap();
            assert_eq!(content, b"Wikipedia in\r\n\r\nchunks.");
            assert!(CHUNKED.starts_with(&raw) && raw.ends_with(b"\r\n0\r\n"));
            assert_eq!(left, b"GET / HTTP/1.1\r\n");
            assert!(decoder.is_done() && decoder.may_end());
        }
    }

    #[test]
    fn trailers_pass_without_those_that_frame_or_vouch() {
        let (.., decoder) = decode(Framing::Chunked, CHUNKED, 7).unwrap();
        assert_eq!(decoder.trailer_section().unwrap(), b"Digest: x\r\n\r\n");
        let map = decoder.trailer_map().unwrap();
        assert_eq!((map.len(), map["digest"].as_bytes()), (1, &b"x"[..]));
        let (.., decoder) = decode(Framing::Chunked, b"0\r\n\r\n", 1).unwrap();
        assert_eq!(decoder.trailer_section().unwrap(), b"\r\n");
        assert!(decoder.trailer_map().unwrap().is_empty());
        let section = b"0\r\nX_Forwarded_For: 6.6.6.6\r\nX-Forwarded-Host: b\r\nCookie: c\r\n\
                        Set-Cookie: d\r\nX-Own: 1\r\n\r\n";
        let (.., decoder) = decode(Framing::Chunked, section, 9).unwrap();
        assert_eq!(decoder.trailer_section().unwrap(), b"X-Own: 1\r\n\r\n");
    }

    #[test]
    fn a_counted_body_ends_where_it_says() {
        let (content, _, left, decoder) = decode(Framing::Length(5), b"helloGET /", 3).unwrap();
        assert_eq!((&content[..], &left[..]), (&b"hello"[..], &b"GET /"[..]));
        assert!(decoder.is_done());
        let (.., decoder) = decode(Framing::Length(5), b"hell", 3).unwrap();
        assert!(!decoder.may_end());
        for framing in [Framing::Empty, Framing::Length(0)] {
            assert!(Decoder::new(framing).is_done());
        }
    }

    #[test]
    fn a_body_until_close_may_end_any_time() {
        let (content, _, _, decoder) = decode(Framing::UntilClose, b"anything", 3).unwrap();
        assert_eq!(content, b"anything");
        assert!(!decoder.is_done() && decoder.may_end());
    }

    #[test]
    fn what_could_be_read_differently_is_refused() {
        let many = format!("1;{}\r\n", "x".repeat(MAX_EXTENSIONS));
        let long = format!("0\r\nX: {}\r\n\r\n", "x".repeat(MAX_TRAILERS));
        for (body, wanted) in [
            (&b"\r\n"[..], BadBody::Size),
            (b"x\r\n", BadBody::Size),
            (b"-1\r\n", BadBody::Size),
            (b"+1\r\n", BadBody::Size),
            (b"0x1\r\n", BadBody::Size),
            (b" 1\r\n", BadBody::Size),
            (b"1 \r\n", BadBody::Size),
            (b"1_0\r\n", BadBody::Size),
            (b";ext\r\n", BadBody::Size),
            (b"1\n", BadBody::Size),
            (b"10000000000000000\r\n", BadBody::Size),
            (b"8000000000000000\r\n", BadBody::Size),
            (b"FFFFFFFFFFFFFFFF\r\n", BadBody::Size),
            (b"1\rx", BadBody::LineEnd),
            (b"1;a\nb", BadBody::LineEnd),
            (b"1;a\0b\r\n", BadBody::LineEnd),
            (b"1\r\nab", BadBody::LineEnd),
            (b"1\r\na\n", BadBody::LineEnd),
            (b"1\r\na\rx", BadBody::LineEnd),
            (b"0\r\nX: 1\n\r\n", BadBody::LineEnd),
            (many.as_bytes(), BadBody::Extensions),
            (long.as_bytes(), BadBody::Trailers),
        ] {
            for part in [1, 2, body.len()] {
                let text = String::from_utf8_lossy(&body[..body.len().min(40)]);
                assert_eq!(
                    decode(Framing::Chunked, body, part).err(),
                    Some(wanted),
                    "{text:?}"
                );
            }
        }
    }

    #[test]
    fn a_broken_trailer_is_refused_when_it_is_asked_for() {
        for body in [
            &b"0\r\n bad: 1\r\n\r\n"[..],
            b"0\r\nno colon\r\n\r\n",
            b"0\r\na b: c\r\n\r\n",
        ] {
            let (.., decoder) = decode(Framing::Chunked, body, 9).unwrap();
            assert_eq!(decoder.trailer_section(), Err(BadBody::Trailers));
        }
    }

    #[test]
    fn the_largest_size_is_followed_without_overflow() {
        let (content, ..) = decode(Framing::Chunked, b"7FFFFFFFFFFFFFFF\r\nabc", 4).unwrap();
        assert_eq!(content, b"abc");
    }

    proptest! {
        #[test]
        fn what_was_put_in_chunks_comes_out_again(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..8),
            part in 1usize..64,
            rest in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut body = Vec::new();
            for chunk in &chunks {
                body.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                body.extend_from_slice(chunk);
                body.extend_from_slice(b"\r\n");
            }
            body.extend_from_slice(b"0\r\n\r\n");
            body.extend_from_slice(&rest);
            let (content, _, left, decoder) = decode(Framing::Chunked, &body, part).unwrap();
            prop_assert_eq!(content, chunks.concat());
            prop_assert_eq!(left, rest);
            prop_assert!(decoder.is_done());
        }

        #[test]
        fn no_bytes_make_it_panic(
            body in "[0-9a-f;\r\n x]{0,60}",
            part in 1usize..10,
        ) {
            let _ = decode(Framing::Chunked, body.as_bytes(), part);
        }
    }
}
