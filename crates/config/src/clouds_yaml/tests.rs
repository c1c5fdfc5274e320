use secrecy::ExposeSecret as _;

use super::*;
use crate::cloud::{Auth, Interface, Scope};

const CLOUDS: &str = "\
clouds:
  mine:
    auth:
      auth_url: https://k/v3
      username: ada
      password: 12345
      user_domain_name: Default
      project_name: prod
      project_domain_id: default
    region_name: One
    interface: internal
    cacert: /ca.pem
    cert: /c.pem
    key: /k.pem
    verify: false
    identity_api_version: 3
    compute_api_version: '2.79'
  robot:
    auth_type: v3applicationcredential
    auth: {auth_url: https://k, application_credential_id: a, password: old}
  guest:
    auth_type: v3token
    auth: {auth_url: https://k, token: t, username: u, password: p, project_id: 0123}
    endpoint_type: adminURL
    interface: public
";

fn global(text: &str, secure: Option<&str>, name: Option<&str>) -> Result<Global, String> {
    let clouds = parse("clouds.yaml", text).map_err(|error| error.to_string())?;
    let secure = secure.map(|text| parse("secure.yaml", text).unwrap());
    choose(&clouds, secure.as_ref(), None, name).map_err(|error| error.to_string())
}

#[test]
fn an_entry_says_what_cloud_conf_says() {
    let mine = global(CLOUDS, None, Some("mine")).unwrap();
    assert_eq!(mine.region.as_deref(), Some("One"));
    assert_eq!(mine.interface(), Interface::Internal);
    assert_eq!(mine.identity_url().unwrap(), "https://k/v3");
    let tls = mine.tls().unwrap();
    assert!(!tls.verify && tls.ca_file.is_some() && tls.identity.is_some());
    let Auth::Password {
        password, scope, ..
    } = mine.auth().unwrap()
    else {
        panic!("{mine:?}");
    };
    assert_eq!(password.expose_secret(), "12345");
    assert!(matches!(scope, Scope::Project(_)));
}

#[test]
fn the_type_of_authentication_leaves_only_its_own_keys() {
    let guest = global(CLOUDS, None, Some("guest")).unwrap();
    assert_eq!(guest.interface(), Interface::Admin);
    assert_eq!(guest.tenant_id.as_deref(), Some("0123"));
    assert!(matches!(guest.auth(), Ok(Auth::Token { .. })));
    let robot = global(CLOUDS, None, Some("robot")).unwrap();
    assert_eq!(
        robot.auth().unwrap_err().to_string(),
        "clouds.yaml: clouds.robot: auth.application_credential_id, \
        auth.application_credential_name, auth.application_credential_secret: an application \
        credential needs its secret"
    );
}

#[test]
fn secure_yaml_goes_before_clouds_yaml() {
    let secure =
        "clouds: {robot: {auth: {application_credential_secret: s, auth_url: https://other}}}";
    let robot = global(CLOUDS, Some(secure), Some("robot")).unwrap();
    assert_eq!(robot.auth_url.as_deref(), Some("https://other"));
    let Ok(Auth::ApplicationCredential { secret, .. }) = robot.auth() else {
        panic!("{robot:?}");
    };
    assert_eq!(secret.expose_secret(), "s");
    for empty in ["", "clouds:\n", "clouds: {robot: }"] {
        assert!(
            global(CLOUDS, Some(empty), Some("mine")).is_ok(),
            "{empty:?}"
        );
    }
}

#[test]
fn a_profile_fills_from_the_public_file() {
    let clouds = parse(
        "clouds.yaml",
        "clouds: {a: {profile: big, auth: {username: u}}}",
    )
    .unwrap();
    let public = "public-clouds: {big: {region_name: R, auth: {auth_url: https://k, username: x}}}";
    let public = parse("clouds-public.yaml", public).unwrap();
    let global = choose(&clouds, None, Some(&public), None).unwrap();
    assert_eq!(global.region.as_deref(), Some("R"));
    assert_eq!(global.username.as_deref(), Some("u"));
    let error = choose(&clouds, None, None, None).unwrap_err().to_string();
    assert!(
        error.starts_with("clouds.yaml: clouds.a.profile: \"big\": there is no such entry"),
        "{error}"
    );
}

#[test]
fn the_entry_is_chosen_by_name_or_is_the_only_one() {
    let one = "clouds: {a: {region_name: R}}";
    assert!(global(one, None, None).is_ok() && global(one, None, Some("a")).is_ok());
    for (text, name, expected) in [
        (
            one,
            Some("b"),
            "clouds.yaml: clouds: \"b\": there is no such entry; there are a",
        ),
        (
            CLOUDS,
            None,
            "clouds.yaml: clouds: \"\": several entries; name one of guest, mine, robot",
        ),
        ("", None, "clouds.yaml: clouds: \"\": the file has no entry"),
    ] {
        assert_eq!(global(text, None, name).unwrap_err(), expected);
    }
}

#[test]
fn mistakes_are_reported_with_file_line_and_key_and_without_secrets() {
    let named = |text: &str| global(text, None, None).unwrap_err();
    assert_eq!(
        named("clouds:\n  a:\n    interface: outer\n"),
        "clouds.yaml:3: clouds.a.interface: \"outer\": no such interface; write public, internal \
        or admin"
    );
    assert_eq!(
        named("clouds:\n  a:\n    auth_type: v3magic\n"),
        "clouds.yaml:3: clouds.a.auth_type: \"v3magic\": an unknown auth type; write v3password, \
        v3applicationcredential or v3token"
    );
    assert!(named("clouds: {a: {auth_type: v2password}}").contains("is not supported"));
    for (text, line) in [
        (
            "clouds:\n  a:\n    verify: perhaps\n    auth: {password: hunter2}\n",
            3,
        ),
        ("clouds:\n  a:\n    auth:\n      password: [hunter2]\n", 4),
        ("clouds:\n  a: {auth: {password: hunter2}\n", 2),
        ("clouds:\n  a:\n    auth: hunter2\n", 3),
        ("clouds:\n\ta: hunter2\n", 2),
    ] {
        let error = named(text);
        assert!(error.starts_with("clouds.yaml:"), "{error}");
        assert!(
            error.starts_with(&format!("clouds.yaml:{line}")) || line == 2,
            "{error}"
        );
        assert!(
            !error.contains("hunter2") && !error.contains('\n'),
            "{error}"
        );
    }
}

#[test]
fn files_are_looked_for_as_the_tools_do() {
    let env = |name: &str| match name {
        "HOME" => Some("/home/ada".to_owned()),
        "OS_CLOUD" => Some("mine".to_owned()),
        "OS_CLIENT_CONFIG_FILE" => Some(String::new()),
        _ => None,
    };
    let here = Surroundings::new(Some(PathBuf::from("/srv")), env);
    assert_eq!(
        (here.cloud.as_deref(), &here.clouds_file),
        (Some("mine"), &None)
    );
    assert_eq!(
        candidates("clouds.yaml", None, &here),
        [
            "/srv/clouds.yaml",
            "/home/ada/.config/openstack/clouds.yaml",
            "/etc/openstack/clouds.yaml"
        ]
        .map(PathBuf::from)
    );
    let given = Path::new("/etc/kubernetes/clouds.yaml");
    assert_eq!(candidates("clouds.yaml", Some(given), &here), [given]);
}

#[test]
fn the_first_file_counts_with_the_secure_one_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let user = home.join(USER);
    std::fs::create_dir_all(&user).unwrap();
    std::fs::write(
        user.join("clouds.yaml"),
        "clouds: {a: {auth: {user_id: u}}, b: {}}",
    )
    .unwrap();
    std::fs::write(
        user.join("secure.yaml"),
        "clouds: {a: {auth: {password: p}}}",
    )
    .unwrap();
    let here = Surroundings {
        current_dir: Some(folder.path().to_owned()),
        home: Some(home),
        clouds_file: None,
        cloud: Some("a".to_owned()),
    };
    let Found { global, warnings } = read(None, None, &here).unwrap();
    assert!(matches!(global.auth(), Ok(Auth::Password { .. })));
    assert_eq!(warnings, []);
    assert!(read(None, Some("b"), &here).unwrap().global.auth().is_err());

    std::fs::write(folder.path().join("clouds.yaml"), "clouds: {c: {}}").unwrap();
    let error = read(None, None, &here).unwrap_err().to_string();
    assert!(
        error.ends_with("\"a\": there is no such entry; there are c"),
        "{error}"
    );
    // A folder in the place of a file is no missing file.
    let error = read(Some(folder.path()), None, &here).unwrap_err();
    assert!(error.to_string().ends_with("can't be read"), "{error}");
}

#[test]
fn a_default_folder_that_can_not_be_entered_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    std::fs::create_dir_all(home.join(USER)).unwrap();
    std::fs::write(
        home.join(USER).join("clouds.yaml"),
        "clouds: {a: {region_name: R}}",
    )
    .unwrap();
    // A file where a folder is looked for: it can't be entered, not even by root.
    let closed = folder.path().join("closed");
    std::fs::write(&closed, "").unwrap();
    let here = Surroundings {
        current_dir: Some(closed.clone()),
        home: Some(home),
        clouds_file: None,
        cloud: None,
    };
    let found = read(None, None, &here).unwrap();
    assert_eq!(found.global.region.as_deref(), Some("R"));
    let reported: Vec<String> = found.warnings.iter().map(ToString::to_string).collect();
    let name = closed.display();
    assert_eq!(
        reported,
        [format!(
            "{name} can't be read (Not a directory (os error 20)); files there are ignored; allow \
            this user to enter it, or name the file"
        )]
    );
    let nowhere = Surroundings {
        home: None,
        ..here.clone()
    };
    let error = read(None, None, &nowhere).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!(
            "no clouds.yaml in any of {name}/clouds.yaml (Not a directory (os error 20)), "
        )),
        "{error}"
    );
    // What was named is not skipped.
    let error = read(Some(&closed.join("clouds.yaml")), None, &here).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("closed/clouds.yaml can't be read"),
        "{error}"
    );
    let error = read(
        None,
        None,
        &Surroundings {
            clouds_file: Some(closed.join("c")),
            ..here
        },
    )
    .unwrap_err();
    assert!(
        error.to_string().ends_with("closed/c can't be read"),
        "{error}"
    );
}

#[test]
fn of_a_key_that_is_given_twice_the_last_one_counts_and_that_is_reported() {
    let text = "clouds:\n  \
               a:\n    \
               region_name: One\n    \
               auth: {auth_url: http://k, password: hunter1}\n    \
               region_name: Two\n  \
               a:\n    \
               region_name: Three\n    \
               auth:\n      \
               password: hunter1\n      \
               password: hunter2\n    \
               region_name: Four\n";
    let clouds = parse("clouds.yaml", text).unwrap();
    let global = choose(&clouds, None, None, None).unwrap();
    assert_eq!(global.region.as_deref(), Some("Four"));
    assert_eq!(global.password.unwrap().expose_secret(), "hunter2");
    assert_eq!(global.auth_url, None);
    let reported: Vec<String> = clouds.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        reported,
        [
            "clouds.yaml:5: region_name: keys are given more than once; the last one counts each \
            time; remove the others"
        ]
    );
    // All else is as wrong as ever.
    let error = parse(
        "clouds.yaml",
        "clouds: {}\nclouds:\n  a:\n    auth: hunter2\n",
    )
    .unwrap_err();
    assert!(error.to_string().starts_with("clouds.yaml:4: "), "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}
