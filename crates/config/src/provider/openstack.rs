//! What `landfall.yaml` says about an instance on OpenStack.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Complaint, Options};
use crate::cloud::ConfError;
use crate::cloud_conf::{self, CloudConf};
use crate::clouds_yaml::{self, Surroundings};

/// An instance that creates load balancers with OpenStack's Octavia.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["cloudConf"]}, {"required": ["clouds"]}]))]
pub struct OpenStack {
    /// The `cloud.conf` of cloud-provider-openstack. Give this or `clouds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_conf: Option<PathBuf>,
    /// An entry of `clouds.yaml`. Give this or `cloudConf`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clouds: Option<CloudsChoice>,
    /// Part of all names in the cloud: the `--cluster-name` of cloud-provider-openstack.
    #[serde(default = "cluster_name", deserialize_with = "named_cluster")]
    #[schemars(length(min = 1))]
    pub cluster_name: String,
    /// Whether a Service with source ranges is refused if the cloud can't enforce them. False: it
    /// is exposed to all clients, with a warning.
    #[serde(default = "yes", deserialize_with = "given_or_yes")]
    pub strict_source_ranges: bool,
    /// The layout of security groups, if `cloud.conf` enables their management.
    #[serde(default, deserialize_with = "given_or_default")]
    pub security_groups: SecurityGroups,
    /// Whether Services with `ipFamilyPolicy: PreferDualStack` get an address of their second
    /// family. False: only those with `RequireDualStack` do, so that a takeover from
    /// cloud-provider-openstack creates no second load balancers; what exists stays.
    #[serde(default = "yes", deserialize_with = "given_or_yes")]
    pub prefer_dual_stack: bool,
    /// Members of Services without the annotation `landfall.dev/target-type`.
    #[serde(default, deserialize_with = "given_or_default")]
    pub target_type: TargetType,
}

/// An entry of `clouds.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CloudsChoice {
    /// The file; default: `OS_CLIENT_CONFIG_FILE`, `clouds.yaml` in the current directory, in
    /// `~/.config/openstack` or in `/etc/openstack`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The entry; default: `OS_CLOUD`, or the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud: Option<String>,
}

/// The layouts of security groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SecurityGroups {
    /// One for the cluster: each port of a node gets it once.
    #[default]
    PerCluster,
    /// One per Service, as with cloud-provider-openstack.
    PerService,
}

/// What members are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TargetType {
    /// Nodes with NodePorts, as with cloud-provider-openstack.
    #[default]
    Node,
    /// Pods, which load balancers have to reach.
    Pod,
}

fn cluster_name() -> String {
    "kubernetes".to_owned()
}

fn yes() -> bool {
    true
}

fn named_cluster<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Option::deserialize(from).map(|given| given.unwrap_or_else(cluster_name))
}

fn given_or_yes<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    Option::deserialize(from).map(|given| given.unwrap_or_else(yes))
}

/// Reads a value; null is the default.
fn given_or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(from).map(Option::unwrap_or_default)
}

// === impl OpenStack ===

impl OpenStack {
    /// Reads the files that it names.
    pub fn read(&self, surroundings: &Surroundings) -> Result<CloudConf, ConfError> {
        if let Some(path) = &self.cloud_conf {
            return cloud_conf::read(path, surroundings);
        }
        let clouds = self.clouds.clone().unwrap_or_default();
        let (file, cloud) = (clouds.file.as_deref(), clouds.cloud.as_deref());
        let found = clouds_yaml::read(file, cloud, surroundings)?;
        Ok(CloudConf {
            warnings: found.warnings,
            ..CloudConf::of(found.global)
        })
    }
}

impl Options for OpenStack {
    fn short() -> Result<Self, &'static str> {
        Err("openstack needs a cloud; write {kind: openstack, cloudConf: PATH}")
    }

    fn complaint(&self) -> Option<Complaint> {
        match (&self.cloud_conf, &self.clouds) {
            (None, None) => {
                let why = "which cloud? give cloudConf: PATH, or clouds: {cloud: NAME}";
                return Some(Complaint::new("cloudConf", "", why));
            }
            (Some(path), Some(_)) => {
                let why = "give cloudConf or clouds, not both; use-clouds in cloud.conf joins them";
                return Some(Complaint::new("cloudConf", path.display().to_string(), why));
            }
            (Some(_), None) | (None, Some(_)) => {}
        }
        let why = "it is part of all names in the cloud; leave it out for \"kubernetes\"";
        let empty = self.cluster_name.is_empty();
        empty.then(|| Complaint::new("clusterName", "", why))
    }

    fn no_pools(&self) -> Option<&'static str> {
        Some("an OpenStack instance has no pools; its addresses come from the cloud")
    }
}
