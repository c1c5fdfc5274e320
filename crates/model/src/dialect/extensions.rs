//! Options that a single provider supports, by dialect.

/// Defines the options of one extension, each given by an annotation or not.
macro_rules! extension {
    ($(#[doc = $about:literal])+ $type:ident {
        $($(#[doc = $doc:literal])+ $name:ident: $kind:ty,)+
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $type {
            $($(#[doc = $doc])+
            #[serde(skip_serializing_if = "Option::is_none")]
            pub $name: Option<crate::dialect::Given<$kind>>,)+
        }
    };
}

mod exoscale;
mod openstack;

use serde::{Deserialize, Serialize};

use crate::status::ServiceStatus;
pub use exoscale::ExoscaleOptions;
pub use openstack::OpenStackOptions;

/// Options that a single provider supports: one field per dialect that has such options.
///
/// The engine passes them on unread, for removals, too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Extensions {
    /// Those of `loadbalancer.openstack.org/*`.
    pub openstack: OpenStackOptions,
    /// Those of `service.beta.kubernetes.io/exoscale-loadbalancer-*`.
    pub exoscale: ExoscaleOptions,
}

impl Extensions {
    /// Adds what a dialect reads in the status of the Service.
    #[must_use]
    pub fn with_status(self, status: &ServiceStatus) -> Self {
        Self {
            openstack: self.openstack.with_status(status),
            exoscale: self.exoscale,
        }
    }
}
