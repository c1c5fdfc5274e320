//! The image as one file: an OCI image layout, which `docker load` understands, too.
//!
//! ```text
//!  oci-layout   index.json ──> manifest ──> configuration (digest of the plain layer)
//!               manifest.json ─────┴──────> layer, packed
//! ```
//!
//! The digest of the manifest is the image's. It depends on the files, the configuration and the
//! version of the packer; not on the name, the time or the machine.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tar::EntryType;

use super::layer::{self, AUTHORITIES, Layer, PROGRAM, USER};
use super::name::Name;

const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The only time that an image is made at.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// Where the admin endpoint of a controller answers.
const ADMIN_PORT: &str = "9640/tcp";

/// A finished image.
#[derive(Debug)]
pub struct Archive {
    /// What registries and Kubernetes call it by: the digest of its manifest.
    pub digest: String,
    /// The whole file.
    pub bytes: Vec<u8>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Index<'a> {
    schema_version: u8,
    media_type: &'a str,
    manifests: Vec<Descriptor<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    schema_version: u8,
    media_type: &'a str,
    config: Descriptor<'a>,
    layers: Vec<Descriptor<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor<'a> {
    media_type: &'a str,
    digest: String,
    size: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    platform: Option<Platform<'a>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'a str, String>,
}

#[derive(Clone, Copy, Serialize)]
struct Platform<'a> {
    architecture: &'a str,
    os: &'a str,
}

#[derive(Serialize)]
struct Image<'a> {
    created: &'a str,
    #[serde(flatten)]
    platform: Platform<'a>,
    config: Config<'a>,
    rootfs: RootFs<'a>,
    history: Vec<History<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Config<'a> {
    user: String,
    env: Vec<String>,
    entrypoint: Vec<String>,
    working_dir: &'a str,
    exposed_ports: BTreeMap<&'a str, serde_json::Map<String, Value>>,
    labels: BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize)]
struct RootFs<'a> {
    r#type: &'a str,
    diff_ids: Vec<String>,
}

#[derive(Serialize)]
struct History<'a> {
    created: &'a str,
    created_by: &'a str,
}

/// An entry of `manifest.json`, which `docker load` looked for before there was a standard.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Loadable<'a> {
    config: &'a str,
    repo_tags: Vec<String>,
    layers: Vec<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Layout<'a> {
    image_layout_version: &'a str,
}

// === impl Archive ===

impl Archive {
    /// Puts a layer into an image of this name, version and architecture.
    pub fn new(
        name: &Name,
        version: &str,
        architecture: &str,
        layer: &Layer,
    ) -> anyhow::Result<Self> {
        let platform = Platform {
            architecture,
            os: "linux",
        };
        let config = serde_json::to_vec(&Image {
            created: CREATED,
            platform,
            config: configuration(version),
            rootfs: RootFs {
                r#type: "layers",
                diff_ids: vec![digest(&layer.plain)],
            },
            history: vec![History {
                created: CREATED,
                created_by: "cargo xtask image",
            }],
        })?;
        let manifest = serde_json::to_vec(&Manifest {
            schema_version: 2,
            media_type: MANIFEST_TYPE,
            config: Descriptor::of(CONFIG_TYPE, &config),
            layers: vec![Descriptor::of(LAYER_TYPE, &layer.packed)],
        })?;
        let index = serde_json::to_vec(&Index {
            schema_version: 2,
            media_type: INDEX_TYPE,
            manifests: vec![Descriptor {
                platform: Some(platform),
                annotations: BTreeMap::from([
                    // The name for containerd, and the tag for all other engines.
                    ("io.containerd.image.name", name.to_string()),
                    ("org.opencontainers.image.ref.name", name.tag().to_owned()),
                ]),
                ..Descriptor::of(MANIFEST_TYPE, &manifest)
            }],
        })?;
        let (config_path, layer_path) = (blob(&config), blob(&layer.packed));
        let loadable = serde_json::to_vec(&[Loadable {
            config: &config_path,
            repo_tags: vec![name.to_string()],
            layers: vec![&layer_path],
        }])?;
        let layout = serde_json::to_vec(&Layout {
            image_layout_version: "1.0.0",
        })?;

        let mut archive = tar::Builder::new(Vec::new());
        for folder in ["blobs", "blobs/sha256"] {
            layer::append(&mut archive, EntryType::Directory, folder, 0o755, &[])?;
        }
        let files = BTreeMap::from([
            (blob(&config), config.as_slice()),
            (blob(&manifest), &manifest),
            (blob(&layer.packed), &layer.packed),
            ("index.json".to_owned(), &index),
            ("manifest.json".to_owned(), &loadable),
            ("oci-layout".to_owned(), &layout),
        ]);
        for (path, content) in files {
            layer::append(&mut archive, EntryType::Regular, &path, 0o644, content)?;
        }
        Ok(Self {
            digest: digest(&manifest),
            bytes: archive.into_inner()?,
        })
    }
}

