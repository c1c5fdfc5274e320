//! How the API server is watched.

use std::collections::BTreeSet;
use std::time::Duration;

use landfall_model::limits::Limits;
use landfall_model::rows::{METALLB_NAMESPACE, ResourceKind};

/// The custom resources that are watched: others cost nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomResources {
    /// Where MetalLB's custom resources are.
    pub namespace: String,
    /// Which kinds of them are watched.
    pub kinds: BTreeSet<ResourceKind>,
}

/// How the API server is watched.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// Which custom resources are watched.
    pub resources: CustomResources,
    /// Whether lists may be streamed where the server offers it.
    pub streaming: bool,
    /// Objects per page where lists are not streamed.
    pub page: u32,
    /// The server ends a watch within this long.
    pub longest_watch: Duration,
    /// A watch without a word for this long is broken. Servers send a bookmark every minute or so.
    pub longest_silence: Duration,
    /// From one look to the next for a kind that does not exist or may not be read.
    pub look_again: Duration,
    /// Whether a kind that may not be read, and never was, is waited for. Otherwise it is taken for
    /// one without objects.
    pub needs_access: bool,
    /// How long a Service is held back for a Secret that it has only just named.
    pub secret_timeout: Duration,
    /// After this long of failures what was known of a kind stands in for a list of it.
    pub stands_in_after: Duration,
    /// How many Secrets are watched.
    pub limits: Limits,
}

impl Default for CustomResources {
    fn default() -> Self {
        Self {
            namespace: METALLB_NAMESPACE.to_owned(),
            kinds: BTreeSet::from([ResourceKind::IpAddressPool]),
        }
    }
}

impl Default for SourceConfig {
    fn default() -> Self {
        Self {
            resources: CustomResources::default(),
            streaming: true,
            page: 500,
            longest_watch: Duration::from_secs(600),
            longest_silence: Duration::from_secs(180),
            look_again: Duration::from_secs(60),
            needs_access: false,
            secret_timeout: Duration::from_secs(3),
            stands_in_after: Duration::from_secs(30),
            limits: Limits::default(),
        }
    }
}
