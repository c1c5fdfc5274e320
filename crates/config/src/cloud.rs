//! A cloud and the account in it, as `cloud.conf` and `clouds.yaml` both describe them.

mod auth;
mod error;
mod global;

pub use auth::{Auth, CredentialRef, DomainRef, ProjectRef, Scope, UserRef};
pub use error::ConfError;
pub(crate) use error::origin;
pub use global::{Global, Identity, Interface, Tls};
pub(crate) use global::{KEYS, Naming};
