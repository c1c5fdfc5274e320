//! The programs of a control plane: found, or built once.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::ClusterError;

/// One of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Program {
    /// The store.
    Etcd,
    /// The API server.
    ApiServer,
    /// The controllers that come with Kubernetes.
    ControllerManager,
    /// The data plane of a node.
    Proxy,
    /// The command line.
    Kubectl,
}

/// Where the programs are. All are of one version, or near enough to work together.
#[derive(Clone, Debug)]
pub struct Programs {
    paths: Vec<(Program, PathBuf)>,
}

/// The modules and versions that are built, with their checksums beside them.
const MODULES: &str = include_str!("../../../../testbed/kubernetes/go.mod");

const MODULES_FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testbed/kubernetes");

// === impl Program ===

impl Program {
    /// Every program, in the order of their builds: what shares most packages comes together.
    pub const ALL: [Self; 5] = [
        Self::ApiServer,
        Self::ControllerManager,
        Self::Proxy,
        Self::Kubectl,
        Self::Etcd,
    ];

    /// Its file name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Proxy => "kube-proxy",
            Self::Kubectl => "kubectl",
        }
    }

    fn package(self) -> String {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3".to_owned(),
            other => format!("k8s.io/kubernetes/cmd/{}", other.name()),
        }
    }

    fn version_arguments(self) -> &'static [&'static str] {
        match self {
            Self::Kubectl => &["version", "--client"],
            _ => &["--version"],
        }
    }

    /// Whether a program that happens to be on PATH goes together with the others.
    fn goes_with(self, version: &str, pinned: &str) -> bool {
        let (Some((major, minor)), Some((pinned_major, pinned_minor))) =
            (version_in(version), version_in(pinned))
        else {
            return false;
        };
        match self {
            Self::Etcd => (major, minor) >= (3, 5),
            _ => major == pinned_major && minor.abs_diff(pinned_minor) <= 1,
        }
    }
}

/// The first `MAJOR.MINOR` of a text.
fn version_in(text: &str) -> Option<(u32, u32)> {
    text.split_whitespace().find_map(|word| {
        let mut parts = word.trim_start_matches('v').split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    })
}

// === impl Programs ===

impl Programs {
    /// Finds every program: in `KUBEBUILDER_ASSETS`, on `PATH` (where its version fits), in the
    /// cache (`$LANDFALL_CACHE`, else `~/.cache/landfall`); else builds it into the cache, which
    /// takes minutes once and needs Go and a module proxy.
    pub async fn find() -> Result<Self, ClusterError> {
        let found = tokio::task::spawn_blocking(Self::find_or_build).await;
        found.map_err(|error| ClusterError::Io {
            what: "looking for the programs of a cluster was interrupted".to_owned(),
            source: io::Error::other(error),
        })?
    }

    fn find_or_build() -> Result<Self, ClusterError> {
        let cache = cache_folder()?;
        let mut paths = Vec::new();
        for program in Program::ALL {
            let path = match found(program, &cache) {
                Some(path) => path,
                None => built(program, &cache)?,
            };
            paths.push((program, path));
        }
        Ok(Self { paths })
    }

    /// The programs that [`Self::find`] would have to build.
    pub fn missing() -> Result<Vec<Program>, ClusterError> {
        let cache = cache_folder()?;
        let mut programs = Program::ALL.to_vec();
        programs.retain(|program| found(*program, &cache).is_none());
        Ok(programs)
    }

    /// Where a program is.
    pub fn path(&self, program: Program) -> &Path {
        let mut paths = self.paths.iter();
        let path = paths
            .find(|(of, _)| *of == program)
            .map(|(_, path)| path.as_path());
        path.unwrap_or_else(|| Path::new(program.name()))
    }
}

/// The version of Kubernetes that is built: `v1.2.3`.
fn pinned_version() -> &'static str {
    version_of(MODULES, "k8s.io/kubernetes")
}

/// The version of a module that the text of a `go.mod` requires.
pub(super) fn version_of<'a>(modules: &'a str, module: &str) -> &'a str {
    let mut words = modules.lines().map(str::split_whitespace);
    let version = words.find_map(|mut line| {
        let found = line.find(|word| *word != "require")? == module;
        line.next().filter(|_| found)
    });
    version.unwrap_or("unknown")
}

fn cache_folder() -> Result<PathBuf, ClusterError> {
    Ok(cache()?.join("kubernetes").join(pinned_version()))
}

/// The folder of everything that is built once.
pub(super) fn cache() -> Result<PathBuf, ClusterError> {
    let cache = env::var_os("LANDFALL_CACHE").map(PathBuf::from);
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cache/landfall"));
    match cache.or_else(home) {
        Some(cache) => Ok(cache),
        None => Err(ClusterError::Io {
            what: "there is no place for a cache: set HOME or LANDFALL_CACHE".to_owned(),
            source: io::ErrorKind::NotFound.into(),
        }),
    }
}

