//! Settings and the environment.

use super::*;

fn yaml() -> Given {
    Given {
        api_key: Some("EXOyaml".to_owned()),
        api_secret: Some(SecretString::from("yaml")),
        zone: Some("de-fra-1".to_owned()),
        ..Given::default()
    }
}

fn complete(given: Given, environment: &[(&str, &str)]) -> Result<CloudConfig, SettingsError> {
    let variable = |name: &str| {
        let found = environment.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    given.with_environment(variable).complete("test".to_owned())
}

fn key(config: &CloudConfig) -> &str {
    match &config.credentials {
        CredentialsSource::Given(credentials) => &credentials.key,
        CredentialsSource::Path(path) => path.to_str().unwrap(),
    }
}

#[test]
fn the_environment_precedes_even_if_it_is_empty() {
    assert_eq!(key(&complete(yaml(), &[]).unwrap()), "EXOyaml");
    let config = complete(yaml(), &[("EXOSCALE_API_KEY", "EXOenv")]).unwrap();
    assert_eq!(key(&config), "EXOenv");
    let error = complete(yaml(), &[("EXOSCALE_API_KEY", "")]).unwrap_err();
    assert_eq!(error, SettingsError::NoCredentials);
}

#[test]
fn a_file_is_used_where_there_is_no_pair() {
    let file = [("EXOSCALE_API_CREDENTIALS_FILE", "/etc/exoscale")];
    assert_eq!(key(&complete(yaml(), &file).unwrap()), "EXOyaml");
    let without = Given {
        api_secret: None,
        ..yaml()
    };
    assert_eq!(key(&complete(without, &file).unwrap()), "/etc/exoscale");
}

#[test]
fn the_zone_of_the_api_precedes_the_zone() {
    let both = [
        ("EXOSCALE_ZONE", "at-vie-1"),
        ("EXOSCALE_API_ZONE", "ch-dk-2"),
    ];
    assert_eq!(complete(yaml(), &both).unwrap().zone, "ch-dk-2");
    assert_eq!(complete(yaml(), &both[..1]).unwrap().zone, "at-vie-1");
    let without = Given {
        zone: None,
        ..yaml()
    };
    assert_eq!(complete(without, &[]).unwrap_err(), SettingsError::NoZone);
}

#[test]
fn an_endpoint_precedes_the_name_of_an_environment() {
    let endpoint = |environment| complete(yaml(), environment).unwrap().endpoint;
    assert_eq!(endpoint(&[]), DEFAULT_ENDPOINT);
    assert_eq!(
        endpoint(&[("EXOSCALE_API_ENVIRONMENT", "ppapi")]),
        PREVIEW_ENDPOINT
    );
    assert_eq!(
        endpoint(&[("EXOSCALE_API_ENVIRONMENT", "other")]),
        DEFAULT_ENDPOINT
    );
    let both = [
        ("EXOSCALE_API_ENVIRONMENT", "ppapi"),
        ("EXOSCALE_API_ENDPOINT", "http://127.0.0.1:1/v2"),
    ];
    assert_eq!(endpoint(&both), "http://127.0.0.1:1/v2");
}

#[test]
fn no_secret_is_in_the_debug_text() {
    let config = complete(yaml(), &[("EXOSCALE_API_SECRET", "hunter2")]).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
}
