//! The keys that speakers share, and how a file of other keys takes their place.
//!
//! Nodes get a changed Secret one after the other, over up to two minutes. So a key that is new
//! seals only after all nodes are able to open it, and one that is gone opens for a while: a key
//! that is replaced in one step separates no nodes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use landfall_membership::driver::Membership;
use landfall_membership::seal::{Key, Keys};

/// Between two reads of the file.
const LOOK: Duration = Duration::from_secs(10);

/// The time from the moment at which a key is first in the file to that at which it seals: nodes
/// get a Secret within two minutes, and read the file once within [`LOOK`].
const SPREAD: Duration = Duration::from_secs(150);

/// How long a key opens after it was last in the file: longer than another node may take to get the
/// file and then to seal with the new key.
const KEPT: Duration = Duration::from_mins(5);

/// Returns the keys, and the first of them as it is written.
pub async fn read(path: &Path) -> anyhow::Result<(Keys, Vec<u8>)> {
    let text = tokio::fs::read_to_string(path)
        .await
        .with_context(|| format!("reading the keys of speakers in {}", path.display()))?;
    let keys = parse(&text);
    let keys = keys.with_context(|| format!("the keys of speakers in {}", path.display()))?;
    let first = text.lines().map(str::trim).find(|line| !line.is_empty());
    Ok((keys, first.unwrap_or_default().as_bytes().to_vec()))
}

/// Reads keys, one per line.
fn parse(text: &str) -> anyhow::Result<Keys> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let keys: Result<Vec<Key>, _> = lines.map(|line| Key::new(line.as_bytes())).collect();
    let mut keys = keys?.into_iter();
    let first = keys.next().context("there is no key")?;
    Ok(Keys {
        first,
        others: keys.collect(),
    })
}

/// Takes other keys when the file has others. One that cannot be used changes nothing.
pub async fn follow(path: PathBuf, start: Keys, membership: Membership) {
    let mut rotation = Rotation::new(start.clone(), Instant::now());
    let mut last = start;
    loop {
        tokio::time::sleep(LOOK).await;
        match read(&path).await {
            Ok((keys, _)) => last = keys,
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "keys are kept as they were");
            }
        }
        // What has begun goes on although the file can't be read now.
        let keys = rotation.keys(&last, Instant::now());
        membership.update(|wanted| wanted.keys = keys);
    }
}

/// The keys in use, and since when and until when.
#[derive(Debug)]
struct Rotation {
    /// It seals.
    first: Key,
    known: Vec<Known>,
    /// When the file was read last.
    looked: Instant,
}

#[derive(Debug)]
struct Known {
    key: Key,
    /// Since when it is in the file; `None`: since the start.
    since: Option<Instant>,
    /// When it was last in the file.
    seen: Instant,
}

// === impl Rotation ===

impl Rotation {
    /// Begins with the keys of the file. Its first one seals at once: other nodes may have had it
    /// for long.
    fn new(keys: Keys, now: Instant) -> Self {
        let known = |key: Key| Known {
            key,
            since: None,
            seen: now,
        };
        let first = keys.first.clone();
        let known = std::iter::once(keys.first).chain(keys.others).map(known);
        Self {
            first,
            known: known.collect(),
            looked: now,
        }
    }

