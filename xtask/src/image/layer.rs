//! The files of the image, and the layer that holds them. Equal files make equal bytes: nothing of
//! the time, the user or the order of a folder gets in.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};

/// The user that the image runs as. Not known to any system, and what others use for the same.
pub const USER: u32 = 65_532;

/// Where the program is.
pub const PROGRAM: &str = "landfall";

/// Where programs look for authorities, and what `SSL_CERT_FILE` names.
pub const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";

/// Where Debian's package `ca-certificates` has the authorities that it brings. Not the bundle in
/// `/etc/ssl/certs`: that one has whatever else is trusted on this machine.
pub const AUTHORITIES_OF_DEBIAN: &str = "/usr/share/ca-certificates/mozilla";

/// What a program may be allowed by its container though its user is not root: `NET_RAW`, and what
/// speakers need to serve and BFD to keep its intervals. Permitted and not effective, or the
/// program would not start in a container that allows fewer (capabilities(7)).
const CAPABILITIES: [u32; 4] = [NET_BIND_SERVICE, NET_ADMIN, NET_RAW, SYS_NICE];
const NET_BIND_SERVICE: u32 = 10;
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
const SYS_NICE: u32 = 23;

/// The version of the attribute that has two words for each set: `VFS_CAP_REVISION_2`.
const REVISION: u32 = 0x0200_0000;

/// How archives name the extended attribute of a file that has its capabilities.
const ATTRIBUTE: &str = "SCHILY.xattr.security.capability";

/// What stands in a root folder: paths without a leading slash, folders with their files.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Root(BTreeMap<String, Node>);

#[derive(Debug, PartialEq, Eq)]
enum Node {
    Folder {
        mode: u32,
    },
    File {
        mode: u32,
        content: Vec<u8>,
    },
    /// May have [`CAPABILITIES`].
    Program {
        content: Vec<u8>,
    },
}

/// A layer, packed.
#[derive(Debug, PartialEq, Eq)]
pub struct Layer {
    /// The archive, which the image's configuration names by its digest.
    pub plain: Vec<u8>,
    /// The same with gzip, which is what is stored.
    pub packed: Vec<u8>,
}

// === impl Root ===

impl Root {
    /// The image's files: the program, names for the two users, how names are looked up, and a
    /// place for whatever mounts one there.
    pub fn new(program: Vec<u8>, authorities: Option<String>) -> Self {
        let mut root = Self::default();
        let program = Node::Program { content: program };
        root.0.insert(PROGRAM.to_owned(), program);
        root.0
            .insert("tmp".to_owned(), Node::Folder { mode: 0o1777 });
        root.file(
            "etc/passwd",
            0o644,
            format!(
                "root:x:0:0:root:/:/sbin/nologin\n\
                 landfall:x:{USER}:{USER}:landfall:/:/sbin/nologin\n"
            ),
        );
        root.file(
            "etc/group",
            0o644,
            format!("root:x:0:\nlandfall:x:{USER}:\n"),
        );
        // Without it the C library asks the name server before it reads the pod's /etc/hosts.
        root.file("etc/nsswitch.conf", 0o644, "hosts: files dns\n");
        if let Some(authorities) = authorities {
            root.file(AUTHORITIES, 0o644, authorities);
        }
        root
    }

    /// Adds a file and the folders that lead to it.
    pub fn file(&mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) {
        for (slash, _) in path.match_indices('/') {
            if let Some(folder) = path.get(..slash) {
                self.0
                    .insert(folder.to_owned(), Node::Folder { mode: 0o755 });
            }
        }
        let content = content.into();
        self.0.insert(path.to_owned(), Node::File { mode, content });
    }

    /// The layer. A folder comes before what is in it, since its path is the shorter.
    pub fn pack(&self) -> anyhow::Result<Layer> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, node) in &self.0 {
            let (kind, mode, content) = match node {
                Node::Folder { mode } => (EntryType::Directory, *mode, [].as_slice()),
                Node::File { mode, content } => (EntryType::Regular, *mode, content.as_slice()),
                Node::Program { content } => (EntryType::Regular, 0o755, content.as_slice()),
            };
            if matches!(node, Node::Program { .. }) {
                archive.append_pax_extensions([(ATTRIBUTE, capabilities().as_slice())])?;
            }
            append(&mut archive, kind, path, mode, content)?;
        }
        let plain = archive.into_inner()?;
        let mut gzip = GzBuilder::new()
            .mtime(0)
            .write(Vec::new(), Compression::best());
        gzip.write_all(&plain)?;
        let packed = gzip.finish()?;
        Ok(Layer { plain, packed })
    }
}

