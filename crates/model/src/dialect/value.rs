//! Texts into values. Every refusal says what is wrong and what would have been right.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;
use std::ops::RangeInclusive;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};

use super::suggest::closest;
use crate::protection::Rate;
use crate::reason::{Code, Reason};
use crate::rows::MOST_ADDRESSES;

/// Why a text is not the value that it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Stable code.
    pub code: Code,
    /// What is wrong: a clause without a full stop.
    pub message: String,
    /// What would be right.
    pub remedy: String,
}

/// Longest timeout: as in Octavia's API.
pub(super) const A_DAY: Duration = Duration::from_hours(24);
/// More certificates on one port than any port needs; each is loaded, and reported, for itself.
const MOST_SECRETS: usize = 64;
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

// === impl Refusal ===

impl Refusal {
    pub(super) fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::coded(Code::InvalidAnnotation, message, remedy)
    }

    fn coded(code: Code, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    /// The refusal as an error about the value of a field.
    pub fn at(self, field: impl Into<String>, value: impl Into<String>) -> Reason {
        Reason::error(self.code, self.message)
            .at(field)
            .value(value)
            .remedy(self.remedy)
    }
}

/// One of a few words.
pub(super) fn word<T: Copy>(text: &str, choices: &[(&'static str, T)]) -> Result<T, Refusal> {
    if let Some((_, value)) = choices.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
    let plain = |word: &str| word.replace('_', "-").to_ascii_lowercase();
    let alike = |word: &&&str| plain(word) == plain(text);
    let remedy = match words
        .iter()
        .find(alike)
        .copied()
        .or_else(|| closest(text, words.iter().copied()))
    {
        Some(word) => format!("did you mean {word}? It takes one of {}", words.join(", ")),
        None => format!("write one of {}", words.join(", ")),
    };
    Err(Refusal::new("not a value of this option", remedy))
}

/// Any text but an empty one.
pub(super) fn some_text(text: &str) -> Result<String, Refusal> {
    if text.trim().is_empty() {
        return Err(Refusal::new(
            "empty",
            "write a value or remove the annotation",
        ));
    }
    Ok(text.trim().to_owned())
}

/// A whole number within bounds.
pub(super) fn number<T>(text: &str, range: RangeInclusive<T>) -> Result<T, Refusal>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    match text.trim().parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(Refusal::new(
            "not a whole number within the bounds",
            format!("write a number from {} to {}", range.start(), range.end()),
        )),
    }
}

/// `none`, or how many connections.
pub(super) fn connection_limit(text: &str) -> Result<Option<u32>, Refusal> {
    if text.trim() == "none" {
        return Ok(None);
    }
    number(text, 1..=u32::MAX).map(Some).map_err(|mut refusal| {
        refusal.remedy.push_str(", or none");
        refusal
    })
}

/// `off`, or a number within bounds.
pub(super) fn number_or_off(
    text: &str,
    range: RangeInclusive<u16>,
) -> Result<Option<u16>, Refusal> {
    if text.trim() == "off" {
        return Ok(None);
    }
    number(text, range).map(Some).map_err(|mut refusal| {
        refusal.remedy.push_str(", or off");
        refusal
    })
}

/// A share of at most the whole: `20%`.
pub(super) fn percent(text: &str) -> Result<u8, Refusal> {
    let digits = text.trim().strip_suffix('%').unwrap_or_default();
    match digits.parse() {
        Ok(percent @ 0..=100) => Ok(percent),
        _ => Err(Refusal::new(
            "not a percentage",
            "write a whole number from 0 to 100 and a percent sign, such as 20%",
        )),
    }
}

/// Most that a rate may name: nothing that this reads is faster.
const MOST_OF_A_RATE: u32 = 1_000_000;

/// `none`, or how often something may happen: `10/s`, `600/m burst=50`.
pub(super) fn rate(text: &str) -> Result<Option<Rate>, Refusal> {
    if text.trim() == "none" {
        return Ok(None);
    }
    let refuse = || {
        Refusal::new(
            "not a rate",
            format!(
                "write a number from 1 to {MOST_OF_A_RATE} per s, m or h, and optionally a burst, \
                such as 10/s or 600/m burst=50, or none"
            ),
        )
    };
    let number = |text: &str| match text.parse::<u32>() {
        Ok(number) if (1..=MOST_OF_A_RATE).contains(&number) => Ok(number),
        _ => Err(refuse()),
    };
    let mut words = text.split_whitespace();
    let (count, unit) = words
        .next()
        .and_then(|rate| rate.split_once('/'))
        .ok_or_else(refuse)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(refuse()),
    };
    let count = number(count)?;
    let burst = match words.next() {
        None => count,
        Some(word) => number(word.strip_prefix("burst=").ok_or_else(refuse)?)?,
    };
    if words.next().is_some() {
        return Err(refuse());
    }
    Ok(Some(Rate {
        count,
        period: Duration::from_secs(seconds),
        burst,
    }))
}

