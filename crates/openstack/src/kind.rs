//! The kinds of steps, for metrics and logs.

use landfall_model::provider::ProviderStep;

use crate::step::Step;

impl ProviderStep for Step {
    fn kind(&self) -> &'static str {
        match self {
            Self::FailOver { .. } => "fail",
            Self::TryListener { .. } => "try",
            Self::CreateLoadBalancer { .. }
            | Self::CreateListener { .. }
            | Self::CreatePool { .. }
            | Self::CreateMonitor { .. }
            | Self::CreateFloatingIp { .. }
            | Self::CreateGroup { .. }
            | Self::CreateRules { .. }
            | Self::CreateCertificate { .. } => "create",
            Self::UpdateLoadBalancer { .. }
            | Self::UpdateListener { .. }
            | Self::UpdatePool { .. }
            | Self::UpdateMember { .. }
            | Self::UpdateMonitor { .. } => "update",
            Self::DeleteLoadBalancer { .. }
            | Self::DeleteListener { .. }
            | Self::DeletePool { .. }
            | Self::DeleteMember { .. }
            | Self::DeleteMonitor { .. }
            | Self::DeleteFloatingIp { .. }
            | Self::DeleteRule { .. }
            | Self::DeleteGroup { .. }
            | Self::DeleteCertificate { .. } => "delete",
            Self::SetMembers { additive: true, .. } | Self::AddMember { .. } => "add",
            Self::SetMembers { .. } | Self::SetTags { .. } => "set",
            Self::AttachFloatingIp { .. } | Self::SetPortGroups { joins: true, .. } => "attach",
            Self::DetachFloatingIp { .. } | Self::SetPortGroups { .. } => "detach",
        }
    }
}
