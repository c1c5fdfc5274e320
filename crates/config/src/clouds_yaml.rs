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

use landfall_model::reason::{Code, Origin, Reason};
use serde::Deserialize;
use serde_saphyr::DuplicateKeyPolicy;

use crate::cloud::{ConfError, Global};
use entry::Entry;

/// What a process is surrounded by: where files may be, and what was chosen from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The current directory.
    pub current_dir: Option<PathBuf>,
    /// The user's home.
    pub home: Option<PathBuf>,
    /// `OS_CLIENT_CONFIG_FILE`: where `clouds.yaml` is, unless it is configured.
    pub clouds_file: Option<PathBuf>,
    /// `OS_CLOUD`: the entry to use, unless it is configured.
    pub cloud: Option<String>,
}

/// One of the three files.
#[derive(Clone, Debug)]
pub struct CloudsFile {
    file: Arc<str>,
    clouds: BTreeMap<String, Entry>,
    /// What is not what it seems.
    warnings: Vec<Reason>,
}

/// What the files come down to.
#[derive(Clone, Debug)]
pub struct Found {
    /// The entry.
    pub global: Global,
    /// What is skipped, or is not what it seems.
    pub warnings: Vec<Reason>,
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
    let mut warnings = Vec::new();
    let contents = serde_saphyr::from_str::<Option<Contents>>(text).or_else(|error| {
        let Some(warning) = about_duplicate(file, &error) else {
            return Err(error);
        };
        warnings.push(warning);
        // OpenStack's own tools take the last of several, so that such files are about.
        let last = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
        serde_saphyr::from_str_with_options(text, last)
    });
    let contents = contents.map_err(|error| {
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
        warnings,
    })
}

/// A warning in place of an error, if that is what it is.
fn about_duplicate(file: &str, error: &serde_saphyr::Error) -> Option<Reason> {
    let serde_saphyr::Error::DuplicateMappingKey { key, location } = error.without_snippet() else {
        return None;
    };
    let message = "keys are given more than once; the last one counts each time";
    let origin = Origin {
        file: file.into(),
        line: u32::try_from(location.line()).unwrap_or(u32::MAX),
    };
    let reason = Reason::warning(Code::ConflictingOptions, message);
    let reason = match key {
        Some(key) => reason.at(key),
        None => reason,
    };
    Some(reason.remedy("remove the others").origin(Some(origin)))
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
            why: "there is no such entry in clouds-public.yaml; add it, or write its values here"
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
) -> Result<Found, ConfError> {
    let given = file.or(surroundings.clouds_file.as_deref());
    let mut search = Search {
        // A file that is named explicitly has to be that one.
        named: given.is_some(),
        ..Search::default()
    };
    let places = candidates("clouds.yaml", given, surroundings);
    let Some((path, mut clouds)) = search.first(&places)? else {
        return Err(ConfError::NotFound {
            name: "clouds.yaml".to_owned(),
            places: search.places,
        });
    };
    search.named = false;
    let mut other = |name: &str| {
        let beside = path.with_file_name(name);
        let elsewhere = candidates(name, None, surroundings);
        let places: Vec<PathBuf> = [beside].into_iter().chain(elsewhere).collect();
        Ok(search.first(&places)?.map(|(_, file)| file))
    };
    let (secure, public) = (other("secure.yaml")?, other("clouds-public.yaml")?);
    let cloud = cloud.or(surroundings.cloud.as_deref());
    let global = choose(&clouds, secure.as_ref(), public.as_ref(), cloud)?;
    let mut warnings = search.warnings();
    warnings.append(&mut clouds.warnings);
    warnings.extend(
        [secure, public]
            .into_iter()
            .flatten()
            .flat_map(|file| file.warnings),
    );
    Ok(Found { global, warnings })
}

/// Looking for files.
#[derive(Debug, Default)]
struct Search {
    /// Whether the file was named.
    named: bool,
    /// Where it was not, for messages.
    places: Vec<String>,
    /// Folders that were not named and can't be read, and why.
    closed: BTreeMap<String, String>,
}

// === impl Search ===

impl Search {
    /// The first of these files that exists.
    fn first(&mut self, places: &[PathBuf]) -> Result<Option<(PathBuf, CloudsFile)>, ConfError> {
        for path in places {
            let file = path.display().to_string();
            match std::fs::read_to_string(path) {
                Ok(text) => return Ok(Some((path.clone(), parse(&file, &text)?))),
                Err(error) if error.kind() == ErrorKind::NotFound => self.places.push(file),
                Err(error) if !self.named && is_out_of_reach(path) => {
                    let folder = path.parent().unwrap_or(path).display().to_string();
                    self.places.push(format!("{file} ({error})"));
                    self.closed.insert(folder, error.to_string());
                }
                Err(source) => return Err(ConfError::Unreadable { file, source }),
            }
        }
        Ok(None)
    }

    fn warnings(self) -> Vec<Reason> {
        let closed = self.closed.into_iter().map(|(folder, why)| {
            let message = format!("{folder} can't be read ({why}); files there are ignored");
            let remedy = "allow this user to enter it, or name the file";
            Reason::info(Code::OptionNotApplicable, message).remedy(remedy)
        });
        closed.collect()
    }
}

/// Whether it is the folder that can't be entered. A file that is there and can't be read is not
/// skipped: what the next one says would be a surprise.
fn is_out_of_reach(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_err_and(|error| {
        let kind = error.kind();
        kind == ErrorKind::PermissionDenied || kind == ErrorKind::NotADirectory
    })
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
