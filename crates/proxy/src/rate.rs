//! What counts as one source, and what it spends of a rate. Pure.

use std::net::{IpAddr, Ipv6Addr};

use landfall_model::protection::Rate;

/// Returns the source that an address belongs to.
pub(crate) fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Spends one of a rate, of which all is there again at `whole`. Returns when that is then, or how
/// long it takes until there is one to spend. All times are nanoseconds.
pub(crate) fn spend(rate: Rate, whole: u64, now: u64) -> Result<u64, u64> {
    let period = u64::try_from(rate.period.as_nanos()).unwrap_or(u64::MAX);
    let each = (period / u64::from(rate.count.max(1))).max(1);
    let all = each.saturating_mul(u64::from(rate.burst.max(1)));
    let after = whole.max(now).saturating_add(each);
    match (after - now).checked_sub(all) {
        None | Some(0) => Ok(after),
        Some(wait) => Err(wait),
    }
}
