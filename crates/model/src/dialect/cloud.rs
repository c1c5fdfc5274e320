//! Options that choose among things that only OpenStack has.

use serde::{Deserialize, Serialize};

use super::options::{Given, put};
use super::{AnnotationError, Outcome, Text};

macro_rules! cloud_options {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ty,)+) => {
        /// What annotations say about the things of a cloud; `None` where they say nothing.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct CloudOptions {
            $($(#[doc = $doc])+
            #[serde(skip_serializing_if = "Option::is_none")]
            pub $name: Option<Given<$kind>>,)+
        }
    };
}

cloud_options! {
    /// No floating IP.
    internal: bool,
    /// The network of the floating IP. An empty text chooses none, whatever the configuration says.
    floating_network: String,
    /// The subnet of the floating IP, by id.
    floating_subnet_id: String,
    /// The subnet of the floating IP, by a pattern of names.
    floating_subnet: String,
    /// The subnet of the floating IP, by an expression of tags.
    floating_subnet_tags: String,
    /// A `[LoadBalancerClass "..."]` of the configuration.
    class: String,
    /// The floating IP outlives the Service.
    keep_floating_ip: bool,
    /// The port that has the VIP.
    port: String,
    /// The subnet of the VIP.
    subnet: String,
    /// The network of the VIP.
    network: String,
    /// The subnet of the members.
    member_subnet: String,
    /// The certificate in Barbican. An empty text chooses none, whatever the configuration says.
    tls_container: String,
    /// The flavor of the load balancer. An empty text chooses none, whatever the configuration
    /// says.
    flavor: String,
    /// The zone of the load balancer. An empty text chooses none, whatever the configuration says.
    availability_zone: String,
    /// The Octavia provider.
    provider: String,
    /// With PROXY headers, a made-up name is published.
    ingress_hostname: bool,
    /// Which load balancer to use.
    load_balancer: String,
    /// What a controller has noted of the load balancer that serves the Service: its address; or
    /// the name in the status.
    published: String,
    /// Further tags of the load balancer.
    load_balancer_tags: Vec<String>,
    /// Further tags of the listeners.
    listener_tags: Vec<String>,
    /// Further tags of the pools.
    pool_tags: Vec<String>,
}

/// A text, even an empty one.
pub(super) fn text(
    slot: &mut Option<Given<String>>,
    text: Text<'_>,
) -> Result<Outcome, AnnotationError> {
    put(slot, text, text.value.trim().to_owned())
}

/// A text; an empty one is as good as none.
pub(super) fn some(
    slot: &mut Option<Given<String>>,
    text: Text<'_>,
) -> Result<Outcome, AnnotationError> {
    if text.value.trim().is_empty() {
        return Ok(Outcome::Nothing);
    }
    put(slot, text, text.value.trim().to_owned())
}

/// Words with commas between them.
pub(super) fn list(
    slot: &mut Option<Given<Vec<String>>>,
    text: Text<'_>,
) -> Result<Outcome, AnnotationError> {
    let words = text.value.split(',').map(str::trim);
    let words: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    if words.is_empty() {
        return Ok(Outcome::Nothing);
    }
    put(slot, text, words)
}