fn configuration(version: &str) -> Config<'_> {
    Config {
        user: format!("{USER}:{USER}"),
        env: vec!["PATH=/".to_owned(), format!("SSL_CERT_FILE=/{AUTHORITIES}")],
        entrypoint: vec![format!("/{PROGRAM}")],
        working_dir: "/",
        exposed_ports: BTreeMap::from([(ADMIN_PORT, serde_json::Map::new())]),
        labels: BTreeMap::from([
            ("org.opencontainers.image.title", "landfall"),
            (
                "org.opencontainers.image.description",
                "Gives Kubernetes Services of type LoadBalancer an address that works",
            ),
            ("org.opencontainers.image.licenses", "Apache-2.0"),
            ("org.opencontainers.image.version", version),
        ]),
    }
}

impl<'a> Descriptor<'a> {
    fn of(media_type: &'a str, content: &[u8]) -> Self {
        Self {
            media_type,
            digest: digest(content),
            size: content.len(),
            platform: None,
            annotations: BTreeMap::new(),
        }
    }
}

/// A content's name: `sha256:` and hexadecimal digits.
pub fn digest(content: &[u8]) -> String {
    format!("sha256:{}", hex(content))
}

/// Where a content is in a layout.
fn blob(content: &[u8]) -> String {
    format!("blobs/sha256/{}", hex(content))
}

fn hex(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    digest.iter().fold(String::new(), |mut text, byte| {
        for half in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(half.into(), 16));
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::contents::Contents;
    use super::super::layer::Root;
    use super::*;

    fn image(program: &[u8], name: &str) -> Archive {
        let layer = Root::new(program.to_vec(), None).pack().unwrap();
        Archive::new(&name.parse().unwrap(), "0.1.0", "amd64", &layer).unwrap()
    }

    fn at(contents: &Contents, path: &str) -> Value {
        serde_json::from_slice(contents.file(path).unwrap()).unwrap()
    }

    #[test]
    fn an_image_is_the_same_whenever_it_is_made_and_under_whatever_name() {
        let first = image(b"program", "localhost/landfall:0.1.0");
        let again = image(b"program", "localhost/landfall:0.1.0");
        assert_eq!(first.digest, again.digest);
        assert_eq!(first.bytes, again.bytes);
        let renamed = image(b"program", "registry.example.com/lb:1");
        assert_eq!(first.digest, renamed.digest);
        let other = image(b"PROGRAM", "localhost/landfall:0.1.0");
        assert_ne!(first.digest, other.digest);
    }

    #[test]
    fn the_image_runs_the_program_as_an_unprivileged_user() {
        let archive = image(b"program", "localhost/landfall:0.1.0");
        let contents = Contents::read(&archive.bytes).unwrap();
        let loadable = at(&contents, "manifest.json");
        assert_eq!(loadable[0]["RepoTags"], json!(["localhost/landfall:0.1.0"]));
        let config = at(&contents, loadable[0]["Config"].as_str().unwrap());
        assert_eq!(config["architecture"], "amd64");
        assert_eq!(config["os"], "linux");
        assert_eq!(config["created"], "1970-01-01T00:00:00Z");
        assert_eq!(
            config["config"],
            json!({
                "User": "65532:65532",
                "Env": ["PATH=/", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
                "Entrypoint": ["/landfall"],
                "WorkingDir": "/",
                "ExposedPorts": {"9640/tcp": {}},
                "Labels": {
                    "org.opencontainers.image.title": "landfall",
                    "org.opencontainers.image.description":
                        "Gives Kubernetes Services of type LoadBalancer an address that works",
                    "org.opencontainers.image.licenses": "Apache-2.0",
                    "org.opencontainers.image.version": "0.1.0",
                },
            })
        );
        let manifest = &at(&contents, "index.json")["manifests"][0];
        assert_eq!(manifest["digest"], archive.digest);
        assert_eq!(
            manifest["annotations"],
            json!({
                "io.containerd.image.name": "localhost/landfall:0.1.0",
                "org.opencontainers.image.ref.name": "0.1.0",
            })
        );
    }
}
