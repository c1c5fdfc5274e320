//! The two things that people want to know about a certificate, read from its DER (X.509, RFC 5280
//! section 4.1): names and end of validity. Validates nothing; rustls has checked the form before.

use std::net::IpAddr;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// What a certificate is for, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Its DNS names, in lower case, `*.` for wildcards, and IP addresses; in the certificate's
    /// order.
    pub names: Vec<String>,
    /// The last moment of its validity.
    pub not_after: Timestamp,
}

const SEQUENCE: u8 = 0x30;
const OBJECT_ID: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
const OCTETS: u8 = 0x04;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xA0;
const EXTENSIONS: u8 = 0xA3;
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;
/// 2.5.29.17, subjectAltName.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1D, 0x11];

/// Elements of DER, one after the other.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

/// The facts in a certificate; `None` where it is not one.
pub(super) fn facts(certificate: &[u8]) -> Option<CertificateFacts> {
    let mut signed = Reader(Reader(certificate).expect(SEQUENCE)?);
    let mut body = Reader(signed.expect(SEQUENCE)?);
    let (tag, _) = body.next()?;
    if tag == VERSION {
        let _serial = body.next()?;
    }
    let _algorithm = body.expect(SEQUENCE)?;
    let _issuer = body.expect(SEQUENCE)?;
    let mut validity = Reader(body.expect(SEQUENCE)?);
    let _not_before = validity.next()?;
    let (tag, not_after) = validity.next()?;
    let not_after = time(tag, not_after)?;
    let mut names = Vec::new();
    while let Some((tag, content)) = body.next() {
        if tag == EXTENSIONS {
            names = alternative_names(content).unwrap_or_default();
        }
    }
    Some(CertificateFacts { names, not_after })
}

fn alternative_names(extensions: &[u8]) -> Option<Vec<String>> {
    let mut extensions = Reader(Reader(extensions).expect(SEQUENCE)?);
    while let Some((SEQUENCE, extension)) = extensions.next() {
        let mut extension = Reader(extension);
        if extension.expect(OBJECT_ID)? != ALTERNATIVE_NAMES {
            continue;
        }
        let (tag, mut value) = extension.next()?;
        if tag == BOOLEAN {
            value = extension.expect(OCTETS)?;
        }
        let mut names = Reader(Reader(value).expect(SEQUENCE)?);
        let names = std::iter::from_fn(move || names.next());
        return Some(
            names
                .filter_map(|(tag, name)| general_name(tag, name))
                .collect(),
        );
    }
    None
}

fn general_name(tag: u8, content: &[u8]) -> Option<String> {
    match tag {
        DNS_NAME => {
            let name = std::str::from_utf8(content).ok()?;
            let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
            plain.then(|| name.to_ascii_lowercase())
        }
        IP_ADDRESS => {
            let v4 = <[u8; 4]>::try_from(content).map(IpAddr::from);
            let v6 = <[u8; 16]>::try_from(content).map(IpAddr::from);
            v4.or(v6).ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

/// `YYMMDDHHMMSSZ` until 2049, `YYYYMMDDHHMMSSZ` from 2050 on (RFC 5280 section 4.1.2.5).
fn time(tag: u8, content: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i16 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at + 2)?.parse::<i8>().ok();
    if rest.len() != 10 {
        return None;
    }
    let moment = DateTime::new(year, part(0)?, part(2)?, part(4)?, part(6)?, part(8)?, 0).ok()?;
    TimeZone::UTC.to_timestamp(moment).ok()
}

// === impl Reader ===

impl<'a> Reader<'a> {
    /// The next element's tag and content; `None` at the end and where the form is broken.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, length], rest) = self.0.split_first_chunk::<2>()?;
        let (length, rest) = match length {
            0..=0x7F => (usize::from(length), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(length - 0x80))?;
                let length = digits
                    .iter()
                    .fold(0, |sum, &digit| sum << 8 | usize::from(digit));
                (length, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    fn expect(&mut self, wanted: u8) -> Option<&'a [u8]> {
        self.next()
            .filter(|&(tag, _)| tag == wanted)
            .map(|(_, content)| content)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_read_in_both_forms() {
        let utc = |text: &str| time(UTC_TIME, text.as_bytes()).map(|time| time.to_string());
        assert_eq!(
            utc("491231235959Z").as_deref(),
            Some("2049-12-31T23:59:59Z")
        );
        assert_eq!(
            utc("500101000000Z").as_deref(),
            Some("1950-01-01T00:00:00Z")
        );
        let general = time(GENERALIZED_TIME, b"20500101000000Z").unwrap();
        assert_eq!(general.to_string(), "2050-01-01T00:00:00Z");
        for broken in [
            "",
            "Z",
            "4912312359Z",
            "491231235959",
            "491331235959Z",
            "4912312359xxZ",
            "-91231235959Z",
        ] {
            assert_eq!(utc(broken), None, "{broken:?}");
        }
        assert_eq!(time(OCTETS, b"491231235959Z"), None);
    }

    fn certificate() -> Vec<u8> {
        let names = [
            "a.example".to_owned(),
            "*.B.example".to_owned(),
            "192.0.2.1".to_owned(),
        ];
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.not_after = rcgen::date_time_ymd(2061, 2, 3);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn names_and_end_are_found_in_a_certificate() {
        let facts = facts(&certificate()).unwrap();
        assert_eq!(facts.names, ["a.example", "*.b.example", "192.0.2.1"]);
        assert_eq!(facts.not_after.to_string(), "2061-02-03T00:00:00Z");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = facts(&bytes);
        }

        #[test]
        fn no_damaged_certificate_makes_it_panic(at in any::<prop::sample::Index>(),
            to in any::<u8>()) {
            let mut certificate = certificate();
            let at = at.index(certificate.len());
            certificate[at] = to;
            let _ = facts(&certificate);
            certificate.truncate(at);
            prop_assert_eq!(facts(&certificate), None);
        }
    }
}