/// A time within bounds: `30s`, `1m30s`, `250ms`, `2h`.
pub(super) fn duration(text: &str, range: RangeInclusive<Duration>) -> Result<Duration, Refusal> {
    let text = text.trim();
    match parse_duration(text) {
        Some(time) if range.contains(&time) => Ok(time),
        Some(_) => Err(Refusal::new(
            "out of bounds",
            format!(
                "write a time from {} to {}",
                show_duration(*range.start()),
                show_duration(*range.end())
            ),
        )),
        None if text.parse::<u32>().is_ok() => Err(Refusal::new(
            "a number without a unit",
            format!("write {text}s for seconds or {text}ms for milliseconds"),
        )),
        None => Err(Refusal::new(
            "not a time",
            "write numbers with units, the largest first, such as 30s, 1m30s, 250ms or 2h",
        )),
    }
}

/// Reads a time such as `30s` or `1m30s`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total: u64 = 0;
    // One iterator for the whole text: a unit can follow only larger ones, and only once.
    let mut units = UNITS.iter();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (digits, behind) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let end = behind
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(behind.len());
        let (unit, next) = behind.split_at(end);
        let (_, milliseconds) = units.find(|(name, _)| *name == unit)?;
        let part = digits.parse::<u64>().ok()?.checked_mul(*milliseconds)?;
        total = total.checked_add(part)?;
        rest = next;
    }
    Some(Duration::from_millis(total))
}

/// A time as it is written in annotations: `1m30s`. Parts below a millisecond are dropped.
pub fn show_duration(time: Duration) -> String {
    let mut left = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut shown = String::new();
    for (unit, milliseconds) in UNITS {
        let count = left / milliseconds;
        left %= milliseconds;
        if count > 0 {
            // Writing into a String can't fail.
            let _ = write!(shown, "{count}{unit}");
        }
    }
    if shown.is_empty() {
        shown.push_str("0s");
    }
    shown
}

/// The entries of a list, trimmed.
pub(super) fn items(text: &str) -> Result<Vec<&str>, Refusal> {
    some_text(text)?;
    let items: Vec<&str> = text.split(',').map(str::trim).collect();
    if items.iter().any(|item| item.is_empty()) {
        return Err(Refusal::new(
            "an entry of the list is empty",
            "put exactly one comma between two entries",
        ));
    }
    Ok(items)
}

/// A prefix in CIDR notation, as the network that it lies in. IPv4 written as IPv6 becomes IPv4.
///
/// # Errors
/// When the text is no prefix.
pub fn cidr(text: &str) -> Result<IpNet, Refusal> {
    let refuse = |remedy: String| {
        let message = format!("{text:?} is not a prefix in CIDR notation");
        Refusal::coded(Code::InvalidSourceRange, message, remedy)
    };
    let Some((address, length)) = text.split_once('/') else {
        return Err(match text.parse() {
            Ok(IpAddr::V4(_)) => refuse(format!("write {text}/32 for this one address")),
            Ok(IpAddr::V6(_)) => refuse(format!("write {text}/128 for this one address")),
            Err(_) => refuse("write a prefix such as 192.0.2.0/24 or 2001:db8::/32".to_owned()),
        });
    };
    let prefix = address.parse().ok().and_then(|address: IpAddr| {
        let length = length.parse::<u8>().ok()?;
        IpNet::new(address, length).ok()
    });
    let prefix = prefix.ok_or_else(|| {
        refuse("write an address, a slash and a length of at most 32 (IPv6: 128)".to_owned())
    })?;
    Ok(unmapped(prefix.trunc()))
}

fn unmapped(prefix: IpNet) -> IpNet {
    let IpNet::V6(wide) = prefix else {
        return prefix;
    };
    let mapped = wide.addr().to_ipv4_mapped();
    match (mapped, wide.prefix_len().checked_sub(96)) {
        (Some(address), Some(length)) => Ipv4Net::new(address, length).map_or(prefix, IpNet::V4),
        _ => prefix,
    }
}

/// Prefixes with commas or white space between them.
pub(super) fn cidrs(text: &str) -> Result<BTreeSet<IpNet>, Refusal> {
    some_text(text)?;
    text.split([',', ' ', '\t', '\n', '\r'])
        .filter(|item| !item.is_empty())
        .map(cidr)
        .collect()
}

/// An address that a load balancer can have.
///
/// # Errors
/// When the text is no address, or one that clients can't connect to.
pub fn address(text: &str) -> Result<IpAddr, Refusal> {
    let refuse = |message: String, remedy: &str| {
        Refusal::coded(Code::InvalidAddress, message, remedy.to_owned())
    };
    let address: IpAddr = text.trim().parse().map_err(|_| {
        refuse(
            format!("{:?} is no IP address", text.trim()),
            "write an address such as 192.0.2.10 or 2001:db8::10",
        )
    })?;
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    if address.to_canonical() != address {
        let canonical = address.to_canonical();
        return Err(refuse(
            format!("{address} is an IPv4-mapped IPv6 address"),
            &format!("write {canonical}"),
        ));
    }
    if address.is_unspecified() || address.is_multicast() || broadcast {
        return Err(refuse(
            format!("{address} is not a unicast address"),
            "write a unicast address from one of the pools",
        ));
    }
    Ok(address)
}

