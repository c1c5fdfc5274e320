//! Keystone's address, the account, and TLS.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use secrecy::SecretString;

use super::error::ConfError;

/// What is known of the cloud and the account, from `cloud.conf`, `clouds.yaml` or both.
///
/// `None` is as good as an empty value. [`auth`](Self::auth), [`identity_url`](Self::identity_url)
/// and [`tls`](Self::tls) validate whether it all fits together.
#[derive(Clone, Debug, Default)]
pub struct Global {
    /// Keystone.
    pub auth_url: Option<String>,
    /// Region of the catalog; none: whichever comes first.
    pub region: Option<String>,
    /// Interface of the catalog, if given.
    pub endpoint_type: Option<Interface>,
    /// User by name, which needs a domain.
    pub username: Option<String>,
    /// User by id.
    pub user_id: Option<String>,
    /// Password of the user.
    pub password: Option<SecretString>,
    /// Domain of the user, by id.
    pub user_domain_id: Option<String>,
    /// Domain of the user, by name.
    pub user_domain_name: Option<String>,
    /// Default of the other domains; without a project, the scope. By id.
    pub domain_id: Option<String>,
    /// As `domain_id`, by name.
    pub domain_name: Option<String>,
    /// What other domains are if nothing says so, by id. Only `clouds.yaml` has it.
    pub default_domain: Option<String>,
    /// Project by id.
    pub tenant_id: Option<String>,
    /// Project by name, which needs a domain.
    pub tenant_name: Option<String>,
    /// Domain of the project, by id.
    pub tenant_domain_id: Option<String>,
    /// Domain of the project, by name.
    pub tenant_domain_name: Option<String>,
    /// The trust to act under.
    pub trust_id: Option<String>,
    /// The user that acts under the trust; instead of `user_id`.
    pub trustee_id: Option<String>,
    /// Password of the trustee; instead of `password`.
    pub trustee_password: Option<SecretString>,
    /// Application credential by id.
    pub application_credential_id: Option<String>,
    /// Application credential by name, which needs a user.
    pub application_credential_name: Option<String>,
    /// Secret of the application credential.
    pub application_credential_secret: Option<SecretString>,
    /// A token that another program has fetched.
    pub token: Option<SecretString>,
    /// Certificates to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether certificates are not verified, if given.
    pub tls_insecure: Option<bool>,
    /// Client certificate.
    pub cert_file: Option<PathBuf>,
    /// Key of the client certificate.
    pub key_file: Option<PathBuf>,
    /// Whether `clouds.yaml` fills what is missing here.
    pub use_clouds: bool,
    /// Where `clouds.yaml` is.
    pub clouds_file: Option<PathBuf>,
    /// Its entry.
    pub cloud: Option<String>,
    /// The file that all this comes from, for messages.
    pub(crate) file: Arc<str>,
    /// Where keys stand, for messages.
    pub(crate) places: BTreeMap<&'static str, String>,
    /// How the file calls its keys, for messages.
    pub(crate) naming: Naming,
    /// Keys that were filled from another file: that file, and how it calls them.
    pub(crate) filled: BTreeMap<&'static str, (Arc<str>, Naming)>,
}

/// The interface of catalog entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interface {
    /// For all requests.
    #[default]
    Public,
    /// For neighbours.
    Internal,
    /// For administrators.
    Admin,
}

/// How TLS connections to the cloud are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Whether certificates are verified.
    pub verify: bool,
    /// Certificates to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// The client's own certificate.
    pub identity: Option<Identity>,
}

/// A client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// PEM file of the certificate.
    pub cert_file: PathBuf,
    /// PEM file of the key.
    pub key_file: PathBuf,
}

/// How a file calls its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Naming {
    /// `tenant-name`.
    #[default]
    CloudConf,
    /// `auth.project_name`.
    CloudsYaml,
}

/// The ways to authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Password,
    ApplicationCredential,
    Token,
}

// === impl Global ===

impl Global {
    /// Takes from `other` what is missing here. If this one names a way to authenticate, nothing of
    /// other ways is taken.
    pub fn fill(&mut self, other: &Self) {
        let own = self.method();
        let wants = |method: Method| own.is_none_or(|own| own == method);
        macro_rules! fill {
            ($($field:ident),+ $(,)?) => {
                $(if self.$field.is_none() && other.$field.is_some() {
                    self.$field.clone_from(&other.$field);
                    if let Some(key) = KEYS.iter().find(|key| is_of(key, stringify!($field))) {
                        let source = (Arc::clone(&other.file), other.naming);
                        self.filled.insert(key, source);
                    }
                })+
            };
        }
        fill!(
            auth_url,
            region,
            endpoint_type,
            username,
            user_id,
            user_domain_id,
            user_domain_name,
            domain_id,
            domain_name,
            default_domain,
            tenant_id,
            tenant_name,
            tenant_domain_id,
            tenant_domain_name,
            ca_file,
            tls_insecure,
            cert_file,
            key_file,
        );
        if wants(Method::Password) {
            fill!(password, trust_id, trustee_id, trustee_password);
        }
        if wants(Method::ApplicationCredential) {
            fill!(
                application_credential_id,
                application_credential_name,
                application_credential_secret,
            );
        }
        if wants(Method::Token) {
            fill!(token);
        }
    }

