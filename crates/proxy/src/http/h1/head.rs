//! What heads of HTTP/1 requests and responses have in common (RFC 9112 sections 5 and 6): their
//! fields, and what these say about the connection and the body. Pure and strict.

use std::mem::MaybeUninit;

use httparse::Header;

use super::body::MAX_LENGTH;
use crate::http::fields::{Field, list};

/// Most fields in a head.
pub(in crate::http) const MAX_FIELDS: usize = 100;

/// Most options in `Connection`: each may name a field, and each field is compared with each.
pub(in crate::http) const MAX_OPTIONS: usize = 32;

/// Buffer for the fields of one head.
pub(in crate::http) struct FieldBuffer<'b> {
    pub(super) fields: [MaybeUninit<Header<'b>>; MAX_FIELDS],
    pub(super) marks: Marks<'b>,
}

/// Room for what there is to know about them.
pub(super) struct Marks<'b> {
    kinds: [Field; MAX_FIELDS],
    options: [&'b [u8]; MAX_OPTIONS],
}

/// `Connection` has more than [`MAX_OPTIONS`] options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyOptions;

/// HTTP/1.x.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::http) enum Version {
    Http10,
    Http11,
}

/// The fields of a head.
pub(super) struct Fields<'h, 'b> {
    pub(super) all: &'h [Header<'b>],
    pub(super) kinds: &'h [Field],
    /// What stands in `Connection`.
    options: &'h [&'b [u8]],
}

/// What `Connection` says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Connection {
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
}

// === impl FieldBuffer ===

impl FieldBuffer<'_> {
    pub(in crate::http) fn new() -> Self {
        Self {
            fields: [const { MaybeUninit::uninit() }; MAX_FIELDS],
            marks: Marks {
                kinds: [Field::Other; MAX_FIELDS],
                options: [&[]; MAX_OPTIONS],
            },
        }
    }
}

// === impl Fields ===

impl<'h, 'b> Fields<'h, 'b> {
    pub(super) fn classify(
        all: &'h [Header<'b>],
        marks: &'h mut Marks<'b>,
    ) -> Result<Self, TooManyOptions> {
        let mut options = 0;
        for (field, kind) in all.iter().zip(&mut marks.kinds) {
            *kind = Field::of(field.name.as_bytes());
            if *kind == Field::Connection {
                for option in list(field.value) {
                    *marks.options.get_mut(options).ok_or(TooManyOptions)? = option;
                    options += 1;
                }
            }
        }
        Ok(Self {
            all,
            kinds: &marks.kinds,
            options: marks.options.get(..options).unwrap_or_default(),
        })
    }

    pub(super) fn of(&self, wanted: Field) -> impl Iterator<Item = &'h Header<'b>> {
        let found = self
            .all
            .iter()
            .zip(self.kinds)
            .filter(move |&(_, &kind)| kind == wanted);
        found.map(|(field, _)| field)
    }

    pub(super) fn has(&self, wanted: Field) -> bool {
        self.of(wanted).next().is_some()
    }

    pub(super) fn connection(&self) -> Connection {
        let mut connection = Connection::default();
        for option in self.options {
            connection.close |= option.eq_ignore_ascii_case(b"close");
            connection.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            connection.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
        }
        connection
    }

    /// Whether `Connection` says that a field is for this hop only.
    pub(super) fn is_nominated(&self, name: &str) -> bool {
        self.options
            .iter()
            .any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
    }
}

impl Connection {
    pub(super) fn keeps_alive(self, version: Version) -> bool {
        !self.close && (self.keep_alive || version == Version::Http11)
    }
}

/// Whether a value may stand in `Host`: a name, an address, a port; nothing that could end up as
/// another field, path or user (RFC 3986 section 3.2.2).
pub(in crate::http) fn is_host(value: &[u8]) -> bool {
    value
        .iter()
        .all(|&byte| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(&byte))
}

/// Digits and nothing but digits, of a number that is one to programs that know a sign, too.
pub(in crate::http) fn number(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = std::str::from_utf8(value).ok()?.parse().ok();
    number.filter(|&number| number <= MAX_LENGTH)
}

/// Room for what is added to a head: the client's address, the framing of the body, the end.
pub(super) const ADDED: usize = 192;

/// Writes one field.
pub(super) fn line(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