    /// Returns the keys to use, where the file has these.
    fn keys(&mut self, file: &Keys, now: Instant) -> Keys {
        for key in std::iter::once(&file.first).chain(&file.others) {
            match self.known.iter_mut().find(|known| known.key == *key) {
                Some(known) => {
                    // A node may have missed that it was there before.
                    if known.seen < self.looked {
                        known.since = Some(now);
                    }
                    known.seen = now;
                }
                None => self.known.push(Known {
                    key: key.clone(),
                    since: Some(now),
                    seen: now,
                }),
            }
        }
        self.looked = now;
        let age = |since: Instant| now.saturating_duration_since(since);
        let first = self.known.iter().find(|known| known.key == file.first);
        if first.is_some_and(|known| known.since.is_none_or(|since| age(since) >= SPREAD)) {
            self.first = file.first.clone();
        }
        self.known
            .retain(|known| known.key == self.first || age(known.seen) < KEPT);
        let others = self.known.iter().filter(|known| known.key != self.first);
        Keys {
            first: self.first.clone(),
            others: others.map(|known| known.key.clone()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn keys(text: &str) -> Keys {
        let lines: Vec<String> = text.split(' ').map(|it| it.repeat(16)).collect();
        parse(&lines.join("\n")).unwrap()
    }

    #[test]
    fn keys_are_read_line_by_line_and_a_short_one_is_refused() {
        let keys = parse("the first of the keys\n\n  the second of the keys  \n").unwrap();
        assert_eq!(keys.first, Key::new(b"the first of the keys").unwrap());
        assert_eq!(keys.others, [Key::new(b"the second of the keys").unwrap()]);
        let why = |text| format!("{:#}", parse(text).unwrap_err());
        assert_eq!(why("\n"), "there is no key");
        assert!(
            why("the first of the keys\nshort").contains("has 5"),
            "{}",
            why("short")
        );
    }

    #[test]
    fn a_key_that_is_replaced_in_one_step_separates_no_nodes() {
        let began = Instant::now();
        // The file of each node changes at another time, up to two minutes after the first, and is
        // read every ten seconds.
        let delays: [u32; 3] = [0, 20, 120];
        let mut nodes = delays.map(|_| Rotation::new(keys("a"), began));
        let mut used = delays.map(|_| keys("a"));
        for second in 0..900 {
            let now = began + SECOND * second;
            let file = |delay: u32| if second < 100 + delay { "a" } else { "b" };
            for ((node, used), delay) in nodes.iter_mut().zip(&mut used).zip(delays) {
                // They do not read at the same time.
                if (second + delay / 20) % 10 == 0 {
                    *used = node.keys(&keys(file(delay)), now);
                }
            }
            for sender in &used {
                for receiver in &used {
                    let opens =
                        receiver.first == sender.first || receiver.others.contains(&sender.first);
                    assert!(opens, "{second}: {used:?}");
                }
            }
        }
        assert!(nodes.iter().all(|node| node.first == keys("b").first));
    }

    #[test]
    fn a_key_that_is_gone_is_opened_for_five_minutes_and_no_longer() {
        let began = Instant::now();
        let mut rotation = Rotation::new(keys("a b"), began);
        let other = rotation.keys(&keys("a"), began + KEPT.saturating_sub(SECOND));
        assert_eq!(other.others, keys("a b").others);
        assert_eq!(rotation.keys(&keys("a"), began + KEPT), keys("a"));
    }

    #[test]
    fn a_key_that_all_nodes_had_before_seals_at_once() {
        let began = Instant::now();
        let mut rotation = Rotation::new(keys("a b"), began);
        assert_eq!(rotation.keys(&keys("b a"), began + SECOND), keys("b a"));
        // One that was added by hand later seals once it was there for two minutes.
        let added = began + SECOND * 2;
        rotation.keys(&keys("b a c"), added);
        let early = rotation.keys(&keys("c b a"), added + SPREAD.saturating_sub(SECOND));
        assert_eq!(early.first, keys("b").first);
        let late = rotation.keys(&keys("c b a"), added + SPREAD);
        assert_eq!(late.first, keys("c").first);
    }

    #[test]
    fn a_key_that_was_taken_back_and_comes_again_waits_for_its_time_again() {
        let began = Instant::now();
        let at = |second| began + SECOND * second;
        let mut rotation = Rotation::new(keys("a"), began);
        for (second, file) in [
            (10, "b"),
            (20, "b"),
            (30, "a"),
            (200, "a"),
            (210, "b"),
            (350, "b"),
        ] {
            let used = rotation.keys(&keys(file), at(second));
            assert_eq!(used.first, keys("a").first, "{second}");
        }
        assert_eq!(rotation.keys(&keys("b"), at(360)).first, keys("b").first);
    }

    #[test]
    fn the_key_that_seals_is_kept_until_another_one_may() {
        let began = Instant::now();
        let mut rotation = Rotation::new(keys("a"), began);
        // Replaced again and again, faster than nodes can follow.
        for (number, name) in ["b", "c", "d", "e", "f", "g", "h"].into_iter().enumerate() {
            let now = began + SPREAD / 2 * u32::try_from(number).unwrap();
            assert_eq!(rotation.keys(&keys(name), now).first, keys("a").first);
        }
    }
}
