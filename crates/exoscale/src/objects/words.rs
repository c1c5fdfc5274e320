//! The words of the API for states, protocols and the like.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Defines an enum of the words that a field can have. Words of newer versions are kept as they
/// are.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal,)* })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum $name {
            $(#[doc = concat!("`", $word, "`.")] $variant,)*
            /// A word that is not known here.
            Other(String),
        }

        impl $name {
            /// The words that are known.
            pub const KNOWN: &[Self] = &[$(Self::$variant),*];

            /// Returns the word.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Other(word) => word,
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::Other(String::new())
            }
        }

        impl From<String> for $name {
            fn from(word: String) -> Self {
                match word.as_str() {
                    $($word => Self::$variant,)*
                    _ => Self::Other(word),
                }
            }
        }

        impl From<$name> for String {
            fn from(word: $name) -> Self {
                word.as_str().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )* };
}

words! {
    /// The state of an NLB.
    LoadBalancerState {
        Creating = "creating",
        Migrated = "migrated",
        Deleting = "deleting",
        Running = "running",
        Migrating = "migrating",
        Error = "error",
    }
    /// The state of an NLB service.
    ServiceState {
        Creating = "creating",
        Deleting = "deleting",
        Running = "running",
        Updating = "updating",
        Error = "error",
    }
    /// The protocol of an NLB service.
    Protocol {
        Tcp = "tcp",
        Udp = "udp",
    }
    /// How an NLB service chooses an instance.
    Strategy {
        RoundRobin = "round-robin",
        MaglevHash = "maglev-hash",
        SourceHash = "source-hash",
    }
    /// The kind of a health check.
    HealthcheckMode {
        Tcp = "tcp",
        Http = "http",
        Https = "https",
    }
    /// The health of an instance.
    HealthcheckResult {
        Failure = "failure",
        Success = "success",
    }
    /// The state of an operation.
    OperationStatus {
        Failure = "failure",
        Pending = "pending",
        Success = "success",
        Timeout = "timeout",
    }
    /// Why an operation failed.
    OperationReason {
        Incorrect = "incorrect",
        Unknown = "unknown",
        Unavailable = "unavailable",
        Forbidden = "forbidden",
        Busy = "busy",
        Fault = "fault",
        Partial = "partial",
        NotFound = "not-found",
        Interrupted = "interrupted",
        Unsupported = "unsupported",
        Conflict = "conflict",
    }
    /// What made an instance or a pool.
    ManagerType {
        SksNodepool = "sks-nodepool",
        InstancePool = "instance-pool",
    }
    /// The state of an instance.
    InstanceState {
        Expunging = "expunging",
        Starting = "starting",
        Destroying = "destroying",
        Running = "running",
        Stopping = "stopping",
        Stopped = "stopped",
        Migrating = "migrating",
        Error = "error",
        Destroyed = "destroyed",
    }
    /// The state of an instance pool.
    PoolState {
        ScalingUp = "scaling-up",
        ScalingDown = "scaling-down",
        Destroying = "destroying",
        Creating = "creating",
        Suspended = "suspended",
        Running = "running",
        Updating = "updating",
    }
}
