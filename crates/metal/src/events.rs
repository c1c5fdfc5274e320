//! The reasons of events, in the words of MetalLB, on which its users have alerts.

use landfall_model::happening::Happening;
use landfall_model::reason::Code;

/// The family that a Service would like beside the one that it has can't be had.
pub(crate) const ADDITIONAL_ASSIGN_FAILED: &str = "AdditionalAssignFailed";

/// Returns the reason of an event.
pub(crate) fn event_reason(happening: Happening) -> Option<&'static str> {
    match happening {
        Happening::Assigned => Some("IPAllocated"),
        Happening::Cleared => Some("ClearAssignment"),
        Happening::Refused => Some("AllocationFailed"),
        Happening::Failed => Some("LoadBalancerFailed"),
        Happening::Warned(Code::DeprecatedAnnotation) => Some("deprecatedAnnotation"),
        Happening::Ensured | Happening::Warned(_) => happening.reason(),
    }
}
