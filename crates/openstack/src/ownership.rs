//! Whose an object of the cloud is.

use crate::names::FLOATING_IP_MARK;
use crate::objects::FloatingIp;

pub(crate) mod find;
pub(crate) mod floating_ips;

/// Whether a floating IP was made by a Service controller, rather than by a person.
pub(crate) fn is_made(floating_ip: &FloatingIp) -> bool {
    floating_ip.description.contains(FLOATING_IP_MARK)
}
