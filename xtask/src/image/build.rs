//! The program of the image: static, and without a trace of where it was built.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::Command;

use super::elf::Elf;
use crate::cargo::cargo;
use crate::place::Place;
use crate::stage::{self, Stages};

/// From nothing, on a slow machine that has other work.
const DEADLINE: Duration = Duration::from_mins(40);

/// Where the C library for static programs is not where programs are linked.
const NO_LIBRARY: &str = "\
it was not linked statically. The C library's static half is needed: package libc6-dev on Debian, \
glibc-static on Fedora";

/// A stage that builds the program as it is shipped: profile `dist`, static.
pub async fn program(stages: &mut Stages, place: &Place) -> anyhow::Result<PathBuf> {
    let target = host().await?;
    // A target is named although it is the host's, or cargo would link build scripts and macros
    // statically, too, which can't be.
    let mut command = cargo(
        place,
        &[
            "build",
            "--locked",
            "--profile",
            "dist",
            "-p",
            "landfall",
            "--target",
            &target,
        ],
    );
    let home = cargo_home()?;
    // In the environment, flags of the user's would win; so would they over these.
    command
        .arg("--config")
        .arg(flags(&place.root, &home)?)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    // C files name themselves in messages.
    let files = [
        (place.target(), "target"),
        (home, "cargo"),
        (place.root.clone(), "landfall"),
    ]
    .map(|(path, name)| format!("-ffile-prefix-map={}=/{name}", path.display()));
    command.env("TARGET_CFLAGS", files.join(" "));
    stages.run("static program", DEADLINE, &mut command).await?;
    Ok(place.target().join(target).join("dist/landfall"))
}

/// Refuses a program that needs something that the image doesn't have, and says what it is for.
pub fn validate(program: &Path, bytes: &[u8]) -> anyhow::Result<Elf> {
    let path = program.display();
    let elf = Elf::read(bytes).with_context(|| format!("{path} can't be used"))?;
    if !elf.is_static() {
        bail!(
            "{path} is loaded by {} and asks for {} libraries; an image has neither: {NO_LIBRARY}",
            elf.interpreter.as_deref().unwrap_or("nothing"),
            elf.libraries
        );
    }
    Ok(elf)
}

/// Static, and paths of this machine replaced by names: a setting for cargo. Relocations, which a
/// start reads all, are packed: glibc 2.36 or newer is needed where this links, and nowhere else.
fn flags(root: &Path, home: &Path) -> anyhow::Result<String> {
    let mut flags = vec![
        "-Ctarget-feature=+crt-static".to_owned(),
        "-Clink-arg=-Wl,-z,pack-relative-relocs".to_owned(),
    ];
    // The later one wins where both fit: the checkout may be in the home folder.
    for (path, name) in [(home, "/cargo"), (root, "/landfall")] {
        flags.push(format!("--remap-path-prefix={}={name}", path.display()));
    }
    // What is JSON here is TOML, too.
    Ok(format!(
        "build.rustflags={}",
        serde_json::to_string(&flags)?
    ))
}

fn cargo_home() -> anyhow::Result<PathBuf> {
    std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(".cargo")))
        .context("neither CARGO_HOME nor a home folder is set")
}

/// The target that this machine is.
async fn host() -> anyhow::Result<String> {
    let reported = stage::output(Command::new("rustc").arg("-vV")).await?;
    let host = reported
        .lines()
        .find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc does not say what this machine is")?;
    if !host.ends_with("-linux-gnu") {
        bail!("images are built on Linux with the GNU C library; this is {host}");
    }
    Ok(host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::elf::tests::file;
    use super::*;

    #[test]
    fn a_program_with_a_loader_is_refused_with_what_is_missing() {
        let bytes = file(62, &[(3, b"/lib64/ld-linux-x86-64.so.2\0")]);
        let error = validate(Path::new("landfall"), &bytes)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(
                "landfall is loaded by /lib64/ld-linux-x86-64.so.2 and asks for 0 libraries"
            ) && error.contains("libc6-dev"),
            "{error}"
        );
        assert!(validate(Path::new("landfall"), &file(62, &[])).is_ok());
        let error = validate(Path::new("a.sh"), b"#!/bin/sh").unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "a.sh can't be used: it is no ELF file"
        );
    }

    #[test]
    fn paths_of_the_builder_are_replaced() {
        let flags = flags(
            Path::new("/home/ada/my \"landfall\""),
            Path::new("/home/ada/.cargo"),
        );
        assert_eq!(
            flags.unwrap(),
            r#"build.rustflags=["-Ctarget-feature=+crt-static","-Clink-arg=-Wl,-z,pack-relative-relocs","--remap-path-prefix=/home/ada/.cargo=/cargo","--remap-path-prefix=/home/ada/my \"landfall\"=/landfall"]"#
        );
    }
}