    fn method(&self) -> Option<Method> {
        if self.token.is_some() {
            Some(Method::Token)
        } else if self.application_credential_id.is_some()
            || self.application_credential_name.is_some()
            || self.application_credential_secret.is_some()
        {
            Some(Method::ApplicationCredential)
        } else if self.password.is_some() || self.trustee_password.is_some() {
            Some(Method::Password)
        } else {
            None
        }
    }

    /// The interface of catalog entries to use.
    pub fn interface(&self) -> Interface {
        self.endpoint_type.unwrap_or_default()
    }

    /// Keystone's URL as given, without a `/` at its end. It may or may not end in `/v3`.
    pub fn identity_url(&self) -> Result<String, ConfError> {
        let Some(url) = &self.auth_url else {
            let why = "the URL of Keystone is missing, such as https://keystone.example.org/v3";
            return Err(self.incomplete(&["auth-url"], why));
        };
        let url = url.trim_end_matches('/');
        let scheme = url.split_once("://").filter(|(_, rest)| !rest.is_empty());
        if !scheme.is_some_and(|(scheme, _)| scheme == "https" || scheme == "http") {
            let why = "not a URL; write one such as https://keystone.example.org/v3";
            return Err(self.incomplete(&["auth-url"], why));
        }
        match url.strip_suffix("/v2.0") {
            // A trust is a thing of version 3, whatever the URL says.
            Some(base) if self.trust_id.is_some() => Ok(format!("{base}/v3")),
            Some(base) => {
                let why = format!(
                    "version 2.0 of Keystone's API is not supported; write \
                                  {base}/v3"
                );
                Err(self.incomplete(&["auth-url"], &why))
            }
            None => Ok(url.to_owned()),
        }
    }

    /// How TLS connections are made. No file is opened here.
    pub fn tls(&self) -> Result<Tls, ConfError> {
        let identity = match (&self.cert_file, &self.key_file) {
            (None, None) => None,
            (Some(cert_file), Some(key_file)) => Some(Identity {
                cert_file: cert_file.clone(),
                key_file: key_file.clone(),
            }),
            _ => {
                let why = "a client certificate and its key go together; give both or none";
                return Err(self.incomplete(&["cert-file", "key-file"], why));
            }
        };
        Ok(Tls {
            verify: !self.tls_insecure.unwrap_or(false),
            ca_file: self.ca_file.clone(),
            identity,
        })
    }

    /// Keys of `cloud.conf` as people find them, each as the file calls it that it comes from,
    /// after the place of the first one that stands somewhere:
    /// `cloud.conf:7: [Global] cert-file, [Global] key-file`.
    pub fn named(&self, keys: &[&str]) -> String {
        let (place, keys) = self.place(keys);
        format!("{place}: {keys}")
    }

    fn place(&self, keys: &[&str]) -> (String, String) {
        let filled = |key: &str| self.filled.get(key).map(|(file, _)| file.to_string());
        let place = keys
            .iter()
            .find_map(|key| self.places.get(key).cloned().or_else(|| filled(key)));
        let named = keys.iter().map(|key| {
            let filled = self.filled.get(key).map(|(_, naming)| *naming);
            filled.unwrap_or(self.naming).name(key)
        });
        let named: Vec<String> = named.collect();
        (
            place.unwrap_or_else(|| self.file.to_string()),
            named.join(", "),
        )
    }

    /// An error about keys, at the place of the first one that stands somewhere.
    pub(crate) fn incomplete(&self, keys: &[&str], why: &str) -> ConfError {
        let (place, keys) = self.place(keys);
        ConfError::Incomplete {
            place,
            keys,
            why: why.to_owned(),
        }
    }
}

/// Whether this key is read into this field.
fn is_of(key: &str, field: &str) -> bool {
    key.len() == field.len() && key.replace('-', "_") == field
}

/// Keys that errors are about.
pub(crate) const KEYS: [&str; 22] = [
    "auth-url",
    "username",
    "user-id",
    "password",
    "user-domain-id",
    "user-domain-name",
    "domain-id",
    "domain-name",
    "tenant-id",
    "tenant-name",
    "tenant-domain-id",
    "tenant-domain-name",
    "trust-id",
    "trustee-id",
    "trustee-password",
    "application-credential-id",
    "application-credential-name",
    "application-credential-secret",
    "token",
    "ca-file",
    "cert-file",
    "key-file",
];

// === impl Interface ===

impl Interface {
    /// `public`, `internal` or `admin`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "public" => Some(Self::Public),
            "internal" => Some(Self::Internal),
            "admin" => Some(Self::Admin),
            _ => None,
        }
    }

    /// As the catalog writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Admin => "admin",
        }
    }
}

// === impl Naming ===

impl Naming {
    fn name(self, key: &str) -> String {
        match (self, key) {
            (Self::CloudConf, key) => format!("[Global] {key}"),
            (Self::CloudsYaml, "ca-file") => "cacert".to_owned(),
            (Self::CloudsYaml, "cert-file") => "cert".to_owned(),
            (Self::CloudsYaml, "key-file") => "key".to_owned(),
            (Self::CloudsYaml, key) => {
                format!(
                    "auth.{}",
                    key.replace("tenant", "project").replace('-', "_")
                )
            }
        }
    }
}
