//! Marks of a status as they stand among the annotations of a Service. Pure.

use std::collections::BTreeMap;

use landfall_model::rows::ServiceRow;

/// Puts marks beside the annotations of a manifest, which count where both have one.
pub(crate) fn note_marks(
    annotations: &mut BTreeMap<String, String>,
    marks: &BTreeMap<String, String>,
) {
    for (key, value) in marks {
        annotations
            .entry(key.clone())
            .or_insert_with(|| value.clone());
    }
}

/// Returns a Service that was read from the disk, where its marks are among the annotations, as it
/// was when it was written: what differs from it is written again.
pub(crate) fn marked(mut row: ServiceRow) -> ServiceRow {
    note_marks(&mut row.annotations, &row.status.marks);
    row
}
