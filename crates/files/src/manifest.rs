//! From text to objects. Pure: no file is opened here, and no text makes it panic.
//!
//! ```text
//!  text ──documents──> trees with lines ──de──> wire shapes ──into_row──> objects
//!             │                │                                 │
//!             └────────────────┴── faults: Reasons with file and line
//! ```
//!
//! Parsing keeps its own small tree instead of going straight to serde: a tree knows the line of
//! every field, survives a document that is broken elsewhere in the file, and lets one `List` hold
//! objects of many kinds. What a Secret holds is never quoted.

mod de;
mod documents;
mod fields;
#[cfg(test)]
mod fuzz;
mod object;
mod objects;
mod resource_fields;
mod scalar;
mod tree;

pub(crate) use object::{Object, ObjectKey};
pub(crate) use objects::{Content, Found, read};
