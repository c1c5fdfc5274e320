//! The kinds of providers in `landfall.yaml`. A new one is a file in `provider/` and a line in
//! `kinds!`.

use std::fmt;
use std::vec;

use schemars::{JsonSchema, Schema, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

pub mod exoscale;
pub mod local;
pub mod metal;
pub mod openstack;

use exoscale::Exoscale;
use local::Local;
use metal::Metal;
use openstack::OpenStack;

/// The options of one kind of provider.
pub(crate) trait Options: Sized {
    /// Returns what the name of the kind alone stands for.
    ///
    /// # Errors
    /// How to write it instead.
    fn short() -> Result<Self, &'static str>;

    /// Returns what makes no sense, with its key within `provider`.
    fn complaint(&self) -> Option<Complaint>;

    /// Returns why the instance can't have address pools of its own, if it can't.
    fn no_pools(&self) -> Option<&'static str>;
}

/// A value that is well-formed and makes no sense.
#[derive(Debug)]
pub(crate) struct Complaint {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) why: String,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident($options:ty) = $name:literal),+ $(,)?) => {
        /// The provider of an instance: its kind, and the options of that kind.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
        #[serde(tag = "kind")]
        #[schemars(transform = with_short_form)]
        pub enum ProviderConfig {
            $($(#[$doc])* #[serde(rename = $name)] $kind($options),)+
        }

        const KINDS: &[&str] = &[$($name),+];

        impl ProviderConfig {
            fn read<'de, D: Deserializer<'de>>(kind: &str, options: D) -> Result<Self, D::Error> {
                match kind {
                    $($name => <$options>::deserialize(options).map(Self::$kind),)+
                    _ => Err(D::Error::unknown_variant(kind, KINDS)),
                }
            }

            fn short<E: Error>(kind: &str) -> Result<Self, E> {
                match kind {
                    $($name => <$options>::short().map(Self::$kind).map_err(E::custom),)+
                    _ => Err(E::unknown_variant(kind, KINDS)),
                }
            }

            pub(crate) fn complaint(&self) -> Option<Complaint> {
                match self {
                    $(Self::$kind(options) => options.complaint(),)+
                }
            }

            pub(crate) fn no_pools(&self) -> Option<&'static str> {
                match self {
                    $(Self::$kind(options) => options.no_pools(),)+
                }
            }
        }
    };
}

kinds! {
    /// Addresses of this machine, traffic through this process.
    Local(Local) = "local",
    /// Load balancers of OpenStack's Octavia.
    OpenStack(OpenStack) = "openstack",
    /// Network Load Balancers of Exoscale.
    Exoscale(Exoscale) = "exoscale",
    /// Addresses from pools, which speakers on the nodes announce.
    Metal(Metal) = "metal",
}

/// Returns the kinds whose name alone is a provider.
fn short_kinds() -> Vec<&'static str> {
    let kinds = KINDS.iter().copied();
    kinds
        .filter(|kind| ProviderConfig::short::<serde_json::Error>(kind).is_ok())
        .collect()
}

/// Adds to the schema that kinds without options are written as their name alone, too.
fn with_short_form(schema: &mut Schema) {
    let names = short_kinds();
    let Some(description) = schema.remove("description") else {
        return;
    };
    let short = json_schema!({
        "description": "A kind without options: its name.",
        "type": "string",
        "enum": names
    });
    let long = std::mem::take(schema);
    *schema = json_schema!({"description": description, "anyOf": [short, long]});
}

impl<'de> Deserialize<'de> for ProviderConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Provider)
    }
}

/// Reads a provider. The options are read as they come and not from a copy, so that mistakes keep
/// their line.
struct Provider;

impl<'de> Visitor<'de> for Provider {
    type Value = ProviderConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = short_kinds().join(" or ");
        write!(f, "{names}, or a map with kind: {}", KINDS.join(" or "))
    }

    fn visit_str<E: Error>(self, kind: &str) -> Result<ProviderConfig, E> {
        ProviderConfig::short(kind)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ProviderConfig, A::Error> {
        let mut before = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if key == "kind" {
                let kind: String = map.next_value()?;
                let options = Rest {
                    before: before.into_iter(),
                    next: None,
                    after: map,
                };
                return ProviderConfig::read(&kind, MapAccessDeserializer::new(options));
            }
            before.push((key, map.next_value::<Value>()?));
        }
        Err(A::Error::missing_field("kind"))
    }
}

/// The entries of a map but `kind`. Those before it have been read already.
struct Rest<A> {
    before: vec::IntoIter<(String, Value)>,
    next: Option<Value>,
    after: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Rest<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        match self.before.next() {
            Some((key, value)) => {
                self.next = Some(value);
                seed.deserialize(key.into_deserializer()).map(Some)
            }
            None => self.after.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        match self.next.take() {
            Some(value) => seed.deserialize(value).map_err(|error| {
                let error = error.to_string();
                // How the number was written is not known any more.
                if error.contains("expected a string") {
                    A::Error::custom(format!("{error}; write the text in quotes"))
                } else {
                    A::Error::custom(error)
                }
            }),
            None => self.after.next_value_seed(seed),
        }
    }
}

// === impl Complaint ===

impl Complaint {
    pub(crate) fn new(
        key: impl Into<String>,
        value: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        Self {
            key: key.into(),
            value: value.into(),
            why: why.into(),
        }
    }

    /// Returns the same about the key within `parent`.
    pub(crate) fn within(self, parent: &str) -> Self {
        Self {
            key: format!("{parent}.{}", self.key),
            ..self
        }
    }
}
