//! The configuration of the admin endpoint.

use crate::guard::Names;
use crate::token::TokenFile;

/// The settings of the endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Names under which it answers beside `localhost` and IP addresses; see [`crate::guard`].
    pub names: Names,
    /// Where the token stands that opens what is beyond probes and metrics; `None`: all is open.
    pub token: Option<TokenFile>,
}
