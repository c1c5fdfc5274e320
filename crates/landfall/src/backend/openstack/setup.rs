//! An instance on OpenStack, from what the files say about it: the client, and what the operator
//! has configured.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use landfall_config::cloud::{self, Global};
use landfall_config::cloud_conf::CloudConf;
use landfall_config::clouds_yaml::Surroundings;
use landfall_config::provider::openstack::{self as config, SecurityGroups, TargetType};
use landfall_model::provider::Target;
use landfall_model::reason::Reason;
use landfall_openstack::client::{
    Access, Cloud, CloudConfig, CloudError, CredentialsSource, Interface, Timeouts, Tls,
    TransportError,
};
use landfall_openstack::{Groups, Settings};
use secrecy::SecretString;

/// A cloud, an account in it, and how it is to be used.
#[derive(Clone, Debug)]
pub struct OpenStack {
    /// The instance that it is for.
    pub instance: String,
    /// Keystone's address, for messages.
    pub auth_url: String,
    /// The `cloud.conf`, where there is one.
    pub cloud_conf: Option<PathBuf>,
    /// The client. It has sent nothing yet.
    pub cloud: Cloud,
    /// What the operator has configured.
    pub settings: Settings,
    /// What the files say that is ignored, or is not what it seems.
    pub warnings: Vec<Reason>,
}

// === impl OpenStack ===

impl OpenStack {
    /// Reads the files that `landfall.yaml` names for an instance. `user_agents` go before ours.
    /// Blocks on the disk.
    pub fn read_files(
        instance: &str,
        config: &config::OpenStack,
        surroundings: &Surroundings,
        user_agents: &[String],
    ) -> anyhow::Result<Self> {
        let conf = config
            .read(surroundings)
            .with_context(|| format!("instance {instance}"))?;
        let (again, around) = (config.clone(), surroundings.clone());
        let auth_url = conf.global.auth_url.clone();
        let source = CredentialsSource::new(move || {
            let read = access(&again, &around, auth_url.as_deref());
            read.map_err(|error| format!("{error:#}"))
        });
        let cloud = cloud(&conf, source, user_agents);
        let cloud = cloud.with_context(|| format!("instance {instance}"))?;
        let groups = match config.security_groups {
            SecurityGroups::PerCluster => Groups::PerCluster,
            SecurityGroups::PerService => Groups::PerService,
        };
        Ok(Self {
            instance: instance.to_owned(),
            auth_url: conf.global.auth_url.clone().unwrap_or_default(),
            cloud_conf: config.cloud_conf.clone(),
            cloud,
            settings: Settings {
                strict_source_ranges: config.strict_source_ranges,
                prefer_dual_stack: config.prefer_dual_stack,
                target: target(config),
                groups,
                ..Settings::new(&conf, &config.cluster_name)
            },
            warnings: conf.warnings,
        })
    }
}

/// Returns what members of Services are that do not say.
pub(super) fn target(config: &config::OpenStack) -> Target {
    match config.target_type {
        TargetType::Node => Target::Node,
        TargetType::Pod => Target::Pod,
    }
}

/// The bytes of a file that a key names.
fn bytes(global: &Global, key: &str, path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| {
        let named = global.named(&[key]);
        format!("{named}: {} can't be read", path.display())
    })
}

/// The text of a file that a key names.
fn text(global: &Global, key: &str, path: &Path) -> anyhow::Result<String> {
    let bytes = bytes(global, key, path)?;
    // The error that the standard library has for it would carry the text.
    String::from_utf8(bytes).map_err(|_| {
        let named = global.named(&[key]);
        anyhow::anyhow!("{named}: {} is not PEM", path.display())
    })
}

/// Reads again the credentials that stand in the files, and the certificates that they name. Those
/// for another Keystone are not sent to this one.
fn access(
    config: &config::OpenStack,
    surroundings: &Surroundings,
    auth_url: Option<&str>,
) -> anyhow::Result<Access> {
    let global = config.read(surroundings)?.global;
    anyhow::ensure!(
        global.auth_url.as_deref() == auth_url,
        "{}: it has changed, which takes a restart",
        global.named(&["auth-url"])
    );
    Ok(Access {
        auth: global.auth()?,
        tls: certificates(&global)?,
    })
}

/// Reads the certificates of the connections.
fn certificates(global: &Global) -> anyhow::Result<Tls> {
    let tls = global.tls()?;
    let ca_file = tls.ca_file.as_deref();
    let ca_file = ca_file.map(|path| bytes(global, "ca-file", path));
    let identity = match &tls.identity {
        None => None,
        Some(identity) => {
            let certificate = text(global, "cert-file", &identity.cert_file)?;
            let key = text(global, "key-file", &identity.key_file)?;
            Some(SecretString::from(format!("{certificate}\n{key}")))
        }
    };
    Ok(Tls {
        ca_file: ca_file.transpose()?,
        identity,
        insecure: !tls.verify,
    })
}

