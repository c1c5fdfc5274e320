//! What `landfall.yaml` says about an instance on OpenStack.

use std::borrow::Cow;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::cloud_conf::{self, CloudConf, ConfError};
use crate::clouds_yaml::{self, Surroundings};
use crate::file::ProviderKind;

/// An instance that creates load balancers with OpenStack's Octavia.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenStack {
    /// The `cloud.conf` of cloud-provider-openstack. Give this or `clouds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_conf: Option<PathBuf>,
    /// An entry of `clouds.yaml`. Give this or `cloudConf`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clouds: Option<CloudsChoice>,
    /// Part of all names in the cloud: the `--cluster-name` of cloud-provider-openstack.
    #[serde(default = "cluster_name")]
    #[schemars(length(min = 1))]
    pub cluster_name: String,
    /// Whether a Service with source ranges is refused if the cloud can't enforce them. False: it
    /// is exposed to all clients, with a warning.
    #[serde(default = "yes")]
    pub strict_source_ranges: bool,
    /// The layout of security groups, if `cloud.conf` enables their management.
    #[serde(default)]
    pub security_groups: SecurityGroups,
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

fn cluster_name() -> String {
    "kubernetes".to_owned()
}

fn yes() -> bool {
    true
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

    /// The key, the value and what is wrong with it, if something is.
    pub(crate) fn complaint(&self) -> Option<(&'static str, String, &'static str)> {
        let shown = |path: &PathBuf| path.display().to_string();
        match (&self.cloud_conf, &self.clouds) {
            (None, None) => {
                let why = "which cloud? give cloudConf: PATH, or clouds: {cloud: NAME}";
                return Some(("cloudConf", String::new(), why));
            }
            (Some(path), Some(_)) => {
                let why = "give cloudConf or clouds, not both; use-clouds in cloud.conf joins them";
                return Some(("cloudConf", shown(path), why));
            }
            (Some(_), None) | (None, Some(_)) => {}
        }
        let why = "it is part of all names in the cloud; leave it out for \"kubernetes\"";
        let empty = self.cluster_name.is_empty();
        empty.then(|| ("clusterName", String::new(), why))
    }
}

// === impl ProviderKind ===

/// The map form, by hand so that mistakes keep their line: `kind` and what belongs to it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Map {
    kind: Name,
    cloud_conf: Option<PathBuf>,
    clouds: Option<CloudsChoice>,
    cluster_name: Option<String>,
    strict_source_ranges: Option<bool>,
    security_groups: Option<SecurityGroups>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Name {
    Local,
    OpenStack,
}

impl Map {
    fn provider<E: Error>(self) -> Result<ProviderKind, E> {
        match self.kind {
            Name::Local => {
                let given = [
                    ("cloudConf", self.cloud_conf.is_some()),
                    ("clouds", self.clouds.is_some()),
                    ("clusterName", self.cluster_name.is_some()),
                    ("strictSourceRanges", self.strict_source_ranges.is_some()),
                    ("securityGroups", self.security_groups.is_some()),
                ];
                match given.iter().find(|(_, given)| *given) {
                    Some((key, _)) => Err(E::custom(format_args!(
                        "{key} has no meaning for the provider local; remove it"
                    ))),
                    None => Ok(ProviderKind::Local),
                }
            }
            Name::OpenStack => Ok(ProviderKind::OpenStack(OpenStack {
                cloud_conf: self.cloud_conf,
                clouds: self.clouds,
                cluster_name: self.cluster_name.unwrap_or_else(cluster_name),
                strict_source_ranges: self.strict_source_ranges.unwrap_or(true),
                security_groups: self.security_groups.unwrap_or_default(),
            })),
        }
    }
}

impl<'de> Deserialize<'de> for ProviderKind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = ProviderKind;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("local, or a map with kind: openstack")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<ProviderKind, E> {
                match Name::deserialize(StrDeserializer::<E>::new(name))? {
                    Name::Local => Ok(ProviderKind::Local),
                    Name::OpenStack => Err(E::custom(
                        "openstack needs a cloud; write {kind: openstack, cloudConf: PATH}",
                    )),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ProviderKind, A::Error> {
                Map::deserialize(MapAccessDeserializer::new(map))?.provider()
            }
        }

        from.deserialize_any(Either)
    }
}

impl JsonSchema for ProviderKind {
    fn schema_name() -> Cow<'static, str> {
        "ProviderKind".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut openstack = OpenStack::json_schema(generator);
        if let Some(properties) = openstack
            .get_mut("properties")
            .and_then(|it| it.as_object_mut())
        {
            let kind = serde_json::json!({"type": "string", "const": "openstack"});
            properties.insert("kind".to_owned(), kind);
        }
        openstack.insert("required".to_owned(), serde_json::json!(["kind"]));
        // Which cloud: one of the two.
        let choice = serde_json::json!([{"required": ["cloudConf"]}, {"required": ["clouds"]}]);
        openstack.insert("oneOf".to_owned(), choice);
        json_schema!({
            "description": "The kinds of providers.",
            "anyOf": [
                {
                    "description": "Addresses of this machine, traffic through this process.",
                    "type": "string",
                    "const": "local"
                },
                {
                    "description": "As above, written as a map.",
                    "type": "object",
                    "properties": {"kind": {"type": "string", "const": "local"}},
                    "required": ["kind"],
                    "additionalProperties": false
                },
                openstack
            ]
        })
    }
}
