//! Where things are: the checkout, and the cache outside it. Owns no other decision.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// Where the cache is, if not in the user's cache folder.
pub const CACHE_VARIABLE: &str = "LANDFALL_CACHE";

/// The folders that commands work in.
#[derive(Clone, Debug)]
pub struct Place {
    /// The workspace's root.
    pub root: PathBuf,
    /// For tools, keyed by version. Outside the checkout, so that a clean checkout needn't rebuild
    /// them. May not exist yet.
    pub cache: PathBuf,
}

impl Place {
    /// Finds the checkout around the current folder.
    pub fn find() -> anyhow::Result<Self> {
        let here = std::env::current_dir().context("the current folder can't be read")?;
        let root = checkout_around(&here)
            .with_context(|| format!("{} is not inside a checkout of Landfall", here.display()))?;
        let cache = cache(
            std::env::var_os(CACHE_VARIABLE).map(PathBuf::from),
            std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from),
            std::env::home_dir(),
        )?;
        Ok(Self {
            root: root.to_owned(),
            cache,
        })
    }

    /// Cargo's output folder.
    pub fn target(&self) -> PathBuf {
        std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| self.root.join("target"), |folder| self.root.join(folder))
    }
}

fn checkout_around(here: &Path) -> Option<&Path> {
    here.ancestors().find(|folder| {
        folder.join("Cargo.lock").is_file() && folder.join("crates/landfall/Cargo.toml").is_file()
    })
}

fn cache(
    ours: Option<PathBuf>,
    users: Option<PathBuf>,
    home: Option<PathBuf>,
) -> anyhow::Result<PathBuf> {
    if let Some(ours) = ours.filter(|path| !path.as_os_str().is_empty()) {
        if ours.is_relative() {
            bail!(
                "{CACHE_VARIABLE} is {}, not an absolute path",
                ours.display()
            );
        }
        return Ok(ours);
    }
    // A relative XDG_CACHE_HOME is invalid by its specification, and to be ignored.
    users
        .filter(|path| path.is_absolute())
        .or_else(|| home.map(|home| home.join(".cache")))
        .map(|base| base.join("landfall"))
        .with_context(|| format!("no home folder: set {CACHE_VARIABLE} to a folder for tools"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_ours_then_the_users_then_in_the_home_folder() {
        let found = |ours: Option<&str>, users: Option<&str>, home: Option<&str>| {
            cache(
                ours.map(Into::into),
                users.map(Into::into),
                home.map(Into::into),
            )
            .map_err(|error| error.to_string())
        };
        assert_eq!(found(Some("/a"), Some("/b"), Some("/c")), Ok("/a".into()));
        assert_eq!(
            found(Some(""), Some("/b"), Some("/c")),
            Ok("/b/landfall".into())
        );
        assert_eq!(
            found(None, Some("b"), Some("/c")),
            Ok("/c/.cache/landfall".into())
        );
        assert_eq!(
            found(Some("a"), None, Some("/c")),
            Err("LANDFALL_CACHE is a, not an absolute path".into())
        );
        assert_eq!(
            found(None, None, None),
            Err("no home folder: set LANDFALL_CACHE to a folder for tools".into())
        );
    }

    #[test]
    fn the_checkout_is_found_from_a_folder_within() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(checkout_around(&here.join("src")), here.parent());
        assert_eq!(checkout_around(Path::new("/")), None);
    }
}
