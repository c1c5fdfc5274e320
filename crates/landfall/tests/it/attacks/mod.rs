//! Clients and Services that take all they can get, and what others notice of it.

mod abuse;
mod clients;
mod reached;
mod services;
mod soak;
mod victims;
