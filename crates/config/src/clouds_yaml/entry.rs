//! One entry of `clouds.yaml`, as it is written, and what it comes down to.

use std::path::PathBuf;
use std::sync::Arc;

use secrecy::SecretString;
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

use crate::cloud::{ConfError, Global, Interface, Naming};

/// The keys of an entry that concern us. It may have many more, for other services and tools.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Entry {
    profile: Option<String>,
    cloud: Option<String>,
    auth: Option<Credentials>,
    auth_type: Option<Spanned<String>>,
    region_name: Option<String>,
    interface: Option<Spanned<String>>,
    endpoint_type: Option<Spanned<String>>,
    cacert: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    verify: Option<bool>,
}

/// The keys below `auth`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Credentials {
    auth_url: Option<String>,
    username: Option<String>,
    user_id: Option<String>,
    #[serde(deserialize_with = "secret")]
    password: Option<SecretString>,
    user_domain_id: Option<String>,
    user_domain_name: Option<String>,
    domain_id: Option<String>,
    domain_name: Option<String>,
    default_domain: Option<String>,
    project_id: Option<String>,
    project_name: Option<String>,
    project_domain_id: Option<String>,
    project_domain_name: Option<String>,
    trust_id: Option<String>,
    application_credential_id: Option<String>,
    application_credential_name: Option<String>,
    #[serde(deserialize_with = "secret")]
    application_credential_secret: Option<SecretString>,
    #[serde(deserialize_with = "secret")]
    token: Option<SecretString>,
}

fn secret<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SecretString>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    Ok(text.filter(|text| !text.is_empty()).map(SecretString::from))
}

macro_rules! fill {
    ($own:expr, $other:expr, $($field:ident),+ $(,)?) => {
        $(if $own.$field.is_none() {
            $own.$field.clone_from(&$other.$field);
        })+
    };
}

impl Entry {
    /// The entry of `clouds-public.yaml` that it rests on.
    pub fn profile(&self) -> Option<&str> {
        let names = [&self.profile, &self.cloud];
        let mut names = names.into_iter().filter_map(Option::as_deref);
        names.find(|name| !name.is_empty())
    }

    /// Takes from another what is missing here.
    pub fn fill(&mut self, other: &Self) {
        fill!(
            self,
            other,
            profile,
            cloud,
            auth_type,
            region_name,
            interface,
            endpoint_type,
            cacert,
            cert,
            key,
            verify,
        );
        let Some(theirs) = &other.auth else { return };
        let own = self.auth.get_or_insert_default();
        fill!(
            own,
            theirs,
            auth_url,
            username,
            user_id,
            password,
            user_domain_id,
            user_domain_name,
            domain_id,
            domain_name,
            default_domain,
            project_id,
            project_name,
            project_domain_id,
            project_domain_name,
            trust_id,
            application_credential_id,
            application_credential_name,
            application_credential_secret,
            token,
        );
    }

    /// What the entry comes down to, in the words of `cloud.conf`.
    pub fn global(self, file: &Arc<str>, name: &str) -> Result<Global, ConfError> {
        // `endpoint_type` is the older name, and wins where both stand.
        let interfaces = [
            ("endpoint_type", &self.endpoint_type),
            ("interface", &self.interface),
        ];
        let mut endpoint_type = None;
        for (key, interface) in interfaces {
            let Some(given) = interface.as_ref().filter(|given| !given.value.is_empty()) else {
                continue;
            };
            let text = given.value.strip_suffix("URL").unwrap_or(&given.value);
            let Some(read) = Interface::parse(text) else {
                let why = "no such interface; write public, internal or admin";
                return Err(refuse(file, name, key, given, why));
            };
            endpoint_type = endpoint_type.or(Some(read));
        }
        let mut auth = self.auth.unwrap_or_default();
        if let Some(given) = &self.auth_type {
            auth.narrow(&given.value)
                .map_err(|why| refuse(file, name, "auth_type", given, why))?;
        }
        let text = |text: Option<String>| text.filter(|text| !text.is_empty());
        let path = |path: Option<PathBuf>| path.filter(|path| !path.as_os_str().is_empty());
        Ok(Global {
            auth_url: text(auth.auth_url),
            region: text(self.region_name),
            endpoint_type,
            username: text(auth.username),
            user_id: text(auth.user_id),
            password: auth.password,
            user_domain_id: text(auth.user_domain_id),
            user_domain_name: text(auth.user_domain_name),
            domain_id: text(auth.domain_id),
            domain_name: text(auth.domain_name),
            default_domain: text(auth.default_domain),
            tenant_id: text(auth.project_id),
            tenant_name: text(auth.project_name),
            tenant_domain_id: text(auth.project_domain_id),
            tenant_domain_name: text(auth.project_domain_name),
            trust_id: text(auth.trust_id),
            application_credential_id: text(auth.application_credential_id),
            application_credential_name: text(auth.application_credential_name),
            application_credential_secret: auth.application_credential_secret,
            token: auth.token,
            ca_file: path(self.cacert),
            tls_insecure: self.verify.map(|verify| !verify),
            cert_file: path(self.cert),
            key_file: path(self.key),
            file: format!("{file}: clouds.{name}").into(),
            naming: Naming::CloudsYaml,
            ..Global::default()
        })
    }
}

impl Credentials {
    /// Leaves only what a way to authenticate needs.
    fn narrow(&mut self, auth_type: &str) -> Result<(), &'static str> {
        let (password, credential, token) = match auth_type {
            "" => return Ok(()),
            "password" | "v3password" => (true, false, false),
            "v3applicationcredential" => (false, true, false),
            "token" | "v3token" => (false, false, true),
            "v2password" | "v2token" => {
                return Err(
                    "version 2.0 of Keystone's API is not supported; write v3password or \
                           v3token",
                );
            }
            _ => {
                return Err(
                    "an unknown auth type; write v3password, v3applicationcredential or v3token",
                );
            }
        };
        if !password {
            self.password = None;
        }
        if !credential {
            self.application_credential_id = None;
            self.application_credential_name = None;
            self.application_credential_secret = None;
        }
        if !token {
            self.token = None;
        }
        Ok(())
    }
}

fn refuse(file: &Arc<str>, name: &str, key: &str, given: &Spanned<String>, why: &str) -> ConfError {
    ConfError::Value {
        place: format!("{file}:{}", given.referenced.line()),
        key: format!("clouds.{name}.{key}"),
        value: given.value.clone(),
        why: why.to_owned(),
    }
}
