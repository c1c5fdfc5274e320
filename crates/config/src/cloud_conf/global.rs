//! `[Global]`, as `cloud.conf` writes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_model::reason::Code;

use super::keys::Keys;
use crate::cloud::{ConfError, Global, Interface, KEYS, Naming};

/// Reads the section.
pub(super) fn read(file: &Arc<str>, mut keys: Keys<'_>) -> Result<Global, ConfError> {
    let mut global = Global {
        auth_url: keys.text("auth-url")?,
        region: keys.text("region")?,
        endpoint_type: keys.parsed_unless_empty("os-endpoint-type", |text| {
            Interface::parse(text)
                .ok_or("no such interface; write public, internal or admin".to_owned())
        })?,
        username: keys.text("username")?,
        user_id: keys.text("user-id")?,
        password: keys.secret("password")?,
        user_domain_id: keys.text("user-domain-id")?,
        user_domain_name: keys.text("user-domain-name")?,
        domain_id: keys.text("domain-id")?,
        domain_name: keys.text("domain-name")?,
        default_domain: None,
        tenant_id: keys.text("tenant-id")?,
        tenant_name: keys.text("tenant-name")?,
        tenant_domain_id: keys.text("tenant-domain-id")?,
        tenant_domain_name: keys.text("tenant-domain-name")?,
        trust_id: keys.text("trust-id")?,
        trustee_id: keys.text("trustee-id")?,
        trustee_password: keys.secret("trustee-password")?,
        application_credential_id: keys.text("application-credential-id")?,
        application_credential_name: keys.text("application-credential-name")?,
        application_credential_secret: keys.secret("application-credential-secret")?,
        token: keys.secret("token")?,
        ca_file: keys.path("ca-file")?,
        tls_insecure: None,
        cert_file: keys.path("cert-file")?,
        key_file: keys.path("key-file")?,
        use_clouds: keys.flag("use-clouds")?.unwrap_or(false),
        clouds_file: keys.path("clouds-file")?,
        cloud: keys.text("cloud")?,
        file: Arc::clone(file),
        places: BTreeMap::new(),
        naming: Naming::CloudConf,
        filled: BTreeMap::new(),
    };
    let insecure = keys.text("tls-insecure")?;
    global.tls_insecure = insecure.as_deref().map(|text| text == "true");
    if insecure.is_some_and(|text| text != "true" && text != "false") {
        let message = "only the exact text true turns verification off; it stays on";
        keys.warn(
            "tls-insecure",
            Code::OptionNotSupported,
            message,
            "write true or false",
        );
    }
    if !global.use_clouds {
        for key in ["clouds-file", "cloud"] {
            let message = "has no effect without use-clouds";
            keys.warn(
                key,
                Code::OptionNotApplicable,
                message,
                "add use-clouds = true",
            );
        }
    }
    keys.historic(&["secret-name", "secret-namespace", "kubeconfig-path"]);
    for key in KEYS {
        if let Some(place) = keys.place(key) {
            global.places.insert(key, place);
        }
    }
    keys.finish();
    Ok(global)
}
