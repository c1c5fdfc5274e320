//! An image read back from its file, as an engine reads it: by following digests.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use flate2::read::GzDecoder;
use serde::Deserialize;

use super::archive::digest;

/// The files of an image layout, by path.
#[derive(Debug)]
pub struct Contents(BTreeMap<String, Vec<u8>>);

/// How a container of the image begins.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Start {
    /// The program and its first arguments.
    pub entrypoint: Vec<String>,
    /// The environment, `NAME=VALUE` each.
    pub env: Vec<String>,
    /// `UID:GID`
    pub user: String,
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
    size: usize,
}

#[derive(Deserialize)]
struct Image {
    config: Start,
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    diff_ids: Vec<String>,
}

// === impl Contents ===

impl Contents {
    /// Reads the file of an image.
    pub fn read(bytes: &[u8]) -> anyhow::Result<Self> {
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(bytes).entries()? {
            let mut entry = entry?;
            if entry.header().entry_type().is_file() {
                let path = entry.path()?.display().to_string();
                let mut content = Vec::new();
                entry.read_to_end(&mut content)?;
                files.insert(path, content);
            }
        }
        Ok(Self(files))
    }

    /// A file of the layout.
    pub fn file(&self, path: &str) -> anyhow::Result<&[u8]> {
        let content = self
            .0
            .get(path)
            .with_context(|| format!("the image has no {path}"))?;
        Ok(content)
    }

    /// Unpacks the image into an empty folder. Every size and digest on the way must be right.
    pub fn unpack(&self, root: &Path) -> anyhow::Result<Start> {
        let index: Index = serde_json::from_slice(self.file("index.json")?)?;
        let [manifest] = index.manifests.as_slice() else {
            bail!("the index has {} manifests, not one", index.manifests.len());
        };
        let manifest: Manifest = serde_json::from_slice(self.blob(manifest)?)?;
        let image: Image = serde_json::from_slice(self.blob(&manifest.config)?)?;
        ensure!(
            manifest.layers.len() == image.rootfs.diff_ids.len(),
            "the configuration knows another number of layers than the manifest"
        );
        for (layer, plain) in manifest.layers.iter().zip(&image.rootfs.diff_ids) {
            let mut unpacked = Vec::new();
            GzDecoder::new(self.blob(layer)?).read_to_end(&mut unpacked)?;
            ensure!(
                digest(&unpacked) == *plain,
                "the plain layer is not {plain}"
            );
            let mut layer = tar::Archive::new(unpacked.as_slice());
            // Only root can set capabilities.
            layer.set_unpack_xattrs(rustix::process::geteuid().is_root());
            layer.unpack(root)?;
        }
        Ok(image.config)
    }

    fn blob(&self, descriptor: &Descriptor) -> anyhow::Result<&[u8]> {
        let content = self.file(&format!("blobs/{}", descriptor.digest.replace(':', "/")))?;
        ensure!(
            content.len() == descriptor.size && digest(content) == descriptor.digest,
            "what is stored as {} is something else",
            descriptor.digest
        );
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::archive::Archive;
    use super::super::layer::Root;
    use super::super::name::Name;
    use super::*;

    fn image() -> Contents {
        let layer = Root::new(b"program".to_vec(), None).pack().unwrap();
        let archive = Archive::new(&Name::default(), "1", "arm64", &layer).unwrap();
        Contents::read(&archive.bytes).unwrap()
    }

    #[test]
    fn what_was_put_in_comes_out() {
        let folder = tempfile::tempdir().unwrap();
        let start = image().unpack(folder.path()).unwrap();
        assert_eq!(start.entrypoint, ["/landfall"]);
        assert_eq!(start.user, "65532:65532");
        let program = folder.path().join("landfall");
        assert_eq!(fs::read(&program).unwrap(), b"program");
        let mode = fs::metadata(&program).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert_eq!(
            fs::read_to_string(folder.path().join("etc/nsswitch.conf")).unwrap(),
            "hosts: files dns\n"
        );
    }

    #[test]
    fn a_blob_that_is_not_what_its_digest_says_is_refused() {
        for wrong in image().0.keys().filter(|path| path.starts_with("blobs/")) {
            let mut contents = image();
            contents.0.get_mut(wrong).unwrap().push(b' ');
            let folder = tempfile::tempdir().unwrap();
            let error = contents.unpack(folder.path()).unwrap_err().to_string();
            assert!(error.ends_with("is something else"), "{wrong}: {error}");
        }
    }

    #[test]
    fn an_image_without_a_part_is_refused_by_name() {
        let mut contents = image();
        contents.0.remove("index.json");
        let folder = tempfile::tempdir().unwrap();
        let error = contents.unpack(folder.path()).unwrap_err().to_string();
        assert_eq!(error, "the image has no index.json");
    }
}