/// A client for what a configuration says.
fn cloud(
    conf: &CloudConf,
    source: CredentialsSource,
    user_agents: &[String],
) -> anyhow::Result<Cloud> {
    let global = &conf.global;
    let config = CloudConfig::new(&global.identity_url()?, global.auth()?);
    let config = CloudConfig {
        source: Some(source),
        region: global.region.clone(),
        interface: match global.interface() {
            cloud::Interface::Public => Interface::Public,
            cloud::Interface::Internal => Interface::Internal,
            cloud::Interface::Admin => Interface::Admin,
        },
        tls: certificates(global)?,
        timeouts: timeouts(conf.request_timeout),
        user_agent: user_agent(user_agents, &config.user_agent),
        ..config
    };
    Cloud::new(config).map_err(|error| reported(global, error))
}

/// What is wrong with the client, at the keys that say so.
fn reported(global: &Global, error: CloudError) -> anyhow::Error {
    let (keys, why): (&[&str], _) = match error {
        CloudError::AuthUrl(why) => (&["auth-url"], why),
        CloudError::Transport(TransportError::Authorities(why)) => (&["ca-file"], why),
        CloudError::Transport(TransportError::Identity(why)) => (&["cert-file", "key-file"], why),
        error @ (CloudError::UserAgent(_) | CloudError::Transport(TransportError::Client(_))) => {
            return error.into();
        }
    };
    anyhow::anyhow!("{}: {why}", global.named(keys))
}

/// Each goes before those so far, as with cloud-provider-openstack.
fn user_agent(given: &[String], own: &str) -> String {
    let words: Vec<&str> = given
        .iter()
        .rev()
        .map(String::as_str)
        .chain([own])
        .collect();
    words.join(" ")
}

/// How long any call may take, Keystone's among them.
fn timeouts(each: Duration) -> Timeouts {
    Timeouts {
        read: each,
        write: each,
        auth: each,
        connect: Timeouts::default().connect.min(each),
    }
}

#[cfg(test)]
mod tests {
    use landfall_openstack::client::auth::Auth;

    use super::*;

    /// What reading a `cloud.conf` with these lines says.
    fn refused(lines: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cloud.conf");
        let head = "[Global]\nauth-url = https://keystone.example.org/v3\nuser-id = u\n\
                    password = secret-word\ntenant-id = p\n";
        let lines = lines.replace("DIR", &folder.path().display().to_string());
        fs::write(&path, format!("{head}{lines}")).unwrap();
        fs::write(folder.path().join("words"), "no certificate").unwrap();
        fs::write(folder.path().join("bytes"), [0xff, 0xfe]).unwrap();
        let config = config::OpenStack {
            cloud_conf: Some(path),
            clouds: None,
            cluster_name: "kubernetes".to_owned(),
            strict_source_ranges: true,
            security_groups: SecurityGroups::PerCluster,
            prefer_dual_stack: true,
            target_type: TargetType::Node,
        };
        let surroundings = Surroundings::default();
        let error = OpenStack::read_files("cloud", &config, &surroundings, &[]).unwrap_err();
        let text = format!("{error:#}").replace(&folder.path().display().to_string(), "DIR");
        assert!(!text.contains("secret-word"), "{text}");
        text
    }

    #[test]
    fn files_that_can_not_be_used_are_reported_with_the_file_and_the_key_that_name_them() {
        for (lines, reported) in [
            (
                "ca-file = DIR/none",
                "instance cloud: DIR/cloud.conf:6: [Global] ca-file: DIR/none can't be read: ",
            ),
            (
                "ca-file = DIR/words",
                "instance cloud: DIR/cloud.conf:6: [Global] ca-file: no certificate in it",
            ),
            (
                "cert-file = DIR/words\nkey-file = DIR/none",
                "instance cloud: DIR/cloud.conf:7: [Global] key-file: DIR/none can't be read: ",
            ),
            (
                "cert-file = DIR/bytes\nkey-file = DIR/words",
                "instance cloud: DIR/cloud.conf:6: [Global] cert-file: DIR/bytes is not PEM",
            ),
            (
                "cert-file = DIR/words\nkey-file = DIR/words",
                "instance cloud: DIR/cloud.conf:6: [Global] cert-file, [Global] key-file: ",
            ),
            (
                "cert-file = DIR/words",
                "instance cloud: DIR/cloud.conf:6: [Global] cert-file, [Global] key-file: ",
            ),
        ] {
            let text = refused(lines);
            assert!(text.starts_with(reported), "{lines}: {text}");
        }
    }