fn found(program: Program, cache: &Path) -> Option<PathBuf> {
    let assets = env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    if let Some(path) = assets.and_then(|folder| program_in(&folder, program)) {
        return Some(path);
    }
    let search = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&search).find_map(|folder| program_in(&folder, program));
    on_path
        .filter(|path| version_fits(path, program))
        .or_else(|| program_in(cache, program))
}

fn program_in(folder: &Path, program: Program) -> Option<PathBuf> {
    let path = folder.join(program.name());
    path.is_file().then_some(path)
}

fn version_fits(path: &Path, program: Program) -> bool {
    let output = Command::new(path)
        .args(program.version_arguments())
        .output();
    output.is_ok_and(|output| {
        program.goes_with(&String::from_utf8_lossy(&output.stdout), pinned_version())
    })
}

/// Builds a program, unless another test just did.
fn built(program: Program, cache: &Path) -> Result<PathBuf, ClusterError> {
    let of = format!("for Kubernetes {}", pinned_version());
    let modules = Path::new(MODULES_FOLDER);
    built_once(program.name(), cache, &of, |part| {
        build(program, part, modules, OsStr::new("go"))
    })
}

/// Returns what `build` writes, unless it is there already or another test just wrote it. `of`: for
/// people that wait for it.
pub(super) fn built_once(
    name: &'static str,
    cache: &Path,
    of: &str,
    build: impl Fn(&Path) -> Result<(), String>,
) -> Result<PathBuf, ClusterError> {
    let missing = |why: String| ClusterError::Missing {
        program: name,
        cache: cache.display().to_string(),
        why,
    };
    let failed = |error: io::Error| missing(error.to_string());
    fs::create_dir_all(cache).map_err(failed)?;
    // Held until the file is closed, by us or by our death.
    let lock = File::create(cache.join("lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let path = cache.join(name);
    if path.is_file() {
        return Ok(path);
    }
    report(&format!(
        "building {name} {of}, for the tests, once: minutes, with some GB of downloads and build \
         cache"
    ));
    // Renamed into place, so that an interrupted build leaves nothing that looks like a program.
    let part = cache.join(format!("{name}.part"));
    let outcome = build(&part).map_err(missing);
    outcome
        .and_then(|()| fs::rename(&part, &path).map_err(failed))
        .map(|()| path)
}

/// One `go build`. What it says (downloads, errors) goes to standard error as it comes.
fn build(program: Program, to: &Path, modules: &Path, go: &OsStr) -> Result<(), String> {
    let flags = format!(
        "-s -w -X k8s.io/component-base/version.gitVersion={}",
        pinned_version()
    );
    go_build(go, modules, &flags, &program.package(), to)
}

/// Builds a package of a folder with modules, without a C library.
pub(super) fn go_build(
    go: &OsStr,
    modules: &Path,
    flags: &str,
    package: &str,
    to: &Path,
) -> Result<(), String> {
    let status = Command::new(go)
        .args(["build", "-trimpath", "-ldflags", flags, "-o"])
        .arg(to)
        .arg(package)
        .current_dir(modules)
        .env("CGO_ENABLED", "0")
        .status()
        .map_err(|error| format!("go can't be run: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!(
            "go build ended with {status}; its words stand above"
        ))
    }
}

#[expect(
    clippy::print_stderr,
    reason = "minutes of silence look like a test that hangs"
)]
fn report(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_comes_from_the_modules() {
        assert!(version_in(pinned_version()).is_some_and(|version| version >= (1, 36)));
    }

    #[test]
    fn a_program_on_path_must_be_of_a_near_version() {
        let fits = |program: Program, text| program.goes_with(text, "v1.36.1");
        assert!(fits(
            Program::Kubectl,
            "Client Version: v1.35.9\nKustomize Version: v5.5.0"
        ));
        assert!(!fits(
            Program::Kubectl,
            "Client Version: v1.32.4-dispatcher\nKustomize Version: v5.5.0"
        ));
        assert!(fits(Program::ApiServer, "Kubernetes v1.37.0"));
        assert!(!fits(Program::ApiServer, "no version at all"));
        assert!(fits(
            Program::Etcd,
            "etcd Version: 3.6.8\nGit SHA: Not provided"
        ));
        assert!(!fits(
            Program::Etcd,
            "etcd Version: 3.4.23\nGit SHA: Not provided"
        ));
    }

    #[test]
    fn a_build_that_fails_says_why() {
        let folder = Path::new("/nowhere-at-all");
        let error = build(
            Program::Etcd,
            Path::new("/nowhere-at-all/etcd"),
            folder,
            OsStr::new("go"),
        );
        assert!(error.is_err_and(|why| why.contains("go")));
    }

    #[test]
    fn every_program_is_named_in_the_modules() {
        for program in Program::ALL {
            assert!(
                MODULES.contains(&format!("\t{}\n", program.package())),
                "{program:?}"
            );
        }
    }
}
