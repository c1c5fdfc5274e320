//! Placeholder until the dialects land: keeps the crate compiling.

use landfall_model::provider::Capabilities;
use landfall_model::rows::ServiceRow;
use landfall_model::{Intent, Reason};

use crate::World;

/// Placeholder.
///
/// # Errors
/// Never.
pub fn resolve(
    service: &ServiceRow,
    _world: &World,
    _capabilities: &Capabilities,
) -> Result<Intent, Vec<Reason>> {
    Ok(Intent::removal(service.key.clone(), service.uid.clone()))
}
