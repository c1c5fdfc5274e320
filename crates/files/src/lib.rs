//! Manifests in files as a source of facts, with a store that behaves like a small API server.
//!
//! ```text
//!  files ─ disk ─> catalog ──(objects)──> reported ──> Fact ──> engine
//!           ^         │                       ^                    │
//!         watch       └─(Services)─> registry <── store <──────────┘ finalizers, statuses
//!                                       │
//!                                  state.journal
//! ```
//!
//! Owns: reading and following files, what is remembered about Services in the state directory.
//! Must never: decide anything about load balancers, lose the last good version of an object to a
//! typing error, or show what a Secret holds.
//!
//! Kubernetes' own behaviour is followed as far as files allow. A Service without `metadata.uid`
//! gets an identity made of its namespace and name. A Service that vanishes from the files while
//! its finalizer is on it is reported as being deleted until the finalizer is removed, also across
//! a restart. What else differs, and why, is documented in `registry`.

mod alike;
mod blocking;
mod catalog;
mod debounce;
mod disk;
mod hash_secret;
mod identity;
mod load;
mod manifest;
mod marks;
#[cfg(feature = "memory")]
pub mod memory;
#[cfg(feature = "memory")]
mod memory_files;
mod pools;
mod registry;
mod report;
mod reported;
mod scanner;
#[cfg(feature = "memory")]
mod sim_delay;
mod snapshot;
mod source;
mod state;
mod store;
mod unwritten;
mod watch;

pub use hash_secret::{hash_secret, random_secret};
pub use load::{Loaded, load, load_text};
pub use snapshot::{About, Snapshot, SnapshotFile};
pub use source::{Manifests, OpenError, Options};
pub use state::{StateError, validate_state};
pub use store::{ManifestStore, StoreError};
