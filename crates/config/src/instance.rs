//! One instance of `landfall.yaml`.

use landfall_model::dialect::{cidr, parse_duration};
use landfall_model::reach::{MemberRules, Setting};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pools::PoolConfig;
use crate::provider::{Complaint, ProviderConfig};

/// One provider instance: it serves the class `landfall.dev/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Instance {
    /// Its name: lower-case letters, digits and `-`; unique.
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"))]
    pub name: String,
    /// The provider of its load balancers.
    pub provider: ProviderConfig,
    /// Whether it also serves Services without a class. At most one instance may.
    #[serde(default)]
    pub default: bool,
    /// Further classes whose Services it serves, such as that of a controller that it replaces: the
    /// class of a Service can't be changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_names: Vec<String>,
    /// Address pools of this instance only, besides the `IPAddressPool` objects of the default
    /// instance.
    #[serde(default)]
    pub pools: Vec<PoolConfig>,
    /// Which addresses may be members, if members are pods. Link-local, unspecified, multicast and
    /// broadcast addresses, those of address pools and the admin endpoint are never members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<MembersConfig>,
}

/// Which addresses may be members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MembersConfig {
    /// Prefixes that `landfall.dev/endpoints` may name. Default: none in a cluster, any with
    /// manifests. In a cluster, loopback needs a prefix within 127.0.0.0/8 or `::1/128`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Vec<String>>,
    /// Prefixes that `EndpointSlice` objects may name. Default: any, in a cluster without loopback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slices: Option<Vec<String>>,
}

// === impl Instance ===

impl Instance {
    /// Returns the first thing that makes no sense, of this instance alone.
    pub(crate) fn complaint(&self) -> Option<Complaint> {
        if let Some(complaint) = self.provider.complaint() {
            return Some(complaint.within("provider"));
        }
        // A pool here would never be used.
        if let (Some(pool), Some(why)) = (self.pools.first(), self.provider.no_pools()) {
            return Some(Complaint::new("pools", &pool.name, why));
        }
        for (position, pool) in self.pools.iter().enumerate() {
            if let Some(text) = &pool.cool_down
                && parse_duration(text).is_none()
            {
                let key = format!("pools[{position}].coolDown");
                let why = "not a time; write a time such as 90s or 10m";
                return Some(Complaint::new(key, text, why));
            }
        }
        let lists = self.members.iter().flat_map(MembersConfig::lists);
        let mut prefixes = lists.flat_map(|(list, texts)| {
            let texts = texts.iter().flatten().enumerate();
            texts.map(move |(position, text)| (format!("members.{list}[{position}]"), text))
        });
        prefixes.find_map(|(key, text)| {
            let refusal = cidr(text).err()?;
            Some(Complaint::new(key, text, refusal.remedy))
        })
    }

    /// Returns what may be a member, with Services of this setting.
    pub fn member_rules(&self, setting: Setting) -> MemberRules {
        let [annotations, slices] = match &self.members {
            Some(members) => members.lists().map(|(_, texts)| {
                let texts = texts.as_deref()?;
                // Those that can't be read were refused with the file.
                Some(texts.iter().filter_map(|text| cidr(text).ok()).collect())
            }),
            None => [None, None],
        };
        MemberRules {
            setting,
            annotations,
            slices,
            ..MemberRules::default()
        }
    }
}

// === impl MembersConfig ===

impl MembersConfig {
    fn lists(&self) -> [(&'static str, &Option<Vec<String>>); 2] {
        [("annotations", &self.annotations), ("slices", &self.slices)]
    }
}
