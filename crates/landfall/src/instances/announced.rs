//! What speakers do for the Services of instances on bare metal.

use std::net::SocketAddr;

use landfall_config::file::Config;
use landfall_config::instance::Instance;
use landfall_config::provider::ProviderConfig;
use landfall_config::provider::metal::DataPlane;
use landfall_model::ServiceKey;
use landfall_model::provider::ProviderProfile;
use landfall_model::reach::Setting;
use landfall_model::rows::Fact;
use landfall_speaker::every_node;
use landfall_speaker::explain::Explained;
use landfall_speaker::plane::Plane;

use super::{Instances, classes};
use crate::backend::{self, Bounds};

/// Returns the Services that nodes serve themselves; `None`: the configuration has no instance
/// whose Services they serve. `admin`: where the speaker of the node answers.
pub fn plane(config: &Config, node: &str, admin: Option<SocketAddr>) -> Option<Plane> {
    let limits = config.limits.limits(None);
    let profile = |instance: &Instance| match &instance.provider {
        ProviderConfig::Metal(metal) if metal.data_plane == DataPlane::Landfall => {
            let members = instance.member_rules(Setting::Cluster).beside(admin);
            let bounds = Bounds { members, limits };
            Some(backend::outline(&instance.provider, bounds))
        }
        _ => None,
    };
    let profiles: Vec<Option<ProviderProfile>> = config.instances.iter().map(profile).collect();
    let serves = profiles.iter().any(Option::is_some);
    serves.then(|| Plane::new(node, classes(config), profiles))
}

/// Returns what each node does for a Service, if a speaker runs on all of them; `None`: no instance
/// is on bare metal, or there is no such Service.
pub fn announced(instances: &Instances, facts: &[Fact], key: &ServiceKey) -> Option<Explained> {
    if !instances.has_metal() {
        return None;
    }
    every_node::explain(facts, key, |node| plane(&instances.config, node, None))
}
