//! What every child of a load balancer has.

use serde_json::{Value, json};

use super::super::load_balancers::PENDING_CREATE;
use super::super::wire::Row;
use super::super::world::World;
use super::lock::set_status;

/// Attributes that every child has.
pub(super) fn common(world: &World, id: &str, project: &str, row: &mut Row) {
    row.insert("id".to_owned(), json!(id));
    row.insert("project_id".to_owned(), json!(project));
    row.insert("tenant_id".to_owned(), json!(project));
    row.insert("created_at".to_owned(), json!(world.clock.plain()));
    row.insert("updated_at".to_owned(), Value::Null);
    row.insert("operating_status".to_owned(), json!("OFFLINE"));
    set_status(row, PENDING_CREATE);
}