/// Returns the value of the attribute: `struct vfs_cap_data` in little endian.
fn capabilities() -> Vec<u8> {
    let permitted = CAPABILITIES.iter().fold(0, |set, bit| set | (1 << bit));
    let words: [u32; 5] = [REVISION, permitted, 0, 0, 0];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Adds an entry of user 0 and time 0.
pub fn append(
    archive: &mut tar::Builder<impl std::io::Write>,
    kind: EntryType,
    path: &str,
    mode: u32,
    content: &[u8],
) -> anyhow::Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(content.len() as u64);
    header
        .set_path(path)
        .with_context(|| format!("{path} can't be in an archive"))?;
    header.set_cksum();
    archive.append(&header, content)?;
    Ok(())
}

/// The authorities in a folder of certificates as one bundle, by their files' names; `None` where
/// there is no such folder.
pub fn authorities(folder: &Path) -> anyhow::Result<Option<String>> {
    let read = |error| anyhow::Error::new(error).context(format!("reading {}", folder.display()));
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(read(error)),
    };
    let mut certificates = BTreeMap::new();
    for entry in entries {
        let path = entry.map_err(read)?.path();
        if path.extension().is_some_and(|extension| extension == "crt") {
            let text =
                fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            certificates.insert(path, text);
        }
    }
    let bundle: String = certificates
        .values()
        .flat_map(|text| [text.trim_end(), "\n"])
        .collect();
    Ok((!bundle.is_empty()).then_some(bundle))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(layer: &Layer) -> Vec<(String, u32, u64, u64, u64, u64)> {
        let mut archive = tar::Archive::new(layer.plain.as_slice());
        let entry = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
            let entry = entry.unwrap();
            let header = entry.header();
            (
                entry.path().unwrap().display().to_string(),
                header.mode().unwrap(),
                header.uid().unwrap(),
                header.gid().unwrap(),
                header.mtime().unwrap(),
                header.size().unwrap(),
            )
        };
        archive.entries().unwrap().map(entry).collect()
    }

    #[test]
    fn the_layer_has_what_is_needed_and_nothing_of_this_machine() {
        let layer = Root::new(b"program".to_vec(), Some("PEM\n".to_owned()))
            .pack()
            .unwrap();
        let folder = |path: &str| (path.to_owned(), 0o755, 0, 0, 0, 0);
        let file = |path: &str, size| (path.to_owned(), 0o644, 0, 0, 0, size);
        assert_eq!(
            entries(&layer),
            [
                folder("etc"),
                file("etc/group", 28),
                file("etc/nsswitch.conf", 17),
                file("etc/passwd", 80),
                folder("etc/ssl"),
                folder("etc/ssl/certs"),
                file("etc/ssl/certs/ca-certificates.crt", 4),
                ("landfall".to_owned(), 0o755, 0, 0, 0, 7),
                ("tmp".to_owned(), 0o1777, 0, 0, 0, 0),
            ]
        );
    }

    #[test]
    fn the_program_and_nothing_else_may_have_capabilities_which_are_not_effective_at_once() {
        let layer = Root::new(b"program".to_vec(), None).pack().unwrap();
        let mut archive = tar::Archive::new(layer.plain.as_slice());
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            if let Some(extensions) = entry.pax_extensions().unwrap() {
                for extension in extensions.map(Result::unwrap) {
                    let key = extension.key().unwrap().to_owned();
                    found.push((path.clone(), key, extension.value_bytes().to_vec()));
                }
            }
        }
        // What `setcap cap_net_bind_service,cap_net_admin,cap_net_raw,cap_sys_nice+p` writes.
        let value = [
            0, 0, 0, 2, 0, 0x34, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ]
        .to_vec();
        assert_eq!(
            found,
            [("landfall".to_owned(), ATTRIBUTE.to_owned(), value)]
        );
    }

    #[test]
    fn equal_files_make_equal_bytes_and_other_files_others() {
        let pack = |program: &str| Root::new(program.into(), None).pack().unwrap();
        assert_eq!(pack("a"), pack("a"));
        assert_ne!(pack("a").packed, pack("b").packed);
    }

    #[test]
    fn authorities_are_bundled_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("b.crt", "B\n\n");
        write("a.crt", "A");
        write("README", "not one");
        assert_eq!(
            authorities(folder.path()).unwrap().as_deref(),
            Some("A\nB\n")
        );
    }

    #[test]
    fn a_machine_without_authorities_makes_an_image_without_them() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(authorities(folder.path()).unwrap(), None);
        assert_eq!(authorities(&folder.path().join("none")).unwrap(), None);
    }
}
