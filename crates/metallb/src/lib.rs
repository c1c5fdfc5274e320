//! The custom resources of group `metallb.io` as values that can't be wrong.
//!
//! ```text
//!  ResourceRow ──read (one file per kind)──> L2Advertisement, BgpPeer, ... | Reasons
//!  PoolRow ──landfall-ipam────────────────> PoolSet
//!                       all of them ──Config::build──> Config + Findings, per object
//!  Config::l2_of(address, labels) ──> the advertisements that apply
//! ```
//!
//! Each object is checked alone, and then with the others: a mistake in one takes nothing away from
//! another, and an object whose newest version is refused stays in force as it was. A
//! [`Config`] can therefore always be used; what is wrong is in [`Findings`], with object, field,
//! value and remedy.
//!
//! What MetalLB does not have (sharing across namespaces, quotas, exclusions, reservations and so
//! on) is written as annotations `landfall.dev/...` on the object, never as fields: the schema of a
//! `CustomResourceDefinition` that MetalLB installed would drop unknown fields without a word, and
//! MetalLB goes on reading the same objects if it is put back.
//!
//! Pure: no I/O, no clock, no Kubernetes client.

#![forbid(unsafe_code)]

mod admission;
mod bfd_profile;
mod bgp_advertisement;
mod bgp_peer;
mod community;
mod config;
mod fields;
mod findings;
mod ip_address_pool;
mod l2_advertisement;
mod objects;
mod pools;
mod selectors;
mod service_bgp_status;
mod service_l2_status;
mod time;

pub use admission::{Proposal, Verdict};
pub use bfd_profile::{BfdKey, BfdProfile, KEY_SECRET};
pub use bgp_advertisement::{BgpAdvertisement, CommunityRef};
pub use bgp_peer::{
    BgpPeer, PASSIVE, Passive, Password, PasswordSource, PeerAddress, RemoteAsn, Timers,
};
pub use community::{Communities, CommunityValue};
pub use config::{Advertised, BgpAdvertised, Config};
pub use findings::{Findings, ObjectName};
pub use l2_advertisement::{L2Advertisement, Preference, SelectedNodes};
pub use pools::PoolChoice;
pub use selectors::Selectors;
pub use service_bgp_status::ServiceBgpStatus;
pub use service_l2_status::ServiceL2Status;
