//! `clouds.yaml`, with `secure.yaml` and `clouds-public.yaml`: the configuration of OpenStack's own
//! tools.
//!
//! [`parse`] and [`choose`] are pure: texts in, a [`Global`] out. [`read`] adds the files. Where
//! they are looked for is decided by [`candidates`] from [`Surroundings`], which the caller hands
//! in; no environment variable is read here.

mod entry;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use crate::cloud_conf::{ConfError, Global};
use entry::Entry;

/// What a process is surrounded by: where files may be, and what was chosen from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The current directory.
    pub current_dir: Option<PathBuf>,
    /// The user's home.
    pub home: Option<PathBuf>,
    /// `OS_CLIENT_CONFIG_FILE`: where `clouds.yaml` is, unless somebody says so more precisely.
    pub clouds_file: Option<PathBuf>,
    /// `OS_CLOUD`: the entry to use, unless somebody says so more precisely.
    pub cloud: Option<String>,
}

/// One of the three files.
#[derive(Clone, Debug)]
pub struct CloudsFile {
    file: Arc<str>,
    clouds: BTreeMap<String, Entry>,
}

/// The system's folder of these files.
const SYSTEM: &str = "/etc/openstack";
/// The user's, below the home.
const USER: &str = ".config/openstack";

/// Reads the text of one of the files; `file` is how messages name it. An empty text is a file
/// without entries.
pub fn parse(file: &str, text: &str) -> Result<CloudsFile, ConfError> {
    #[derive(Default, Deserialize)]
    struct Contents {
        #[serde(alias = "public-clouds")]
        clouds: Option<BTreeMap<String, Option<Entry>>>,
    }
    let contents: Option<Contents> = serde_saphyr::from_str(text).map_err(|error| {
        let line = error
            .location()
            .map(|location| format!(":{}", location.line()));
        // What follows the first line shows the text around it, and passwords live there.
        let why = error.to_string();
        ConfError::Syntax {
            place: format!("{file}{}", line.unwrap_or_default()),
            why: why.lines().next().unwrap_or_default().to_owned(),
        }
    })?;
    let clouds = contents
        .and_then(|contents| contents.clouds)
        .unwrap_or_default();
    let clouds = clouds
        .into_iter()
        .map(|(name, entry)| (name, entry.unwrap_or_default()));
    Ok(CloudsFile {
        file: file.into(),
        clouds: clouds.collect(),
    })
}

/// The entry of a name, or the only one if no name is given. Where an entry names a `profile`,
/// `public` fills what is missing; what `secure` has of the same name wins.
pub fn choose(
    clouds: &CloudsFile,
    secure: Option<&CloudsFile>,
    public: Option<&CloudsFile>,
    name: Option<&str>,
) -> Result<Global, ConfError> {
    let name = clouds.pick(name)?;
    let mut entry = clouds.clouds.get(name).cloned().unwrap_or_default();
    if let Some(profile) = entry.profile().map(str::to_owned) {
        let found = public.and_then(|public| public.clouds.get(&profile));
        let found = found.ok_or_else(|| ConfError::Value {
            place: clouds.file.to_string(),
            key: format!("clouds.{name}.profile"),
            value: profile.clone(),
            why: "there is no such entry in clouds-public.yaml; add it, or write out what it would say"
                .to_owned(),
        })?;
        entry.fill(found);
    }
    let mut merged = secure
        .and_then(|secure| secure.clouds.get(name))
        .cloned()
        .unwrap_or_default();
    merged.fill(&entry);
    merged.global(&clouds.file, name)
}

/// Where a file is looked for, in this order: the path that was given, and nowhere else; or the
/// current directory, `~/.config/openstack` and `/etc/openstack`.
pub fn candidates(name: &str, given: Option<&Path>, surroundings: &Surroundings) -> Vec<PathBuf> {
    if let Some(given) = given {
        return vec![given.to_owned()];
    }
    let current = surroundings.current_dir.clone();
    let user = surroundings.home.as_ref().map(|home| home.join(USER));
    let folders = current
        .into_iter()
        .chain(user)
        .chain([PathBuf::from(SYSTEM)]);
    folders.map(|folder| folder.join(name)).collect()
}

/// Finds and reads `clouds.yaml`, and the other two where they are: beside it, or where it would be
/// looked for itself. `file` and `cloud` go before what the surroundings say.
pub fn read(
    file: Option<&Path>,
    cloud: Option<&str>,
    surroundings: &Surroundings,
) -> Result<Global, ConfError> {
    let given = file.or(surroundings.clouds_file.as_deref());
    let places = candidates("clouds.yaml", given, surroundings);
    let Some((path, clouds)) = first(&places)? else {
        return Err(ConfError::NotFound {
            name: "clouds.yaml".to_owned(),
            places: places
                .iter()
                .map(|place| place.display().to_string())
                .collect(),
        });
    };
    let other = |name: &str| {
        let beside = path.with_file_name(name);
        let elsewhere = candidates(name, None, surroundings);
        let places: Vec<PathBuf> = [beside].into_iter().chain(elsewhere).collect();
        Ok(first(&places)?.map(|(_, file)| file))
    };
    let (secure, public) = (other("secure.yaml")?, other("clouds-public.yaml")?);
    let cloud = cloud.or(surroundings.cloud.as_deref());
    choose(&clouds, secure.as_ref(), public.as_ref(), cloud)
}

/// The first of these files that exists.
fn first(places: &[PathBuf]) -> Result<Option<(PathBuf, CloudsFile)>, ConfError> {
    for path in places {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => return Ok(Some((path.clone(), parse(&file, &text)?))),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(source) => return Err(ConfError::Unreadable { file, source }),
        }
    }
    Ok(None)
}

// === impl Surroundings ===

impl Surroundings {
    /// Takes them from a look into the environment, which the caller does.
    pub fn new(current_dir: Option<PathBuf>, env: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        Self {
            current_dir,
            home: set("HOME").map(PathBuf::from),
            clouds_file: set("OS_CLIENT_CONFIG_FILE").map(PathBuf::from),
            cloud: set("OS_CLOUD"),
        }
    }
}

// === impl CloudsFile ===

impl CloudsFile {
    fn pick<'a>(&'a self, name: Option<&'a str>) -> Result<&'a str, ConfError> {
        let refuse = |value: &str, why: String| ConfError::Value {
            place: self.file.to_string(),
            key: "clouds".to_owned(),
            value: value.to_owned(),
            why,
        };
        let names: Vec<&str> = self.clouds.keys().map(String::as_str).collect();
        match (name, &names[..]) {
            (_, []) => Err(refuse("", "the file has no entry".to_owned())),
            (None, [only]) => Ok(only),
            (None, several) => {
                let why = format!("several entries; name one of {}", several.join(", "));
                Err(refuse("", why))
            }
            (Some(name), names) if names.contains(&name) => Ok(name),
            (Some(name), names) => {
                let why = format!("there is no such entry; there are {}", names.join(", "));
                Err(refuse(name, why))
            }
        }
    }
}

#[cfg(test)]
mod tests;
