//! The default directories.

use std::path::PathBuf;

/// Where a system service keeps its state.
const SYSTEM_STATE: &str = "/var/lib/landfall";

/// The folder in which addresses are remembered: systemd's `STATE_DIRECTORY`, else
/// `/var/lib/landfall` for root, else `$XDG_STATE_HOME/landfall`, else
/// `~/.local/state/landfall`. `None`: nothing of that is set, so the user has to name one.
pub fn state_dir(is_root: bool, env: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty());
    if let Some(given) = set("STATE_DIRECTORY") {
        return given.split(':').next().map(PathBuf::from);
    }
    if is_root {
        return Some(PathBuf::from(SYSTEM_STATE));
    }
    if let Some(state_home) = set("XDG_STATE_HOME") {
        return Some(PathBuf::from(state_home).join("landfall"));
    }
    set("HOME").map(|home| PathBuf::from(home).join(".local/state/landfall"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(is_root: bool, env: &[(&str, &str)]) -> Option<String> {
        let look_up = |name: &str| {
            env.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        };
        state_dir(is_root, look_up).map(|path| path.display().to_string())
    }

    #[test]
    fn the_most_specific_place_wins() {
        let home = ("HOME", "/home/ada");
        let xdg = ("XDG_STATE_HOME", "/srv/state");
        let systemd = ("STATE_DIRECTORY", "/var/lib/lb:/other");
        assert_eq!(
            dir(false, &[home]).as_deref(),
            Some("/home/ada/.local/state/landfall")
        );
        assert_eq!(
            dir(false, &[home, xdg]).as_deref(),
            Some("/srv/state/landfall")
        );
        assert_eq!(
            dir(true, &[home, xdg]).as_deref(),
            Some("/var/lib/landfall")
        );
        assert_eq!(
            dir(true, &[home, xdg, systemd]).as_deref(),
            Some("/var/lib/lb")
        );
    }

    #[test]
    fn without_any_home_the_user_has_to_say() {
        assert_eq!(dir(false, &[("HOME", "")]), None);
    }
}