/// Addresses of one family, or as many of each.
pub(super) fn addresses(text: &str) -> Result<Vec<IpAddr>, Refusal> {
    let addresses: Vec<IpAddr> = items(text)?
        .into_iter()
        .map(address)
        .collect::<Result<_, _>>()?;
    let refusal = |fault, remedy| Err(Refusal::coded(Code::InvalidAddress, fault, remedy));
    let different: BTreeSet<IpAddr> = addresses.iter().copied().collect();
    if different.len() < addresses.len() {
        return refusal("an address is written twice", "write each address once");
    }
    let of_v4 = different.iter().filter(|it| it.is_ipv4()).count();
    let of_v6 = different.len() - of_v4;
    if of_v4 > 0 && of_v6 > 0 && of_v4 != of_v6 {
        return refusal(
            "more addresses of one family than of the other",
            "write as many IPv4 as IPv6 addresses, or those of one family alone",
        );
    }
    if of_v4.max(of_v6) > usize::from(MOST_ADDRESSES) {
        return refusal("more than 8 addresses of a family", "write fewer");
    }
    Ok(addresses)
}

/// A DNS name as Kubernetes takes it (RFC 1123): lower case, no wildcard, no final dot.
pub(super) fn dns_name(text: &str) -> Result<String, Refusal> {
    let text = text.trim();
    if is_dns_name(text) && text.parse::<IpAddr>().is_err() {
        return Ok(text.to_owned());
    }
    Err(Refusal::new(
        format!("{text:?} is not a DNS name"),
        "write lower-case letters, digits, '-' and '.', such as web.example.org",
    ))
}

pub(super) fn is_dns_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// Names of Secrets in the Service's namespace.
pub(super) fn secret_names(text: &str) -> Result<Vec<String>, Refusal> {
    let mut names = Vec::new();
    let items = items(text)?;
    if items.len() > MOST_SECRETS {
        return Err(Refusal::new(
            "too many Secrets",
            format!("name at most {MOST_SECRETS} for a port"),
        ));
    }
    for item in items {
        if item.contains('/') {
            return Err(Refusal::new(
                format!("{item:?} names a namespace"),
                "write only the Secret's name: it must be in the namespace of the Service",
            ));
        }
        if !is_dns_name(item) {
            return Err(Refusal::new(
                format!("{item:?} can't be the name of a Secret"),
                "write the metadata.name of a Secret of type kubernetes.io/tls",
            ));
        }
        if !names.iter().any(|name| name == item) {
            names.push(item.to_owned());
        }
    }
    Ok(names)
}

/// The name of one Secret in the Service's namespace.
pub(super) fn secret_name(text: &str) -> Result<String, Refusal> {
    match secret_names(text)?.as_slice() {
        [name] => Ok(name.clone()),
        _ => Err(Refusal::new(
            "more than one Secret",
            "write the name of one Secret",
        )),
    }
}

/// What can stand in `Host`.
pub(super) fn host(text: &str) -> Result<String, Refusal> {
    let text = text.trim();
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let is_host = match bare {
        Some(bare) => bare.parse::<std::net::Ipv6Addr>().is_ok(),
        None => is_dns_name(&host.to_ascii_lowercase()),
    };
    if is_host && port.is_none_or(|port| port.parse::<NonZeroU16>().is_ok()) {
        return Ok(text.to_owned());
    }
    Err(Refusal::new(
        format!("{text:?} is no host"),
        "write a name or an address, IPv6 in brackets, and a port if needed, such as \
        web.example.org or [2001:db8::1]:8080",
    ))
}

/// A text that is looked for in an answer.
pub(super) fn expected_text(text: &str) -> Result<String, Refusal> {
    if text.trim().is_empty() || text.len() > 256 {
        return Err(Refusal::new(
            "not a text of 1 to 256 bytes",
            "write 1 to 256 bytes that are not all white space",
        ));
    }
    Ok(text.to_owned())
}

/// The full name of a gRPC service.
pub(super) fn grpc_service(text: &str) -> Result<String, Refusal> {
    let text = text.trim();
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
    if (1..=256).contains(&text.len()) && text.bytes().all(fits) {
        return Ok(text.to_owned());
    }
    Err(Refusal::new(
        "not the name of a gRPC service",
        "write its full name, such as shop.v1.Cart",
    ))
}

/// A request target.
pub(super) fn path(text: &str) -> Result<String, Refusal> {
    let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    if text.starts_with('/') && visible && text.len() <= 1024 {
        return Ok(text.to_owned());
    }
    Err(Refusal::new(
        "not a request path",
        "write a path that begins with / and has no white space, such as /healthz",
    ))
}

#[cfg(test)]
mod tests;