    #[test]
    fn credentials_are_read_again_for_the_same_keystone_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cloud.conf");
        let config = config::OpenStack {
            cloud_conf: Some(path.clone()),
            clouds: None,
            cluster_name: "kubernetes".to_owned(),
            strict_source_ranges: true,
            security_groups: SecurityGroups::PerCluster,
            prefer_dual_stack: true,
            target_type: TargetType::Node,
        };
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            let read = access(&config, &Surroundings::default(), Some("http://k"));
            read.map_err(|error| format!("{error:#}").replace(path.to_str().unwrap(), "FILE"))
        };
        let written =
            |url: &str| format!("[Global]\nauth-url = {url}\nuser-id = u\npassword = p\n");
        assert!(matches!(
            read(&written("http://k")).map(|access| access.auth),
            Ok(Auth::Password { .. })
        ));
        let authorities = folder.path().join("ca.pem");
        let named = format!(
            "{}ca-file = {}\n",
            written("http://k"),
            authorities.display()
        );
        let missing = read(&named).unwrap_err();
        assert!(missing.contains("ca.pem can't be read: "), "{missing}");
        fs::write(&authorities, "rotated").unwrap();
        let renewed = read(&named).unwrap();
        assert_eq!(renewed.tls.ca_file.as_deref(), Some(&b"rotated"[..]));
        assert_eq!(
            read(&written("http://other")).unwrap_err(),
            "FILE:2: [Global] auth-url: it has changed, which takes a restart"
        );
        let without = read("[Global]\nauth-url = http://k\n").unwrap_err();
        assert!(without.contains("no credentials; give"), "{without}");
        fs::remove_file(&path).unwrap();
        let gone = access(&config, &Surroundings::default(), None).unwrap_err();
        assert!(
            format!("{gone:#}").contains("cloud.conf can't be read: "),
            "{gone:#}"
        );
    }

    #[test]
    fn the_configured_timeout_bounds_every_call() {
        let short = timeouts(Duration::from_secs(5));
        let five = Duration::from_secs(5);
        let all = [short.read, short.write, short.auth, short.connect];
        assert_eq!(all, [five; 4]);
        let long = timeouts(Duration::from_secs(300));
        assert_eq!([long.read, long.write, long.auth], [five * 60; 3]);
        assert_eq!(long.connect, Timeouts::default().connect);
    }

    #[test]
    fn names_that_are_given_go_before_ours_the_last_one_first() {
        let given = ["one/1".to_owned(), "two".to_owned()];
        assert_eq!(user_agent(&given, "landfall/3"), "two one/1 landfall/3");
        assert_eq!(user_agent(&[], "landfall/3"), "landfall/3");
    }

    #[test]
    fn keys_that_came_from_clouds_yaml_are_named_as_they_stand_there() {
        let entry =
            "cacert: DIR/none\n    auth: {auth_url: http://k, user_id: u, password: secret-word}";
        let from_clouds = |conf: &str, entry: &str| {
            let folder = tempfile::tempdir().unwrap();
            let dir = folder.path().display().to_string();
            let write = |name: &str, text: &str| {
                fs::write(folder.path().join(name), text.replace("DIR", &dir)).unwrap();
            };
            write(
                "cloud.conf",
                &format!("[Global]\nuse-clouds = true\n{conf}"),
            );
            write("clouds.yaml", &format!("clouds:\n  mine:\n    {entry}\n"));
            let config = config::OpenStack {
                cloud_conf: Some(folder.path().join("cloud.conf")),
                clouds: None,
                cluster_name: "kubernetes".to_owned(),
                strict_source_ranges: true,
                security_groups: SecurityGroups::PerCluster,
                prefer_dual_stack: true,
                target_type: TargetType::Node,
            };
            let surroundings = Surroundings {
                current_dir: Some(folder.path().to_owned()),
                ..Surroundings::default()
            };
            let error = OpenStack::read_files("cloud", &config, &surroundings, &[]).unwrap_err();
            format!("{error:#}").replace(&dir, "DIR")
        };
        let text = from_clouds("", entry);
        let reported =
            "instance cloud: DIR/clouds.yaml: clouds.mine: cacert: DIR/none can't be read: ";
        assert!(text.starts_with(reported), "{text}");
        let text = from_clouds("ca-file = DIR/gone\n", entry);
        let reported =
            "instance cloud: DIR/cloud.conf:3: [Global] ca-file: DIR/gone can't be read: ";
        assert!(text.starts_with(reported), "{text}");
    }
}
