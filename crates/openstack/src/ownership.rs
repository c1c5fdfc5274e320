//! Whose an object of the cloud is.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::names::FLOATING_IP_MARK;
use crate::objects::FloatingIp;

pub(crate) mod find;
pub(crate) mod floating_ips;
pub(crate) mod proof;

/// Clocks of a cluster and of its cloud may differ by so much.
const SKEW: SignedDuration = SignedDuration::from_mins(1);

/// Whether a floating IP was made by a Service controller, rather than by a person.
pub(crate) fn is_made(floating_ip: &FloatingIp) -> bool {
    floating_ip.description.contains(FLOATING_IP_MARK)
}

/// Whether an object of the cloud was there before a Service; `false` where that is not known.
fn is_before(created_at: Option<&str>, service: Option<Timestamp>) -> bool {
    // Neutron names the zone; Octavia does not, and means UTC.
    let parsed = created_at.and_then(|at| {
        let zoned = at.parse::<Timestamp>().ok();
        let utc = || at.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok();
        zoned.or_else(|| Some(utc()?.timestamp()))
    });
    let (Some(created), Some(service)) = (parsed, service) else {
        return false;
    };
    created
        .checked_add(SKEW)
        .is_ok_and(|created| created < service)
}
